"""What a memory is worth where means move.

Squared error and coverage by the age of the change, by memory and change.

200 agents in three classes (.2, .4, .8), uniform samples of standard deviation 1/2, epsilon 1,
delta 1e-6. After 5,000 samples of each agent half of them move by .2 (`step`), all of them by .15
(`all`), or nobody does (`none`; `start` is the same, measured from the first sample on). Every
agent is answered as the engine answers it. `EWMA` is an agent alone with an exponentially weighted
mean of its own samples. The table has the squared error in 1e-4 (mean of the runs, and its standard
error) and the coverage of the 95 % intervals; for `step` of the agents that moved, and of the
others.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from meanstream.lab.simulation.drift.simulated_drift import (
    AGES,
    DriftConfig,
    DriftPart,
    ExponentialMean,
    simulate_drift,
)

CHANGES = {
    "step": "step:0.2,0.5@5000",
    "all": "all:0.15@5000",
    "none": "all:0@5000",
    "start": "all:0@1",
}
STARTS = (19, 99, 499, 999, 2999, 9999)
EWMA = 500
MEMORIES = (
    "forever",
    "auto",
    "half-life:500",
    "half-life:2000",
    "half-life:5000",
    "window:5000",
    f"EWMA:{EWMA}",
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument(
        "--change", choices=CHANGES, action="append", help="only this one; all of them by default"
    )
    parser.add_argument(
        "--memory", choices=MEMORIES, action="append", help="only this one; all of them by default"
    )

    parser.add_argument("--means", default="classes:0.2,0.4,0.8", help="as of `simulate agents`")
    options = parser.parse_args()
    for change in options.change or CHANGES:
        ages = STARTS if change == "start" else AGES
        print(
            f"{'change':<6} {'agents':<9} {'memory':<15} "
            + " ".join(f"{f'age {age}':>20}" for age in ages)
        )
        config = DriftConfig(
            change=CHANGES[change], runs=options.runs, seed=options.seed, lower=-0.7, upper=1.9, means=options.means,
            ages=ages,
        )  # fmt: skip

        for memory in options.memory or MEMORIES:
            for part, measured in parts(config, memory).items():
                cells = " ".join(cell(measured, i) for i in range(len(ages)))
                print(f"{change:<6} {part:<9} {memory:<15} " + cells, flush=True)


def parts(config: DriftConfig, memory: str) -> dict[str, DriftPart]:
    """Simulate, and give what was measured of the groups of agents that a change tells apart."""
    if memory.startswith("EWMA"):
        found = simulate_drift(
            config, learner=lambda *_: ExponentialMean(EWMA, stddev=config.stddev)
        )
    else:
        found = simulate_drift(replace(config, memory=memory))

    if found.unchanged is None:
        return {"everybody": found.changed}
    return {"moved": found.changed, "others": found.unchanged}


def cell(part: DriftPart, place: int) -> str:
    """Write error, standard error and coverage."""
    spread = float("nan") if part.stderr is None else part.stderr[place] * 1e4
    return f"{part.mse[place] * 1e4:>7.3g} ({spread:.2g}) {part.coverage[place]:.2f}".rjust(20)


if __name__ == "__main__":
    main()
