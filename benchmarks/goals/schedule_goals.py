"""Counters, weights and release times of agents: error over the papers' best, at 25 times. Prints a table.

    python benchmarks/goals/schedule_goals.py --runs 12 --seed 71

The papers' best (PM-I, last release, round robin) and the tuned simulator, 200 agents in three classes, uniform data,
at 25 log-spaced times from 200 to 30,000 samples. The goal is a geometric mean of at most .24 and no time above .5.

The last row is no schedule that anybody could choose: it releases at these 25 times and no others, so no answer is out
of date, and no noise is spent on a release that is not measured. Any release more would make the noise of these larger.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

import numpy as np

from meanstream.operators.agents.release_times import Counts
from meanstream.operators.papers.simulation import broadcast
from meanstream.operators.papers.simulation.config import SimulationConfig
from meanstream.operators.papers.simulation.simulate_agents import simulate
from meanstream.operators.records import Floats

TIMES = tuple(np.unique(np.round(np.geomspace(200, 30_000, 25)).astype(int)).tolist())
SCHEDULES = ("preferred:10", "geometric:200,1.1")


@dataclass(frozen=True, slots=True)
class Measured(Counts):
    """Release at the times that are measured."""

    def sequence(self) -> Iterator[int]:
        """Give the 25 times."""
        yield from TIMES


def main() -> None:
    """Measure every combination on the same data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=71)
    parser.add_argument("--schedules", nargs="+", default=SCHEDULES)
    given = parser.parse_args()
    common = {"runs": given.runs, "seed": given.seed, "checkpoints": TIMES}
    paper, _ = _errors(SimulationConfig.from_options(mode="paper", **common))
    print(f"{'schedule':20} {'counter':10} {'weights':8} {'tuned/paper':>12} {'worst':>6} {'tuned/ideal':>12}")

    def show(name: str, **chosen: str) -> None:
        tuned, ideal = _errors(SimulationConfig.from_options(**common, **chosen))
        ratio = tuned / paper
        row = f"{_mean(ratio):12.3f} {ratio.max():6.2f} {_mean(tuned / ideal):12.2f}"
        print(f"{name:20} {chosen['counter']:10} {chosen['weights']:8} {row}", flush=True)

    for schedule in given.schedules:
        for counter in ("toeplitz", "optimal"):
            for weights in ("last", "gls"):
                show(schedule, counter=counter, weights=weights, schedule=f"broadcast:{schedule}")
    with mock.patch.object(broadcast, "parse_release_times", return_value=Measured()):
        show("the times measured", counter="optimal", weights="gls", schedule="broadcast")


def _errors(config: SimulationConfig) -> tuple[Floats, Floats]:
    result = simulate(config)
    return np.array(result.mse), np.array(result.ideal)


def _mean(ratio: Floats) -> float:
    return float(np.exp(np.mean(np.log(ratio))))


if __name__ == "__main__":
    main()
