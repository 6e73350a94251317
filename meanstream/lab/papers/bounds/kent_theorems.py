"""The bounds of Kent, Berrett and Yu: those with the constants of their proofs, and rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
        *_explicit_sparse(kent_information(users, epsilon), dimension, sparsity),
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


def _explicit_sparse(information: float, d: int, s: int) -> list[Bound]:
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


K = 8535.0
"""Least K of T* that the proof of equation 106 allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KentProblem:
    """What the rates depend on: n users with T samples, epsilon, and the size of the problem.

    Attributes
    ----------
    users, samples : int
    epsilon : float
    dimension, sparsity, smoothness, components : int
        d coordinates, s of which may differ from 0; beta derivatives of a density; m components of
        a mixture.
    """

    users: int
    samples: int
    epsilon: float
    dimension: int = 1
    sparsity: int = 1
    smoothness: int = 1
    components: int = 2

    @property
    def square(self) -> float:
        """N epsilon^2, at least what makes logarithms of it positive."""
        return self.users * self.epsilon**2

    @property
    def total(self) -> float:
        """N T epsilon^2."""
        return self.square * self.samples

    @property
    def reach(self) -> float:
        """N T min(epsilon, epsilon^2, d)."""
        return self.users * self.samples * min(self.epsilon, self.epsilon**2, self.dimension)


def kent_rates(problem: KentProblem) -> list[Bound]:
    """Evaluate every rate with all constants 1, and the boundary T* with its constant.

    Examples
    --------
    >>> found = kent_rates(KentProblem(users=500, samples=100, epsilon=1.0))
    >>> [f"{bound.value:.3g}" for bound in found if bound.statement == "T*, Eq. 30"]
    ['1.06']
    """
    return [
        *_means(problem),
        *_sparse(problem),
        *_others(problem),
        *_tables(problem),
        *_boundaries(problem),
        *_steps(problem),
    ]


def _log(value: float) -> float:
    """Take a logarithm that multiplies a rate: at least 1."""
    if value > 0:
        return max(math.log(value), 1.0)
    return 1.0


def _means(p: KentProblem) -> list[Bound]:
    """Evaluate Theorem 6."""
    d = p.dimension
    floor = math.exp(-kent_information(p.users, p.epsilon) / p.dimension)
    cube = d**2 / p.reach
    ball = d / p.reach

    return [
        KENT.rate("Theorem 6 (i)", "lower bound, l_inf ball", max(cube, floor)),
        KENT.rate("Theorem 6 (i)", "upper bound, l_inf ball", cube * _log(p.reach / d) + floor),
        KENT.rate("Theorem 6 (ii)", "lower bound, l2 ball", max(ball, floor)),
        KENT.rate(
            "Theorem 6 (ii)", "upper bound, l2 ball", min(1.0, ball * _log(p.reach) ** 2 + floor)
        ),
    ]


def _sparse(p: KentProblem) -> list[Bound]:
    """Evaluate Theorem 7 and both cases of Corollary 8."""
    d = p.dimension
    s = p.sparsity
    t = p.samples
    log = _log(d * p.total)
    near = math.exp(-p.square / s)
    far = math.exp(-p.square / d)
    growth = math.expm1(math.log1p(d / p.square) / t)
    dense = s * d / p.total
    holds = 16.0 * math.log(math.e * d) / 3.0 <= s <= d
    note = "needs 16 log(e d)/3 <= s <= d"
    upper = min(float(s), s * log / t + near, dense * log**2 + far)

    return [
        KENT.rate(
            "Theorem 7",
            "lower bound, s-sparse",
            max(min(s / t, s * growth), near),
            holds=holds,
            note=note,
        ),
        KENT.rate("Theorem 7", "upper bound, s-sparse", upper, holds=holds, note=note),
        KENT.rate(
            "Corollary 8 (i)", "lower bound, n eps^2 below d", max(s / t, near), holds=p.square <= d
        ),
        KENT.rate(
            "Corollary 8 (i)",
            "upper bound, n eps^2 below d",
            s * log / t + near,
            holds=p.square <= d,
        ),
        KENT.rate(
            "Corollary 8 (ii)", "lower bound, n eps^2 above d log", dense, holds=p.square >= d * log
        ),
        KENT.rate(
            "Corollary 8 (ii)",
            "upper bound, n eps^2 above d log",
            dense * log**2,
            holds=p.square >= d * log,
        ),
    ]


def _others(p: KentProblem) -> list[Bound]:
    """Evaluate Proposition 5 and Theorems 9 to 11."""
    beta = p.smoothness
    m = p.components
    information = kent_information(p.users, p.epsilon)
    density = p.total ** (-beta / (beta + 1))
    end = p.square ** (-2 * beta)
    mixture = m**3 / p.total
    floor = math.exp(-p.square / m**2)
    few = min(1.0, p.epsilon) / (p.users * _log(p.users))

    return [
        KENT.rate("Prop. 5", "risk, T without end, density", information ** (-2 * beta)),
        KENT.rate("Theorem 9", "lower bound, density", max(density, end)),
        KENT.rate(
            "Theorem 9",
            "upper bound, density",
            density * _log(p.total) + end * _log(p.square) ** (2 * beta + 3),
        ),
        KENT.rate("Theorem 10", "lower bound, mixture", max(mixture, floor)),
        KENT.rate("Theorem 10", "upper bound, mixture", mixture * _log(p.total) ** 2 + floor),
        KENT.rate(
            "Theorem 11",
            "greatest delta that gains nothing",
            few,
            note="below it approximate privacy has the lower bounds of Theorem 1",
        ),
    ]


def _tables(p: KentProblem) -> list[Bound]:
    """Evaluate Tables 1 to 4, without logarithms."""
    n = p.users
    t = p.samples
    d = p.dimension
    s = p.sparsity

    beta = p.smoothness
    square = p.square
    power = -beta / (beta + 1)

    rows = [
        ("Table 1", "item level, l2 ball", d / square),
        ("Table 1", "T without end, l2 ball", math.exp(-square / d)),
        ("Table 1", "item level, s-sparse", s * d / square),
        ("Table 1", "T without end, s-sparse", math.exp(-square / s)),
        ("Table 1", "item level, density", square**power),
        ("Table 1", "T without end, density", square ** (-2 * beta)),
        ("Table 2", "non-private, l2 ball", d / (n * t)),
        ("Table 2", "local, item and user level (small T), l2 ball", d / p.total),
        ("Table 2", "central item level, l2 ball", d / (n * t) + d / (n * t * p.epsilon) ** 2),
        (
            "Table 2",
            "central user level (small T), l2 ball",
            d / (n * t) + d / (n**2 * t * p.epsilon**2),
        ),
        ("Table 3", "non-private, s-sparse", s * _log(math.e * d / s) / (n * t)),
        ("Table 3", "local item level, s-sparse", s * d / p.total),
        ("Table 3", "local user level (n, T small), s-sparse", s / t),
        (
            "Table 3",
            "central item level, s-sparse",
            s * _log(d) / (n * t * p.epsilon) + (s * _log(d) / (n * t * p.epsilon)) ** 2,
        ),
        ("Table 4", "local (T small), density", p.total**power),
        (
            "Table 4",
            "central item level, density",
            (n * t) ** (-2 * beta / (2 * beta + 1))
            + (n * t * p.epsilon) ** (-2 * beta / (beta + 1)),
        ),
    ]

    return [KENT.rate(table, quantity, value) for table, quantity, value in rows]


def _boundaries(p: KentProblem) -> list[Bound]:
    """Evaluate Table 5: from which T on more samples do not help.

    And T*, which the proofs cut T at.
    """
    d = p.dimension
    s = p.sparsity
    square = p.square
    beyond = "T above it gains nothing"

    return [
        KENT.rate("Table 5", "phase transition, l2 ball", exponential(square / d), note=beyond),
        KENT.rate(
            "Table 5",
            "phase transition, s-sparse",
            exponential(square / (s if d >= square else d)),
            note=beyond,
        ),
        KENT.rate(
            "Table 5", "phase transition, density", square ** (2 * p.smoothness + 1), note=beyond
        ),
        KENT.explicit(
            "T*, Eq. 30",
            "samples used of each user",
            min(float(p.samples), exponential(kent_information(p.users, p.epsilon) / (K * d))),
            note="min(T, e^(n eps^2/(K d))) with K = 8535, the least that the proof allows; here T* = T is used",
        ),
    ]


def _steps(p: KentProblem) -> list[Bound]:
    """Evaluate Table 6."""
    n = p.users
    t = p.samples
    d = p.dimension

    rows = [
        ("Table 6", "steps, l_inf ball", max(t, n * t**0.5)),
        ("Table 6", "steps, l2 ball", max(d**2, t, n * (d * t) ** 0.5)),
        ("Table 6", "steps, s-sparse (large d)", max(t, n * d, n * t**0.5)),
        ("Table 6", "steps, s-sparse (small d)", max(d, t, n * t**0.5)),
        (
            "Table 6",
            "steps, density (M = (n T eps^2)^(1/(2 beta + 2)))",
            max(t * p.total ** (0.5 / (p.smoothness + 1)), n * t**0.5),
        ),
        ("Table 6", "steps, mixture", max(t, p.components * n)),
    ]

    return [KENT.rate(table, quantity, value) for table, quantity, value in rows]
