"""Estimated shares, some of them negative, as shares: positive, adding up to 1."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from meanstream.operators.records import Floats

SPARSE = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
TYPICAL = np.geomspace(1e-3, 0.5, 8)
"""Of the mean's shares: which part is 0, and what the others are like."""
_HALF_LOG = 0.5 * np.log(2 * np.pi)


def simplex_projection(shares: Floats) -> Floats:
    """Give the nearest shares that are positive, if barely, and add up to 1.

    Examples
    --------
    >>> simplex_projection(np.array([0.6, 0.5, -0.1])).round(3).tolist()
    [0.55, 0.45, 0.0]
    """
    falling = np.sort(shares)[::-1]
    over = (np.cumsum(falling) - 1) / np.arange(1, len(shares) + 1)
    last = np.flatnonzero(falling > over)[-1]
    found = np.maximum(shares - over[last], 1e-4 / len(shares))

    return np.asarray(found / found.sum())


def positive_shares(mean: Floats, stddev: Floats) -> Floats:
    """Give the posterior means, adding up to 1, of shares that were estimated with normal errors.

    A share is 0, or of an exponential law; how often and of which is integrated over, given all the
    estimates.

    Examples
    --------
    >>> positive_shares(np.array([0.62, 0.41, -0.02, 0.01, -0.02]), np.full(5, 0.02)).round(2).tolist()
    [0.6, 0.4, 0.0, 0.0, 0.0]
    """
    stddev = np.maximum(stddev, 1e-7)
    flat = -0.5 * (mean / stddev) ** 2 - np.log(stddev)
    log = []
    means = []

    for none in SPARSE:
        for typical in TYPICAL:
            at = mean / stddev - stddev / typical
            some = (
                flat
                + 0.5 * at * at
                + log_ndtr(at)
                + np.log(stddev * (1 - none) / typical)
                + _HALF_LOG
            )
            both = np.logaddexp(flat + np.log(none), some)

            hazard = np.exp(-0.5 * at * at - _HALF_LOG - log_ndtr(at))
            log.append(float(both.sum()))
            means.append(np.exp(some - both) * stddev * (at + hazard))

    chances = np.exp(np.array(log) - max(log))
    chances /= chances.sum()
    found = np.tensordot(chances, np.array(means), 1)
    found = np.maximum(found, 1e-5)

    return np.asarray(found / found.sum())
