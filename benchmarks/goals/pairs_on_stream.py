"""Agents that query each other on a stream, against the paper's simulator and the default.

Prints JSON.

    python benchmarks/goals/pairs_on_stream.py --agents 200 --steps 2000 --runs 4

`agent_steps_per_second` is of CPU on one core: the stream with keyed noise, in step and scattered
in time, and the simulator with NumPy's. `squared_error` is relative to learning alone, on the same
samples under the same budget: the stream, and the default's learned prior. Data are uniform, of one
standard deviation, in three classes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from time import process_time
from typing import Any

import numpy as np

from meanstream.lab.papers.colme.pairwise_agents import PairwiseAgents
from meanstream.lab.papers.colme.pairwise_settings import PairwiseSettings
from meanstream.lab.papers.colme.pairwise_stream import PairwiseStream
from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.collaboration.registry import make_collaboration
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import OwnMeans

BATCH = 50
"""Steps that are taken at once."""
BUDGET = {"lower": 0.0, "upper": 1.0, "epsilon": 1.0, "delta": 1e-6}


def main() -> None:
    """Time all, compare errors, and print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument(
        "--stddev", type=float, default=0.1, help="at most .115: then no value is clipped"
    )
    parser.add_argument("--runs", type=int, default=4)

    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    made = [compared(options, seed) for seed in range(options.seed, options.seed + options.runs)]
    size = {name: getattr(options, name) for name in ("agents", "steps", "stddev", "runs")}
    rates = {name: max(one["rates"][name] for one in made) for name in made[0]["rates"]}
    errors = {
        name: float(np.mean([one["errors"][name] for one in made])) for name in made[0]["errors"]
    }
    relative = {name: error / errors["alone"] for name, error in errors.items()}

    json.dump(size | {"agent_steps_per_second": rates, "squared_error": relative}, sys.stdout)
    print()


def compared(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Time all and find the squared errors of one run."""
    rng = np.random.default_rng(seed)
    truth = np.array([0.2, 0.4, 0.8])[np.arange(options.agents) % 3]
    half = options.stddev * 3**0.5
    values = truth + rng.uniform(-half, half, (options.steps, options.agents))
    settings = PairwiseStreamSettings(
        release=AgentsSettings(**BUDGET, counter="pm1", horizon=1_000_000, spread_share=0.0),
        stddev=options.stddev,
    )
    names = [f"agent {number}" for number in range(options.agents)]

    stream, in_step = taken(
        settings, names, values, np.arange(options.steps, dtype=float).repeat(options.agents)
    )
    _, scattered = taken(
        settings, names, values, np.sort(rng.uniform(0, options.steps, values.size))
    )
    answer, alone = stream.estimate(np.arange(options.agents), level=0.95)

    return {
        "rates": {
            "stream": in_step,
            "scattered": scattered,
            "simulator": simulated(settings, values, options.stddev, rng),
        },
        "errors": {
            "stream": float(np.mean((answer.value - truth) ** 2)),
            "default": by_default(names, values, truth, options.stddev),
            "alone": float(np.mean((alone.value - truth) ** 2)),
        },
    }


def noise() -> KeyedNoise:
    """Make a new key."""
    return KeyedNoise(os.urandom(32), deployment="benchmark", purpose="agents")


def taken(
    settings: PairwiseStreamSettings, names: list[str], values: Any, times: Any
) -> tuple[PairwiseStream, float]:
    """Run the stream; give it with its agent-steps per second of CPU."""
    steps, agents = values.shape
    stream = PairwiseStream(settings, noise(), capacity=agents)
    agent = np.tile(np.arange(agents), steps)
    value = values.ravel()
    began = process_time()

    for first in range(0, values.size, BATCH * agents):
        part = slice(first, first + BATCH * agents)
        stream.take(agent[part], value[part], times[part], names)

    return stream, values.size / (process_time() - began)


def simulated(
    settings: PairwiseStreamSettings, values: Any, stddev: float, rng: np.random.Generator
) -> float:
    """Run the simulator, one run of it.

    Give its agent-steps per second of CPU, with its noise drawn before.
    """
    steps, agents = values.shape
    fresh = settings.release.fresh.variance * settings.release.grid.resolution**2
    pairs = PairwiseAgents(
        PairwiseSettings(
            agents=agents, runs=1, counter=settings.release.mechanism, fresh_variance=fresh
        ),
        sample_variance=np.full((1, agents), stddev**2),
    )
    drawn = rng.normal(0, np.sqrt(fresh), (steps, 1, agents))

    began = process_time()
    for value, draw in zip(values, drawn, strict=True):
        pairs.step(value[None], draw)
    return values.size / (process_time() - began)


def by_default(names: list[str], values: Any, truth: Any, stddev: float) -> float:
    """Give the squared error of broadcast releases and the learned prior."""
    steps, agents = values.shape
    default = Agents(AgentsSettings(**BUDGET), noise())
    default.add_agents(names)
    default.update(
        np.tile(np.arange(agents), steps),
        values.ravel(),
        np.arange(steps, dtype=float).repeat(agents),
    )
    latest = default.latest()

    own = default.own()
    fitted = make_collaboration("learned_prior", lower=0.0, upper=1.0, strangers=False).fit(
        latest, stddev**2 / latest.count + latest.noise_variance
    )
    means = OwnMeans(
        agent=own.agent, count=own.count, mean=own.mean, variance=stddev**2 / own.count
    )

    return float(np.mean((fitted.estimate(means).value - truth) ** 2))


if __name__ == "__main__":
    main()
