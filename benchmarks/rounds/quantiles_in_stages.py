"""Quantiles of a population: bits near a quantile against votes for bins, on laws that the design has not seen.

Each row is a law, a number of users and the requested quantiles; epsilon is 1 unless given. The
table has the root mean squared error of `quantile_tree` in half widths of the bounds, how many
times less squared error `quantile_search` has, and the coverage of both kinds of 95 % intervals.

    python benchmarks/rounds/quantiles_in_stages.py --runs 60 --table table.md
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.registry import build_estimator
from meanstream.operators.rounds.round_protocol import assign_protocol_stages, run_protocol
from meanstream.operators.rounds.round_records import Estimate, Summaries

SPAN = 2**20
Draw = Callable[[Any, int], Any]


def two_humps(rng: Any, n: int) -> Any:
    """Draw from two normal laws, apart."""
    return np.where(rng.random(n) < 0.4, rng.normal(-0.5, 0.1, n), rng.normal(0.4, 0.2, n))


def flat_median(rng: Any, n: int) -> Any:
    """Draw 49.5 % of the users low: nobody is for 1.7 half widths above them."""
    low = rng.random(n) < 0.495
    return np.where(low, rng.uniform(-0.95, -0.85, n), rng.uniform(0.85, 0.95, n))


def ties(rng: Any, n: int) -> Any:
    """Draw one of nine values."""
    shares = [0.05, 0.05, 0.1, 0.2, 0.2, 0.15, 0.1, 0.1, 0.05]
    return rng.choice(np.linspace(-0.8, 0.8, 9), n, p=shares)


LAWS: dict[str, Draw] = {
    "beta(2, 5)": lambda rng, n: 2.0 * rng.beta(2, 5, n) - 1.0,
    "lognormal": lambda rng, n: 0.3 * rng.lognormal(0.0, 0.8, n) - 1.0,
    "Student t, 2 degrees": lambda rng, n: stats.t(2, -0.3, 0.1).rvs(n, random_state=rng),
    "two humps": two_humps,
    "narrow": lambda rng, n: rng.normal(0.33, 0.01, n),
    "nine values": ties,
    "flat median": flat_median,
}
CASES = ((0.05,), (0.25,), (0.5,), (0.25, 0.5, 0.75))


def answered(estimator: Any, mean: Any, seed: list[int]) -> Estimate:
    """Run all stages on users of one sample each."""
    rng = np.random.default_rng(seed)
    place = np.rint(0.5 * (np.clip(mean, -1.0, 1.0) + 1.0) * SPAN).astype(np.int64)
    user = rng.integers(0, 2**63, (len(mean), 2)).astype(np.uint64)
    held = Summaries(user=user, count=np.ones_like(place), total=place, first=place, span=SPAN)
    stage = assign_protocol_stages(estimator.shares, user, b"quantiles")
    words = [
        SeededWords(np.random.default_rng([*seed, number]), int((stage == number).sum()))
        for number in range(len(estimator.rounds))
    ]

    return run_protocol(estimator, held, stage, words)


def compared(
    draw: Draw, users: int, wanted: tuple[float, ...], asked: argparse.Namespace
) -> list[list[str]]:
    """Give a row of the table for each quantile."""
    seed = asked.seed
    runs = asked.runs
    everyone = np.clip(draw(np.random.default_rng([seed, 1]), 2_000_000), -1.0, 1.0)
    truth = np.quantile(everyone, wanted, method="inverted_cdf")
    squares = {}
    covers = {}

    for name in ("quantile_tree", "quantile_search"):
        estimator = build_estimator(name, epsilon=asked.epsilon, users=users, quantiles=wanted)
        found = [
            answered(estimator, draw(np.random.default_rng([seed, 2, run]), users), [seed, 3, run])
            for run in range(runs)
        ]
        squares[name] = np.array([(one.value - truth) ** 2 for one in found])
        # A made-up truth of two million users errs by about 1e-3.
        covers[name] = np.mean(
            [(one.lower <= truth + 1e-3) & (truth - 1e-3 <= one.upper) for one in found], axis=0
        )

    tree = squares["quantile_tree"].mean(axis=0)
    search = squares["quantile_search"].mean(axis=0)
    ratio = tree / search

    # The standard error of a ratio of two means of squares, from their own spreads.
    spread = [values.std(axis=0) / values.mean(axis=0) for values in squares.values()]
    error = ratio * np.sqrt((spread[0] ** 2 + spread[1] ** 2) / runs)

    return [
        [
            f"{users:,}",
            f"{quantile:g}" + (" of three" if len(wanted) > 1 else ""),
            f"{np.sqrt(tree[i]):.2g}",
            f"{ratio[i]:.2g} ± {error[i]:.1g}",
            f"{covers['quantile_tree'][i]:.2f}",
            f"{covers['quantile_search'][i]:.2f}",
        ]
        for i, quantile in enumerate(wanted)
    ]


def main() -> None:
    """Print the table, a row for each quantile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=500)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--users", default="2000,10000,50000")
    parser.add_argument("--laws", default=",".join(LAWS).replace(", ", "; "))
    parser.add_argument("--table", type=Path)
    asked = parser.parse_args()

    lines = [
        "| users' means | users | quantile | error of `quantile_tree` | squared error: times less"
        " | cover, tree | cover, search |",
        "|---|---|---|---|---|---|---|",
    ]
    print(*lines, sep="\n")
    for law in asked.laws.split(","):
        name = law.replace("; ", ", ")
        for users in map(int, asked.users.split(",")):
            for wanted in CASES:
                rows = compared(LAWS[name], users, wanted, asked)
                added = [f"| {' | '.join([name, *row])} |" for row in rows]
                lines += added
                print(*added, sep="\n", flush=True)

    if asked.table:
        asked.table.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
