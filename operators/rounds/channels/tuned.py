"""The window channel whose window is chosen for the values that are expected."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from meanstream.operators.rounds.channels.window_channel import (
    PIECEWISE_POINTS,
    WindowChannel,
    check_window_channel_moment,
    window_channel_second_moments,
)
from meanstream.operators.validation import require_positive


class TunedWindowChannel(WindowChannel):
    """The piecewise mechanism's grid, with the window that suits the expected values best.

    Parameters
    ----------
    epsilon : float
        Privacy of a report, for any two values.
    second_moment : float
        Expected square of the values, in [0, 1]; it decides the width of the window. 1 is the worst
        case.

    Notes
    -----
    The piecewise mechanism ties the width of its window to epsilon, which is right for small epsilon only. A wider
    window has less variance for every value. At a second moment of .05 and against the best of the one-bit, piecewise,
    hybrid and Laplace channels it is 0.4 % less at epsilon 1, 2.4 % at 2, 14 % at 4 and half at 8.

    **Privacy.** Local, pure epsilon, for one report; see `WindowChannel`. The second moment must be public.

    Examples
    --------
    >>> TunedWindowChannel(4.0, second_moment=0.05).variance([0.0, 1.0]).round(3)
    array([0.074, 0.178])
    >>> from meanstream.operators.rounds.channels.window_channel import PiecewiseChannel
    >>> PiecewiseChannel(4.0).variance([0.0, 1.0]).round(3)
    array([0.085, 0.241])
    """

    name = "window"

    def __init__(self, epsilon: float, *, second_moment: float = 1.0) -> None:
        check_window_channel_moment(second_moment)
        require_positive(epsilon=epsilon)
        super().__init__(
            epsilon, points=PIECEWISE_POINTS, window=_best_window(epsilon, second_moment)
        )


@lru_cache(maxsize=4096)
def _best_window(epsilon: float, second_moment: float) -> int:
    """Find the width of the window with the least second moment of the reports."""
    # An odd window has no divisor in common with the number of points, see `PiecewiseChannel`.
    window = np.arange(1, PIECEWISE_POINTS, 2, dtype=np.float64)
    c0, c1 = window_channel_second_moments(epsilon, np.full_like(window, PIECEWISE_POINTS), window)
    return int(window[np.argmin(c0 + c1 * second_moment)])
