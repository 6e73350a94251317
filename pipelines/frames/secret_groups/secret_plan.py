"""The noise of groups whose names and sizes are secret, and from which count on a name comes out.

Notation: u is the largest number of rows of one unit, in all its groups together; W the width of
the bounds in steps of the grid; s the scale of the noise of a sum, in steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meanstream.operators.noise.distributions import TAIL_DELTA, LaplaceNoise
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.group_privacy import odds_of_a_guess
from meanstream.operators.noise.numerics import LARGEST_SHARE, numeric_slack, refuse_small_epsilon
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require, require_epsilon, valid_float
from meanstream.pipelines.frames.values.whole_persons import PersonLimits

SQUARES_SHARE = 0.05
"""Part of epsilon for the sum of squares, from which the variance of a value is known."""
GRID_BITS = 16
"""Rounding moves a value by 1 / 131,072 of the width; more bits would refuse small epsilons."""
ROUNDING = 1e-9
"""Part of delta that is left for the float64 arithmetic of the threshold."""
ONE_ROW = PersonLimits(max_groups=1, max_rows=1)


@dataclass(frozen=True, kw_only=True)
class SecretPlan:
    """Public: how groups with secret names and sizes are released.

    Attributes
    ----------
    lower, upper : float
        Bounds of a value.
    epsilon, delta : float
        Of everything that is released; delta is for names, and 0 where they are declared.
    limits : PersonLimits
        What a unit gives at most; one row is one row of one group.
    declared : bool
        Whether the names are public: then each is answered, however few rows it has.

    Notes
    -----
    **Privacy.** Neighbors add or remove one unit. A row at g of 0..W adds g to its group's sum
    above `lower` and W - g to that below `upper`: W in the l1 norm, whatever its value. So Laplace
    noise of scale u W / epsilon on both sums is epsilon-differentially private for both together.
    Their total is the number of rows, which needs no budget of its own.

    A group that is empty without the unit is in the result with probability delta / K at most, for
    K groups of a unit, and never without the unit. The sum of squares is of those groups alone that
    came out, whose names are public by then.

    References
    ----------
    D. Desfontaines, J. Voss, B. Gipson, C. Mandayam, Differentially Private Partition Selection,
    PoPETs 2022; C. Harrison, P. Manurangsi, Optimal Partition Selection with Renyi Differential
    Privacy, arXiv 2603.09167, Section 5: noise on counts that are released, too, costs names.

    Examples
    --------
    >>> plan = SecretPlan(lower=0, upper=1, epsilon=1.0, delta=1e-6)
    >>> round(plan.least_rows, 1), round(plan.count_stddev, 2)
    (17.1, 2.11)
    """

    lower: float
    upper: float
    epsilon: float
    delta: float = 0.0
    limits: PersonLimits = ONE_ROW
    declared: bool = False

    def __post_init__(self) -> None:
        for name in ("lower", "upper", "epsilon", "delta"):
            object.__setattr__(self, name, valid_float(name, getattr(self, name)))

        require_epsilon(self.epsilon)
        if self.declared:
            rule = "be 0 with groups: names that are declared need no threshold"
            require(self.delta == 0, "delta", rule, self.delta)
        else:
            rule = "lie in (0, 1), such as 1e-6, for the threshold of names; groups= declares them"
            require(0 < self.delta < 1, "delta", rule, self.delta)

        _ = self.sums_noise, self.squares_noise, self.least_total  # they check the noise

    @cached_property
    def grid(self) -> FixedPoint:
        """The grid of values and sums."""
        return FixedPoint(self.lower, self.upper, bits=GRID_BITS)

    @property
    def units(self) -> int:
        """Rows that one unit has in all groups together, at most."""
        return self.limits.max_groups * self.limits.max_rows

    @cached_property
    def sums_noise(self) -> LaplaceNoise:
        """Noise of a group's sum above `lower`, and of that below `upper`, in steps."""
        draws = 2 * self.limits.max_groups
        return self._noise(self.epsilon * (1 - SQUARES_SHARE), draws)

    @cached_property
    def squares_noise(self) -> LaplaceNoise:
        """Noise of the sum of squares, in steps."""
        return self._noise(self.epsilon * SQUARES_SHARE, 1)

    @property
    def least_total(self) -> int:
        """Noisy total of both sums from which on a name comes out, in steps."""
        if self.declared:
            return 0

        draws = 2 * self.limits.max_groups + 1
        each = (self.delta * (1 - ROUNDING) - draws * TAIL_DELTA) / self.limits.max_groups
        require(each > 0, "delta", f"be more than {draws * TAIL_DELTA:g} here", self.delta)
        own_total = self.limits.max_rows * self.grid.span

        return own_total + least_rare_noise(self.sums_noise.scale, each)

    @property
    def least_rows(self) -> float:
        """Noisy number of rows from which on a name comes out."""
        return self.least_total / self.grid.span

    def comes_out(self, rows: int) -> float:
        """Probability that the name of a group with some rows comes out, exactly.

        Examples
        --------
        >>> plan = SecretPlan(lower=0, upper=1, epsilon=1.0, delta=1e-6)
        >>> plan.comes_out(1) <= 1e-6, round(plan.comes_out(17), 2)
        (True, 0.48)
        """
        if self.declared:
            return 1.0
        return noise_tail(self.sums_noise.scale, self.least_total - rows * self.grid.span)

    @property
    def count_stddev(self) -> float:
        """Standard deviation of the noise of a number of rows."""
        return math.sqrt(2 * self.sums_noise.variance) / self.grid.span

    def mean_variance(self, rows: Ints) -> Floats:
        """Variance of the noise in means near the middle of the bounds, by numbers of rows."""
        half = (self.upper - self.lower) / 2
        return np.asarray((half * self.count_stddev / rows) ** 2)

    @property
    def guessed_right(self) -> float:
        """How often someone who knows all else guesses right whether a unit is there, at most."""
        return odds_of_a_guess(self.epsilon, self.delta)

    def canonical(self) -> dict[str, object]:
        """Everything that decides how random bits become a release: part of the noise's key."""
        return {
            "lower": self.lower,
            "upper": self.upper,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "max_groups": self.limits.max_groups,
            "max_rows": self.limits.max_rows,
            "declared": self.declared,
        }

    def _noise(self, epsilon: float, draws: int) -> LaplaceNoise:
        """Calibrate the noise, what float64 adds to epsilon included."""
        moved = self.units * self.grid.span

        def slack(part: float) -> float:
            return numeric_slack(LaplaceNoise(moved / part), draws)

        if slack(epsilon) > LARGEST_SHARE * epsilon:
            whole = self.epsilon / epsilon
            refuse_small_epsilon(
                self.epsilon, lambda more: slack(more / whole) <= LARGEST_SHARE * more / whole
            )

        return LaplaceNoise(moved / (epsilon - 2 * slack(epsilon)))


def secret_facts(plan: SecretPlan, sizes: Ints) -> dict[str, Any]:
    """Give a plan's mechanism, its odds, and the share of names that come out."""
    unique, groups = np.unique(sizes, return_counts=True)
    likely = [plan.comes_out(rows) for rows in unique.tolist()]
    return {
        "mechanism": "two sums.laplace",
        "guessed_right": plan.guessed_right,
        "names": float(np.average(likely, weights=groups)),
    }


def noise_tail(scale: float, least: int) -> float:
    """Probability that two draws of discrete Laplace noise add up to `least` or more.

    With `q = exp(-1 / scale)` it is, for t = least >= 0,
    `((1 - q) / (1 + q))^2 q^t ((t + 1) / (1 - q) + q / (1 - q)^2 + 2 q^2 / ((1 - q^2) (1 - q)))`.

    Examples
    --------
    >>> round(noise_tail(1.0, 1), 6), round(noise_tail(1.0, 1) + noise_tail(1.0, 0), 6)
    (0.359799, 1.0)
    """
    if least < 1:
        return 1.0 - noise_tail(scale, 1 - least)

    q = math.exp(-1 / scale)
    p = -math.expm1(-1 / scale)
    ends = (least + 1) / p + q / p**2 + 2 * q**2 / (p**2 * (1 + q))

    return (p / (1 + q)) ** 2 * math.exp(-least / scale) * ends


def least_rare_noise(scale: float, probability: float) -> int:
    """Least number that two draws add up to, or to more, with some probability at most.

    Examples
    --------
    >>> number = least_rare_noise(1.0, 1e-6)
    >>> number, noise_tail(1.0, number) <= 1e-6 < noise_tail(1.0, number - 1)
    (16, True)
    """
    low = 0
    high = 1
    while noise_tail(scale, high) > probability:
        low = high
        high *= 2

    while high - low > 1:
        middle = (low + high) // 2
        if noise_tail(scale, middle) <= probability:
            high = middle
        else:
            low = middle

    return high
