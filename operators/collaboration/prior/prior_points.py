"""What a fit sees of releases.

Points with weights; in cells that are joined where components are wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.validation import require

EXACT = 512
"""Up to this many releases are taken one by one."""
MOST_BINS = 1 << 15
MOST_COARSE_BINS = 1 << 11
FINER = 2
"""Cells that joined for a spread are halved that many times: spreads are compared by likelihoods,
and what cells of a quarter of a standard deviation change in those of a million releases is
hundreds."""
FINEST = -40
"""Cells are no narrower than 2**-40 of the bounds, so that their numbers are integers of 64
bits."""
PARTS = 6
"""Releases are counted in sixths: one that is spread lies to two thirds where it was,"""
NODE = math.sqrt(3.0)
"""and to a sixth each that many standard deviations to either side (Gauss and Hermite's rule of
three nodes)."""
_QUARTERS = 4
_BITS = 31
_WIDEST = 1 << 48
_DENSE = 8  # times as many places as entries: tables are faster than sorting
_SHIFT = 1 << 13  # makes classes positive; 0 is the class of 0


class Moments(NamedTuple):
    """Public: releases in groups of like variance.

    That variance, how many, their mean, squared deviations from it.
    """

    variance: Floats
    number: Floats
    mean: Floats
    squares: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Public: the releases a fit sees, one by one.

    Attributes
    ----------
    mean, variance : float array
        Released mean and the total variance (sampling and privacy noise) with which it was
        released.
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

    @classmethod
    def spread_by(cls, raised: Floats, *, mean: Floats, variance: Floats) -> Points:
        """Take releases for less precise than they say.

        Each is spread by what its variance was raised.

        Their variances are `variance` then, and what they show of the population's spread is as
        before.
        """
        # Two points on either side and one in the middle: the mean stays, the variance grows.
        some = raised > 1e-9 * variance
        away = NODE * np.sqrt(raised[some])
        return Points(
            mean=np.concatenate([mean, mean[some] - away, mean[some] + away]),
            variance=np.concatenate([variance, variance[some], variance[some]]),
            weight=np.concatenate(
                [np.where(some, 1 - 2 / PARTS, 1.0), np.full(2 * len(away), 1 / PARTS)]
            ),
        )

    def moments(self) -> Moments:
        """Give number, mean and squares of the releases of each variance."""
        return Moments(self.variance, self.weight, self.mean, np.zeros_like(self.mean))

    def coarser(self, spread: float) -> Points:  # noqa: ARG002 - what is not in cells stays as it is
        """Give what components of the given spread can tell apart."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPoints(Points):
    """Public: releases counted by cell; a point is the center of one.

    A mean is rounded to the center of its cell, so it varies by a twelfth of the squared cell more
    than what it stands for; with that added to the variance, cells of a quarter of a standard
    deviation lose half a percent of what the releases show (Sheppard's correction; the next term is
    below 1e-6 of the fourth moment).

    Attributes
    ----------
    cell : int array
        From `lower`, in units of `2**level * width`.
    group : int array
        Of which of the groups of similar variance, shape (n_groups,), that follow.
    group_level : int array
        Widths of the cells of each, as powers of two.
    group_variance : float array
        Variance without that of the rounding, in units of the squared width.
    lower, width : float
        Of the declared bounds.
    """

    cell: Ints
    group: Ints
    group_level: Ints
    group_variance: Floats
    lower: float
    width: float

    @property
    def level(self) -> Ints:
        """Width of each cell as a power of two."""
        return self.group_level[self.group]

    @classmethod
    def join(
        cls, cell: Ints, group: Ints, number: Ints, *, level: Ints, variance: Floats, lower: float, width: float,
        spread: float = 0.0, finer: int = 0, most: int = MOST_BINS,
    ) -> Self:  # fmt: skip
        """Join groups of similar variance, and neighboring cells up to a quarter of the standard deviation.

        `level` and `variance` are those of the groups; `number` counts in parts of releases,
        `PARTS` to one.

        Where there would be too many, cells grow, and with them the variance: the fit stays honest
        and loses resolution. Cells are halves of cells, so that joining them rounds nothing twice.
        """
        # Groups whose variances lie within a quarter of an octave become one.
        totals, place = np.unique(
            prior_point_octave_classes(variance + (spread / width) ** 2)[0], return_inverse=True
        )
        size = np.bincount(group, number, len(variance))
        average = np.bincount(place, variance * size) / np.maximum(np.bincount(place, size), 1)
        wide = prior_point_cell_level(totals) - finer
        np.maximum.at(wide, place, level)

        # Cells are joined, twice as wide each time, until there are few enough.
        while True:
            shift = np.minimum(wide[place] - level, 62)
            (of, joined), (found,) = tally_prior_points(
                (place[group], cell >> shift[group]), number[None]
            )

            if len(of) <= most:
                break
            wide += 1

        # The middle of a cell, and what rounding to it adds to the variance.
        cells = np.asarray(np.ldexp(1.0, wide.astype(np.int32)), dtype=np.float64)
        return cls(
            mean=lower + width * ((joined + 0.5) * cells[of]),
            variance=(width**2 * (average + cells**2 / 12))[of],
            weight=found / PARTS,
            cell=joined,
            group=of,
            group_level=wide,
            group_variance=average,
            lower=lower,
            width=width,
        )

    def moments(self) -> Moments:
        """Give number, mean and squares of the releases of each group.

        What cells add to squares is in the variance.
        """
        n = len(self.group_variance)

        # Sums by group, which the fit reads instead of the releases.
        number = np.bincount(self.group, self.weight, n)
        some = np.flatnonzero(number)

        mean = np.bincount(self.group, self.weight * self.mean, n) / np.maximum(number, 1 / PARTS)
        squares = np.bincount(self.group, self.weight * (self.mean - mean[self.group]) ** 2, n)
        variance = np.bincount(self.group, self.weight * self.variance, n) / np.maximum(
            number, 1 / PARTS
        )
        columns = (
            np.asarray(column[some], dtype=np.float64)
            for column in (variance, number, mean, squares)
        )

        return Moments(*columns)

    def coarser(self, spread: float) -> CellPoints:
        """Join cells as far as components of the given spread see no detail in them."""
        if len(self.mean) <= EXACT:
            return self
        return self.join(
            self.cell, self.group, np.rint(PARTS * self.weight).astype(np.int64), level=self.group_level,
            variance=self.group_variance, lower=self.lower, width=self.width, spread=spread, finer=FINER,
            most=MOST_COARSE_BINS,
        )  # fmt: skip


def prior_point_octave_classes(value: Floats) -> tuple[Ints, Ints]:
    """Class of each number, a quarter of an octave, and an integer of 31 bits that tells where it lies in its octave.

    Exponent and leading bits are the same on every machine; a logarithm may not be. 0 has a class
    of its own.

    Examples
    --------
    >>> of, place = prior_point_octave_classes(np.array([0.0, 1.0, 1.2, 1.3]))
    >>> (of - of[1]).tolist()[1:], prior_point_octave_means(of, place, np.ones(4)).round(6).tolist()
    ([0, 0, 1], [0.0, 1.0, 1.2, 1.3])
    """
    # A float by its exponent and a quarter of its mantissa.
    mantissa, exponent = np.frexp(value)
    quarter = ((mantissa - 0.5) * (2 * _QUARTERS)).astype(np.int64)
    some = value > 0
    of = np.where(some, exponent.astype(np.int64) * _QUARTERS + quarter + _SHIFT, 0)

    return of, np.where(some, np.ldexp(mantissa, _BITS), 0.0).astype(np.int64)


def prior_point_octave_means(of: Ints, total: Ints, number: Ints) -> Floats:
    """Mean of numbers of a class, from the sum of their integers."""
    exponent = (of - _SHIFT) // _QUARTERS - _BITS
    return np.asarray(
        np.ldexp(total / number, np.where(of > 0, exponent, 0).astype(np.int32)), dtype=np.float64
    )


def prior_point_cell_level(of: Ints) -> Ints:
    """Width of a cell as a power of two.

    From an eighth to a quarter of the least standard deviation of a class.
    """
    exponent = (of - _SHIFT) // _QUARTERS
    return np.asarray(np.maximum((exponent - 1) // 2 - 2, FINEST), dtype=np.int64)


def tally_prior_points(keys: tuple[Ints, ...], values: Ints) -> tuple[tuple[Ints, ...], Ints]:
    """Add up integers, one row of `values` after the other, by key; the keys in increasing order.

    Examples
    --------
    >>> keys, sums = tally_prior_points((np.array([1, 0, 1]), np.array([5, 9, 5])), np.array([[1, 2, 3]]))
    >>> [key.tolist() for key in keys], sums.tolist()
    ([[0, 1], [9, 5]], [[2, 4]])
    """
    if not values.shape[1]:
        # Keys by their distance from the least, so that they fit into one integer.
        return keys, values
    low = [int(key.min()) for key in keys]
    shape = [int(key.max()) - least + 1 for key, least in zip(keys, low, strict=True)]
    size = math.prod(shape)

    if size >= 2**62:  # rare: no one integer holds all keys
        order = np.lexsort(keys[::-1])
        starts = _starts([key[order] for key in keys])
        sums = np.add.reduceat(values[:, order], starts, axis=1)
        return tuple(key[order[starts]] for key in keys), sums

    # All keys as one integer: sums are found by index or by one sort.
    place = np.ravel_multi_index(
        tuple(key - least for key, least in zip(keys, low, strict=True)), shape
    )
    if size <= _DENSE * len(place):  # dense: no sorting
        used = np.flatnonzero(np.bincount(place, minlength=size))
        sums = np.zeros((len(values), size), np.int64)
        for row, value in zip(sums, values, strict=True):
            np.add.at(row, place, value)

        sums = sums[:, used]
    else:
        order = np.argsort(place, kind="stable")
        starts = _starts([place[order]])
        used = place[order[starts]]
        sums = np.add.reduceat(values[:, order], starts, axis=1)

    return tuple(
        k + least for k, least in zip(np.unravel_index(used, shape), low, strict=True)
    ), sums


def count_prior_point_cells(group: Ints, cell: Ints) -> tuple[Ints, Ints, Ints]:
    """Count how often each cell of each group occurs; in increasing order of group and cell.

    Examples
    --------
    >>> [part.tolist() for part in count_prior_point_cells(np.array([7, 3, 7]), np.array([5, 9, 5]))]
    [[3, 7], [9, 5], [1, 2]]
    """
    # Where groups are dense, each has a stretch of a table.
    low = int(group.min())
    width = int(cell.max()) - int(cell.min())
    if int(group.max()) - low <= _DENSE * len(group) and width < _WIDEST:
        present = np.bincount(group - low) > 0
        groups = np.flatnonzero(present)
        of = (np.cumsum(present) - 1)[group - low]
        first = np.full(len(groups), cell.max())
        last = np.full(len(groups), cell.min())
        np.minimum.at(first, of, cell)
        np.maximum.at(last, of, cell)
        ends = np.cumsum(last - first + 1)

        if ends[-1] <= _DENSE * len(group):  # no sorting: each group has its stretch
            start = ends - (last - first + 1)
            number = np.bincount((start - first)[of] + cell)
            used = np.flatnonzero(number)
            of = np.searchsorted(ends, used, side="right")

            return groups[of] + low, used - (start - first)[of], number[used]

    keys, sums = tally_prior_points((group, cell), np.ones((1, len(group)), np.int64))
    return keys[0], keys[1], sums[0]


def _starts(ordered: list[Ints]) -> Ints:
    """Where keys in order begin to differ."""
    first: Bools = np.ones(len(ordered[0]), np.bool_)
    first[1:] = np.any([key[1:] != key[:-1] for key in ordered], axis=0)
    return np.flatnonzero(first)


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
    out = out[order]
    both = [column[order] for column in both]

    # Rows that are alike follow one another: as many of the first as are taken go.
    starts = _starts(both)
    size = np.diff(starts, append=len(out))
    to_take = np.add.reduceat(out.astype(np.int64), starts) if len(out) else starts
    number = np.arange(len(out)) - np.repeat(starts, size)
    kept = ~out & (number >= np.repeat(to_take, size))
    require(
        int(kept.sum()) == len(columns[0]) - len(taken[0]), "releases", "have been added", "others"
    )

    return [column[kept] for column in both]
