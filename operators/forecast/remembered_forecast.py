"""What agents of given counts hold of their own samples, and in their newest release, by their memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meanstream.operators.agents.agent_memory import TURNS
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.half_life_memory import Outlook
from meanstream.operators.agents.release_times import Counts, Steady, require_samples_counted
from meanstream.operators.records import Floats, Ints

_MOST = 1e15
_SETTLED = 40 * TURNS
"""Steady releases after which what they hold does not change any more, to the last digits of a
forecast."""


@dataclass(frozen=True)
class Remembered:
    """Public: numbers of samples of equal weight, and noise, that follow from counts and settings.

    Parameters
    ----------
    settings : AgentsSettings
        With a schedule that counts samples. Means are taken to stay: nothing is left out for a
        change.

    Examples
    --------
    >>> known = {"lower": 0, "upper": 1, "epsilon": 1, "delta": 1e-6}
    >>> counts = np.array([100.0, 1e6])
    >>> for memory in ("forever", "half-life:1000", "window:1000"):
    ...     Remembered(AgentsSettings(**known, memory=memory)).own(counts).round().tolist()
    [100.0, 1000000.0]
    [100.0, 2882.0]
    [100.0, 1000.0]
    """

    settings: AgentsSettings

    def own(self, counts: Floats) -> Floats:
        """Give how many samples of equal weight agents with that many hold themselves."""
        kept = self.settings.kept
        if kept is None:
            return counts
        index = self.newest(counts)
        made = np.maximum(index, 1) - 1
        at = self._times.releases_up_to(np.floor(counts).astype(np.int64))
        since = counts - np.where(at > 0, self._times.at(np.maximum(at, 1)), 0)
        part = [np.where(index > 0, column[made], 0.0) for column in self._outlook[:2]]

        return kept.effective(index + 1, part[0], part[1], since)

    def needed(self, number: float) -> int | None:
        """Give with how many samples agents hold that many of equal weight, to 1 %.

        None where they never do.
        """

        def enough(count: float) -> bool:
            return float(self.own(np.array([count]))[0]) >= number * (1 - 1e-9)

        found = least_enough(enough, math.ceil(number), _MOST)

        if found is None:
            return None
        return math.ceil(found)

    def newest(self, counts: Floats | Ints) -> Ints:
        """Count the releases of agents with that many samples.

        Those after which nothing changes are one.
        """
        found = self._times.releases_up_to(np.floor(counts).astype(np.int64))
        return np.minimum(found, self._last)

    def released(self, index: Ints) -> tuple[Floats, Floats]:
        """Give how many samples of equal weight releases hold, and the variance of the noise in their means."""
        weight, squared, variance = (column[index - 1] for column in self._outlook)
        return weight * weight / squared, variance * (self.settings.grid.resolution / weight) ** 2

    @property
    def _times(self) -> Counts:
        return require_samples_counted(self.settings.times, self.settings.schedule)

    @property
    def _last(self) -> int:
        times = self._times

        if isinstance(times, Steady):
            return len(times.early) + _SETTLED
        return self.settings.horizon

    @cached_property
    def _outlook(self) -> Outlook:
        count = self._times.times(self._last)
        if self.settings.kept is not None:
            return self.settings.kept.outlook(count)
        number = count.astype(np.float64)

        return Outlook(number, number, self.settings.sum_variance(np.arange(1, self._last + 1)))


def least_enough(enough: Callable[[float], bool], low: float, high: float) -> float | None:
    """Bisect, in the logarithm, for the least number that is enough, to 1 %."""
    if not enough(high):
        return None
    if enough(low):
        return low

    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)

    return high
