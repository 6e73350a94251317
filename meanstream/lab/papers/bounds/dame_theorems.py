"""DAME: Theorems 1 and 2, Corollary 3, equations 13 to 15 and both tables, as numbers.

References
----------
Pla, Richard, Vono: Distribution-aware mean estimation under user-level local differential privacy, Section 4.
"""

from __future__ import annotations

import math

from meanstream.lab.papers.bounds.bound import Bound, Paper
from meanstream.lab.papers.dame.dame_bounds import (
    C1,
    C2,
    C3_PRINTED,
    C5,
    MOST_EPSILON,
    dame_bounds_effective_size,
    dame_bounds_lower,
    dame_bounds_phi,
    dame_bounds_upper,
)
from meanstream.operators.rounds.user_sizes import SizeDistribution

_DAME = Paper("DAME")
_ASSUMES = "needs epsilon <= 22/35 (H3)"


def dame_theorems(sizes: SizeDistribution, *, users: int, epsilon: float) -> list[Bound]:
    """Evaluate the paper's bounds on the worst mean squared error on [-1, 1].

    Examples
    --------
    >>> found = dame_theorems(SizeDistribution.parse("poisson:5"), users=10_000, epsilon=1.0)
    >>> [f"{bound.value:.3g}" for bound in found if bound.statement.startswith("Theorem")]
    ['1.61e-10', '0.591', '0.563']
    """
    information = users * epsilon**2
    holds = epsilon <= MOST_EPSILON
    size = dame_bounds_effective_size(sizes, users=users, epsilon=epsilon)
    limit = 1.0 / (information * sizes.mean_sqrt() ** 2)

    return [
        _DAME.explicit(
            "Theorem 1",
            "lower bound, any estimator",
            dame_bounds_lower(sizes, users=users, epsilon=epsilon),
            holds=holds,
            note=_ASSUMES,
        ),
        _DAME.explicit("Eq. 12", "effective size m~", size, holds=holds, note=_ASSUMES),
        _DAME.explicit(
            "Theorem 2",
            "upper bound, DAME",
            dame_bounds_upper(sizes, users=users, epsilon=epsilon, size=size),
            holds=holds,
            note="c3 = 1648 (corrected); 4 is the trivial bound",
        ),
        _DAME.explicit(
            "Theorem 2, as printed",
            "upper bound, DAME",
            dame_bounds_upper(sizes, users=users, epsilon=epsilon, size=size, c3=C3_PRINTED),
            holds=False,
            note="c3 = 1570: the proof takes b^2 for the variance 2 b^2 of Laplace noise",
        ),
        _DAME.explicit(
            "Eq. 13",
            "lower bound, many users",
            C1 / max(1.0 / limit, 1.0),
            holds=holds,
            note="Theorem 1 with a at the greatest size",
        ),
        _DAME.rate("Eq. 14", "upper bound, many users", max(math.log(information), 1.0) * limit),
        _DAME.rate("Table 1, m = 1", "minimax rate", 1.0 / information),
        _DAME.rate("Table 1, m ~ M", "minimax rate", limit),
        *_two_sizes(sizes, information=information, holds=holds),
    ]


def _two_sizes(sizes: SizeDistribution, *, information: float, holds: bool) -> list[Bound]:
    """Evaluate equation 15, Corollary 3 and Table 2.

    Users have one sample, or m with probability rho.
    """
    if sizes.least != 1 or len(sizes.support) > 2:
        return []
    m = sizes.greatest
    rho = float(sizes.probability[-1]) if sizes.greatest > 1 else 1.0
    # One user whose epsilon is the root of the information stands for all.
    phi_of_m = dame_bounds_phi(m, users=1, epsilon=math.sqrt(information))
    size = dame_bounds_effective_size(sizes, users=1, epsilon=math.sqrt(information))
    gain = (1.0 - rho + rho * math.sqrt(m)) ** 2
    alone = max((1.0 - rho) ** 2 * information, 1.0)
    reached = (1.0 - rho + rho * math.sqrt(size)) ** 2
    floor = math.exp(-(rho**2) * information / C5) / rho**2 if rho else math.inf
    rate = max(math.log(size * information), 1.0) / (information * reached)
    regime = "rho^2 >= phi(m)" if rho**2 >= phi_of_m else f"rho^2 < phi(m) = {phi_of_m:.3g}"

    return [
        _DAME.explicit(
            "Eq. 15",
            "lower bound, sizes 1 and m",
            C1
            * max(1.0 / max(information * gain, 1.0), math.exp(-C2 * information * rho**2) / alone),
            holds=holds,
            note="a = 1 and a = m in Theorem 1 (the text says a = 0)",
        ),
        _DAME.rate(
            "Corollary 3",
            "upper bound, sizes 1 and m",
            rate if rho**2 >= phi_of_m or size == 1 else min(rate, floor),
            holds=information >= 1.0,
            note=f"{regime}, m~ = {size}; needs n epsilon^2 >= 1",
        ),
        _DAME.rate(
            "Table 2", "upper bound, sizes 1 and m", 1.0 / (information * reached), note=regime
        ),
    ]
