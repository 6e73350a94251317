"""The law of the noise from public releases alone.

Its scale is what was promised, and single draws are independent.

Anyone who reads releases knows neither samples nor noise. But the mechanism's filter turns an
agent's sums into increments with fresh, independent noise, whose law is known; what an agent's mean
explains is taken off, and samples can only add to what is left. So what is left bounds the noise
from above, hence epsilon from below. What samples may add has a bound, too: draws that are larger
than with it, or go together, are not those that were promised.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaincinv

from meanstream.lab.evidence.audit_record import AuditRow
from meanstream.lab.evidence.noise_draws import (
    BLOCK,
    CountDraws,
    DrawsOfSums,
    NoiseDraws,
    draws_of_counts,
    public_sums,
)
from meanstream.lab.evidence.noise_independence import NoiseIndependence, square_share
from meanstream.lab.evidence.one_run import ALARM_ERROR, CONFIDENCE
from meanstream.lab.evidence.single_draws import DeclaredLaw, SingleDraws
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.own_histogram import SAMPLE_SENSITIVITY
from meanstream.operators.agents.vote_of_spread import BY_TIME, PAIR_SENSITIVITY
from meanstream.operators.noise.group_privacy import group_epsilon
from meanstream.operators.noise.keyed import GaussianNoise, LaplaceNoise
from meanstream.operators.records import VOTE_BINS, Floats, Ints, ReleaseColumns

MOST_RELEASES = 16
MOST_OF_MEMORY = 128
"""Of an agent, from its first: later ones comprise so many samples that these hide the noise; with
a memory that forgets, each adds as few as the one before."""
LEAST_FREEDOM = 1000
"""Degrees of freedom below which nothing is said of the scale."""
LEAST_NOISE = 1.0
"""Deviation, in units of the integers that are released: with less, rounding adds another variance
than a twelfth."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """Noised counts by bins that add up to a public number.

    How many bins, their noise, what moves them, of what.
    """

    bins: int
    noise: GaussianNoise | LaplaceNoise
    sensitivity: float
    of: str


def _counted(settings: AgentsSettings) -> dict[str, _Counted]:
    """Give what settings have of them."""
    vote = settings.vote
    histogram = settings.histogram
    norm = 2 if settings.noise == "gaussian" else 1
    counted = {}

    if vote is not None and settings.pairs == BY_TIME:  # else how many there are is not public
        counted["votes"] = _Counted(VOTE_BINS, vote.noise, PAIR_SENSITIVITY[norm], "pairs")

    if histogram is not None:
        counted["histograms"] = _Counted(
            histogram.bins, histogram.noise, SAMPLE_SENSITIVITY[norm], "samples"
        )

    return counted


@dataclass(frozen=True, slots=True)
class _Scale:
    """The scale of noise, as seen: what it proves of epsilon.

    Attributes
    ----------
    claim : float
        Epsilon, or the Gaussian-DP parameter, that the declared scale is worth.
    ratio, freedom, squares : float, int, float
        Mean square of draws in declared variances, of how many, and of how many normal ones that
        says as much.
    delta : float
        0 for pure privacy.
    """

    claim: float
    ratio: float
    freedom: int
    squares: float
    delta: float

    def epsilon_of(self, claim: float) -> float:
        """Turn a claim into epsilon at delta."""
        return group_epsilon(claim, self.delta) if self.delta else claim

    def told(self, why: str, bound: str = "") -> str:
        """Say the scale in words, or why it is unknown."""
        if self.freedom < LEAST_FREEDOM:
            return f"unknown: {why}"
        return f"{bound}{math.sqrt(self.ratio):.4f} of the declared one"

    def proved(self) -> dict[str, Any]:
        """Give the bounds of an `AuditRow`."""
        kinds = {
            "proved": (self.ratio, 1.0 - CONFIDENCE),
            "ceiling": (1.0, 1.0 - CONFIDENCE),
            "alarm": (self.ratio, ALARM_ERROR),
        }
        if self.freedom < LEAST_FREEDOM:
            return dict.fromkeys(kinds, 0.0)
        return {
            kind: self.epsilon_of(self.claim / _most_scale(share, self.squares, error))
            for kind, (share, error) in kinds.items()
        }


class NoiseLaw:
    """Adds up, agent by agent, how large what is left of the releases is, in units of the declared noise.

    Parameters
    ----------
    settings : AgentsSettings
        What was declared.
    most : int, optional
        Releases of an agent that are looked at, from its first; default: as many as noise shows in.

    Examples
    --------
    >>> from meanstream.operators.agents.agents import Agents
    >>> from meanstream.operators.noise.keyed import KeyedNoise
    >>> settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, horizon=3)
    >>> key = bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d")
    >>> agents = Agents(settings, KeyedNoise(key, deployment="doc", purpose="agents"))
    >>> agents.add_agents([f"agent {i}" for i in range(2000)])
    >>> samples = np.repeat(np.arange(2000), 20), np.random.default_rng(1).beta(2, 2, 40_000), np.zeros(40_000)
    >>> law = NoiseLaw(settings)
    >>> law.take(agents.update(*samples).releases)
    >>> law.row("releases").violated
    False
    """

    neighbors = "of two agents"
    """What releases with the numbers 2 i and 2 i + 1 are of."""

    def __init__(self, settings: AgentsSettings, *, most: int | None = None) -> None:
        self._settings = settings
        if most is None:
            most = MOST_OF_MEMORY if settings.remembers.forgets else MOST_RELEASES

        self._most = min(settings.horizon, most)
        self._unknown = (
            "less than the integers' rounding" if settings.fresh.variance < LEAST_NOISE**2 else None
        )
        self._parts: list[tuple[Ints | Floats, ...]] = []
        self._counted = _counted(settings)
        self._counts: dict[str, list[Ints]] = {kind: [] for kind in self._counted}

    def take(self, releases: ReleaseColumns) -> None:
        """Take releases, in any order, each id once."""
        for kind, counts in self._counts.items():
            said = releases.votes if kind == "votes" else releases.histogram
            columns = np.column_stack([releases.agent, releases.index, said])
            counts.append(_each_time(columns[said[:, 0] > 0]))

        if self._unknown is not None:
            return
        resolution = self._settings.grid.resolution
        variance = releases.noise_variance * (releases.count / resolution) ** 2
        fields = (
            releases.agent,
            releases.index,
            releases.count,
            releases.total.astype(np.float64),
            variance,
        )
        early = (releases.index >= 1) & (releases.index <= self._most)
        self._parts.append(tuple(field[early] for field in fields))

    def row(self, name: str) -> AuditRow:
        """Say what the releases prove."""
        settings = self._settings
        noises = [settings.fresh, *(counted.noise for counted in self._counted.values())]
        single = NoiseIndependence(square_share=min(map(square_share, noises)))
        law = SingleDraws(DeclaredLaw(settings.fresh), "releases")
        means: list[NoiseDraws] = []
        left, freedom = self._left(single, law, means)

        self._compare_kinds(single, means)
        self._compare_further(single)
        # A classical calibration has more noise than it has to: what is proved is of the noise.
        scale = _Scale(
            claim=settings.epsilon if settings.mu is None else settings.mu,
            ratio=left / max(freedom, 1),
            freedom=freedom,
            squares=freedom * square_share(settings.fresh),
            delta=0.0 if settings.pure else settings.delta,
        )
        in_words = scale.told(self._unknown or "too few releases", "at most ")

        return AuditRow(
            name=name,
            claimed=settings.epsilon,
            delta=scale.delta,
            **scale.proved(),
            method=f"scale of the noise {in_words}, {_said(freedom, single)}",
            assumption="samples lie within the bounds, so they only add to the visible noise",
            fault=single.fault(ALARM_ERROR / 2) or law.fault(ALARM_ERROR / 2),
        )

    def rows_of_counts(self, name: str) -> Iterator[AuditRow]:
        """Say what votes and histograms prove, where there are some.

        Each row has the name and what it is of.
        """
        for kind in self._counted:
            yield self.row_of_counts(kind, f"{name}.{kind}")

    def row_of_counts(self, kind: str, name: str) -> AuditRow:
        """Say what "votes" or "histograms" prove.

        Every pair, or sample, is in one bin, and how many there are is public: what the bins add up
        to beyond that is noise, whatever the samples are.
        """
        settings = self._settings
        counted = self._counted[kind]
        stddev = math.sqrt(counted.noise.variance)
        rounds = stddev < LEAST_NOISE

        single = NoiseIndependence(square_share=square_share(counted.noise))
        law = SingleDraws(DeclaredLaw(counted.noise), kind)
        left, freedom = (0.0, 0) if rounds else self._left_of_counts(kind, single, law)
        unit = counted.noise.scale if isinstance(counted.noise, LaplaceNoise) else stddev
        scale = _Scale(
            claim=counted.sensitivity * (settings.per_person or 1) / unit,
            ratio=left / max(freedom, 1),
            freedom=freedom,
            squares=freedom * square_share(counted.noise),
            delta=0.0 if isinstance(counted.noise, LaplaceNoise) else settings.delta,
        )
        in_words = scale.told("less than the integers' rounding" if rounds else f"too few {kind}")

        return AuditRow(
            name=name,
            claimed=scale.epsilon_of(scale.claim),
            delta=scale.delta,
            **scale.proved(),
            method=f"scale of the noise in {kind} {in_words}, {_said(freedom, single)}",
            assumption=f"none of the samples: bins add up to the public number of {counted.of}",
            fault=single.fault(ALARM_ERROR / 4)
            or law.fault(ALARM_ERROR / 4)
            or _fault_of_scale(scale.ratio, freedom, ALARM_ERROR / 2),
        )

    def _draws_of(self, kind: str) -> Iterator[CountDraws]:
        """Give the draws of "votes" or "histograms", some agents at a time."""
        return draws_of_counts(self._said(kind), math.sqrt(self._counted[kind].noise.variance))

    def _said(self, kind: str) -> Ints:
        """Give agent, release and counts so far, of each time that counts were noised."""
        none = np.zeros((0, 4 + self._counted[kind].bins), np.int64)
        return _each_time(np.concatenate([none, *self._counts[kind]]))

    def _compare_further(self, single: NoiseIndependence) -> None:
        """Compare draws that meet in other ways than as releases of an agent."""

    def _compare_kinds(self, single: NoiseIndependence, means: list[NoiseDraws]) -> None:
        """Compare the draws of one release with each other, across kinds."""
        counted = {
            kind: list(self._draws_of(kind))
            for kind, counts in self._counted.items()
            if math.sqrt(counts.noise.variance) >= LEAST_NOISE
        }

        for kind, blocks in counted.items():
            for of_means, of_bins in zip(means, blocks, strict=False):
                agent, time, release = of_bins.of_releases(*of_means.seen.shape)
                of_release = of_means.part((agent, release)).part(np.s_[:, np.newaxis])
                of_each_bin = of_bins.draws.part((agent, time))
                single.take_across(("mean", f"bin of {kind}"), of_release, of_each_bin)

        if len(counted) < 2:
            return

        for votes, histograms in zip(*counted.values(), strict=False):
            agent, time, release = votes.of_releases(BLOCK, np.iinfo(np.int64).max)
            same = histograms.release[agent] == release[:, np.newaxis] + 1
            row, other_time = np.nonzero(same)
            of_each_bin = votes.draws.part((agent[row], time[row]))
            of_others = histograms.draws.part((agent[row], other_time))
            single.take_across(("bin of votes", "of histograms"), of_each_bin, of_others)

    def _left_of_counts(
        self, kind: str, single: NoiseIndependence, law: SingleDraws
    ) -> tuple[float, int]:
        """Sum of squares of what bins add up to beyond what they count, in variances of that, and its freedom."""
        said = self._said(kind)
        counted = self._counted[kind]
        agent = said[:, 0]
        number = said[:, 2]
        beyond = said[:, 4:].sum(axis=1) - said[:, 3]

        for draws, _ in self._draws_of(kind):
            single.take_sizes(draws)
            law.take(draws)
            together = draws.part(draws.usable[:, :, 0])
            single.take_together("bins", together)

            for bin_number in range(counted.bins):
                single.take_in_turn(kind, draws.part(np.s_[:, :, bin_number]))

        same = np.diff(agent, prepend=-1) == 0
        new = np.where(same, np.diff(number, prepend=0), number)
        noise = np.where(same, np.diff(beyond, prepend=0), beyond).astype(np.float64)
        noised = new > 0
        of_one = counted.bins * (counted.noise.variance + 1 / 12)

        return float((noise[noised] ** 2 / new[noised]).sum()) / of_one, int(noised.sum())

    def _left(
        self, single: NoiseIndependence, law: SingleDraws, means: list[NoiseDraws]
    ) -> tuple[float, int]:
        """Sum of squares beyond each agent's mean, in variances of a draw, and its degrees of freedom."""
        left = 0.0
        freedom = 0
        if not self._parts:
            return left, freedom

        agent, index, *columns = (
            np.concatenate(columns_of_parts) for columns_of_parts in zip(*self._parts, strict=True)
        )
        solved = DrawsOfSums(self._settings, self._most)
        for sums in public_sums(agent, index, tuple(columns), self._most):
            draws = solved.of(sums)
            single.take_sizes(draws)
            single.take_in_turn("releases", draws, self.neighbors)
            law.take(draws)
            means.append(draws)

            # What comes after increments whose samples could vary more than the noise is not used.
            usable = draws.usable & np.logical_and.accumulate(
                draws.added <= self._most_added, axis=1
            )
            seen, size = (
                np.where(usable, columns_of_parts, 0.0)
                for columns_of_parts in (draws.seen, draws.size)
            )
            length = (size**2).sum(axis=1)
            fitted = (seen * size).sum(axis=1) ** 2 / np.where(length > 0, length, 1.0)
            left += float(((seen**2).sum(axis=1) - fitted).sum())
            freedom += int(np.maximum(usable.sum(axis=1) - 1, 0).sum())

        return left, freedom

    @property
    def _most_added(self) -> float:
        """Samples of a release that vary less than its noise."""
        return max(2.0, self._settings.fresh.variance / self._settings.grid.span**2)


def _each_time(said: Ints) -> Ints:
    """Give each noising of an agent's counts once, with its first release, in the order of agents.

    Releases repeat it until the next.
    """
    said = said[np.lexsort((said[:, 1], said[:, 2], said[:, 0]))]
    new = np.diff(said[:, 0], prepend=-1) != 0
    new |= np.diff(said[:, 2], prepend=-1) != 0
    each: Ints = said[new]

    return each


def _said(freedom: int, single: NoiseIndependence) -> str:
    return f"{freedom:,} degrees of freedom, {single.comparisons:,} pairs of draws compared"


def _fault_of_scale(ratio: float, freedom: int, error: float) -> str | None:
    """Say that noise is larger than declared, where chance has no part in it.

    Smaller noise is a matter of epsilon.
    """
    if freedom < LEAST_FREEDOM or ratio * 0.5 * freedom <= gammaincinv(0.5 * freedom, 1.0 - error):
        return None

    return f"noise of {math.sqrt(ratio):.2f} times the declared scale"


def _most_scale(share: float, squares: float, error: float) -> float:
    """Bound a scale from above by the mean of that many squares of normal draws.

    Wrong with probability `error`.
    """
    return math.sqrt(max(share * 0.5 * squares / float(gammaincinv(0.5 * squares, error)), 1e-12))
