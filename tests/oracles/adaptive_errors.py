"""The cells in which the honest default is measured against one report of each user, and the
measurement."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from meanstream.lab.simulation.simulated_rounds import RoundsConfig, simulate_rounds
from meanstream.operators.estimators.adaptive.adaptive import Adaptive
from meanstream.operators.estimators.adaptive.adaptive_risk import (
    PlacedLaw,
    adaptive_one_shot_risk,
    adaptive_risk,
)
from meanstream.operators.records import Floats
from meanstream.operators.rounds.user_sizes import SizeDistribution

BETWEEN_LAWS: dict[str, str | None] = {
    "none": None,
    "normal .05": "normal:0.05",
    "normal .2": "normal:0.2",
    "skewed .05": "skewed:0.05",
    "skewed .2": "skewed:0.2",
}
"""Name of each law of users' means around the population's: all alike, normal, or one exponential
tail."""

POPULATIONS: dict[str, tuple[str, int, tuple[float, ...]]] = {
    "unif199": ("uniform:1,199", 20_000, (1.0,)),
    "point1000": ("point:1000", 20_000, (1.0,)),
    "poisson5": ("poisson:5", 10_000, (0.63, 1.0, 2.0, 4.0)),
    "lognorm20": ("lognormal:20,1.5", 100_000, (0.63, 1.0, 2.0, 4.0)),
}
"""Name of each population: law of the sizes, number of users, epsilons."""

MOST = {("point1000", "none"): 0.08, ("point1000", "normal .05"): 0.25}
MOST_ELSEWHERE = 1.2
LEAST_COVERAGE = 0.92

_LAW_USERS = 200_000
_LAW_POINTS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Where something is measured: names of a population and of a law of users' means, and
    epsilon."""

    population: str
    between: str
    epsilon: float

    @property
    def most(self) -> float:
        """Goal: mean squared error, relative to one report of each user."""
        return MOST.get((self.population, self.between), MOST_ELSEWHERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalResult:
    """What simulated rounds gave.

    Attributes
    ----------
    one_shot : float
        Exact mean squared error if every user reports once on [-1, 1].
    predicted, measured, measured_stderr : float
        Mean squared error, relative to `one_shot`.
    bias : float
        Mean error, in its standard errors.
    coverage : float
        Share of the intervals that hold the mean over users.
    adapts : bool
        Whether there is more than one stage.
    """

    one_shot: float
    predicted: float
    measured: float
    measured_stderr: float
    bias: float
    coverage: float
    adapts: bool


def adaptive_goal_cells() -> list[Cell]:
    """Return every cell that a goal is set for."""
    return [
        Cell(population=name, between=between, epsilon=epsilon)
        for name, (_, _, epsilons) in POPULATIONS.items()
        for epsilon in epsilons
        for between in BETWEEN_LAWS
    ]


def measure_adaptive_goal(
    cell: Cell, *, runs: int, seed: int = 1, mean: float = 0.0, announce_sizes: bool = True
) -> GoalResult:
    """Simulate rounds in one cell, with samples on {-1, 1}.

    Parameters
    ----------
    cell : Cell
    runs, seed : int
    mean : float
        Around which users' means lie.
    announce_sizes : bool
        Whether the estimator knows the law of sizes.
    """
    sizes, users, _ = POPULATIONS[cell.population]
    config = RoundsConfig(
        estimator="adaptive",
        users=users,
        epsilon=cell.epsilon,
        sizes=sizes,
        data=f"rademacher:{mean}",
        between_users_law=BETWEEN_LAWS[cell.between],
        runs=runs,
        seed=seed,
    )
    known = SizeDistribution.parse(sizes) if announce_sizes else None
    estimator = Adaptive(epsilon=cell.epsilon, users=users, sizes=known)
    law = PlacedLaw.of(_law_points(config.sizes, str(config.data), config.between_users_law))
    one_shot = adaptive_one_shot_risk(
        Adaptive(epsilon=cell.epsilon, users=users, sizes=SizeDistribution.parse(sizes)).plan, law
    )
    found = simulate_rounds(config, estimator)
    return GoalResult(
        one_shot=one_shot,
        predicted=adaptive_risk(estimator.plan, law) / one_shot,
        measured=found.mse / one_shot,
        measured_stderr=(found.stderr or 0.0) / one_shot,
        bias=found.bias / found.bias_stderr if found.bias_stderr else 0.0,
        coverage=found.coverage,
        adapts=len(estimator.shares) > 1,
    )


@cache
def _law_points(sizes: str, data: str, between: str | None) -> Floats:
    """Quantiles of users' means, from one large draw."""
    config = RoundsConfig(
        users=_LAW_USERS, estimator="adaptive", sizes=sizes, data=data, between_users_law=between
    )
    means = config.population.draw(np.random.default_rng(0)).mean
    return np.asarray(np.quantile(means, (np.arange(_LAW_POINTS) + 0.5) / _LAW_POINTS))
