"""The draws of an audited run, all of which are known: compared with each other, and with their laws.

An audit that chose the samples can take them off what was released. What is left are the draws of
means, votes and histograms, up to rounding. Any two of one release must be independent, whatever
they are of, and each must have the whole law that was declared.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meanstream.lab.evidence.canaries import COUNTED, Canaries, CanaryOutputs
from meanstream.lab.evidence.noise_draws import CountDraws
from meanstream.lab.evidence.noise_independence import NoiseIndependence, square_share
from meanstream.lab.evidence.one_run import ALARM_ERROR
from meanstream.lab.evidence.single_draws import DeclaredLaw, SingleDraws, low_bits_fault
from meanstream.operators.noise.distributions import NoiseDistribution
from meanstream.operators.records import Floats, Ints

LEAST_NOISE = 1.0
"""Deviation, in the integers that are released, below which rounding hides the law."""


@dataclass
class KnownDraws:
    """Collects the draws of canaries, chunk by chunk.

    Parameters
    ----------
    canaries : Canaries
        What was run.
    """

    canaries: Canaries
    _single: NoiseIndependence = field(init=False)
    _laws: dict[str, SingleDraws] = field(init=False)
    _published: list[Ints] = field(default_factory=list)
    _exact: list[Ints] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.canaries.settings
        counted = {"votes": self.canaries.vote, "histograms": settings.histogram}
        noises = {kind: counts.noise for kind, counts in counted.items() if counts is not None}
        laws: dict[str, NoiseDistribution] = {"mean": settings.fresh, **noises}

        self._single = NoiseIndependence(square_share=min(map(square_share, laws.values())))
        self._laws = {
            kind: SingleDraws(DeclaredLaw(noise), f"draws of {kind}")
            for kind, noise in laws.items()
            if noise.variance >= LEAST_NOISE**2
        }

    def take(self, outputs: CanaryOutputs, coins: Ints, noise: Floats) -> None:
        """Take what came out about canaries that made all of their releases, and the noise that is left of it."""
        means = self.canaries.mean_draws(noise)
        if "mean" in self._laws:
            self._laws["mean"].take(means)

        counted: dict[str, CountDraws] = {}
        for kind in COUNTED:
            of_kind = self.canaries.count_draws(kind, outputs, coins)
            if of_kind is not None and kind in self._laws:
                counted[kind] = of_kind
                self._laws[kind].take(of_kind.draws)

        # Times are the same for all canaries, so a release is one place for all of them.
        for kind, of_kind in counted.items():
            for time, release in enumerate(of_kind.release[0].tolist()):
                bins = of_kind.draws.part(np.s_[:, time])
                self._single.take_together(f"bins of {kind}", bins)

                if "mean" in self._laws:
                    mean = means.part(np.s_[:, release - 1, np.newaxis])
                    self._single.take_across(("mean", f"bin of {kind}"), mean, bins)

                if kind == "votes" and "histograms" in counted:
                    others = counted["histograms"].draws.part(np.s_[:, time])
                    self._single.take_across(("bin of votes", "of histograms"), bins, others)

        if self.canaries.settings.kept is None and np.isfinite(outputs.totals).all():
            self._published.append(np.rint(outputs.totals).astype(np.int64))
            self._exact.append(self.canaries.exact_totals(coins))

    def faults(self) -> list[str]:
        """Say what is wrong with draws; of right ones something is said once in 1 / `ALARM_ERROR` audits."""
        error = ALARM_ERROR / (len(self._laws) + 2)
        found = [self._single.fault(error), *(law.fault(error) for law in self._laws.values())]
        if self._published:
            index = np.arange(1, self.canaries.releases + 1)
            stddev = np.sqrt(self.canaries.settings.sum_variance(index))
            published = np.concatenate(self._published)
            found.append(low_bits_fault(published, np.concatenate(self._exact), stddev, error))

        return [fault for fault in found if fault]
