"""Error and coverage of the learned prior in seven populations, against its goals. Prints JSON.

    python benchmarks/goals/measure_tuned_goals.py --runs 100
    python benchmarks/goals/measure_tuned_goals.py --runs 40 --streaming

The first measures one release per agent and known variances. The second measures the default as
agents use it: releases at preferred numbers of samples, variances read off them, and times at which
the newest is out of date.

Goals: at most 1.03 times the error of learning alone everywhere from t = 2 on; at most 1.03 times
that of the true classes with three exact classes from t = 500 on, 1.3 times with twenty at t =
30000; intervals of nominal level .95 cover at least .93 of the true means everywhere. Exit code 1
if one is missed. `to_oracle_stderr` is over runs: in one run in a hundred the noise looks like a
spread within the classes, and that one run errs ten to fifty times as much as the true classes do.
`to_oracle_median` is of the run in the middle.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

import numpy as np

from meanstream.operators.collaboration.registry import make_collaboration
from tests.oracles.summaries import (
    LOWER,
    SCENARIOS,
    STREAMS,
    UPPER,
    Comparison,
    compare_summaries,
    follow_summaries,
)

TIMES = (2, 10, 100, 200, 500, 2000, 30_000)
STREAM_TIMES = (
    2,
    5,
    10,
    14,
    15,
    19,
    20,
    30,
    45,
    50,
    70,
    100,
    140,
    150,
    200,
    450,
    500,
    2000,
    10_000,
)


def main() -> None:
    """Measure every scenario at every time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--collaboration", default="learned_prior")
    parser.add_argument(
        "--streaming", action="store_true", help="the default, on streams with unknown variances"
    )

    options = parser.parse_args()
    found = _streams(options.runs, options.seed) if options.streaming else _single_releases(options)
    rows = []

    for scenario, t, comparison in found:
        rows.append(
            {
                "scenario": scenario,
                "t": t,
                "to_local": round(comparison.to_local, 4),
                "to_oracle": _rounded(comparison.to_oracle),
                "to_oracle_stderr": _rounded(comparison.to_oracle_stderr),
                "to_oracle_median": _rounded(comparison.to_oracle_median),
                "coverage": round(comparison.coverage, 4),
                "missed": missed_goals(comparison, scenario, t, streaming=options.streaming),
            }
        )

    json.dump({"runs": options.runs, "rows": rows}, sys.stdout, indent=1)
    print()
    sys.exit(any(row["missed"] for row in rows))


def _single_releases(options: argparse.Namespace) -> Iterator[tuple[str, int, Comparison]]:
    collaboration = make_collaboration(options.collaboration, lower=LOWER, upper=UPPER)
    for scenario in SCENARIOS:
        for t in TIMES:
            yield (
                scenario,
                t,
                compare_summaries(collaboration, scenario, t, runs=options.runs, seed=options.seed),
            )


def _streams(runs: int, seed: int) -> Iterator[tuple[str, int, Comparison]]:
    for scenario in STREAMS:
        found = follow_summaries(scenario, STREAM_TIMES, runs=runs, seed=seed)
        yield from (
            (scenario, t, comparison) for t, comparison in zip(STREAM_TIMES, found, strict=True)
        )


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 4)


def missed_goals(found: Comparison, scenario: str, t: int, *, streaming: bool = False) -> list[str]:
    """Name the goals that a measurement misses.

    Those relative to the true classes are for single releases.
    """
    limit = {
        "three classes": 1.03 if t >= 500 else None,
        "twenty classes": 1.3 if t >= 30_000 else None,
    }.get(scenario)
    missed = {
        "local": found.to_local > 1.03,
        "oracle": not streaming and limit is not None and found.to_oracle > limit,
        "coverage": found.coverage < 0.93,
    }

    return [name for name, failed in missed.items() if failed]


if __name__ == "__main__":
    main()
