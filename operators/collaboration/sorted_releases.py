"""Everyone's newest release in a sorted array: what tests of equal means read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from meanstream.operators.records import Floats, Ints, ReleaseColumns
from meanstream.operators.validation import require

SNAPSHOT_VERSION = 1
_ARRAYS = ("agent", "count", "mean", "noise_variance")


@dataclass(slots=True, kw_only=True)
class SortedReleases:
    """Public: releases sorted by their count, noise and mean; mergeable.

    Releases of equal count and noise have equal variances, whatever the variance of one sample will
    be: each such group is sorted by its means, as `SameMeanTests` reads it. Sorting what is sorted
    in parts takes linear time.

    Attributes
    ----------
    agent, count : int array, shape (n,)
    mean, noise_variance : float array, shape (n,)
        As in `ReleaseColumns`.

    Examples
    --------
    >>> one = np.ones(2, dtype=np.int64)
    >>> some, others = (SortedReleases.of(ReleaseColumns(agent=one, index=one, count=4 * one, total=one,
    ...     mean=np.array(mean), noise_variance=np.zeros(2))) for mean in ([3.0, 1.0], [2.0, 4.0]))
    >>> some.merge(others)
    >>> some.mean.tolist()
    [1.0, 2.0, 3.0, 4.0]
    """

    agent: Ints
    count: Ints
    mean: Floats
    noise_variance: Floats

    @classmethod
    def of(cls, releases: ReleaseColumns) -> Self:
        """Sort releases, at most one of each agent."""
        summary = cls(**{name: getattr(releases, name) for name in _ARRAYS})
        summary._sort()
        return summary

    @property
    def n(self) -> int:
        """Number of releases."""
        return len(self.agent)

    def merge(self, other: SortedReleases) -> None:
        """Add the releases of other agents: commutative and associative."""
        for name in _ARRAYS:
            setattr(self, name, np.concatenate([getattr(self, name), getattr(other, name)]))

        self._sort()

    def subtract(self, other: SortedReleases) -> None:
        """Take out releases that were added before; `ValueError` if they were not."""
        left = columns_without(
            [getattr(self, n) for n in _ARRAYS], [getattr(other, n) for n in _ARRAYS]
        )
        for name, column in zip(_ARRAYS, left, strict=True):
            setattr(self, name, column)

        self._sort()

    def columns(self) -> ReleaseColumns:
        """Give what a fit reads; indices and sums it does not."""
        unread = np.ones(self.n, np.int64)
        return ReleaseColumns(
            index=unread, total=unread, **{name: getattr(self, name) for name in _ARRAYS}
        )

    def snapshot(self) -> dict[str, Any]:
        """Plain data: numbers and copies of arrays."""
        return {
            "version": SNAPSHOT_VERSION,
            **{name: getattr(self, name).copy() for name in _ARRAYS},
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """Make the same of its snapshot."""
        require(
            state["version"] == SNAPSHOT_VERSION,
            "snapshot version",
            f"be {SNAPSHOT_VERSION}",
            state["version"],
        )

        return cls(**{name: np.asarray(state[name]) for name in _ARRAYS})

    def _sort(self) -> None:
        order = np.lexsort((self.agent, self.mean, self.noise_variance, self.count))
        for name in _ARRAYS:
            setattr(self, name, getattr(self, name)[order])


def columns_without(columns: list[np.ndarray], taken: list[np.ndarray]) -> list[np.ndarray]:
    """Take rows out, each as often as it is taken.

    What is left is sorted by the last column, then the one before it.

    Examples
    --------
    >>> columns_without([np.array([3, 1, 1, 2])], [np.array([1, 3])])[0].tolist()
    [1, 2]
    """
    both = [np.concatenate(pair) for pair in zip(columns, taken, strict=True)]
    out = np.arange(len(both[0])) >= len(columns[0])
    order = np.lexsort((out, *both))
    both, out = [column[order] for column in both], out[order]
    fresh = np.ones(len(out), np.bool_)
    fresh[1:] = np.any([column[1:] != column[:-1] for column in both], axis=0)

    row = np.cumsum(fresh) - 1  # rows that are alike have one number
    many = np.bincount(row[out], minlength=int(row[-1]) + 1 if len(row) else 0)
    place = np.arange(len(row)) - np.flatnonzero(fresh)[row]
    kept = ~out & (place >= many[row])
    require(
        int(kept.sum()) == len(columns[0]) - len(taken[0]), "releases", "have been added", "others"
    )

    return [column[kept] for column in both]
