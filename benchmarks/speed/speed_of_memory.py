"""What a memory costs.

Processor time per sample in the operators, by memory and shape of batches, as times `forever`.

Run from the repository: `python benchmarks/speed/speed_of_memory.py`. Each cell is the least of
several turns; the turns of all cells of a shape alternate, so that what else the machine does meets
all of them.
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import numpy as np

from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.noise.keyed import KeyedNoise

KEY = bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d")
COUNTED = ("forever", "half-life:5000", "window:5000", "auto")
TIMED = ("forever", "half-life:8h", "window:8h", "auto")


class Shape(NamedTuple):
    """How samples come: so many of each agent in each batch."""

    name: str
    agents: int
    each: int
    batches: int


SHAPES = (
    Shape("one agent", 1, 10_000, 40),
    Shape("many samples", 1_000, 100, 40),
    Shape("few samples", 10_000, 5, 80),
    Shape("one sample", 20_000, 1, 120),
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--step", type=float, default=0.0, help="of everybody's mean, after a third of the samples"
    )
    options = parser.parse_args()
    print(
        f"{'shape':<14} {'schedule':<13} {'memory':<15} {'ns a sample':>12} {'x forever':>10} {'releases':>10}"
    )

    for shape in SHAPES:
        for schedule, memories in (("preferred:10", COUNTED), ("every:1h", TIMED)):
            measured = [
                [run(shape, schedule, memory, options) for memory in memories]
                for _ in range(options.repeat)
            ]
            least = np.min([[took for took, _ in turn] for turn in measured], axis=0)
            for memory, took, (_, releases) in zip(memories, least, measured[0], strict=True):
                cells = f"{took:12.0f} {took / least[0]:10.2f} {releases:10}"
                print(f"{shape.name:<14} {schedule:<13} {memory:<15} {cells}", flush=True)


def run(shape: Shape, schedule: str, memory: str, options: argparse.Namespace) -> tuple[float, int]:
    """Nanoseconds of processor time per sample, and number of releases.

    A day and a half goes by in the samples.
    """
    settings = AgentsSettings(
        lower=0, upper=1, epsilon=1.0, delta=1e-6, schedule=schedule, memory=memory
    )
    agents = Agents(settings, KeyedNoise(KEY, deployment="benchmark", purpose="agents"))
    agents.add_agents([f"agent {number}" for number in range(shape.agents)])
    rng = np.random.default_rng(options.seed)
    size = shape.agents * shape.each
    end = 86400.0 * 1.5
    took = 0.0

    releases = 0
    for batch in range(shape.batches):
        agent = rng.permutation(np.repeat(np.arange(shape.agents), shape.each))
        value = rng.normal(0.5 + options.step * (3 * batch >= shape.batches), 0.1, size)
        when = (batch + np.arange(size) / size) * (end / shape.batches)
        began = time.process_time()
        made = agents.update(agent, value, when)
        took += time.process_time() - began
        releases += len(made.releases)

    return took * 1e9 / (shape.batches * size), releases


if __name__ == "__main__":
    main()
