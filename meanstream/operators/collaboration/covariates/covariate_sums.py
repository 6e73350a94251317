"""Releases summed up by public attributes: by class of noise, level, and pair of levels, as integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from meanstream.operators.collaboration.covariates.covariate_design import Attribute
from meanstream.operators.records import AnyInts, Floats, Ints

_GRID_BITS, _SPLIT_BITS = 20, 24
"""Releases are counted in 2**-20 of the bounds; their squares are added up in two words."""
_MOST = 2**31 - 1
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
        level = [one.level(code) for one, code in zip(attributes, codes, strict=True)]
        octave = np.floor(_QUARTERS * np.log2(np.clip(variance, _LEAST_VARIANCE, _MOST_VARIANCE))).astype(np.int64)
        low = int(octave.min(initial=0))
        seen = np.flatnonzero(np.bincount(octave - low))
        of = np.searchsorted(seen, np.arange(int(seen[-1]) + 1) if len(seen) else seen)[octave - low]
        grid = np.rint(np.clip(np.ldexp(place, _GRID_BITS), -_MOST, _MOST)).astype(np.int64)
        high, rest = grid * grid >> _SPLIT_BITS, grid * grid & (1 << _SPLIT_BITS) - 1
        n = len(seen)
        at = [of * one.coarse + own for one, own in zip(attributes, level, strict=True)]
        return cls(
            noise_class=seen + low,
            number=np.bincount(of, minlength=n),
            total=_sums(of, grid, n),
            squares=np.stack([_sums(of, high, n), _sums(of, rest, n)], axis=1),
            numbers=[
                np.bincount(key, minlength=n * one.coarse).reshape(n, one.coarse)
                for one, key in zip(attributes, at, strict=True)
            ],
            totals=[
                _sums(key, grid, n * one.coarse).reshape(n, one.coarse) for one, key in zip(attributes, at, strict=True)
            ],
            pairs={
                (g, h): np.bincount(
                    at[g] * attributes[h].coarse + level[h], minlength=n * attributes[g].coarse * attributes[h].coarse
                ).reshape(n, attributes[g].coarse, attributes[h].coarse)
                for g, h in combinations(range(len(attributes)), 2)
            },
        )

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
