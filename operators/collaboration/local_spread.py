"""Whether the means of a count are spread more widely than what was fitted to all counts together has it.

Everything here reads releases only, so it is post-processing: it spends nothing and its results are
public.
"""

from __future__ import annotations

import numpy as np

from meanstream.operators.collaboration.count_trend import CountGroups
from meanstream.operators.records import Floats

FACTORS: Floats = np.array([2.0, 4.0, 8.0, 16.0, 32.0])
"""By which the variance of the means may be greater."""
NEAR = 0.15
"""Releases tell of a count that many decades away (standard deviation of a normal kernel)."""
DOUBT = 0.25
DOUBTED = 1.1
"""Prior probability that it is greater, and standard deviation of the logarithm of the factor."""
LEAST = 1e-3
"""Factors less likely than this have no weight."""


def local_spread_doubt(
    groups: CountGroups, sample_variance: float, counts: Floats, center: Floats, variance: Floats
) -> Floats:
    """Give the posterior probability of each of `FACTORS` at some counts, shape (n_counts, n_factors).

    Parameters
    ----------
    groups : CountGroups
        All releases.
    sample_variance : float
        Of one sample.
    counts : float array, shape (n_counts,)
    center, variance : float array, shape (n_groups,)
        Of the fitted means at the count of each group.

    Notes
    -----
    Precise releases of large counts fit the spread there; a family carries it to small counts, where releases are
    noise. What releases of like count say of a factor on the variance is its normal likelihood, weighed by nearness: of
    few or noisy releases little is left but the doubt before.

    Examples
    --------
    >>> groups = CountGroups(number=np.array([100.0, 100.0]), mean=np.zeros(2), squares=np.array([500.0, 2.0]),
    ...                      count=np.array([10.0, 1000.0]), noise_variance=np.array([4.0, 0.01]))
    >>> local_spread_doubt(groups, 1.0, np.array([10.0, 1000.0]), np.zeros(2), np.full(2, 0.01)).sum(axis=1).round(2)
    array([0.26, 0.  ])
    """
    before = np.exp(-0.5 * (np.log(FACTORS) / DOUBTED) ** 2)
    before = np.concatenate([[1 - DOUBT], DOUBT * before / before.sum()])
    squares = groups.squares + groups.number * (groups.mean - center) ** 2
    total = (
        sample_variance / groups.count
        + groups.noise_variance
        + np.append(1.0, FACTORS)[:, None] * variance
    )
    likely = -0.5 * (groups.number * np.log(total) + squares / total)

    near = np.exp(-0.5 * ((np.log10(counts)[:, None] - np.log10(groups.count)) / NEAR) ** 2)
    # Not a product of matrices: BLAS adds up in an order that depends on the processor.
    log_weight = np.einsum("cg,fg->cf", near, likely - likely[0]) + np.log(before)
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)

    return np.where(weight > LEAST, weight, 0.0)[:, 1:]
