"""Fixed-point numbers.

Values clipped to declared bounds and held as integers, so that sums are exact.

A noised float sum is a privacy bug: the low bits of a float sum and of a float noise sample reveal
the input. Here a sum is an integer, its sensitivity is an integer, and the noise is rounded to the
same grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.validation import require, require_bounds

MAX_BITS = 32


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """The grid on which values of `[lower, upper]` are held as integers `0..span`.

    Parameters
    ----------
    lower, upper : float
        Declared bounds of one value, in its own unit. Public: they must not be read off the data.
    bits : int, default 20
        The grid has about 2**bits steps (1 to 32). Rounding moves a value by at most half a step, a
        millionth of the width by default; the sum of 2**(63 - bits) values is still exact.

    Attributes
    ----------
    resolution : float
        Width of a step in value units: the smallest power of two that is at least
        `(upper - lower) / 2**bits`.
    span : int
        The integer of `upper`: by how much replacing one sample can change a sum, in grid units.

    Notes
    -----
    **Privacy.** Encoding is monotone, so every value, however absurd, lands in `0..span`: the sensitivity of a sum to
    the replacement of one sample is exactly `span` grid units, with no allowance for float rounding.

    Examples
    --------
    >>> grid = FixedPoint(-30.0, 120.0)
    >>> totals = grid.encode(np.array([-30.0, 0.0, 7.0, 500.0]))
    >>> totals, grid.span, grid.resolution
    (array([     0, 122880, 151552, 614400]), 614400, 0.000244140625)
    >>> float(grid.mean(totals.sum(), 4))
    24.25
    """

    lower: float
    upper: float
    bits: int = field(default=20, kw_only=True)
    resolution: float = field(init=False)
    span: int = field(init=False)

    def __post_init__(self) -> None:
        require_bounds(self.lower, self.upper)
        require(1 <= self.bits <= MAX_BITS, "bits", f"lie between 1 and {MAX_BITS}", self.bits)
        width = float(self.upper) - float(self.lower)
        require(math.isfinite(width), "upper - lower", "be finite", width)
        object.__setattr__(
            self, "resolution", _power_of_two_at_least(math.ldexp(width, -self.bits))
        )
        object.__setattr__(self, "span", round(width / self.resolution))
        require(self.span >= 1, "upper - lower", "be wide enough for a grid of floats", width)

    @property
    def middle(self) -> Ints:
        """Grid point in the middle of the bounds: public."""
        return np.asarray(self.span // 2)

    def encode(self, values: npt.ArrayLike) -> Ints:
        """Clip each value to the bounds and round it to the nearest grid point.

        Parameters
        ----------
        values : float array of any shape
            Raw values, in their own unit.

        Returns
        -------
        int64 array of the same shape
            Grid points in `0..span`, counted from `lower`.
        """
        raw = np.asarray(values, dtype=np.float64)
        n_bad = raw.size - int(np.count_nonzero(np.isfinite(raw)))
        require(n_bad == 0, "values", "be finite", f"{n_bad} of {raw.size} that are not")
        offset = np.clip(raw, self.lower, self.upper, out=np.empty_like(raw))
        offset -= self.lower
        offset /= self.resolution  # a power of two: exact, so rounding happens once and is monotone

        return np.rint(offset, out=offset).astype(np.int64)

    def clips(self, values: npt.ArrayLike) -> Bools:
        """Tell which values `encode` moves to a bound.

        **Privacy.** It depends on raw values: for the trust domain only.
        """
        raw = np.asarray(values, dtype=np.float64)
        return np.asarray((raw < self.lower) | (raw > self.upper))

    def encode_one(self, value: float) -> int:
        """Encode one value: `encode` without the cost of an array."""
        require(math.isfinite(value), "value", "be finite", "one that is not")
        offset = min(max(float(value), self.lower), self.upper) - self.lower
        return round(offset / self.resolution)

    def mean(self, total: npt.ArrayLike, count: npt.ArrayLike) -> Floats:
        """Mean in value units of `count` values whose grid points add up to `total` (noised or not)."""
        steps = np.asarray(total, dtype=np.float64) / np.asarray(count, dtype=np.float64)
        return np.asarray(self.lower + steps * self.resolution, dtype=np.float64)


def _power_of_two_at_least(value: float) -> float:
    mantissa, exponent = math.frexp(value)
    # frexp returns a mantissa in [1/2, 1): exactly 1/2 means that the value is itself a power of
    # two.
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)
