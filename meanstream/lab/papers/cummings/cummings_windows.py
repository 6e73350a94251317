"""How far users' means stray from the population's.

The concentration functions, and the windows made of them.

All on [0, 1]. Corrections to the paper: Lemma F.1 bounds the probability of being *within* alpha
from below; Lemma G.1 uses `beta / (2 n)` in the binomial part, as its proof does; `|b - a|` is
`2 f`, not `f`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from meanstream.operators.records import Floats

FAILURE = 0.1
"""The paper's beta: probability that some window does not hold what it should."""


def _users_bound(n: int, deviation: float, failure: float) -> float:
    """Bound what n users' true means stray from the population's, f_D.

    For normal means of this standard deviation.

    Notes
    -----
    The paper assumes f_D known. Laws with exponential tails exceed it, by what the factor of `operators.
    cummings_deviation` on the window's deviation covers.
    """
    return deviation * float(-ndtri(failure / (2 * max(n, 1))))


def window_sampling_bound(size: npt.ArrayLike, mean: float, failure: float) -> Floats:
    """Bound what the mean of `size` samples in [0, 1] strays from their expectation, f_Bin.

    By Bernstein's inequality.

    Parameters
    ----------
    size : int array
        Number of samples.
    mean : float
        Expectation whose `mean (1 - mean)` bounds the variance of a sample.
    failure : float
        Probability of straying further.

    Examples
    --------
    >>> window_sampling_bound([1, 100, 10_000], 0.5, 0.05).round(4)
    array([3.0617, 0.1487, 0.0137])
    """
    per_sample = math.log(2.0 / failure) / np.asarray(size, dtype=np.float64)
    return np.asarray(
        per_sample / 3.0 + np.sqrt((per_sample / 3.0) ** 2 + 2.0 * mean * (1.0 - mean) * per_sample)
    )


def window_size_bound(
    size: npt.ArrayLike, n: int, mean: float, deviation: float, failure: float = FAILURE
) -> Floats:
    """Bound what n users' observed means stray from the population's, f_D^k(n, deviation, failure), by size.

    References
    ----------
    Cummings et al., Lemma G.1 (upper bound) with `failure / (2 n)`, as in its proof.
    """
    between = _users_bound(n, deviation, failure / 2)
    farthest = min(0.5, min(mean, 1.0 - mean) + between)
    return between + window_sampling_bound(size, farthest, failure / (2 * max(n, 1)))


def window_initial_error(mean: float, n: int, epsilon: float, failure: float = FAILURE) -> float:
    """Bound the error of the mean of one sample from each of n users with Laplace noise, alpha of Lemma F.1.

    Parameters
    ----------
    mean : float
        The noised mean itself.
    n : int
        Number of users who gave a sample.
    epsilon : float
        Privacy of the mean.
    failure : float
        Probability that the error is larger.
    """
    many = max(n, 1)
    log = math.log(4.0 / failure)
    spread = (
        math.sqrt(12.0 * min(mean, 1.0 - mean) * log / many + 36.0 * log**2 / many**2)
        + 6.0 * log / many
    )

    return min(2.0 * max(spread, math.log(2.0 / failure) / (epsilon * many)), 1.0)


def window_tight_initial_error(
    mean: float, n: int, epsilon: float, failure: float = FAILURE
) -> float:
    """Bound the same error without Lemma F.1's constants.

    Bernstein's inequality, and the Laplace tail.
    """
    many = max(n, 1)
    noise = math.log(2.0 / failure) / (epsilon * many)
    farthest = min(0.5, min(mean, 1.0 - mean) + 1.0 / math.sqrt(many))
    return min(float(window_sampling_bound(many, farthest, failure / 2)) + noise, 1.0)
