"""Item-level privacy of sparse vectors.

Duchi's report from the cube, and the best threshold in hindsight.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from meanstream.operators.records import Floats

_NODES = np.linspace(-9.0, 9.0, 1801)
_WEIGHTS = np.exp(-0.5 * _NODES**2)
_WEIGHTS /= _WEIGHTS.sum()


def item_level_reach(dimension: int, epsilon: float) -> float:
    """Compute B of Duchi's report, a corner of [-B, B]^d whose mean is the sample, at epsilon.

    Examples
    --------
    >>> round(item_level_reach(1, 1.0), 4), round(item_level_reach(100, 1.0), 1)
    (2.164, 29.4)

    References
    ----------
    Duchi, Jordan, Wainwright: Minimax optimal procedures for locally private estimation, JASA 2018, equation 26.
    """
    d = dimension

    def log_choose(n: int, k: int) -> float:
        return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))

    half = (d - 1) * math.log(2.0)
    if d % 2:
        log_c = half - log_choose(d - 1, (d - 1) // 2)
    else:
        log_c = float(np.logaddexp(half, log_choose(d, d // 2) - math.log(2.0))) - log_choose(
            d - 1, d // 2
        )

    return math.exp(log_c) / math.tanh(epsilon / 2.0)


def item_level_sparse_error(
    dimension: int, epsilon: float, reports: float, signal: Floats
) -> float:
    """Compute the mean squared error of the mean of reports after the best soft or hard threshold in hindsight.

    Parameters
    ----------
    dimension : int
    epsilon : float
        Of each sample.
    reports : float
        Number of samples in all.
    signal : float array
        Means that are not 0; the other coordinates are.

    Notes
    -----
    A vector of even dimension may be given one more coordinate, which is 0: its report is then shorter.

    The mean of so many reports is taken as normal. The threshold is the best one for this very
    signal, which nobody knows: a real procedure errs more.

    Examples
    --------
    >>> [round(item_level_sparse_error(d, 4.0, 10 * d * math.log(d), np.full(4, 0.5)), 2) for d in (100, 3000)]
    [0.58, 0.69]
    """
    reach = min(item_level_reach(dimension, epsilon), item_level_reach(dimension + 1, epsilon))
    stddev = reach / math.sqrt(reports)
    best = math.inf
    for threshold in np.append(np.linspace(0.0, 6.0, 241), np.inf) * stddev:
        for soft in (True, False):
            found = sum(_risk(float(mean), stddev, threshold, soft=soft) for mean in signal)
            best = min(
                best, found + (dimension - len(signal)) * _risk(0.0, stddev, threshold, soft=soft)
            )

    return best


def _risk(mean: float, stddev: float, threshold: float, *, soft: bool) -> float:
    """Integrate the squared error of one thresholded normal number."""
    x = mean + stddev * _NODES
    kept = np.abs(x) > threshold
    estimate = np.where(
        kept, x - np.sign(x) * (threshold if soft and math.isfinite(threshold) else 0.0), 0.0
    )

    return float(_WEIGHTS @ (estimate - mean) ** 2)
