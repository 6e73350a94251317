"""Releases as counts in bins that do not depend on any other release: partial counts of many shards add up exactly."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from operators.learned_prior_bins import EXACT, CellPoints, Points, cell_level, octave_classes, octave_means, tally
from operators.records import Floats, Ints
from operators.validation import require, require_bounds

SNAPSHOT_VERSION = 1
_CLASSES = 1 << 14  # more than there are classes of either part
_ARRAYS = ("rows", "group", "cell", "number", "group_of_sums", "sums")


class ReleaseBins:
    """Everybody's newest release, as far as a fit of the population reads it; mergeable, to the last bit.

    Up to 512 releases are kept one by one. More are counted by cell of the mean and by class of both parts of their
    variance. All edges are fixed by the declared bounds and by powers of two, and all sums are of integers, so what
    merged partial counts hold does not depend on how the releases were split, nor on the order of the merges.

    Parameters
    ----------
    lower, upper : float
        Declared bounds of a sample, in the value's unit.

    Notes
    -----
    **Privacy.** Post-processing of the releases: it spends nothing.

    A cell is at most a quarter as wide as the standard deviation of the privacy noise of its class. Once the variance
    of one sample is known, `points` joins neighboring cells up to a quarter of the standard deviation of the whole.

    Examples
    --------
    >>> mean, count = np.random.default_rng(0).normal(0.5, 0.1, 10**5), np.full(10**5, 100)
    >>> halves = [ReleaseBins(0.0, 1.0), ReleaseBins(0.0, 1.0)]
    >>> for bins, part in zip(halves, (slice(0, 300), slice(300, None)), strict=True):
    ...     bins.update(mean[part], count[part], np.full(len(mean[part]), 0.01))
    >>> halves[0].merge(halves[1])
    >>> points = halves[0].points(0.5)
    >>> halves[0].n, len(points.mean) < 80
    (100000, True)
    """

    def __init__(self, lower: float, upper: float) -> None:
        require_bounds(lower, upper)
        self.lower, self.upper = lower, upper
        self._rows: Floats = np.zeros((3, 0))
        self._group, self._cell, self._number = (np.zeros(0, np.int64) for _ in range(3))
        self._group_of_sums: Ints = np.zeros(0, np.int64)
        self._sums: Ints = np.zeros((3, 0), np.int64)  # by group: releases, and the parts of their variances

    @property
    def n(self) -> int:
        """Number of releases."""
        return int(self._rows.shape[1] + self._sums[0].sum())

    def update(self, mean: Floats, count: Ints | Floats, noise_variance: Floats) -> None:
        """Add releases; what is no number is left out.

        Parameters
        ----------
        mean : float array, shape (n,)
            Released means.
        count : array, shape (n,)
            Samples in each; infinite where `noise_variance` is all of the variance.
        noise_variance : float array, shape (n,)
            Variance of the privacy noise.
        """
        rows = np.stack([mean, count, noise_variance]).astype(np.float64)
        usable = np.isfinite(rows[0]) & (rows[1] > 0) & np.isfinite(rows[2]) & (rows[2] >= 0)
        self._add(rows if usable.all() else rows[:, usable])

    def merge(self, other: ReleaseBins) -> None:
        """Add what another one over the same bounds holds: commutative and associative."""
        bounds = (self.lower, self.upper)
        require((other.lower, other.upper) == bounds, "bounds", f"be {bounds}", (other.lower, other.upper))
        self._add(other._rows)
        if len(other._group):
            self._count_rows()
            self._add_bins((other._group, other._cell, other._number), (other._group_of_sums, other._sums))

    def points(self, sample_variance: float) -> Points:
        """Give what a fit sees, once the variance of one sample is known; without releases of variance 0."""
        if not len(self._group):
            mean, count, noise = self._rows
            variance = sample_variance / count + noise
            usable = np.isfinite(variance) & (variance > 0)
            return Points(mean=mean[usable], variance=variance[usable], weight=np.ones(int(usable.sum())))
        return self._cells(sample_variance)

    def snapshot(self) -> dict[str, Any]:
        """Plain data: numbers and copies of arrays."""
        arrays = {name: getattr(self, f"_{name}").copy() for name in _ARRAYS}
        return {"version": SNAPSHOT_VERSION, "lower": self.lower, "upper": self.upper, **arrays}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """Make the same of its snapshot."""
        require(state["version"] == SNAPSHOT_VERSION, "snapshot version", f"be {SNAPSHOT_VERSION}", state["version"])
        bins = cls(state["lower"], state["upper"])
        for name in _ARRAYS:
            there = getattr(bins, f"_{name}")
            setattr(bins, f"_{name}", np.array(state[name], there.dtype).reshape(*there.shape[:-1], -1))
        return bins

    def _add(self, rows: Floats) -> None:
        self._rows = np.concatenate([self._rows, rows], axis=1)
        if len(self._group) or self._rows.shape[1] > EXACT:
            self._count_rows()
        else:
            self._rows = self._rows[:, np.lexsort(self._rows)]

    def _count_rows(self) -> None:
        """Put what was kept one by one into bins."""
        if not self._rows.shape[1]:
            return
        mean, count, noise = self._rows
        width = self.upper - self.lower
        (of_sampling, sampling), (of_noise, noise_part) = octave_classes(1 / count), octave_classes(noise / width**2)
        group = of_sampling * _CLASSES + of_noise
        cell = np.floor(np.ldexp((mean - self.lower) / width, -cell_level(of_noise).astype(np.int32))).astype(np.int64)
        self._rows = np.zeros((3, 0))
        bins, number = tally((group, cell), np.ones((1, len(group)), np.int64))
        groups, sums = tally((group,), np.stack([np.ones_like(group), sampling, noise_part]))
        self._add_bins((*bins, number[0]), (groups[0], sums))

    def _add_bins(self, bins: tuple[Ints, Ints, Ints], groups: tuple[Ints, Ints]) -> None:
        """Add counts of cells, and sums of groups."""
        key = tuple(np.concatenate(both) for both in zip((self._group, self._cell), bins[:2], strict=True))
        (self._group, self._cell), number = tally(key, np.concatenate([self._number, bins[2]])[None])
        self._number = number[0]
        joined = np.concatenate([self._group_of_sums, groups[0]])
        (self._group_of_sums,), self._sums = tally((joined,), np.concatenate([self._sums, groups[1]], axis=1))

    def _cells(self, sample_variance: float) -> Points:
        """Give the classes their total variance; join what is similar enough."""
        width = self.upper - self.lower
        number, sampling, noise = self._sums
        of_sampling, of_noise = np.divmod(self._group_of_sums, _CLASSES)
        variance = sample_variance / width**2 * octave_means(of_sampling, sampling, number)
        variance += octave_means(of_noise, noise, number)
        group = np.searchsorted(self._group_of_sums, self._group)
        usable = (np.isfinite(variance) & (variance > 0))[group]
        group, level = group[usable], cell_level(of_noise)
        return CellPoints.join(
            self._cell[usable], level[group], variance[group], self._number[usable], lower=self.lower, width=width
        )


def bin_releases(mean: Floats, variance: Floats, *, lower: float, upper: float) -> Points:
    """Give what a fit sees of releases whose total variances are known.

    Parameters
    ----------
    mean, variance : float array, shape (n_agents,)
        Releases whose variance is not finite and positive are left out.
    lower, upper : float
        Declared bounds of a sample.

    Examples
    --------
    >>> points = bin_releases(np.random.default_rng(0).normal(0, 1, 10**5), np.ones(10**5), lower=-5, upper=5)
    >>> points.total, len(points.mean) < 80
    (100000.0, True)
    """
    bins = ReleaseBins(lower, upper)
    bins.update(mean, np.full(len(mean), np.inf), variance)
    return bins.points(0.0)
