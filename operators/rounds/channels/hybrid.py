"""The hybrid mechanism.

A coin decides between the piecewise and the one-bit channel, and no one learns how it fell.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from meanstream.operators.noise.random_bits import (
    UNIT_53,
    RandomWords,
    clip_random_to_unit,
    random_bits_53,
    random_coins,
)
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.rounds.channels.window_channel import PiecewiseChannel
from meanstream.operators.validation import require_positive


class HybridChannel:
    """With probability `1 - exp(-epsilon / 2)` the piecewise channel, otherwise one bit on the same grid.

    Parameters
    ----------
    epsilon : float
        Privacy of a report, for any two values.

    Notes
    -----
    The variance is the same for every value.

    **Privacy.** Local, pure epsilon, for one report. Both channels are epsilon-private and the coin knows nothing of
    the value, so the mixture is epsilon-private too. The bit's report is a point of the piecewise grid, a little
    farther out than coth(epsilon / 2); its bit is flipped a little more often in turn, which keeps it unbiased.

    References
    ----------
    N. Wang et al., Collecting and Analyzing Multidimensional Data with Local Differential Privacy, ICDE 2019,
    Section III-C.

    Examples
    --------
    >>> HybridChannel(1.0).variance([0.0, 0.5, 1.0]).round(2)
    array([4.29, 4.29, 4.29])
    """

    name = "hybrid"
    draws = 2

    def __init__(self, epsilon: float) -> None:
        require_positive(epsilon=epsilon)
        self.epsilon = epsilon
        self.piecewise = PiecewiseChannel(epsilon)
        self.step = self.piecewise.step
        self.share = round(-math.expm1(-0.5 * epsilon) * UNIT_53) / UNIT_53
        # Piecewise reports are odd: so is the bit's, and it says no more than coth(epsilon / 2)
        # would.
        farthest = 1.0 / (math.tanh(0.5 * min(epsilon, 40.0)) * (1.0 - 2.0**-45))
        self.bit = 2 * math.ceil((farthest / self.step - 1.0) / 2.0) + 1
        # For a huge epsilon the bit lies just beyond the grid.
        self.high = max(self.piecewise.high, self.bit)
        self.low = -self.high

    def randomize(self, x: npt.ArrayLike, words: RandomWords, first_draw: int = 0) -> Ints:
        """Private to public: one integer for each value, which is cut to [-1, 1]."""
        value = clip_random_to_unit(x)
        bits = words(first_draw + 1)
        is_wide = random_coins(random_bits_53(bits, 0), np.full(value.shape, self.share))
        sign = np.where(random_coins(random_bits_53(bits, 1), self._up(value)), self.bit, -self.bit)

        return np.where(is_wide, self.piecewise.randomize(value, words, first_draw), sign)

    def _up(self, value: Floats) -> Floats:
        return np.asarray(0.5 + 0.5 * value / (self.bit * self.step))

    def valid(self, reports: Ints) -> Bools:
        """Public: tell which integers can be reports."""
        return np.asarray((reports >= self.low) & (reports <= self.high) & (reports % 2 == 1))

    def bias(self, x: npt.ArrayLike) -> Floats:
        """Zero, but for the rounding of probabilities to 2**-53."""
        return np.zeros(np.shape(x))

    def variance(self, x: npt.ArrayLike) -> Floats:
        """Variance of `step * report` for each value."""
        value = clip_random_to_unit(x)
        wide = self.piecewise.variance(value) + value**2
        second = self.share * wide + (1.0 - self.share) * (self.bit * self.step) ** 2
        return np.asarray(second - value**2)

    @property
    def moments(self) -> tuple[float, float]:
        """Two numbers (c0, c1): the second moment is at most `c0 + c1 * x**2`."""
        c0, c1 = self.piecewise.moments
        return self.share * c0 + (1.0 - self.share) * (self.bit * self.step) ** 2, self.share * c1

    def pmf(self, x: float) -> Floats:
        """Probability of each integer from `low` to `high`; every second one is never reported."""
        found = np.pad(self.share * self.piecewise.pmf(x), self.high - self.piecewise.high)
        up = float(self._up(clip_random_to_unit(x)))
        found[self.bit - self.low] += (1.0 - self.share) * up
        found[-self.bit - self.low] += (1.0 - self.share) * (1.0 - up)

        return found

    def spend(self) -> float:
        """Privacy of one report."""
        return self.epsilon
