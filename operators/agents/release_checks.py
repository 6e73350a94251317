"""Which releases from outside can have been made as the settings say.

Strangers' claims, checked before they count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.release_times import Counts, Steady
from meanstream.operators.counters.base import Counter
from meanstream.operators.counters.decayed import Decayed
from meanstream.operators.records import Bools, Floats, Ints, ReleaseColumns
from meanstream.operators.validation import require

REASONS = (
    "impossible_index",
    "impossible_count",
    "impossible_total",
    "impossible_mean",
    "too_precise",
    "too_vague",
)
"""Why a release is not one that the settings allow; the first that holds is told."""

LARGEST_COUNT = 2**43
"""Sums of more samples are not exact in 64 bits: no one has that many."""

_CLOSE = 1e-9
"""What hosts whose libraries differ may differ by, relative to a number that both compute."""

_FARTHEST = 1000.0
"""Standard deviations: noise is drawn by inversion of 128 bits, and none lies farther out."""

_LEAST_PRECISE = 1e12
"""A release whose noise is that many times the settings' own says nothing; numbers beyond it are
not computed with."""


@dataclass(frozen=True)
class PossibleReleases:
    """Tells which releases can have been made with the settings that a federation has agreed on.

    Parameters
    ----------
    settings : AgentsSettings
        Bounds, counter, horizon, noise and schedule.
    max_samples : int, optional
        So many samples an agent has at most. By default as many as the last release of the budget
        needs; with a schedule of durations as many as sums are exact for.

    Notes
    -----
    A release is impossible if its index is beyond the horizon; its count is smaller than its index or larger than an
    agent's can be; its total is farther from what that many samples within the bounds add up to than noise can be; its
    mean is not the total divided by the count; its noise has less variance than the mechanism's at that index and
    count, or so much that it says nothing.

    **Privacy.** Releases are public and so is this. It bounds what a stranger can do to others' answers: a count or a
    precision that no one can have outweighs all honest releases.

    Examples
    --------
    >>> from dataclasses import replace
    >>> settings = AgentsSettings(lower=0, upper=10, epsilon=1, delta=1e-6)
    >>> possible = PossibleReleases(settings)
    >>> one, total = np.array([1]), np.array([10 * 2**19])
    >>> variance = settings.mean_variance(one, 10 * one)
    >>> mean = settings.grid.mean(total, 10 * one)
    >>> honest = ReleaseColumns(agent=one, index=one, count=10 * one, total=total, mean=mean, noise_variance=variance)
    >>> forged = replace(honest, noise_variance=variance / 2)
    >>> possible.reasons(honest).tolist(), possible.reasons(forged).tolist()
    ([''], ['too_precise'])
    """

    settings: AgentsSettings
    max_samples: int | None = None

    def __post_init__(self) -> None:
        limit = self.max_samples
        require(
            limit is None or 1 <= limit <= LARGEST_COUNT,
            "max_samples",
            f"lie in 1..{LARGEST_COUNT}",
            limit,
        )

    @cached_property
    def largest_count(self) -> int:
        """So many samples an agent has at most."""
        times = self.settings.times
        limit = LARGEST_COUNT if self.max_samples is None else self.max_samples
        if self.settings.remembers.kind == "window":
            return min(max(self.settings.remembers.samples or limit, 1), limit)
        if isinstance(times, Steady):
            return min(_largest_effective(times, self.settings.mechanism), limit)

        if isinstance(times, Counts):
            return min(int(times.times(self.settings.horizon)[-1]), limit)
        return limit

    def reasons(self, releases: ReleaseColumns) -> np.ndarray:
        """Say of each release why it is impossible, one of `REASONS`; an empty text for the others.

        Parameters
        ----------
        releases : ReleaseColumns
            Public, from anywhere; whole numbers of 64 bits and finite floats.

        Returns
        -------
        str array (n,)
        """
        grid = self.settings.grid
        late = (releases.index < 1) | (releases.index > self.settings.horizon)
        index = np.where(late, 1, releases.index)
        forgets = self.settings.remembers.forgets
        few = (releases.count < (1 if forgets else index)) | (releases.count > self.largest_count)
        count = np.where(few, 1 if forgets else index, releases.count)
        # Who has waited, or is silent, has less noise than the index says, never less than one
        # draw; weights add to no more than the effective number, which is rounded down.
        drawn = np.ones_like(index) if forgets else index
        least = self.settings.mean_variance(drawn, count + forgets)
        total = releases.total.astype(np.float64)

        with np.errstate(over="ignore"):  # a huge number is as wrong as infinity
            mean = grid.mean(total, count)
            off = np.abs(releases.mean - mean) > _CLOSE * (
                np.abs(mean) + abs(grid.lower) + abs(grid.upper)
            )
            vague = releases.noise_variance > _LEAST_PRECISE * least

        wrong = (
            late,
            few,
            self._too_far(index, count, total),
            off,
            releases.noise_variance < least * (1 - _CLOSE),
        )

        return np.select([*wrong, vague], list(REASONS), "")

    def _too_far(self, index: Ints, count: Ints, total: Floats) -> Bools:
        reach = _FARTHEST * np.sqrt(self.settings.sum_variance(index))
        return np.asarray(
            (total < -reach) | (total > count * float(self.settings.grid.span) + reach)
        )


def _largest_effective(times: Steady, counter: Counter) -> int:
    """Largest effective number of samples at any release.

    The weights after the early ones go to a limit.
    """
    assert isinstance(counter, Decayed)  # noqa: S101 - the caller has asked
    weight = 0.0
    squared = 0.0
    largest = 0.0
    before = 0

    for decay, count in zip((1.0, *counter.early), times.early, strict=True):
        weight, squared = decay * weight + count - before, decay * decay * squared + count - before
        before, largest = count, max(largest, weight * weight / squared)

    limit = times.gap * (1.0 + counter.decay) / (1.0 - counter.decay)
    return math.ceil(max(largest, limit)) + 1
