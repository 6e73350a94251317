"""The cells in which the tuned plan is measured against DAME as printed, and the measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meanstream.lab.random_words import SeededWords
from meanstream.lab.simulation.round_laws import draw_population_sizes
from meanstream.operators.estimators.registry import build_estimator
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.round_protocol import (
    Estimator,
    protocol_stages_of_positions,
    run_protocol,
)
from meanstream.operators.rounds.round_records import Summaries
from meanstream.operators.rounds.user_sizes import SizeDistribution

EPSILONS = (0.3, 22 / 35, 1.0, 2.0, 4.0)

POPULATIONS: dict[str, tuple[str, int]] = {
    "fig1b_.1": ("two:100000,1000000,0.1111111111", 10_000),
    "fig1b_.5": ("two:100000,1000000,0.5555555556", 10_000),
    "fig1b_.9": ("two:100000,1000000,0.8888888889", 10_000),
    "poisson5": ("poisson:5", 10_000),
    "unif199": ("uniform:1,199", 20_000),
    "lognorm20": ("lognormal:20,1.5", 100_000),
}
"""Name of each population: law of the sizes, number of users."""

LITERAL: dict[str, tuple[float, ...]] = {
    "fig1b_.1": (4.8e-3, 5.1e-5, 2.0e-5, 4.7e-6, 1.2e-6),
    "fig1b_.5": (8.4e-4, 5.0e-5, 2.1e-5, 5.1e-6, 2.8e-7),
    "fig1b_.9": (3.2e-3, 4.4e-5, 1.8e-5, 6.7e-7, 1.7e-7),
    "poisson5": (8.5, 2.1, 0.58, 0.081, 0.02),
    "unif199": (5.8, 1.0, 0.014, 0.0027, 0.00061),
    "lognorm20": (1.4, 0.083, 0.026, 0.0053, 0.0012),
}
"""Mean squared error of DAME as printed (literal noise, not cut to [-1, 1]) at mean 0, for each
epsilon; simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRounds:
    """What simulated rounds of one estimator gave.

    Attributes
    ----------
    predicted, mse, mse_stderr : float
        Predicted and measured mean squared error on [-1, 1].
    bias, bias_stderr : float
        Of the answers before they are cut to [-1, 1].
    coverage : float
        Share of the intervals that hold the mean.
    kind : str
        Of the plan.
    restarts : int
        Runs in which the vote was found to have failed.
    """

    predicted: float
    mse: float
    mse_stderr: float
    bias: float
    bias_stderr: float
    coverage: float
    kind: str
    restarts: int


def round_goal_cells() -> list[tuple[str, float]]:
    """Return the population and epsilon of each of the 30 cells."""
    return [(name, epsilon) for name in POPULATIONS for epsilon in EPSILONS]


def round_goal_literal_mse(name: str, epsilon: float) -> float:
    """Mean squared error of DAME as printed in a cell."""
    return LITERAL[name][EPSILONS.index(epsilon)]


def measure_round_goal_cell(
    name: str,
    epsilon: float,
    *,
    runs: int,
    seed: int = 1,
    theta: float = 0.0,
    between_users: float = 0.0,
) -> MeasuredRounds:
    """Simulate rounds of the plan in one cell, with samples on {-1, 1}."""
    text, users = POPULATIONS[name]
    sizes = SizeDistribution.parse(text)
    plan = build_estimator(
        "plan", epsilon=epsilon, users=users, sizes=sizes, between_users=between_users
    )
    return measure_round_goal(plan, sizes, users, runs=runs, seed=seed, theta=theta)


def measure_round_goal(
    estimator: Estimator,
    sizes: SizeDistribution,
    users: int,
    *,
    runs: int,
    seed: int,
    theta: float = 0.0,
) -> MeasuredRounds:
    """Simulate rounds of any estimator with samples on {-1, 1} of this mean."""
    rng = np.random.default_rng(seed)
    values, covered, restarts = np.empty(runs), 0, 0
    for run in range(runs):
        stage = protocol_stages_of_positions(estimator.shares, rng.random(users))
        words = [
            SeededWords(rng, int(np.sum(stage == number)))
            for number in range(len(estimator.rounds))
        ]
        found = run_protocol(
            estimator, round_goal_two_point_users(sizes, users, theta, rng), stage, words
        )
        values[run] = found.unclipped
        covered += bool(found.lower <= theta <= found.upper)
        restarts += any("restart" in step for step in found.stages)
    described = estimator.describe()
    squares: Floats = (np.clip(values, -1, 1) - theta) ** 2
    return MeasuredRounds(
        predicted=described["predicted_stderr"] ** 2,
        mse=float(squares.mean()),
        mse_stderr=float(squares.std() / math.sqrt(runs)),
        bias=float(values.mean() - theta),
        bias_stderr=float(values.std() / math.sqrt(runs)),
        coverage=covered / runs,
        kind=str(described.get("kind", described.get("method"))),
        restarts=restarts,
    )


def round_goal_two_point_users(
    sizes: SizeDistribution, users: int, theta: float, rng: np.random.Generator
) -> Summaries:
    """Draw users whose samples are -1 or 1."""
    count = draw_population_sizes(sizes, users, rng)
    ones: Ints = rng.binomial(count, 0.5 * (1 + theta)).astype(np.int64)
    first = (rng.random(users) < ones / count).astype(np.int64)
    return Summaries(
        user=np.zeros((users, 2), np.uint64), count=count, total=ones, first=first, span=1
    )


def round_goal_geometric_mean(ratios: Sequence[float]) -> float:
    """Geometric mean of positive numbers."""
    return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))
