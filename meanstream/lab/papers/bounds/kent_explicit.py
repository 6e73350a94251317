"""Kent, Berrett and Yu.

Example 1, Theorem 1, Propositions 3 and 4, with the constants of their proofs.

References
----------
Kent, Berrett, Yu: Rate optimality and phase transition for user-level local differential privacy, Section 2 and
Appendix C.
"""

from __future__ import annotations

import math

import numpy as np

from meanstream.lab.papers.bounds.bound import Bound, Paper, exponential
from meanstream.lab.papers.kent.cover import cover_lower_bound, cover_upper_bound

KENT = Paper("Kent")
_RADII = np.geomspace(1e-12, 0.49, 400)


def kent_information(users: int, epsilon: float) -> float:
    """Compute n min(epsilon, epsilon^2), the information of all users."""
    return users * min(epsilon, epsilon**2)


def kent_explicit_bounds(
    *, users: int, samples: int, epsilon: float, dimension: int, sparsity: int
) -> list[Bound]:
    """Evaluate the bounds that have constants: for one mean, on both balls, and of sparse vectors.

    Examples
    --------
    >>> found = kent_explicit_bounds(users=500, samples=100, epsilon=1.0, dimension=1, sparsity=1)
    >>> [(bound.statement, f"{bound.value:.2g}") for bound in found][:2]
    [('Eq. 6', '2.6e-08'), ('Eq. 7', '0')]
    """
    return [
        *_one_mean(users, samples, epsilon),
        *_balls(kent_information(users, epsilon), dimension),
        *_sparse(kent_information(users, epsilon), dimension, sparsity),
    ]


def _one_mean(users: int, samples: int, epsilon: float) -> list[Bound]:
    """Evaluate Example 1 and Theorem 1 for one mean on [-1, 1]."""
    root = users * samples * epsilon**2
    step = min(0.2, (192.0 * root) ** -0.5)
    private = epsilon <= 1.0
    limit = "needs epsilon <= 1"
    ask = {"users": users, "epsilon": epsilon}

    return [
        KENT.explicit(
            "Eq. 6",
            "lower bound, one mean",
            0.5 * step**2 * (1.0 - math.sqrt(48.0 * root) * step),
            holds=private,
            note=limit,
        ),
        KENT.explicit(
            "Eq. 7",
            "lower bound for any T, one mean",
            0.25 * math.exp(-12.0 * users * epsilon**2),
            holds=private,
            note=limit,
        ),
        KENT.explicit(
            "Theorem 1, Corollary 2",
            "lower bound for any T, one mean",
            cover_lower_bound(np.square, _cells, radii=_RADII, **ask),  # type: ignore[arg-type]
            note="0 says nothing",
        ),
        KENT.explicit(
            "Theorem 1",
            "upper bound, T without end, one mean",
            cover_upper_bound(np.square, _cells, diameter=2.0, radii=_RADII, **ask),  # type: ignore[arg-type]
        ),
    ]


def _cells(radius: float) -> float:
    """Count the intervals of this radius that cover [-1, 1]."""
    return float(np.ceil(1.0 / radius))


def _balls(information: float, d: int) -> list[Bound]:
    """Evaluate Proposition 3 by equations 66, 67, 69 and 70."""
    decay = math.exp(-48.0 * information / d - math.log(16.0) / d)
    cube = information > 60.0 * d * math.log(6.0 * d)
    ball = information > 60.0 * d
    cube_upper = 6.0 * d * math.exp(-information / (20.0 * d)) + 4.0 * d * math.exp(
        -information / 40.0
    )
    ball_upper = 9.0 * math.exp(-information / (15.0 * d)) + 4.0 * math.exp(-information / 60.0)
    cube_note = "needs n min(eps, eps^2) > 60 d log(6 d)"
    ball_note = "needs n min(eps, eps^2) > 60 d"

    return [
        KENT.explicit(
            "Prop. 3 (i)",
            "lower bound for any T, l_inf ball",
            d / 80 * decay,
            holds=cube,
            note=cube_note,
        ),
        KENT.explicit(
            "Prop. 3 (i)",
            "upper bound, T without end, l_inf ball",
            cube_upper,
            holds=cube,
            note=cube_note,
        ),
        KENT.explicit(
            "Prop. 3 (ii)", "lower bound for any T, l2 ball", decay / 16, holds=ball, note=ball_note
        ),
        KENT.explicit(
            "Prop. 3 (ii)",
            "upper bound, T without end, l2 ball",
            ball_upper,
            holds=ball,
            note=ball_note,
        ),
    ]


def _sparse(information: float, d: int, s: int) -> list[Bound]:
    """Evaluate Proposition 4 by equations 73 and 74."""
    if d < 2:
        return []
    holds = information > 120.0 * s * math.log(6.0 * d)
    note = "needs n min(eps, eps^2) > 120 s log(6 d)"
    root = (
        2.0
        * math.sqrt(20.0 * s)
        / d
        * exponential(24.0 * information / s + 2.0 * math.log(2.0) / s)
        + 4.0
    )
    decay = math.exp(-information / (20.0 * s))
    upper = 6.0 * math.e**2 * d**2 / s * decay + 4.0 * s * math.exp(-information / 40.0)

    return [
        KENT.explicit(
            "Prop. 4", "lower bound for any T, s-sparse", root**-2 / 4.0, holds=holds, note=note
        ),
        KENT.explicit(
            "Prop. 4", "upper bound, T without end, s-sparse", upper, holds=holds, note=note
        ),
    ]
