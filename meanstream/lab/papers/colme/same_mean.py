"""Do two agents have the same mean? The tests of the paper.

Known variance, and Welch's for estimated variances.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.validation import require_between


def same_mean_significance(time: Ints | int, significance: float = 0.05) -> Any:
    """Significance of the tests after `time` samples.

    It falls slowly, so that errors of the first kind die out.

    Examples
    --------
    >>> round(same_mean_significance(1000), 5)
    0.00724

    References
    ----------
    Yakimenka et al., section VII: `theta_t = 0.05 / ln(t + 1)`.
    """
    require_between(0, 1, significance=significance)
    return significance / (math.log(time + 1) if isinstance(time, int) else np.log(time + 1.0))


def same_mean_known(difference: Floats, variance: Floats, significance: Floats | float) -> Bools:
    """Accept that two means are equal, given the known variance of the difference of their estimates.

    Parameters
    ----------
    difference, variance : float arrays
        Difference of two independent estimates and its variance; where it is infinite nothing is
        known and the test accepts.
    significance : float or float array
        Probability of rejecting equal means.

    Examples
    --------
    >>> same_mean_known(np.array([0.1, 0.3]), np.array([0.01, 0.01]), 0.05).tolist()
    [True, False]

    Notes
    -----
    **Privacy.** The statistic holds the agent's own raw mean: the answer is the agent's own and must not leave it.

    References
    ----------
    Yakimenka et al., section III-C1.
    """
    accepted: Bools = np.abs(difference) < ndtri(1 - significance / 2) * np.sqrt(variance)
    return accepted


def same_mean_welch(  # noqa: PLR0917 - two symmetric triples
    difference: Floats,
    own_variance: Floats,
    own_count: Ints | int,
    other_variance: Floats,
    other_count: Ints | int,
    significance: Floats | float,
) -> Bools:
    """Accept that two means are equal, given estimated variances of both (Welch's test).

    Parameters
    ----------
    difference : float array
        The agent's own mean minus the other's statistic.
    own_variance, other_variance : float arrays
        Estimated variances of the two; where one is infinite (not yet, or negatively, estimated)
        the test accepts.
    own_count, other_count : int or int array
        Samples behind each; their degrees of freedom are one less.
    significance : float or float array
        Probability of rejecting equal means.

    Notes
    -----
    The quantile of the t distribution lies between the normal one and that of the smaller degrees of freedom; only
    statistics between these two need it.

    **Privacy.** As `same_mean_known`.

    Examples
    --------
    >>> one = np.array([0.01])
    >>> same_mean_welch(np.array([0.4]), one, 10, one, 10, 0.05).item()
    False
    >>> same_mean_welch(np.array([0.4]), one, 10, np.array([np.inf]), 10, 0.05).item()
    True

    References
    ----------
    Yakimenka et al., section III-C2.
    """
    variance = own_variance + other_variance
    probability = 1 - significance / 2
    shape = difference.shape
    counts, own_counts = (
        np.broadcast_to(np.asarray(one), shape) for one in (other_count, own_count)
    )
    size = np.abs(difference)
    width = np.sqrt(variance)
    accepted: Bools = size < ndtri(probability) * width
    fewest = np.maximum(np.minimum(own_counts, counts).min(initial=2**31) - 1, 1)
    unsure = ~accepted & (size < stdtrit(fewest, probability) * width)

    if unsure.any():
        own, wanted = (np.broadcast_to(one, shape)[unsure] for one in (own_variance, probability))
        degrees = same_mean_welch_degrees(
            own, own_counts[unsure], other_variance[unsure], counts[unsure]
        )
        accepted[unsure] = size[unsure] < stdtrit(degrees, wanted) * width[unsure]

    return accepted


def same_mean_welch_degrees(
    own_variance: Floats, own_count: Ints | int, other_variance: Floats, other_count: Ints
) -> Floats:
    """Welch's degrees of freedom as printed in the paper, for finite variances.

    Examples
    --------
    >>> same_mean_welch_degrees(np.array([1.0]), 11, np.array([1.0]), np.array([11])).item()
    20.0
    >>> same_mean_welch_degrees(np.array([0.0]), 11, np.array([1.0]), np.array([6])).item()
    5.0
    """
    own = own_variance**2 / np.maximum(own_count - 1, 1)
    other = other_variance**2 / np.maximum(other_count - 1, 1)
    degrees: Floats = (own_variance + other_variance) ** 2 / (own + other)
    return degrees
