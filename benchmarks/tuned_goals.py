"""Error and coverage of the learned prior in seven populations, against its goals. Prints JSON.

    python benchmarks/tuned_goals.py --runs 100

Goals: at most 1.03 times the error of learning alone everywhere from t = 2 on; at most 1.03 times that of the true
classes with three exact classes from t = 500 on, 1.3 times with twenty at t = 30000; intervals of nominal level .95
cover at least .93 of the true means everywhere. Exit code 1 if one is missed.
"""

from __future__ import annotations

import argparse
import json
import sys

from operators.collaboration import make_collaboration
from operators.simulation.summaries import LOWER, SCENARIOS, UPPER, Comparison, compare

TIMES = (2, 10, 100, 200, 500, 2000, 30_000)


def main() -> None:
    """Measure every scenario at every time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--collaboration", default="learned_prior")
    options = parser.parse_args()
    collaboration = make_collaboration(options.collaboration, lower=LOWER, upper=UPPER)
    rows = []
    for scenario in SCENARIOS:
        for t in TIMES:
            found = compare(collaboration, scenario, t, runs=options.runs, seed=options.seed)
            rows.append(
                {
                    "scenario": scenario,
                    "t": t,
                    "to_local": round(found.to_local, 4),
                    "to_oracle": round(found.to_oracle, 4) if found.oracle == found.oracle else None,
                    "coverage": round(found.coverage, 4),
                    "missed": missed_goals(found, scenario, t),
                }
            )
    json.dump({"runs": options.runs, "rows": rows}, sys.stdout, indent=1)
    print()
    sys.exit(any(row["missed"] for row in rows))


def missed_goals(found: Comparison, scenario: str, t: int) -> list[str]:
    """Name the goals that a measurement misses."""
    limit = {"three classes": 1.03 if t >= 500 else None, "twenty classes": 1.3 if t >= 30_000 else None}.get(scenario)
    missed = {
        "local": found.to_local > 1.03,
        "oracle": limit is not None and found.to_oracle > limit,
        "coverage": found.coverage < 0.93,
    }
    return [name for name, failed in missed.items() if failed]


if __name__ == "__main__":
    main()
