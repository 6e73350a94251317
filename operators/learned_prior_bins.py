"""Bins of releases: what a fit sees, so that it costs the same for 200 agents and for a million."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from operators.records import Floats, Ints

EXACT = 512
"""Up to this many releases are taken one by one."""
MOST_BINS = 1 << 15
MOST_COARSE_BINS = 1 << 11
VARIANCE_RATIO = 1.25
CELL = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Public: the releases a fit sees, binned or one by one.

    Attributes
    ----------
    mean, variance : float array
        Released mean and the total variance (sampling and privacy noise) with which it was released.
    weight : float array
        How many releases the point stands for.
    """

    mean: Floats
    variance: Floats
    weight: Floats

    @property
    def total(self) -> float:
        """Number of releases."""
        return float(self.weight.sum())


def bin_releases(mean: Floats, variance: Floats) -> Points:
    """Bin released means of similar variance on a grid of half their standard deviation.

    A bin's center is its means rounded, so it varies by a twelfth of the squared cell more than what it stands for;
    with that added to the variance, cells of half a standard deviation lose nothing that a million agents could show
    (Sheppard's correction; the next term is 1e-5 of the fourth moment). Where there would be too many bins the cells
    grow, and with them the variance: the fit stays honest and loses resolution.

    Parameters
    ----------
    mean, variance : float array, shape (n_agents,)
        Finite, variances positive.

    Examples
    --------
    >>> points = bin_releases(np.random.default_rng(0).normal(0, 1, 10**5), np.ones(10**5))
    >>> points.total, len(points.mean) < 30
    (100000.0, True)
    """
    if len(mean) <= EXACT:
        return Points(mean=mean, variance=variance, weight=np.ones(len(mean)))
    return _binned(mean, variance, None, spread=0.0, most=MOST_BINS)


def coarsen(points: Points, spread: float) -> Points:
    """Bin further for components of the given spread, which see no detail below `sqrt(variance + spread**2) / 2`."""
    if len(points.mean) <= EXACT:
        return points
    return _binned(points.mean, points.variance, points.weight, spread=spread, most=MOST_COARSE_BINS)


def _binned(mean: Floats, variance: Floats, weight: Floats | None, *, spread: float, most: int) -> Points:
    group, group_variance = _variance_groups(variance, weight, spread**2)
    cell = CELL
    while True:
        width = cell * np.sqrt(group_variance + spread**2)
        n_cells = np.floor(float(np.ptp(mean)) / width).astype(np.int64) + 1
        # Empty cells cost nothing in the end; far too many of them would cost memory.
        if n_cells.sum() <= 8 * most:
            points = _bin(mean, weight, group, group_variance, width, n_cells)
            if len(points.mean) <= most:
                return points
        cell *= 1.3


def _variance_groups(variance: Floats, weight: Floats | None, extra: float) -> tuple[Ints | None, Floats]:
    """Group variances within a ratio; the mean variance of each group. No index where all are equal."""
    least, most = float(variance.min()), float(variance.max())
    if most + extra <= (least + extra) * 1.02:
        return None, np.array([np.average(variance, weights=weight) if most > least else least])
    scaled = (variance + extra) * (1 / (least + extra))
    group = (np.log(scaled) * (1 / np.log(VARIANCE_RATIO))).astype(np.int64)
    count = np.bincount(group, weight)
    total = np.bincount(group, variance if weight is None else variance * weight)
    return group, np.where(count > 0, total / np.maximum(count, 1), most)


def _bin(  # noqa: PLR0917 - the parts of one histogram
    mean: Floats, weight: Floats | None, group: Ints | None, group_variance: Floats, width: Floats, n_cells: Ints
) -> Points:
    start = float(mean.min())
    offset = np.concatenate([[0], np.cumsum(n_cells)])
    if group is None:
        index = ((mean - start) * (1 / width[0])).astype(np.int64)
    else:
        index = ((mean - start) * (1 / width)[group]).astype(np.int64) + offset[:-1][group]
    count = np.bincount(index, weight)
    used = np.flatnonzero(count)
    of = np.searchsorted(offset, used, side="right") - 1
    return Points(
        mean=start + (used - offset[of] + 0.5) * width[of],
        variance=group_variance[of] + width[of] ** 2 / 12,
        weight=count[used].astype(np.float64),
    )
