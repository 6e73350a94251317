"""A whole run of agents, audited.

First samples as canaries, and noise that must be independent of other noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import expit, ndtri

from meanstream.lab.evidence.audit_record import AuditRow
from meanstream.lab.evidence.canaries import COUNTED, Canaries, CanaryOutputs
from meanstream.lab.evidence.noise_draws import CountDraws
from meanstream.lab.evidence.noise_independence import NoiseIndependence, square_share
from meanstream.lab.evidence.one_run import (
    ALARM_ERROR,
    LEAST_CANARIES,
    gaussian_one_run,
    guesses_one_run,
    pure_guesses,
)
from meanstream.lab.evidence.single_draws import DeclaredLaw, SingleDraws, low_bits_fault
from meanstream.operators.agents.agents import Agents
from meanstream.operators.noise.distributions import NoiseDistribution
from meanstream.operators.noise.group_privacy import group_epsilon
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Bools, Floats, Ints

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
        faults = [self._single.fault(error), *(law.fault(error) for law in self._laws.values())]
        if self._published:
            index = np.arange(1, self.canaries.releases + 1)
            stddev = np.sqrt(self.canaries.settings.sum_variance(index))
            published = np.concatenate(self._published)
            faults.append(low_bits_fault(published, np.concatenate(self._exact), stddev, error))

        return [fault for fault in faults if fault]


CHUNK = 20_000
"""Agents at a time: what came out of them is a few hundred bytes each."""


CONTRAST_DELTA = 1e-6
"""Delta at which contrasts of draws are told where noise is pure."""
SURELY = 0.9999
"""Confidence in what independence is claimed of: there are several, and none is to look worse than
it is by chance."""


def canary_names(first: int, n: int) -> list[str]:
    """Name canaries."""
    return [f"canary {i}" for i in range(first, first + n)]


def run_canaries(
    canaries: Canaries, noise: KeyedNoise, coins: Ints, first: int = 0
) -> CanaryOutputs:
    """Run the class that makes all hosts' releases: engine, Beam, and both halves of a federation.

    Parameters
    ----------
    canaries : Canaries
        What the agents' samples are.
    noise : KeyedNoise
        Of a secret that is thrown away.
    coins : int array (agents, coins_each)
        0 or 1.
    first : int
        Number of the first canary, for its name.
    """
    settings = canaries.settings
    n = len(coins)
    agents = Agents(settings, noise, votes_alone=True)  # each is a host of one
    agents.add_agents(canary_names(first, n))
    outputs = CanaryOutputs.none(n, settings)
    index = np.repeat(np.arange(n), canaries.per_second)

    for second in range(canaries.seconds):
        persons = canaries.persons(second)
        whose = None if persons is None else np.tile(persons, n)
        values = canaries.values(second, coins).ravel()
        times = second + np.arange(canaries.per_second) / canaries.per_second  # pairs are by time
        releases = agents.update(index, values, np.tile(times, n), whose).releases
        outputs.take(
            releases.agent, releases.index, releases.total, releases.votes, releases.histogram
        )

    releases = agents.advance(canaries.seconds + 1.0).releases
    outputs.take(releases.agent, releases.index, releases.total, releases.votes, releases.histogram)
    return outputs


@dataclass
class CanaryEvidence:
    """Scores of the canaries of a run, collected in pieces.

    Plain numbers, whatever the size of the run.

    Attributes
    ----------
    canaries : Canaries
        What was run.
    what : str
        What it was run through, in words.
    """

    canaries: Canaries
    what: str

    def __post_init__(self) -> None:
        self._scores: list[Floats] = []
        self._coins: list[Ints] = []
        self._contrasts: dict[str, tuple[list[Floats], float]] = {}
        self._draws = KnownDraws(self.canaries)
        self._beyond = self._changed = self._missing = 0

    def take(self, outputs: CanaryOutputs, coins: Ints) -> None:
        """Take what came out about canaries, each with a key of its own."""
        whole = self._count_faults(outputs)
        outputs, coins = outputs.chosen(whole), coins[whole]
        if not len(coins):
            return

        pure = self.canaries.settings.pure
        self._scores.append(
            (self.canaries.likelihoods if pure else self.canaries.scores)(outputs, coins)
        )
        self._coins.append(coins[:, 0])
        noise = self.canaries.noise_left(outputs, coins)
        self._draws.take(outputs, coins, noise)
        pairs = len(coins) // 2

        if pairs:
            odd = slice(1, 2 * pairs, 2)
            even = slice(0, 2 * pairs, 2)
            self._add(
                "another agent", self.canaries.contrasts(noise[even], noise[odd], coins[even])
            )

        for kind in COUNTED:
            self._add(f"another bin of {kind}", self.canaries.bin_contrasts(kind, outputs, coins))

        if self.canaries.releases > 1:
            self._add("another release", self.canaries.release_contrasts(noise, coins))

    def take_again(
        self,
        name: str,
        outputs: CanaryOutputs,
        coins: Ints,
        *,
        again: Canaries,
        other: CanaryOutputs,
        others: Ints,
    ) -> None:
        """Take what came out of the same agents twice, of other inputs.

        In another life, or another deployment.
        """
        whole = self._count_faults(outputs) & self._count_faults(other)
        first = self.canaries.noise_left(outputs.chosen(whole), coins[whole])
        second = again.noise_left(other.chosen(whole), others[whole])
        self._add(name, self.canaries.contrasts(first, second, coins[whole]))

    def rows(self) -> Iterator[AuditRow]:
        """Give what was found."""
        settings = self.canaries.settings
        fault = self._fault()
        if not self._scores:
            yield self._nothing(fault or "no canary made all of its releases")
            return

        score = np.concatenate(self._scores)
        coins = np.concatenate(self._coins)
        if settings.pure:
            row = pure_guesses("engine", score, coins, epsilon=settings.epsilon, what=self.what)
            yield replace(row, fault=fault)
        else:
            reach = self.canaries.reach
            mu = self.canaries.claimed_mu
            row = gaussian_one_run(
                "engine",
                score,
                mu=mu,
                reach=reach,
                claimed=settings.epsilon,
                delta=settings.delta,
                what=self.what,
            )
            yield replace(row, fault=fault)
            yield self._guesses(score, mu)

        for other, (scores, mu) in self._contrasts.items():
            delta = settings.delta or CONTRAST_DELTA
            worth = group_epsilon(mu, delta)
            what = f"noise less that of {other}"
            name = f"engine.{other.replace(' ', '_')}"
            contrast = np.concatenate(scores)

            if len(contrast) >= LEAST_CANARIES:
                yield guesses_one_run(
                    name,
                    contrast,
                    mu=mu,
                    claimed=worth,
                    delta=delta,
                    what=what,
                    confidence=SURELY,
                )

    def _guesses(self, score: Floats, mu: float) -> AuditRow:
        epsilon = self.canaries.settings.epsilon
        delta = self.canaries.settings.delta
        return guesses_one_run(
            "engine.guesses", score, mu=mu, claimed=epsilon, delta=delta, what="first coins"
        )

    def _add(self, name: str, found: tuple[Floats, float]) -> None:
        score, mu = found
        if mu <= 0:  # the two are moved alike: their difference says nothing
            return

        if self.canaries.settings.pure:  # as often right as pure epsilon lets be
            mu = 2.0 * float(ndtri(expit(self.canaries.settings.epsilon)))

        self._contrasts.setdefault(name, ([], mu))[0].append(score)

    def _count_faults(self, outputs: CanaryOutputs) -> Bools:
        whole = self.canaries.complete(outputs)
        self._beyond += outputs.beyond
        self._changed += outputs.changed
        self._missing += int((~whole).sum())

        return whole

    def _fault(self) -> str | None:
        numbers = {
            "releases past the horizon": self._beyond,
            "release ids with a second value": self._changed,
            "canaries without all of their releases": self._missing,
        }

        counted = [f"{n:,} {what}" for what, n in numbers.items() if n]
        return ", ".join([*counted, *self._draws.faults()]) or None

    def _nothing(self, fault: str) -> AuditRow:
        settings = self.canaries.settings
        return AuditRow(
            name="engine",
            claimed=settings.epsilon,
            delta=settings.delta,
            proved=0.0,
            ceiling=0.0,
            method=self.what,
            assumption="none",
            fault=fault,
        )
