"""Bounds on the worst-case risk under user-level local privacy, with their constants (Theorems 1 and 2 of DAME).

Users' numbers of samples follow a known law M. Risks are mean squared errors on [-1, 1]; epsilon is
the papers' alpha.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from meanstream.operators.validation import require_positive

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution

MOST_EPSILON = 22 / 35
"""Assumption H3 of both theorems; beyond it the constant 579 of Lemma S6 is proved up to 1, and
fails from 1.06 on."""
C1 = math.exp(-9.0) / 16.0
C2 = 24.0
C3_PRINTED = 1570.0
C3 = 1648.0
"""The printed constant takes `b**2` for the variance of Laplace noise of scale b (Lemma S11); it is
`2 b**2`."""
C4 = 8.0
C5 = 868.5


def dame_bounds_phi(size: int, *, users: int, epsilon: float, c5: float = C5) -> float:
    """How large the squared share of users with at least `size` samples must be, for their votes to find the bin.

    Parameters
    ----------
    size : int
        Number of samples, at least 1.
    users : int
    epsilon : float
    c5 : float
        The constant; another one gives the shape of the bound, not a bound.

    Returns
    -------
    float
        Increasing in `size`; 1 or more if not even all users' votes would do.

    Examples
    --------
    >>> [round(dame_bounds_phi(1, users=10_000, epsilon=epsilon), 3) for epsilon in (0.63, 2.0)]
    [1.757, 0.22]

    References
    ----------
    Pla, Richard, Vono: Distribution-aware mean estimation under user-level local differential privacy, Theorem 2.
    """
    information = users * epsilon**2
    argument = C4 * max(size * information, 1.0)
    return c5 / information * math.log(argument / math.log(argument))


def dame_bounds_effective_size(
    sizes: SizeDistribution, *, users: int, epsilon: float, c5: float = C5
) -> int:
    """Search the effective maximum number of samples.

    The largest for which enough users have as many.

    Parameters
    ----------
    sizes : SizeDistribution
        Law of a user's number of samples (public).
    users : int
    epsilon : float
    c5 : float
        As in `phi`.

    Returns
    -------
    int
        Largest a with `P(M >= a)**2 >= min(phi(a), 1)`; never below the smallest size.

    Notes
    -----
    The share falls and phi grows with a, so that bisection finds it. Where phi is 1 or more the rule asks whether
    *every* user has a samples: that is a comparison of integers, which sums of probabilities would get wrong in the
    last place.

    Examples
    --------
    >>> from meanstream.operators.rounds.user_sizes import SizeDistribution
    >>> sizes = SizeDistribution.parse("poisson:5")
    >>> [dame_bounds_effective_size(sizes, users=10_000, epsilon=epsilon) for epsilon in (0.3, 0.63, 1, 2, 4)]
    [1, 1, 2, 5, 6]

    References
    ----------
    Pla, Richard, Vono: Distribution-aware mean estimation under user-level local differential privacy, equation 12.
    """
    require_positive(users=users, epsilon=epsilon)
    low = int(sizes.least)
    high = int(sizes.greatest)
    while low < high:
        middle = (low + high + 1) // 2
        if sizes.tail(middle) ** 2 >= dame_bounds_phi(middle, users=users, epsilon=epsilon, c5=c5):
            low = middle
        else:
            high = middle - 1

    return low


def dame_bounds_bin_half_width(size: int, *, users: int, epsilon: float) -> float:
    """Half-width of DAME's bins.

    Means of `size` samples leave the true mean by less, but for small probability.

    Examples
    --------
    >>> round(dame_bounds_bin_half_width(100_000, users=10_000, epsilon=22 / 35), 5)
    0.01548

    References
    ----------
    Pla, Richard, Vono, equation 4.
    """
    root = math.sqrt(size * users * epsilon**2)
    return math.sqrt(2.0 * math.log(8.0 * max(root, 1.0)) / size)


def dame_bounds_upper(
    sizes: SizeDistribution,
    *,
    users: int,
    epsilon: float,
    size: int | None = None,
    c3: float = C3,
    c5: float = C5,
) -> float:
    """Theorem 2: DAME's mean squared error is at most this, whatever the data.

    Parameters
    ----------
    sizes : SizeDistribution
        Law of a user's number of samples.
    users : int
    epsilon : float
        The proof needs at most 22/35.
    size : int, optional
        Effective maximum number of samples (default: `dame_bounds_effective_size`).
    c3 : float
        `C3`, corrected, or `C3_PRINTED`.
    c5 : float
        As in `phi`.

    Examples
    --------
    >>> from meanstream.operators.rounds.user_sizes import SizeDistribution
    >>> sizes = SizeDistribution.parse("poisson:5")
    >>> round(dame_bounds_upper(sizes, users=10_000, epsilon=1.0, c3=C3_PRINTED), 3)
    0.563
    >>> round(dame_bounds_upper(sizes, users=10_000, epsilon=1.0), 3)
    0.591

    References
    ----------
    Pla, Richard, Vono, Theorem 2 (equation 11).
    """
    information = users * epsilon**2
    size = (
        dame_bounds_effective_size(sizes, users=users, epsilon=epsilon, c5=c5)
        if size is None
        else size
    )
    log = math.log(C4 * max(math.sqrt(size * information), 1.0))

    return min(4.0, c3 * log / (information * sizes.mean_sqrt(size) ** 2))


def dame_bounds_lower(sizes: SizeDistribution, *, users: int, epsilon: float) -> float:
    """Theorem 1: whatever the estimator, some data makes its mean squared error at least this.

    Examples
    --------
    >>> from meanstream.operators.rounds.user_sizes import SizeDistribution
    >>> f"{dame_bounds_lower(SizeDistribution.parse('poisson:5'), users=500, epsilon=1.0):.1e}"
    '3.2e-09'

    References
    ----------
    Pla, Richard, Vono, Theorem 1 (equation 10); the maximum is over 0, 1, 2 ... samples.
    """
    require_positive(users=users, epsilon=epsilon)
    information = users * epsilon**2
    # Between two sizes of the support nothing changes; the first entry is no sample at all.
    below = np.concatenate(([0.0], np.cumsum(sizes.probability * np.sqrt(sizes.support))))
    above = np.concatenate((np.cumsum(sizes.probability[::-1])[::-1], [0.0]))
    risk = C1 * np.exp(-C2 * information * above**2) / np.maximum(information * below**2, 1.0)

    return float(risk.max())
