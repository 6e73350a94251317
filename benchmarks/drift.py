"""What a memory is worth where means move: squared error and coverage by the age of the change, by memory and change.

200 agents in three classes (.2, .4, .8), uniform samples of standard deviation 1/2, epsilon 1, delta 1e-6. After 5,000
samples of each agent half of them move by .2 (`step`), all of them by .15 (`all`), or nobody does (`none`). Every agent
is answered as the engine answers it. `EWMA` is an agent alone with an exponentially weighted mean of its own samples.
The table has the squared error in 1e-4 (mean of the runs, and its standard error) and the coverage of the 95 %
intervals; for `step` of the agents that moved, and of the others.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from meanstream.operators.simulation.drift import AGES, DriftConfig, DriftPart, simulate_drift
from meanstream.operators.simulation.drift_learners import ExponentialMean

CHANGES = {"step": "step:0.2,0.5@5000", "all": "all:0.15@5000", "none": "all:0@5000"}
EWMA = 500
MEMORIES = ("forever", "half-life:500", "half-life:2000", "half-life:5000", f"EWMA:{EWMA}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--change", choices=CHANGES, action="append", help="only this one; all of them by default")
    options = parser.parse_args()
    print(f"{'change':<6} {'agents':<9} {'memory':<15} " + " ".join(f"{f'age {age}':>20}" for age in AGES))
    for change in options.change or CHANGES:
        for memory in MEMORIES:
            for part, measured in parts(change, memory, options.runs, options.seed).items():
                print(f"{change:<6} {part:<9} {memory:<15} " + " ".join(cell(measured, i) for i in range(len(AGES))))


def parts(change: str, memory: str, runs: int, seed: int) -> dict[str, DriftPart]:
    """Simulate, and give what was measured of the groups of agents that a change tells apart."""
    config = DriftConfig(change=CHANGES[change], runs=runs, seed=seed, lower=-0.7, upper=1.9)
    if memory.startswith("EWMA"):
        found = simulate_drift(config, learner=lambda *_: ExponentialMean(EWMA, stddev=config.stddev))
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
