"""Intervals for few users, and for groups so small that no one of them may have reported."""

from __future__ import annotations

import math

from scipy.special import ndtri


def unseen_margin(mean: float, variance: float, n: int, *, far: float, level: float) -> float:
    """Half-width of an interval around the mean of `n` reports on [-1, 1], whatever the law of the users.

    Parameters
    ----------
    mean : float
        Of the reports.
    variance : float
        Of one report, as they show it.
    n : int
        At least 2.
    far : float
        Variance that the channel adds to a value at an end.
    level : float
        Of the interval.

    Notes
    -----
    A normal interval for a variance in which z**2 more users count who lie at the far end: as many can be missing from
    n of a group that is rare. For two points and no noise this is nearly the interval of Agresti and Coull. It is
    `1 + 1 / n` times as wide, because a sum of few reports is not normal.

    References
    ----------
    A. Agresti, B. Coull, Approximate is better than "exact" for interval estimation of binomial proportions, 1998.

    Examples
    --------
    >>> [round(unseen_margin(1.0, 0.0, n, far=0.0, level=0.95), 3) for n in (2, 10, 1000)]
    [3.372, 0.718, 0.008]
    """
    z = float(ndtri(0.5 * (1.0 + level)))
    missing = far + (1.0 + min(abs(mean), 1.0)) ** 2
    pooled = (n * variance + z * z * missing) / (n + z * z)
    return z * math.sqrt(pooled / n) * (1.0 + 1.0 / n)
