"""Releases summed up by public attributes: by class of noise, level, and pair of levels, as integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from meanstream.operators.collaboration.covariates.covariate_design import Attribute
from meanstream.operators.records import AnyInts, Floats, Ints

_GRID_BITS, _SPLIT_BITS = 20, 24
"""Releases are counted in 2**-20 of the bounds; their squares are added up in two words."""
_MOST = 2**31 - 1
_BLOCK = 1 << 17
"""Releases that are counted at a time."""
_QUARTERS = 4
_LEAST_VARIANCE, _MOST_VARIANCE = 2.0**-60, 2.0**40

Pair = tuple[int, int]


@dataclass(slots=True, kw_only=True)
class CovariateSums:
    """Public: sums over releases, exact under merging and subtracting.

    Attributes
    ----------
    noise_class : int array, shape (n_classes,)
        Quarter octaves of the variance of a release, in squared widths of the bounds; increasing.
    number, total : int array, shape (n_classes,)
        Releases, and the sum of their means above the lower bound, on the grid.
    squares : int array, shape (n_classes, 2)
        Sum of squares of these means: high and low words.
    numbers, totals : list of int array, shape (n_classes, n_levels)
        The same by level of each attribute.
    pairs : dict of (int, int) to int array, shape (n_classes, n_levels, n_levels)
        Releases by pair of levels of two attributes.
    """

    noise_class: Ints
    number: Ints
    total: Ints
    squares: Ints
    numbers: list[Ints]
    totals: list[Ints]
    pairs: dict[Pair, Ints]

    @classmethod
    def of(
        cls, attributes: Sequence[Attribute], codes: Sequence[AnyInts], place: Floats, variance: Floats
    ) -> CovariateSums:
        """Sum up releases.

        Parameters
        ----------
        attributes : sequence of attributes
        codes : sequence of int array, shape (n,)
            Of each attribute; releases are summed up by their levels.
        place : float array, shape (n,)
            Released means above the lower bound, in widths of the bounds.
        variance : float array, shape (n,)
            Their variances, in squared widths.
        """
        usable = np.isfinite(place) & np.isfinite(variance) & (variance > 0)
        if not usable.all():
            place, variance, codes = place[usable], variance[usable], [code[usable] for code in codes]
        octave = np.floor(_QUARTERS * np.log2(np.clip(variance, _LEAST_VARIANCE, _MOST_VARIANCE))).astype(np.int64)
        low = int(octave.min(initial=0))
        seen = np.flatnonzero(np.bincount(octave - low))
        of = np.searchsorted(seen, np.arange(int(seen[-1]) + 1) if len(seen) else seen)[octave - low]
        grid = np.rint(np.clip(np.ldexp(place, _GRID_BITS), -_MOST, _MOST)).astype(np.int64)
        found = cls._empty(attributes, seen + low)
        for start in range(0, len(of), _BLOCK):
            part = slice(start, start + _BLOCK)
            found._count(of[part], grid[part], attributes, [code[part] for code in codes])
        return found

    @classmethod
    def _empty(cls, attributes: Sequence[Attribute], noise_class: Ints) -> CovariateSums:
        n, sizes = len(noise_class), [one.coarse for one in attributes]
        return cls(
            noise_class=noise_class,
            number=np.zeros(n, np.int64),
            total=np.zeros(n, np.int64),
            squares=np.zeros((n, 2), np.int64),
            numbers=[np.zeros((n, size), np.int64) for size in sizes],
            totals=[np.zeros((n, size), np.int64) for size in sizes],
            pairs={(g, h): np.zeros((n, sizes[g], sizes[h]), np.int64) for g, h in combinations(range(len(sizes)), 2)},
        )

    def _count(self, of: Ints, grid: Ints, attributes: Sequence[Attribute], codes: Sequence[AnyInts]) -> None:
        """Add releases of known classes of noise, few enough to stay in the cache."""
        n = len(self.number)
        high, rest = grid * grid >> _SPLIT_BITS, grid * grid & (1 << _SPLIT_BITS) - 1
        self.number += np.bincount(of, minlength=n)
        self.total += _sums(of, grid, n)
        self.squares += np.stack([_sums(of, high, n), _sums(of, rest, n)], axis=1)
        level = [one.level(np.ascontiguousarray(code)) for one, code in zip(attributes, codes, strict=True)]
        at = [of * one.coarse + own for one, own in zip(attributes, level, strict=True)]
        for g, key in enumerate(at):
            size = attributes[g].coarse
            self.numbers[g] += np.bincount(key, minlength=n * size).reshape(n, size)
            self.totals[g] += _sums(key, grid, n * size).reshape(n, size)
        for g, h in self.pairs:
            shape = (n, attributes[g].coarse, attributes[h].coarse)
            both = at[g] * shape[2]
            both += level[h]
            self.pairs[g, h] += np.bincount(both, minlength=math.prod(shape)).reshape(shape)

    def merge(self, other: CovariateSums) -> None:
        """Add releases of other agents: commutative and associative, to the last bit."""
        self._add(other, 1)

    def subtract(self, other: CovariateSums) -> None:
        """Take out releases that were added before: what is left is to the last bit what never had them."""
        self._add(other, -1)

    def variances(self) -> Floats:
        """Give the variance of each class of noise: its middle, in squared widths."""
        return np.asarray(2.0 ** ((self.noise_class + 0.5) / _QUARTERS), np.float64)

    def moments(self, middle: float) -> tuple[Floats, Floats, list[Floats]]:
        """Give sums by class of noise about a middle, in widths: of means and of their squares; and by level."""
        unit = 2.0**-_GRID_BITS
        at = round(middle / unit)
        total = self.total - at * self.number
        # The squares about the middle are differences of large integers: Python's have no limit.
        squares = [
            (h << _SPLIT_BITS) + low - 2 * at * t + at * at * n
            for (h, low), t, n in zip(self.squares.tolist(), self.total.tolist(), self.number.tolist(), strict=True)
        ]
        by_level = [np.asarray((t - at * n) * unit, np.float64) for t, n in zip(self.totals, self.numbers, strict=True)]
        return (
            np.asarray(total * unit, np.float64),
            np.array([float(s) for s in squares], np.float64) * unit**2,
            by_level,
        )

    def _add(self, other: CovariateSums, sign: int) -> None:
        classes = np.union1d(self.noise_class, other.noise_class)
        mine, theirs = (np.searchsorted(classes, one.noise_class) for one in (self, other))

        def added(a: Ints, b: Ints) -> Ints:
            found = np.zeros((len(classes), *a.shape[1:]), np.int64)
            found[mine] += a
            found[theirs] += sign * b
            return found

        number = added(self.number, other.number)
        left = number != 0

        def both(a: Ints, b: Ints) -> Ints:
            return np.asarray(added(a, b)[left], np.int64)

        self.total, self.squares = both(self.total, other.total), both(self.squares, other.squares)
        self.numbers = [both(a, b) for a, b in zip(self.numbers, other.numbers, strict=True)]
        self.totals = [both(a, b) for a, b in zip(self.totals, other.totals, strict=True)]
        self.pairs = {pair: both(a, other.pairs[pair]) for pair, a in self.pairs.items()}
        self.noise_class, self.number = classes[left], number[left]


def _sums(key: Ints, value: Ints, size: int) -> Ints:
    """Add up integers of at most 39 bits by key: their halves, in floats that hold them exactly."""
    high, low = value >> 20, value & ((1 << 20) - 1)
    parts = [np.bincount(key, part.astype(np.float64), size) for part in (high, low)]
    return np.asarray((parts[0].astype(np.int64) << 20) + parts[1].astype(np.int64), np.int64)
