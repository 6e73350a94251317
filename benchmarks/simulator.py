"""Agent-steps per second of the simulator on Fig.

2's PM-I round robin, and of a plain transcription. Prints JSON.

    python benchmarks/simulator.py --runs 20 --steps 30000

One agent-step is receive, query, decide; the transcription also estimates, the simulator at two
checkpoints only. Both are timed in process CPU time on one core in the same run; the simulator's
time includes drawing data and noise.
"""

from __future__ import annotations

import argparse
import json
import sys
from time import process_time

import numpy as np

from meanstream.lab.simulation.agent_population import Simulated
from meanstream.lab.simulation.config import SimulationConfig
from meanstream.lab.simulation.simulated_pairwise import (
    simulate_pairwise,
    simulated_pairwise_design_variance,
    simulated_pairwise_noise,
)
from tests.oracles.transcription import Inputs, transcribe


def main() -> None:
    """Time both and print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--transcription-steps", type=int, default=250)
    options = parser.parse_args()

    size = {"agents": options.agents, "steps": options.steps, "runs": options.runs}
    production = max(production_rate(**size) for _ in range(options.repeat))
    plain = transcription_rate(options.agents, options.transcription_steps)
    rates = {"production": production, "transcription": plain, "ratio": production / plain}
    json.dump(
        size
        | {"transcription_steps": options.transcription_steps, "agent_steps_per_second": rates},
        sys.stdout,
    )

    print()


def production_rate(agents: int, steps: int, runs: int) -> float:
    """Agent-steps per second of CPU of the simulator."""
    checkpoints = tuple(sorted({max(steps // 10, 1), steps}))
    config = SimulationConfig.from_options(
        mode="paper", agents=agents, steps=steps, runs=runs, checkpoints=checkpoints
    )
    started = process_time()
    simulate_pairwise(config)

    return agents * steps * runs / (process_time() - started)


def transcription_rate(agents: int, steps: int) -> float:
    """Agent-steps per second of CPU of the transcription, over its first steps, where it is fastest."""
    config = SimulationConfig.from_options(mode="paper", agents=agents, steps=steps)
    simulated = Simulated.draw(config, range(1))
    variance = simulated.population.variance
    given = Inputs(
        config=config,
        data=simulated.samples(steps)[:, 0],
        noise=simulated.unit_noise(steps, "gaussian")[:, 0],
        noise_variance=simulated_pairwise_noise(config)[1],
        variance=variance[0],
        design_variance=simulated_pairwise_design_variance(config, variance),
    )

    started = process_time()
    estimates, _ = transcribe(given)
    seconds = process_time() - started
    assert np.isfinite(estimates).all()  # noqa: S101 - the work was done

    return agents * steps / seconds


if __name__ == "__main__":
    main()
