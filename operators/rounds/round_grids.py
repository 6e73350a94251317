"""How samples become whole numbers, of which exact sums are kept.

One, or one for each feature or category.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.records import Bools, Floats, Ints

UNIT = FixedPoint(-1.0, 1.0)
"""The grid of features, and of coordinates, which have bounds of their own."""


MAX_CATEGORIES = 256
"""Of a column: a user's sums have one number for each."""


class Grid(Protocol):
    """`meanstream.operators.noise.fixed_point.FixedPoint`, `VectorGrid` or `CategoryGrid`."""

    @property
    def span(self) -> int:
        """Greatest whole number."""

    @property
    def resolution(self) -> float:
        """Width of a step."""

    @property
    def middle(self) -> Ints:
        """Whole numbers of a sample in the middle of the bounds: public."""

    def encode(self, values: Floats) -> Ints:
        """Private: whole numbers in `0..span`."""

    def clips(self, values: Floats) -> Bools:
        """Private: tell which samples `encode` moves to a bound."""


@dataclass(frozen=True)
class VectorGrid:
    """The grid on which vectors, or features of values, are held.

    `0..span` for [-1, 1], whatever a sample holds.

    Parameters
    ----------
    lower, upper : float array (v,)
        Declared bounds of each coordinate, in its own unit; public.
    features : callable, optional
        What the estimator sums up of samples: floats (n, v) on [-1, 1] to (n, d).

    Examples
    --------
    >>> grid = VectorGrid(np.array([0.0, -5.0]), np.array([10.0, 5.0]))
    >>> (grid.encode(np.array([[2.5, 99.0]])) / grid.span).tolist(), grid.span == 2**20
    ([[0.25, 1.0]], True)
    """

    lower: Floats
    upper: Floats
    features: Callable[[Floats], Floats] | None = None

    @property
    def span(self) -> int:
        """Greatest whole number."""
        return UNIT.span

    @property
    def resolution(self) -> float:
        """Width of a step, for bounds of [-1, 1]."""
        return UNIT.resolution

    @property
    def middle(self) -> Ints:
        """Whole numbers (d,) of a sample in the middle of all bounds: public."""
        middle: Ints = self.encode((0.5 * self.lower + 0.5 * self.upper)[np.newaxis])[0]
        return middle

    def encode(self, values: Floats) -> Ints:
        """Private: samples (n, v), or (n,) of one coordinate, to whole numbers (n, d).

        **Privacy.** Whatever comes in, each number is in `0..span`.
        """
        raw = _in_columns(values)
        place = (np.clip(raw, self.lower, self.upper) - self.lower) / (self.upper - self.lower)
        unit = np.clip(2.0 * place - 1.0, -1.0, 1.0)
        return UNIT.encode(unit if self.features is None else self.features(unit))

    def clips(self, values: Floats) -> Bools:
        """Private: tell which samples have a coordinate that `encode` moves to a bound."""
        raw = _in_columns(values)
        return np.asarray(((raw < self.lower) | (raw > self.upper)).any(axis=1))


@dataclass(frozen=True)
class CategoryGrid:
    """The grid on which categories are held: 1 in the column of a sample's category, 0 elsewhere.

    Parameters
    ----------
    categories : int
        How many there are; a sample's value is the number of its category, from 0.

    Examples
    --------
    >>> CategoryGrid(3).encode(np.array([2.0, 0.0, np.nan])).tolist()
    [[0, 0, 1], [1, 0, 0], [1, 0, 0]]
    """

    categories: int

    @property
    def span(self) -> int:
        """Greatest whole number."""
        return 1

    @property
    def resolution(self) -> float:
        """Width of a step."""
        return 1.0

    @property
    def middle(self) -> Ints:
        """Row of no category: none lies in the middle."""
        return np.zeros(self.categories, np.int64)

    def encode(self, values: Floats) -> Ints:
        """Private: numbers of categories (n,) to rows with a single 1.

        **Privacy.** Whatever comes in, each row is one of a category.
        """
        return np.asarray(self.rows(self.numbers(values)), np.int64)

    def numbers(self, values: Floats) -> Ints:
        """Private: the number of each sample's category, whatever comes in."""
        return np.clip(
            np.nan_to_num(np.asarray(values, np.float64)), 0, self.categories - 1
        ).astype(np.int64)

    def rows(self, numbers: Ints) -> Bools:
        """Private: rows with a single true entry."""
        return np.asarray(numbers[:, np.newaxis] == np.arange(self.categories))

    def clips(self, values: Floats) -> Bools:
        """Private: no sample is moved."""
        return np.zeros(len(values), np.bool_)


def _in_columns(values: Floats) -> Floats:
    raw = np.asarray(values, np.float64)

    if raw.ndim == 1:
        return raw[:, np.newaxis]
    return raw
