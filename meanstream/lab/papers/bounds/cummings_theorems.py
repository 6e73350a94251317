"""Cummings et al.: the variance of the ideal estimator, equation 11, and Theorems 4.1, 5.1, D.1, Corollary 5.5.

All on [0, 1].

References
----------
Cummings, Feldman, McMillan, Talwar: Mean estimation with user-level privacy under data heterogeneity, 2022,
Sections 4 and 5, Appendices C and D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, bdtrc, ndtri

from meanstream.lab.papers.bounds.bound import Bound, Paper
from meanstream.lab.papers.cummings.grid import (
    FAILURE,
    window_sampling_bound,
    window_size_bound,
)
from meanstream.operators.records import Floats
from meanstream.operators.rounds.user_sizes import SizeDistribution

C = 7680.0
"""The constant of Theorem 4.1 at the end of its proof."""
_THRESHOLDS = 200
_HALVINGS = 40
_CUMMINGS = Paper("Cummings")


@dataclass(frozen=True, slots=True, kw_only=True)
class CummingsProblem:
    """Users with a law of sizes, whose own means have a mean and a standard deviation, on [0, 1]."""

    sizes: SizeDistribution
    users: int
    epsilon: float
    delta: float = 1e-6
    mean: float = 0.5
    between_users: float = 0.0

    @property
    def sample_variance(self) -> float:
        """Variance of one sample of 0 or 1."""
        return self.mean * (1.0 - self.mean)

    def size_at(self, share: float) -> int:
        """Give the size that this share of the users has at least."""
        at_least = np.array([self.sizes.tail(size) for size in self.sizes.support.tolist()])
        return int(self.sizes.support[np.flatnonzero(at_least >= share)[-1]])


def cummings_ideal_variance(problem: CummingsProblem) -> float:
    """Compute the variance of the ideal estimator, equation 6, at the best truncation, with Laplace variance 2 b^2.

    Examples
    --------
    >>> ideal = CummingsProblem(sizes=SizeDistribution.parse("point:1"), users=10_000, epsilon=1.0)
    >>> f"{cummings_ideal_variance(ideal):.3g}"
    '2.5e-05'
    """
    k = problem.sizes.support.astype(np.float64)
    variance = problem.sample_variance / k + (1.0 - 1.0 / k) * problem.between_users**2
    width = 2.0 * window_size_bound(k, problem.users, problem.mean, problem.between_users)
    return _best_truncation(problem, np.sqrt(variance), np.minimum(width, 1.0))


def _best_truncation(problem: CummingsProblem, s: Floats, width: Floats) -> float:
    """Minimize the variance over the threshold of the weights."""
    number = problem.users * problem.sizes.probability
    thresholds = np.geomspace(1.0 / s.max(), 1.0 / s.min(), _THRESHOLDS)
    weight = np.minimum(1.0 / s**2, thresholds[:, None] / s)
    noise = 2.0 * ((weight * width).max(axis=1) / problem.epsilon) ** 2

    return float((((weight * s) ** 2 @ number + noise) / (weight @ number) ** 2).min())


def cummings_equation_11(problem: CummingsProblem) -> float:
    """Compute equation 11, users who are alike, corrected: 24 p ln(2/beta) k/epsilon^2, printed 6.

    Notes
    -----
    The window is 2 f wide and the variance of Laplace noise 2 b^2: four times and twice what is printed, of 3 p ln.
    """
    k = problem.sizes.support.astype(np.float64)
    number = problem.users * problem.sizes.probability
    noise = 24.0 * problem.mean * math.log(2.0 / FAILURE) / problem.epsilon**2
    caps = np.unique(np.geomspace(k[0], k[-1], _THRESHOLDS))[:, None]
    samples = np.minimum(k, caps) @ number

    return float(
        (
            (problem.sample_variance * samples + noise * caps[:, 0])
            / (np.minimum(k, np.sqrt(k * caps)) @ number) ** 2
        ).min()
    )


def cummings_halved_variance(problem: CummingsProblem) -> float:
    """Compute the variance of prior work.

    The larger half of the users, with the median number of samples each.

    Examples
    --------
    >>> sizes = SizeDistribution.parse("two:1,10000,0.01")
    >>> alike = CummingsProblem(sizes=sizes, users=10_000, epsilon=1.0)
    >>> f"{cummings_halved_variance(alike):.2g}", f"{cummings_ideal_variance(alike):.2g}"
    ('5e-05', '7.6e-07')
    """
    half = problem.users / 2.0
    median = problem.size_at(0.5)
    variance = problem.sample_variance / median + (1.0 - 1.0 / median) * problem.between_users**2
    width = min(
        2.0 * float(window_size_bound(median, problem.users, problem.mean, problem.between_users)),
        1.0,
    )

    return variance / half + 2.0 * (width / (half * problem.epsilon)) ** 2


def exact_binomial_tail(size: int, mean: float, failure: float) -> float:
    """Find f_Bin: what means of so many samples of 0 or 1 stray beyond with at most this chance.

    Appendix G: the infimum of `a` with `P(|x / k - p| >= a) <= failure`.

    Examples
    --------
    >>> round(exact_binomial_tail(1, 0.5, 0.5), 6), round(exact_binomial_tail(100, 0.5, 0.05), 2)
    (0.5, 0.1)
    """

    def beyond(distance: float) -> float:
        least = math.ceil(size * (mean + distance)) - 1
        most = math.floor(size * (mean - distance))
        above = float(bdtrc(least, size, mean)) if least < size else 0.0
        return above + (float(bdtr(most, size, mean)) if most >= 0 else 0.0)

    low = 0.0
    high = 1.0

    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if beyond(middle) <= failure:
            high = middle
        else:
            low = middle

    return high


def _windows(problem: CummingsProblem) -> list[Bound]:
    """Evaluate what the windows of Algorithms 2 and 3 are made of, at the median size."""
    k = problem.size_at(0.5)
    n = problem.users
    p = min(problem.mean, 1.0 - problem.mean)
    failure = FAILURE / (2 * n)
    log = math.log(2.0 / failure)
    chernoff = math.sqrt(3.0 * p * log / k)

    of_users = "f_D, users' own means of {} law"
    rows = [
        _CUMMINGS.explicit(
            "App. G", "f_Bin at the median size", exact_binomial_tail(k, p, failure)
        ),
        _CUMMINGS.explicit(
            "App. G",
            "the same by Bernstein's inequality",
            float(window_sampling_bound(k, p, failure)),
            note="what the estimators use",
        ),
        _CUMMINGS.explicit(
            "App. C",
            "the same by Chernoff's bound",
            chernoff,
            holds=chernoff <= p,
            note="sqrt(3 p ln(2/beta)/k), for deviations up to p",
        ),
    ]
    if not problem.between_users:
        return rows

    # Of n users, each on one side of the exponential law; its other side has an end.
    exponential = max(math.log(2.0 * n / FAILURE) - 1.0, 1.0)
    normal = -float(ndtri(FAILURE / (4 * n)))
    laws = {"a normal": normal, "an exponential": exponential}
    return rows + [
        _CUMMINGS.explicit("App. G", of_users.format(law), problem.between_users * deviations)
        for law, deviations in laws.items()
    ]


def cummings_theorems(problem: CummingsProblem) -> list[Bound]:
    """Evaluate the statements of the paper for a law of sizes."""
    ideal = cummings_ideal_variance(problem)
    log = math.log(problem.users)
    ratio = problem.size_at(1.0 / problem.users) / problem.size_at(0.5)
    most = (problem.users / 2.0 - log) / log
    alike = problem.between_users == 0.0

    return [
        _CUMMINGS.explicit("Eq. 6", "variance of the ideal estimator", ideal),
        _CUMMINGS.explicit(
            "Eq. 11",
            "the same, users alike",
            cummings_equation_11(problem),
            holds=alike
            and problem.sizes.least >= 2.0 * math.log(1.0 / problem.delta) / problem.mean,
            note="24 p ln for the printed 6 p ln; needs users alike and at least 2 ln(1/delta)/p samples each",
        ),
        _CUMMINGS.explicit(
            "App. C",
            "variance of halving at the median",
            cummings_halved_variance(problem),
            note="all prior work",
        ),
        _CUMMINGS.explicit(
            "Theorem 4.1",
            "upper bound, Algorithm 2",
            C * ideal,
            holds=ratio <= most,
            note=f"7680 times the ideal; k_1/k_(n/2) = {ratio:.3g} must be at most {most:.3g}",
        ),
        _theorem_d1(problem, ideal, ratio),
        _CUMMINGS.rate(
            "Theorem 5.1", "lower bound, unbiased estimators", ideal, note="without logarithms"
        ),
        _corollary_55(problem),
        *_windows(problem),
    ]


def _theorem_d1(problem: CummingsProblem, ideal: float, ratio: float) -> Bound:
    """Evaluate Theorem D.1, and the conditions of it that have constants."""
    n = problem.users
    epsilon = problem.epsilon
    log = math.log(problem.users)

    certain = math.log(1.0 / problem.delta)
    beta = 1.0 / math.sqrt(n)
    most = min(
        epsilon**3 * (n / 2.0 - log - 1.0) / (log * certain * math.log(1.0 / beta)),
        (n / 4.0 - 1.0) * epsilon / (3.0 * math.log(2.0 / problem.delta)),
        (n / 2.0 - log / epsilon) / (log / epsilon),
    )
    holds = epsilon >= 2.0 * log / n and problem.sizes.greatest <= math.sqrt(n) and ratio <= most
    note = f"needs epsilon >= 2 log(n)/n, k_max <= sqrt(n), k_max/k_med <= {most:.3g}; spends (4 eps, delta), printed 3"

    return _CUMMINGS.rate(
        "Theorem D.1",
        "upper bound, Algorithm 3",
        ideal * (1.0 + epsilon**-0.5),
        holds=holds,
        note=note,
    )


def _corollary_55(problem: CummingsProblem) -> Bound:
    """Evaluate Corollary 5.5 as its proof has it."""
    k = problem.sizes.support.astype(np.float64)
    number = problem.users * problem.sizes.probability
    caps = np.unique(np.geomspace(k[0], k[-1], _THRESHOLDS))[:, None]
    top = caps[:, 0] / problem.epsilon**2 + np.minimum(k, caps) @ number
    alike = float((top / (np.minimum(k, np.sqrt(k * caps)) @ number) ** 2).min())

    return _CUMMINGS.rate(
        "Corollary 5.5",
        "lower bound, unbiased estimators",
        max(alike, problem.between_users**2 / problem.users),
        note="printed without the denominator and as a minimum; the proof has the greater of two lower bounds",
    )
