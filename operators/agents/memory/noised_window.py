"""Noised sums over a sliding window.

Increments are noised exactly, and the window adds up those that lie in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanstream.operators.agents.memory.decay import ROUNDED, ReleasedSums
from meanstream.operators.agents.released_change_tests import (
    CHANGED,
    MOVED,
    NOTHING,
    WARNED,
    WARNING,
)
from meanstream.operators.counters.base import State
from meanstream.operators.counters.windowed import Sliding
from meanstream.operators.noise.distributions import GaussianNoise
from meanstream.operators.records import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class NoisedWindow:
    """Sums of the noised increments that lie in a window, and begin again where the mean has changed.

    Increments are kept in slots, oldest first; what releases close together add is in one slot.

    Parameters
    ----------
    counter : Sliding
        Noise of sums of the newest increments.
    fresh : GaussianNoise
        Of one draw, in grid units.
    slots : int
        Slots of a row.
    tests : bool
        Test the releases for a change of the mean; sums leave out what was before one.

    Notes
    -----
    **Privacy.** Only exact integers are noised, and integers come out: release k publishes, in effect, the increment
    `x_k + round((C^{-1} fresh)_k)`. Which increments are added up follows from counts, times and what is public
    already. All releases are a function of `C x + fresh` (`Sliding`). At a turn without samples nothing is drawn.

    A candidate for a change splits the sum in two, after 1, 2, 4, ... of its newest slots; as
    `ReleaseChanges` does, it compares the squared difference of the two means with its variance,
    with the exact covariance of the noise.

    Examples
    --------
    >>> from meanstream.operators.counters.base import ENDLESS
    >>> sums = NoisedWindow(Sliding(ENDLESS, window=2), GaussianNoise(1000.0), slots=2)
    >>> state, row = sums.init(1), np.array([0])
    >>> more = {"count": np.array([10]), "fresh": np.zeros(1), "joins": np.array([False])}
    >>> for k in (1, 2, 3):
    ...     told = sums.release(state, row, index=np.array([k]), total=np.array([700 * k]), sample=np.ones(1),
    ...                         left=np.zeros((1, 2), bool), **more)
    >>> told.count.tolist(), told.total.tolist()
    ([20], [3500])
    """

    counter: Sliding
    fresh: GaussianNoise
    slots: int
    tests: bool = True

    def init(self, n_rows: int) -> State:
        """State of rows that have not released: public, but for the noise of the `increments`."""
        slots = {
            name: np.zeros((n_rows, self.slots), np.int64) for name in ("counts", "noised", "parts")
        }
        return {**slots, **self.counter.init(n_rows)}

    def release(
        self,
        state: State,
        rows: Ints,
        *,
        index: Ints,
        count: Ints,
        total: Ints,
        fresh: Floats,
        joins: Bools,
        left: Bools,
        sample: Floats,
    ) -> ReleasedSums:
        """Release once for each of some rows.

        Parameters
        ----------
        state : State
            From `init`; changed in place.
        rows, index : int array, shape (m,)
            Distinct rows, and the number of this release of each, from 1.
        count, total : int array, shape (m,)
            Samples since the release before, and their exact sum in grid units.
        fresh : float array, shape (m,)
            One draw each.
        joins : bool array, shape (m,)
            Whether the increment belongs to the newest slot; else it begins one.
        left : bool array, shape (m, slots)
            Slots that have left the window, once there is room for a new one.
        sample : float array, shape (m,)
            Public bound on the variance of a sample, in squared grid units.
        """
        increment = total + np.rint(self.counter.increment(state, rows, fresh)).astype(np.int64)
        kept = {}
        for name, newest in (
            ("counts", count),
            ("noised", increment),
            ("parts", np.ones_like(count)),
        ):
            kept[name] = slots_with_room(state[name][rows], joins)
            kept[name][:, -1] += newest
            kept[name][left] = 0

        drift = (
            self._reset_changed(kept, index, sample)
            if self.tests
            else np.zeros(len(rows), np.int64)
        )

        for name, values in kept.items():
            state[name][rows] = values

        parts = kept["parts"].sum(axis=1)
        variance = self._covariance(parts, parts, index) * self.fresh.variance + ROUNDED * parts
        return ReleasedSums(
            kept["counts"].sum(axis=1), kept["noised"].sum(axis=1), variance, drift, index - parts
        )

    def _reset_changed(self, kept: State, index: Ints, sample: Floats) -> Ints:
        """Clear the slots before a change; say of each row whether there was one."""
        counts, noised, parts = (
            np.cumsum(kept[name][:, ::-1], axis=1) for name in ("counts", "noised", "parts")
        )
        largest = np.zeros(len(index))
        best = np.zeros(len(index), np.int64)
        newest = 1

        while newest < self.slots:
            after = counts[:, newest - 1]
            before = counts[:, -1] - counts[:, newest - 1]
            some = (after > 0) & (before > 0)
            a, c = (1.0 / np.where(some, number, 1) for number in (after, before))
            difference = noised[:, newest - 1] * a - (noised[:, -1] - noised[:, newest - 1]) * c
            part = np.where(some, parts[:, newest - 1], 1)

            whole = np.where(some, parts[:, -1], 1)
            both = a + c
            noise = both * both * self._covariance(part, part, index) + c * c * self._covariance(
                whole, whole, index
            )
            noise = noise - 2.0 * c * both * self._covariance(part, whole, index)
            ratio = difference * difference / (self.fresh.variance * noise + sample * both)
            ratio = np.where(some, ratio, 0.0)
            best = np.where(ratio > largest, newest, best)
            largest = np.maximum(largest, ratio)
            newest *= 2

        drift = np.where(largest > CHANGED, MOVED, np.where(largest > WARNING, WARNED, NOTHING))
        keep = np.where(drift == MOVED, best, self.slots)
        before_change = np.arange(self.slots) < self.slots - keep[:, np.newaxis]
        for values in kept.values():
            values[before_change] = 0

        return drift

    def _covariance(self, first: Ints, second: Ints, index: Ints) -> Floats:
        """Covariance of the noises of the newest that many increments, row by row, in draws."""
        found = np.zeros(len(index))
        pairs = first * (second.max(initial=0) + 1) + second
        for pair in np.unique(pairs):
            some = np.flatnonzero(pairs == pair)
            found[some] = self.counter.part_covariance(
                int(first[some[0]]), int(second[some[0]]), index[some]
            )

        return found


def slots_with_room(slots: np.ndarray, joins: Bools) -> np.ndarray:
    """Copy slots, each row a place to the left where a new one begins.

    The newest is empty there.
    """
    moved = np.concatenate([slots[:, 1:], np.zeros_like(slots[:, :1])], axis=1)
    return np.where(joins[:, np.newaxis], slots, moved)
