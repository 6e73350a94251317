"""Laplace noise on a fine grid: the papers' channel."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from meanstream.operators.noise.distributions import LaplaceNoise
from meanstream.operators.noise.random_bits import RandomWords, clip_random_to_unit
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.validation import require, require_positive

FINEST_HALF = 2**19
"""Grid units of 1 from epsilon 1 on: the interval [-1, 1] is then 2**20 steps wide."""

LEAST_EPSILON = 2.0**-15


class LaplaceChannel:
    """The value on a grid of at most 2**20 steps plus discrete Laplace noise of scale width / epsilon.

    Parameters
    ----------
    epsilon : float
        Privacy of a report, for any two values; at least 2**-15.

    Notes
    -----
    **Privacy.** Local, epsilon, of everything the user knows, for one report. Two values are at most `2 * half` grid
    units apart and the noise is discrete on this grid, so the likelihood ratio is at most exp(epsilon); what the finite
    number of random bits misses of the distribution is bounded by `LaplaceNoise.tail_delta` (2**-64) and
    `LaplaceNoise.epsilon_slack`, which the scale already allows for.

    Examples
    --------
    >>> from meanstream.lab.random_words import SeededWords
    >>> channel = LaplaceChannel(1.0)
    >>> reports = channel.randomize([0.5, 0.5], SeededWords(np.random.default_rng(1), 2))
    >>> (channel.step * reports).round(3), round(float(channel.variance(0.5)), 3)
    (array([1.846, 2.463]), 8.0)
    """

    name = "laplace"
    draws = 1

    def __init__(self, epsilon: float) -> None:
        require_positive(epsilon=epsilon)
        require(epsilon >= LEAST_EPSILON, "epsilon", "be at least 2**-15", epsilon)
        self.epsilon = epsilon
        # The noise is as wide as 1 / epsilon: so may the grid be, and float64 then always suffices
        # for the inversion.
        self.half = FINEST_HALF >> max(0, math.ceil(-math.log2(epsilon)))
        self.step = 1.0 / self.half
        slack = LaplaceNoise(2 * self.half / epsilon).epsilon_slack * 2.0
        self.noise = LaplaceNoise(2 * self.half / (epsilon - slack))
        # 127 bits of magnitude end below 89 scales.
        self.high = self.half + math.ceil(89.0 * self.noise.scale)
        self.low = -self.high

    def randomize(self, x: npt.ArrayLike, words: RandomWords, first_draw: int = 0) -> Ints:
        """Private to public: one integer for each value, which is cut to [-1, 1]."""
        return self._on_grid(x) + self.noise.sample(words(first_draw)).astype(np.int64)

    def valid(self, reports: Ints) -> Bools:
        """Public: tell which integers can be reports."""
        return np.asarray((reports >= self.low) & (reports <= self.high))

    def bias(self, x: npt.ArrayLike) -> Floats:
        """Tell what rounding to the grid adds to the value: at most half a step."""
        value = clip_random_to_unit(x)
        return np.asarray(self._on_grid(value) * self.step - value)

    def variance(self, x: npt.ArrayLike) -> Floats:
        """Variance of `step * report`: that of the noise."""
        return np.full(np.shape(x), self.noise.variance * self.step**2)

    @property
    def moments(self) -> tuple[float, float]:
        """Two numbers (c0, c1): the second moment is at most `c0 + c1 * x**2`."""
        # (|x| + step / 2)**2 <= x**2 + 2 step
        return self.noise.variance * self.step**2 + 2.0 * self.step, 1.0

    def spend(self) -> float:
        """Privacy of one report."""
        return self.epsilon

    def _on_grid(self, x: npt.ArrayLike) -> Ints:
        return np.rint(clip_random_to_unit(x) * self.half).astype(np.int64)
