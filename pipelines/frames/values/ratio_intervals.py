"""Ratios of two means with intervals after Fieller."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from meanstream.operators.records import Floats


def fieller_intervals(
    top: tuple[Floats, Floats], bottom: tuple[Floats, Floats], *, level: float
) -> tuple[Floats, Floats, Floats]:
    """Give the ratios of means, and the ends of their intervals.

    Parameters
    ----------
    top, bottom : pair of float arrays
        Means and their standard errors.
    level : float
        Nominal coverage.

    Notes
    -----
    An interval holds the ratios r for which `top - r bottom` is within the errors of 0, when those of both means are
    independent. Where the bottom mean is within its error of 0, it has no ends. Where rows with a higher top have a
    lower bottom, the interval is too short for what both share by sampling.

    References
    ----------
    E. C. Fieller, Some Problems in Interval Estimation, Journal of the Royal Statistical Society B 1954.

    Examples
    --------
    >>> one = np.ones(2)
    >>> ratio, low, high = fieller_intervals((6 * one, 0.3 * one), (np.array([2.0, 0.1]), 0.1 * one), level=0.95)
    >>> ratio.round(1).tolist(), low.round(2).tolist(), high.round(2).tolist()
    ([3.0, 60.0], [2.61, -inf], [3.45, inf])
    """
    squared = float(ndtri(0.5 + level / 2)) ** 2
    a = top[0] ** 2 - squared * top[1] ** 2
    b = bottom[0] ** 2 - squared * bottom[1] ** 2
    product = top[0] * bottom[0]
    root = np.sqrt(np.maximum(product**2 - a * b, 0.0))
    ends = b > 0
    safe = np.where(ends, b, 1.0)

    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = top[0] / bottom[0]

    low = np.where(ends, (product - root) / safe, -np.inf)
    high = np.where(ends, (product + root) / safe, np.inf)

    return ratio, low, high
