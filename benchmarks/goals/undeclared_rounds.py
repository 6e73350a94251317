"""A mean of a window where nothing is declared: its gain where users are alike, its price elsewhere.

    python benchmarks/goals/undeclared_rounds.py --runs 1000 --seed 20261129
    python benchmarks/goals/undeclared_rounds.py --runs 400 --users 4000 --epsilon 2

Squared error of `plan` over the exact one of one report of each user, coverage, and how often a
narrow window was used. Samples are -1 or 1. Goals, each within three standard errors: at most .11
where users are alike and have 500 samples, 1.03 wherever no small group lies far from all others,
and intervals that cover .93 everywhere. No seed below 20261129 is to be shown: constants were
chosen with those. Exit code 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import math
import sys

import numpy as np

from meanstream.lab.simulation.simulated_rounds import RoundsConfig, simulate_round
from meanstream.operators.estimators.one_shot import OneShot

LAWS = (
    "normal:0.02",
    "normal:0.05",
    "normal:0.1",
    "normal:0.2",
    "normal:0.3",
    "skewed:0.05",
    "skewed:0.2",
    "far:0.002",
    "far:0.01",
    "far:0.03",
    "far:0.05",
    "far:0.1",
)
SIZES = ("point:500", "point:20")
DRAWN = 400_000
"""Users of one draw that the exact error of one report is computed from."""


def exact_one_shot(config: RoundsConfig) -> float:
    """Mean squared error of one report of each user, from the second moment of users' means."""
    config = RoundsConfig(**{**config.as_dict(), "users": DRAWN})
    square = float(np.mean(config.population.draw(np.random.default_rng(1)).mean ** 2))
    channel = OneShot(epsilon=config.epsilon, users=1, sizes=config.population.sizes).channel
    c0, c1 = channel(None).moments  # type: ignore[arg-type]
    return c0 + c1 * square - config.population.theta**2


def measure(config: RoundsConfig) -> tuple[float, float, float, float]:
    """Give the ratio of squared errors with its standard error, coverage, and use of the window."""
    estimator = config.build()
    theta = config.population.theta
    exact = exact_one_shot(config) / config.users
    found = [simulate_round(config, estimator, run) for run in range(config.runs)]

    squared = np.array([(float(one.unclipped) - theta) ** 2 for one in found]) / exact
    covered = np.mean([float(one.lower) <= theta <= float(one.upper) for one in found])
    narrow = np.mean(
        [any(stage.get("half_width", 1.0) < 1.0 for stage in one.stages) for one in found]
    )
    error = float(squared.std(ddof=1)) / math.sqrt(config.runs)
    return float(squared.mean()), error, float(covered), float(narrow)


def goal(sizes: str, law: str) -> float:
    """Most that the ratio may be."""
    if law.startswith("far"):
        return math.inf
    return 0.11 if (sizes, law) == ("point:500", "normal:0.02") else 1.03


def main() -> None:
    """Measure the cells and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=20261129)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    options = parser.parse_args()
    missed = []
    print("| samples | users' means | squared error / one_shot | coverage | narrow window |")
    print("|---|---|---|---|---|")

    for sizes in SIZES:
        for law in LAWS:
            config = RoundsConfig(
                estimator="plan",
                users=options.users,
                epsilon=options.epsilon,
                sizes=sizes,
                data="rademacher:0.6" if law.startswith("far") else "rademacher:0.3",
                between_users_law=law,
                runs=options.runs,
                seed=options.seed,
            )
            ratio, error, covered, narrow = measure(config)
            print(f"| {sizes} | {law} | {ratio:.2f} ± {error:.2f} | {covered:.3f} | {narrow:.2f} |")

            least = 0.93 - 3.0 * math.sqrt(0.93 * 0.07 / options.runs)
            if ratio - 3.0 * error > goal(sizes, law) or covered < least:
                missed.append(f"{sizes} {law}")

    print(f"\nGoals missed: {', '.join(missed) or 'none'}.")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
