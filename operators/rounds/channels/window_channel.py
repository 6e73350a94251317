"""Channels that report a random point of a grid, likelier within a window that follows the value.

Duchi's one bit (two points, a window of one), dithered k-ary randomised response (k points, a
window of one) and the piecewise mechanism (many points, a wide window) are one mechanism with
different numbers of points.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from meanstream.operators.noise.random_bits import (
    UNIT_63,
    RandomWords,
    clip_random_to_unit,
    random_bits_53,
    random_bits_63,
    random_share_threshold,
    round_at_random,
)
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.validation import require, require_positive

PIECEWISE_POINTS = 4096
MAX_LEVELS = 256


class WindowChannel:
    """A grid of `points`, of which the `window` next to the value are exp(epsilon) times as likely as the others.

    Parameters
    ----------
    epsilon : float
        Privacy of a report, for any two values.
    points : int
        Number of reports, at least 2.
    window : int
        Number of likely reports, at least 1 and below `points`.

    Notes
    -----
    The window has `J + 1 = points - window + 1` places. The value's place `J (x + 1) / 2` is rounded at random to one
    of its two neighbors, which keeps the mean report linear in x: `step * report` is unbiased, exactly.
    Reports are `2 y - (points - 1)` for the points y, hence symmetric around 0.

    **Privacy.** Local, pure epsilon, of everything the user knows, for one report. A report's probability is one of two
    integers divided by 2**63, `likely` and `unlikely`; their ratio is at most exp(epsilon) by construction, and
    rounding at random only mixes such distributions. Assumes uniform independent bits.

    Examples
    --------
    >>> from meanstream.lab.random_words import SeededWords
    >>> channel = WindowChannel(2.0, points=5, window=1)
    >>> channel.randomize([0.9, 0.9, 0.9, -1.0], SeededWords(np.random.default_rng(1), 4))
    array([ 0,  0,  4, -4])
    >>> channel.pmf(1.0).round(3)
    array([0.088, 0.   , 0.088, 0.   , 0.088, 0.   , 0.088, 0.   , 0.649])
    """

    name = "window"
    draws = 1

    def __init__(self, epsilon: float, *, points: int, window: int) -> None:
        require_positive(epsilon=epsilon)
        require(points >= 2, "points", "be at least 2", points)
        require(1 <= window < points, "window", f"lie between 1 and {points - 1}", window)
        require(
            math.gcd(points, window) == 1,
            "window",
            f"have no divisor in common with {points}",
            window,
        )
        self.epsilon = epsilon

        self.points = points
        self.window = window
        self.low = 1 - points
        self.high = points - 1
        self.unlikely, self.likely = _masses(epsilon, points, window)
        places = points - window
        self._places = places
        # (H - L) w: how much of the report follows the value; the rest is uniform.
        self._signal = window * (self.likely - self.unlikely) / UNIT_63
        require(self._signal > 0.0, "epsilon", f"be large enough for {points} points", epsilon)
        self.step = 1.0 / (self._signal * places)

    def randomize(self, x: npt.ArrayLike, words: RandomWords, first_draw: int = 0) -> Ints:
        """Private to public: one integer for each value, which is cut to [-1, 1]."""
        bits = words(first_draw)
        start = self.place(x, random_bits_53(bits, 1))
        number = random_bits_63(bits, 0)
        outside = np.uint64(self._places * self.unlikely)
        is_out = number < outside
        other = (number // np.uint64(self.unlikely)).astype(np.int64)
        other += np.where(other >= start, self.window, 0)
        inside = start + (
            (number - np.where(is_out, number, outside)) // np.uint64(self.likely)
        ).astype(np.int64)

        return 2 * np.where(is_out, other, inside) - (self.points - 1)

    def place(self, x: npt.ArrayLike, number: Ints) -> Ints:
        """Private: where the window of each value starts, given 53 random bits."""
        return round_at_random(0.5 * self._places * (clip_random_to_unit(x) + 1.0), number)

    def valid(self, reports: Ints) -> Bools:
        """Public: tell which integers can be reports."""
        return np.asarray(
            (reports >= self.low) & (reports <= self.high) & ((reports - self.low) % 2 == 0)
        )

    def bias(self, x: npt.ArrayLike) -> Floats:
        """Zero, but for the rounding of a random fraction to 2**-53."""
        return np.zeros(np.shape(x))

    def variance(self, x: npt.ArrayLike) -> Floats:
        """Variance of `step * report` for each value."""
        value = clip_random_to_unit(x)
        fraction = np.mod(0.5 * self._places * (value + 1.0), 1.0)
        spread = self._constant + self._signal * 4.0 * fraction * (1.0 - fraction)
        return np.asarray(self.step**2 * spread + (1.0 / self._signal - 1.0) * value**2)

    @cached_property
    def moments(self) -> tuple[float, float]:
        """Two numbers (c0, c1).

        The second moment is at most `c0 + c1 * x**2`; equal for two points.
        """
        if self._places == 1:  # The window's center is -1 or 1 whatever the value.
            return self.step**2 * (self._constant + self._signal), 0.0
        return self.step**2 * (self._constant + self._signal), 1.0 / self._signal

    @cached_property
    def _constant(self) -> float:
        """Second moment of the report around the window's center.

        All points, and the likely ones again.
        """
        everywhere = self.unlikely / UNIT_63 * self.points * (self.points**2 - 1) / 3.0
        return everywhere + self._signal * (self.window**2 - 1) / 3.0

    def pmf(self, x: float) -> Floats:
        """Probability of each integer from `low` to `high`; every second one is never reported."""
        position = 0.5 * self._places * (float(clip_random_to_unit(x)) + 1.0)
        start = min(int(position), self._places - 1)
        fraction = position - start
        found = np.zeros(2 * self.points - 1)
        found[::2] = (1.0 - fraction) * self.pmf_at(start) + fraction * self.pmf_at(start + 1)

        return found

    def pmf_at(self, start: int) -> Floats:
        """Probability of each point when the window starts at `start`."""
        found = np.full(self.points, self.unlikely / UNIT_63)
        found[start : start + self.window] = self.likely / UNIT_63
        return found

    def spend(self) -> float:
        """Privacy of one report."""
        return self.epsilon


class OneBitChannel(WindowChannel):
    """Duchi's one-bit channel: the report is -1 or 1, and `step` is coth(epsilon / 2).

    Parameters
    ----------
    epsilon : float
        Privacy of a report, for any two values.

    Notes
    -----
    **Privacy.** Local, pure epsilon, for one report; see `WindowChannel`.

    References
    ----------
    J. Duchi, M. Jordan, M. Wainwright, Minimax Optimal Procedures for Locally Private Estimation, 2018.

    Examples
    --------
    >>> round(OneBitChannel(1.0).step, 4)
    2.164
    """

    name = "one_bit"

    def __init__(self, epsilon: float) -> None:
        super().__init__(epsilon, points=2, window=1)


class PiecewiseChannel(WindowChannel):
    """The piecewise mechanism on a grid of 4096 points.

    Parameters
    ----------
    epsilon : float
        Privacy of a report, for any two values.

    Notes
    -----
    **Privacy.** Local, pure epsilon, for one report; see `WindowChannel`.

    Its window is the share `1 / (exp(epsilon / 2) + 1)` of the points. Against the continuous
    mechanism, the grid adds less than 1e-6 to the variance for epsilon up to 8.

    References
    ----------
    N. Wang et al., Collecting and Analyzing Multidimensional Data with Local Differential Privacy, ICDE 2019,
    Algorithm 2.

    Examples
    --------
    >>> c0, c1 = PiecewiseChannel(1.0).moments
    >>> round(c0, 2), round(c1, 2)
    (3.68, 2.54)
    """

    name = "piecewise"

    def __init__(self, epsilon: float) -> None:
        require_positive(epsilon=epsilon)
        share = 1.0 / (math.exp(min(0.5 * epsilon, 60.0)) + 1.0)
        # An odd window has no divisor in common with the number of points: both masses can then be
        # integers.
        window = 2 * round((PIECEWISE_POINTS * share - 1.0) / 2.0) + 1
        super().__init__(epsilon, points=PIECEWISE_POINTS, window=max(1, window))


class DitheredChannel(WindowChannel):
    """Randomised response between k levels, to which the value is rounded at random.

    Parameters
    ----------
    epsilon : float
        Privacy of a report, for any two values.
    second_moment : float
        Expected square of the values, in [0, 1]; it decides the number of levels. 1 is the worst
        case.

    Notes
    -----
    **Privacy.** Local, pure epsilon, for one report; see `WindowChannel`. The second moment must be public.

    Examples
    --------
    >>> DitheredChannel(1.0).points, DitheredChannel(6.0, second_moment=0.05).points
    (2, 14)
    """

    name = "dithered"

    def __init__(self, epsilon: float, *, second_moment: float = 1.0) -> None:
        check_window_channel_moment(second_moment)
        require_positive(epsilon=epsilon)
        super().__init__(epsilon, points=_best_levels(epsilon, second_moment), window=1)


def check_window_channel_moment(second_moment: float) -> None:
    """Refuse what cannot be the mean square of numbers on [-1, 1]."""
    require(0.0 <= second_moment <= 1.0, "second_moment", "lie between 0 and 1", second_moment)


def window_channel_second_moments(
    epsilon: float, points: Floats, window: Floats
) -> tuple[Floats, Floats]:
    """Compute `WindowChannel.moments` for many channels at once, but for the rounding of their masses."""
    growth = math.expm1(min(epsilon, 60.0))
    unlikely = 1.0 / (points + window * growth)
    signal = window * growth * unlikely
    places = points - window
    spread = unlikely * points * (points**2 - 1.0) / 3.0 + signal * (window**2 + 2.0) / 3.0

    return spread / (signal * places) ** 2, np.where(places == 1.0, 0.0, 1.0 / signal)


@lru_cache(maxsize=4096)
def _best_levels(epsilon: float, second_moment: float) -> int:
    """Find the number of levels with the least second moment of the reports."""
    levels = np.arange(2, MAX_LEVELS + 1, dtype=np.float64)
    c0, c1 = window_channel_second_moments(epsilon, levels, np.ones_like(levels))
    return int(levels[np.argmin(c0 + c1 * second_moment)])


def _masses(epsilon: float, points: int, window: int) -> tuple[int, int]:
    """Integer masses of an unlikely and of a likely point, which add up to 2**63 over all points, exactly."""
    places = points - window
    unlikely = random_share_threshold(places, epsilon, UNIT_63, weight=window)
    # The window's masses must add up to a multiple of its width: solve places * unlikely = 2**63
    # modulo it.
    wanted = UNIT_63 * pow(places, -1, window) % window if window > 1 else 0
    unlikely += (wanted - unlikely) % window

    return unlikely, (UNIT_63 - places * unlikely) // window
