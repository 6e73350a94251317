"""Sums of independent Laplace variables.

The noise of schemes that report every value on its own.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv

from meanstream.operators.noise.random_bits import RandomWords, clip_random_to_unit
from meanstream.operators.records import Bools, Floats, Ints, Words
from meanstream.operators.validation import require, require_positive

HALF = 2**19
MAX_VALUES = 2**24


def summed_laplace(
    count: npt.ArrayLike, scale: float, words: RandomWords, first_draw: int
) -> Floats:
    """Draw sums of `count` independent Laplace variables each.

    The difference of two gamma variables.

    Parameters
    ----------
    count : int array (n,)
        How many variables are added up for each user.
    scale : float
        Of one variable.
    words : RandomWords
    first_draw : int
        Uses this draw.

    Returns
    -------
    float array (n,)

    Examples
    --------
    >>> from meanstream.lab.random_words import SeededWords
    >>> noise = summed_laplace(np.full(10_000, 50), 3.0, SeededWords(np.random.default_rng(1), 10_000), 0)
    >>> round(float(noise.var()) / (50 * 2 * 3.0**2), 1)
    1.0
    """
    bits = words(first_draw)
    positive, negative = gammaincinv(np.asarray(count, np.float64), _uniform(bits.T))
    return np.asarray(scale * (positive - negative))


class SummedLaplaceChannel:
    """The sum of several reports of the same value, each with Laplace noise at a share of epsilon.

    Parameters
    ----------
    epsilon : float
        Privacy of all reports together.
    values : int
        Number of reports.

    Notes
    -----
    **Privacy.** Local, epsilon, for the one integer that is published: `values` reports, each with epsilon / values,
    compose to epsilon; that they are added up and rounded to the grid is post-processing. Inversion in floats is not
    as exact as in the other channels (about 1e-13 of the scale): a scheme to compare with, not to protect people.

    Examples
    --------
    >>> channel = SummedLaplaceChannel(1.0, values=100)
    >>> round(float(channel.variance(0.0)), 1)
    800.0
    """

    name = "summed_laplace"
    draws = 1
    step = 1.0 / HALF

    def __init__(self, epsilon: float, *, values: int) -> None:
        require_positive(epsilon=epsilon)
        require(1 <= values <= MAX_VALUES, "values", f"lie between 1 and {MAX_VALUES}", values)
        self.epsilon = epsilon
        self.values = values
        # The value in grid units changes by at most 2 HALF; each of the reports has this scale.
        self.scale = 2.0 * HALF * values / epsilon

        # A gamma variable's tail beyond the mean by 12 deviations and 64 scales is below 2**-53,
        # where the bits end.
        self.high = HALF + math.ceil(self.scale * (12.0 / math.sqrt(values) + 64.0 / values + 1.0))
        self.low = -self.high
        require(
            self.high < 2**62,
            "epsilon",
            f"be larger for {values} values: reports are 64-bit integers",
            epsilon,
        )

    def randomize(self, x: npt.ArrayLike, words: RandomWords, first_draw: int = 0) -> Ints:
        """Private to public: one integer for each value, which is cut to [-1, 1].

        The mean of its reports.
        """
        value = np.rint(clip_random_to_unit(x) * HALF)
        noise = summed_laplace(
            np.full(len(value), self.values), self.scale / self.values, words, first_draw
        )

        return np.asarray(value + np.rint(noise), dtype=np.int64)

    def valid(self, reports: Ints) -> Bools:
        """Public: tell which integers can be reports."""
        return np.asarray((reports >= self.low) & (reports <= self.high))

    def bias(self, x: npt.ArrayLike) -> Floats:
        """Give the error of rounding to the grid: at most half a step."""
        value = clip_random_to_unit(x)
        return np.asarray(np.rint(value * HALF) * self.step - value)

    def variance(self, x: npt.ArrayLike) -> Floats:
        """Variance of `step * report`: that of the noise, and of its rounding."""
        return np.full(np.shape(x), self._variance)

    @property
    def moments(self) -> tuple[float, float]:
        """Two numbers (c0, c1): the second moment is at most `c0 + c1 * x**2`."""
        return self._variance + 2.0 * self.step, 1.0

    @property
    def _variance(self) -> float:
        return (2.0 * self.scale**2 / self.values + 1.0 / 12.0) * self.step**2

    def spend(self) -> float:
        """Privacy of one report."""
        return self.epsilon


def _uniform(bits: Words) -> Floats:
    """Numbers in (0, 1), never on an end.

    The middles of 2**52 equal parts, so that also the largest is below 1.
    """
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
