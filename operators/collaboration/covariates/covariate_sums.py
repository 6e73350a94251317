"""Releases summed up by the columns of public attributes, and by pairs of columns.

As integers, by class of noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from meanstream.operators.collaboration.covariates.covariate_design import Attribute, Category
from meanstream.operators.records import AnyInts, Floats, Ints

_GRID_BITS = 20
_SPLIT_BITS = 24
"""Releases are counted in 2**-20 of the bounds; their squares are added up in two words."""
_MOST = 2**31 - 1
_BLOCK = 1 << 17
"""Releases that are counted at a time."""
_QUARTERS = 4
_LEAST_VARIANCE = 2.0**-60
_MOST_VARIANCE = 2.0**40

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CovariateSums:
    """Public: sums over releases, the same in any order.

    Attributes
    ----------
    noise_class : int array, shape (n_classes,)
        Quarter octaves of the variance of a release, in squared widths of the bounds; increasing.
    number, total : int array, shape (n_classes,)
        Releases, and the sum of their means above the lower bound, on the grid.
    squares : int array, shape (n_classes, 2)
        Sum of squares of these means: high and low words.
    numeric : list of bool
        By attribute: whether its first column is a number.
    centers : list of int
        By attribute: the code of a number that its column is counted from.
    numbers, own_squares, totals : list of int array, shape (n_classes, n_columns)
        By attribute: sums of its columns, of their squares, and of their products with the means.
        The columns of one attribute exclude each other: their own products are 0.
    pairs : dict of (int, int) to int array, shape (n_classes, n_columns, n_columns)
        Sums of products of the columns of two attributes.
    """

    noise_class: Ints
    number: Ints
    total: Ints
    squares: Ints
    numeric: list[bool]
    centers: list[int]
    numbers: list[Ints]
    own_squares: list[Ints]
    totals: list[Ints]
    pairs: dict[Pair, Ints]

    @classmethod
    def of(
        cls,
        attributes: Sequence[Attribute],
        codes: Sequence[AnyInts],
        place: Floats,
        variance: Floats,
    ) -> CovariateSums:
        """Sum up releases.

        Parameters
        ----------
        attributes : sequence of attributes
        codes : sequence of int array, shape (n,)
            Of each attribute.
        place : float array, shape (n,)
            Released means above the lower bound, in widths of the bounds.
        variance : float array, shape (n,)
            Their variances, in squared widths.
        """
        usable = np.isfinite(place) & np.isfinite(variance) & (variance > 0)
        if not usable.all():
            place, variance, codes = (
                place[usable],
                variance[usable],
                [code[usable] for code in codes],
            )

        octave = np.floor(
            _QUARTERS * np.log2(np.clip(variance, _LEAST_VARIANCE, _MOST_VARIANCE))
        ).astype(np.int64)
        low = int(octave.min(initial=0))
        seen = np.flatnonzero(np.bincount(octave - low))
        of = np.searchsorted(seen, np.arange(int(seen[-1]) + 1) if len(seen) else seen)[
            octave - low
        ]
        grid = np.rint(np.clip(np.ldexp(place, _GRID_BITS), -_MOST, _MOST)).astype(np.int64)
        sums = cls._empty(attributes, codes, seen + low)

        for start in range(0, len(of), _BLOCK):
            rows = slice(start, start + _BLOCK)
            sums._count(of[rows], grid[rows], attributes, [code[rows] for code in codes])

        return sums

    @classmethod
    def _empty(
        cls, attributes: Sequence[Attribute], codes: Sequence[AnyInts], noise_class: Ints
    ) -> CovariateSums:
        n = len(noise_class)
        sizes = [attribute.n_columns for attribute in attributes]

        def empty() -> list[Ints]:
            return [np.zeros((n, size), np.int64) for size in sizes]

        return cls(
            noise_class=noise_class,
            number=np.zeros(n, np.int64),
            total=np.zeros(n, np.int64),
            squares=np.zeros((n, 2), np.int64),
            numeric=[not isinstance(attribute, Category) for attribute in attributes],
            centers=[
                0 if isinstance(attribute, Category) else attribute.center_of(code)
                for attribute, code in zip(attributes, codes, strict=True)
            ],
            numbers=empty(),
            own_squares=empty(),
            totals=empty(),
            pairs={
                (g, h): np.zeros((n, sizes[g], sizes[h]), np.int64)
                for g, h in combinations(range(len(sizes)), 2)
            },
        )

    def _count(
        self, of: Ints, grid: Ints, attributes: Sequence[Attribute], codes: Sequence[AnyInts]
    ) -> None:
        """Add releases of known classes of noise, few enough to stay in the cache."""
        n = len(self.number)
        high = grid * grid >> _SPLIT_BITS
        rest = grid * grid & (1 << _SPLIT_BITS) - 1
        self.number[:] += np.bincount(of, minlength=n)
        self.total[:] += _sums(of, grid, n)
        self.squares[:] += np.stack([_sums(of, high, n), _sums(of, rest, n)], axis=1)

        columns = [
            _Columns(np.ascontiguousarray(code), one.size, [(slice(None), None)])
            if isinstance(one, Category)
            else _Columns(
                0, 1, [(slice(k, k + 1), own) for k, own in enumerate(one.columns(code, center).T)]
            )
            for one, code, center in zip(attributes, codes, self.centers, strict=True)
        ]

        for g, one in enumerate(columns):
            key = of * one.size + one.level
            shape = (n, one.size)
            for at, value in one.values:
                self.numbers[g][:, at] += _small_sums(key, value, shape)
                self.own_squares[g][:, at] += _small_sums(
                    key, None if value is None else value * value, shape
                )
                product = grid if value is None else value * grid
                self.totals[g][:, at] += _sums(key, product, n * one.size).reshape(shape)

        for (g, h), pairs in self.pairs.items():
            one = columns[g]
            two = columns[h]
            key = (of * one.size + one.level) * two.size + two.level
            shape_of_pair = (n, one.size, two.size)

            for at, value in one.values:
                for place, other in two.values:
                    pairs[:, at, place] += _small_sums(key, _product(value, other), shape_of_pair)

    def variances(self) -> Floats:
        """Give the variance of each class of noise: its middle, in squared widths."""
        return np.asarray(2.0 ** ((self.noise_class + 0.5) / _QUARTERS), np.float64)

    def scales(self) -> list[Floats]:
        """Give factors of each attribute's columns.

        A number gets standard deviation 1, or 0 if it is constant.
        """
        scales = []
        for numbers, own_squares, numeric in zip(
            self.numbers, self.own_squares, self.numeric, strict=True
        ):
            factors = np.ones(numbers.shape[1])
            if numeric:
                total, *missing = numbers.sum(axis=0).tolist()
                known = int(self.number.sum()) - sum(missing)
                spread = known * int(own_squares[:, 0].sum()) - total**2
                factors[0] = known / math.sqrt(spread) if spread else 0.0

            scales.append(factors)

        return scales

    def moments(self, middle: float) -> tuple[Floats, Floats, list[Floats]]:
        """Give sums by class of noise about a middle, in widths.

        Of means and of their squares; and by column.
        """
        unit = 2.0**-_GRID_BITS
        middle_unit = round(middle / unit)
        total = self.total - middle_unit * self.number

        # The squares about the middle are differences of large integers: Python's have no limit.
        squares = [
            (h << _SPLIT_BITS) + low - 2 * middle_unit * t + middle_unit * middle_unit * n
            for (h, low), t, n in zip(
                self.squares.tolist(), self.total.tolist(), self.number.tolist(), strict=True
            )
        ]
        by_column = [
            np.asarray((t - middle_unit * n) * unit, np.float64)
            for t, n in zip(self.totals, self.numbers, strict=True)
        ]

        return (
            np.asarray(total * unit, np.float64),
            np.array([float(s) for s in squares], np.float64) * unit**2,
            by_column,
        )


class _Columns(NamedTuple):
    """Columns of an attribute.

    Those of a category count its levels, those of a number have values at a single one.
    """

    level: AnyInts | int
    size: int
    values: list[tuple[slice, Ints | None]]


def _product(one: Ints | None, other: Ints | None) -> Ints | None:
    if one is None or other is None:
        if one is None:
            return other
        return one

    return one * other


def _small_sums(key: Ints, value: Ints | None, shape: tuple[int, ...]) -> Ints:
    """Count by key, or add up integers of at most 25 bits.

    Floats hold the sums of a block exactly.
    """
    size = math.prod(shape)
    return (
        np.bincount(key, minlength=size)
        if value is None
        else np.bincount(key, value, size).astype(np.int64)
    ).reshape(shape)


def _sums(key: Ints, value: Ints, size: int) -> Ints:
    """Add up integers of at most 43 bits by key: their halves, in floats that hold them exactly."""
    high = value >> 20
    low = value & ((1 << 20) - 1)
    parts = [np.bincount(key, half.astype(np.float64), size) for half in (high, low)]
    return np.asarray((parts[0].astype(np.int64) << 20) + parts[1].astype(np.int64), np.int64)
