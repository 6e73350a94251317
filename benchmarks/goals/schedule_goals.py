"""Counters, weights and release times of agents: error over the papers' best, at 25 times.

Prints a table.

    python benchmarks/goals/schedule_goals.py --runs 12 --seed 71

The papers' best (PM-I, last release, round robin) and the tuned simulator, 200 agents in three
classes, uniform data, at 25 log-spaced times from 200 to 30,000 samples. The goal is a geometric
mean of at most .24 and no time above .5.

"Classes" is the same ratio for answers that know everyone's class, from the same releases: what
lies between both is the learning of the prior.

The last rows are nothing that anybody could choose: they say what limits the others. "The times
measured" releases at these 25 times and no others, so no answer is out of date, and no noise is
spent on a release that is not measured. The counter "lone" has, at each release, the noise of an
only release: what lies between it and a counter is the price of releasing again. It is not private.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

import numpy as np

from meanstream.lab.simulation import broadcast
from meanstream.lab.simulation.config import SimulationConfig
from meanstream.lab.simulation.simulate_agents import simulate
from meanstream.operators.agents.release_times import Counts
from meanstream.operators.counters.base import Counter, State
from meanstream.operators.records import Floats, Ints

TIMES = tuple(np.unique(np.round(np.geomspace(200, 30_000, 25)).astype(int)).tolist())
SCHEDULES = ("preferred:10", "geometric:200,1.1")


@dataclass(frozen=True, slots=True)
class Measured(Counts):
    """Release at the times that are measured."""

    def sequence(self) -> Iterator[int]:
        """Give the 25 times."""
        yield from TIMES


class Lone(Counter):
    """Not private: each release has the noise of an agent's only release."""

    name = "lone"
    l2_sensitivity = l1_sensitivity = 1.0

    def matrix(self, n: int) -> Floats:
        """Give own draws only."""
        return np.eye(n)

    def noise_variance(self, release: Ints) -> Floats:
        """Give one draw."""
        return np.ones(np.shape(release))

    def increment_variance(self, release: Ints) -> Floats:
        """Give two draws, but for the first release."""
        return np.where(np.asarray(release) > 1, 2.0, 1.0)

    def init(self, n_rows: int) -> State:
        """Keep nothing."""
        return {"rows": np.zeros(n_rows)}

    def _step(self, state: State, rows: Ints, release: Ints, fresh: Floats) -> Floats:  # noqa: ARG002 - the interface
        return fresh

    def init_past(self, n_rows: int) -> State:
        """Keep nothing."""
        return self.init(n_rows)

    def covariance_with_past(
        self,
        state: State,  # noqa: ARG002
        rows: Ints,
        release: Ints,  # noqa: ARG002
        coefficient: Floats,  # noqa: ARG002
    ) -> Floats:
        """Give none: draws are independent."""
        return np.zeros(len(rows))


def main() -> None:
    """Measure every combination on the same data."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=71)
    parser.add_argument("--schedules", nargs="*", default=SCHEDULES)
    given = parser.parse_args()
    common = {"runs": given.runs, "seed": given.seed, "checkpoints": TIMES}
    paper = np.array(simulate(SimulationConfig.from_options(mode="paper", **common)).mse)

    columns = ("tuned/paper", "worst", "classes", "worst", "tuned/ideal")
    print(
        f"{'schedule':20} {'counter':10} {'weights':8}" + "".join(f"{name:>12}" for name in columns)
    )

    def show(name: str, shown: str = "", **chosen: str) -> None:
        found = simulate(SimulationConfig.from_options(**common, **chosen))
        tuned, known, ideal = (np.array(one) for one in (found.mse, found.oracle, found.ideal))
        figures = (
            _mean(tuned / paper),
            (tuned / paper).max(),
            _mean(known / paper),
            (known / paper).max(),
        )
        row = "".join(f"{figure:12.3f}" for figure in (*figures, _mean(tuned / ideal)))

        print(f"{name:20} {shown or chosen['counter']:10} {chosen['weights']:8}{row}", flush=True)

    for schedule in given.schedules:
        for counter in ("toeplitz", "optimal"):
            for weights in ("last", "gls"):
                show(schedule, counter=counter, weights=weights, schedule=f"broadcast:{schedule}")

    lone = mock.patch.object(
        broadcast, "make_counter", side_effect=lambda *_, horizon, **__: Lone(horizon)
    )
    measured = mock.patch.object(broadcast, "parse_release_times", return_value=Measured())
    with lone:
        show("preferred:10", "lone", weights="last", schedule="broadcast:preferred:10")
    with measured:
        show("the times measured", weights="gls", schedule="broadcast", counter="optimal")
    with measured, lone:
        show("the times measured", "lone", weights="last", schedule="broadcast")


def _mean(ratio: Floats) -> float:
    return float(np.exp(np.mean(np.log(ratio))))


if __name__ == "__main__":
    main()
