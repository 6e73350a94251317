"""Error and coverage of the honest default where users differ, against one report of each user and its prediction.

    python benchmarks/goals/measure_adaptive_goals.py --runs 200 python
    benchmarks/goals/measure_adaptive_goals.py --runs 60 --populations point1000,unif199 --mean 0.5
    --hide-sizes

Samples are -1 or 1; users' means are all alike, normal, or exponential to one side, with standard
deviation .05 or .2. Goals: 95 % intervals cover at least .92; mean squared error at most 1.2 times
that of one report of each user everywhere, .08 times with 1000 samples each and users alike, .25
times with normal .05. A goal counts as missed beyond two standard errors of the measurement. Exit
code 1 if one is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import asdict

from tests.oracles.adaptive_errors import (
    LEAST_COVERAGE,
    POPULATIONS,
    Cell,
    GoalResult,
    adaptive_goal_cells,
    measure_adaptive_goal,
)


def main() -> None:
    """Measure the cells and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mean", type=float, default=0.0, help="around which users' means lie")
    parser.add_argument(
        "--populations", default=",".join(POPULATIONS), help="names, separated by commas"
    )

    parser.add_argument(
        "--hide-sizes", action="store_true", help="the estimator does not know the law of sizes"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = options.populations.split(",")
    rows = []

    for cell in (cell for cell in adaptive_goal_cells() if cell.population in chosen):
        start = time.perf_counter()
        told = not options.hide_sizes
        found = measure_adaptive_goal(
            cell, runs=options.runs, seed=options.seed, mean=options.mean, announce_sizes=told
        )
        missed = missed_goals(cell, found, options.runs)

        rows.append(
            {
                **asdict(cell),
                **asdict(found),
                "seconds": time.perf_counter() - start,
                "missed": missed,
            }
        )
        if not options.json:
            print(_line(cell, found, missed), flush=True)

    n_missed = sum(bool(row["missed"]) for row in rows)
    print(
        json.dumps({"runs": options.runs, "rows": rows}, indent=1)
        if options.json
        else f"cells missed: {n_missed}"
    )
    sys.exit(n_missed > 0)


def missed_goals(cell: Cell, found: GoalResult, runs: int) -> list[str]:
    """Name the goals that a measurement misses by more than two of its standard errors."""
    missed = {
        "error": found.measured - 2 * found.measured_stderr > cell.most,
        "coverage": found.coverage
        < LEAST_COVERAGE - 2 * math.sqrt(LEAST_COVERAGE * (1 - LEAST_COVERAGE) / runs),
    }

    return [name for name, failed in missed.items() if failed]


def _line(cell: Cell, found: GoalResult, missed: list[str]) -> str:
    return (
        f"{cell.population:10s} {cell.epsilon:4.2f} {cell.between:10s} {'adapts ' if found.adapts else 'one shot'}"
        f" one-shot mse {found.one_shot:.2e} predicted {found.predicted:5.3f} measured {found.measured:5.3f}"
        f" +-{found.measured_stderr:.3f} (goal {cell.most:4.2f}) coverage {found.coverage:.3f} bias {found.bias:+.1f}"
        f" {' '.join(missed)}"
    )


if __name__ == "__main__":
    main()
