"""Groups within groups, `nested=True` next to `nested=False`: on made-up trees, and on the flights.

Made-up trees have counties in states; squared errors and coverage are of the counties' true means,
with the worst seed. The flights are cut in halves: one is the frame, and the mean of each group in
the other is the truth, whose own sampling error is taken off; groups have ten flights or more there.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from meanstream import private_means
from meanstream.lab.demo.flights import flights_file

Floats = npt.NDArray[np.float64]

KEY = "7c1e94b05fa3d2681be60c9d37f25a84d94c6b1f08e37a52"
STDDEV = 0.15
ROWS = 10
TREES = {
    "50 x 60, levels matter": (50, 60, 0.1, 0.05),
    "50 x 60, levels matter little": (50, 60, 0.02, 0.05),
    "50 x 60, levels do not matter": (50, 60, 0.0, 0.05),
    "300 x 2, levels matter": (300, 2, 0.1, 0.05),
    "300 x 2, levels do not matter": (300, 2, 0.0, 0.05),
    "4 x 4, levels do not matter": (4, 4, 0.0, 0.05),
}
"""States, counties of each, and the spreads of both; bounds are [0, 1]."""
FLIGHTS = (
    ["carrier", "tailnum"],
    ["carrier", "dest"],
    ["hour", "carrier"],
    ["month", "carrier", "dest"],
)
LEAST_ROWS = 10


@dataclass(frozen=True)
class Measured:
    """Squared error of leaves, coverage of leaves and of the level above; of one seed."""

    error: float
    coverage: float
    above: float


def of_tree(frame: pd.DataFrame, truth: Floats, nested: bool, **question: Any) -> Measured:
    """Answer a made-up tree, whose leaves are in the order of the truth."""
    result = private_means(frame, by=["state", "county"], value="value", nested=nested, **question)
    value, lower, upper = (np.asarray(result.table[name]) for name in ("mean", "lower", "upper"))
    above = np.nan

    if nested:
        states = result.means_of("state").table
        of_states = truth.reshape(states.num_rows, -1).mean(axis=1)
        ends = np.asarray(states["lower"]), np.asarray(states["upper"])
        above = float(((ends[0] <= of_states) & (of_states <= ends[1])).mean())

    covered = (lower <= truth) & (truth <= upper)
    return Measured(float(np.square(value - truth).mean()), float(covered.mean()), above)


def made_tree(name: str, seed: int) -> tuple[pd.DataFrame, Floats]:
    """Draw a tree with rows of each county."""
    states, counties, of_states, of_counties = TREES[name]
    rng = np.random.default_rng(seed)
    state = np.repeat(np.arange(states), counties)
    truth = 0.5 + rng.normal(0, of_states, states)[state]
    truth = np.clip(truth + rng.normal(0, of_counties, len(state)), 0, 1)

    county = np.repeat(np.arange(len(state)), ROWS)
    # Values within the bounds, so that the mean of clipped values is the truth.
    width = np.minimum(np.minimum(truth, 1 - truth), np.sqrt(3) * STDDEV)[county]
    value = truth[county] + width * rng.uniform(-1, 1, len(county))

    return pd.DataFrame({"state": state[county], "county": county, "value": value}), truth


def print_trees(seeds: int, first_seed: int, epsilon: float) -> None:
    """Print a line for each tree."""
    print("| tree | error, to flat | worst seed | counties covered | worst seed | states covered |")
    print("|---|---|---|---|---|---|")
    for name in TREES:
        flat = []
        nested = []
        for seed in range(first_seed, first_seed + seeds):
            frame, truth = made_tree(name, seed)
            question: dict[str, Any] = {
                "lower": 0.0,
                "upper": 1.0,
                "epsilon": epsilon,
                "secret": KEY,
            }
            question |= {"name": f"{name} {seed}"}
            flat.append(of_tree(frame, truth, nested=False, **question))

            nested.append(of_tree(frame, truth, nested=True, **question))

        errors = np.array([[one.error for one in each] for each in (flat, nested)])
        ratio = errors[1] / errors[0]
        coverage = np.array([one.coverage for one in nested])
        above = np.array([one.above for one in nested])
        print(
            f"| {name} | {errors[1].sum() / errors[0].sum():.3f} | {ratio.max():.3f} | "
            f"{coverage.mean():.3f} | {coverage.min():.3f} | {above.mean():.3f} |",
            flush=True,
        )


def print_flights(seeds: int, first_seed: int, epsilon: float) -> None:
    """Print a line for each choice of levels."""
    flights = pd.read_csv(flights_file())
    flights = flights[["carrier", "tailnum", "dest", "month", "hour", "dep_delay"]].dropna()
    flights["value"] = flights["dep_delay"].clip(-30, 120)
    print("| levels | groups | squared error, flat | nested | nested to flat |")
    print("|---|---|---|---|---|")

    for by in FLIGHTS:
        errors = np.zeros(2)
        for seed in range(first_seed, first_seed + seeds):
            half = np.random.default_rng(seed).random(len(flights)) < 0.5
            other = flights[~half].groupby(by)["value"].agg(["mean", "var", "size"])
            other = other[other["size"] >= LEAST_ROWS]

            for number, nested in enumerate((False, True)):
                result = private_means(
                    flights[half], by=by, value="value", lower=-30, upper=120, epsilon=epsilon,
                    nested=nested, secret=KEY, name=f"flights {seed}",
                )  # fmt: skip
                mean = result.to_frame().set_index(by)["mean"].reindex(other.index)
                squared = (mean - other["mean"]) ** 2 - other["var"] / other["size"]
                errors[number] += squared.mean() / seeds

        ratio = errors[1] / errors[0]
        levels = ", ".join(by)
        print(
            f"| {levels} | {len(other):,} | {errors[0]:.1f} | {errors[1]:.1f} | {ratio:.2f} |",
            flush=True,
        )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=500)
    parser.add_argument("--epsilon", type=float, default=1.0)
    options = parser.parse_args()
    print_trees(options.seeds, options.first_seed, options.epsilon)
    print()
    print_flights(max(options.seeds // 5, 1), options.first_seed, options.epsilon)


if __name__ == "__main__":
    main()
