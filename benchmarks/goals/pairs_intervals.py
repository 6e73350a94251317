"""Whether intervals of agents that query each other hold, and what they gain or lose. Prints a table.

    python benchmarks/goals/pairs_intervals.py --runs 4

For three populations and several numbers of samples of each agent: the share of means that the 95 %
intervals cover, with `--mode paper` and by default; their length, and the squared error, relative
to learning alone. 60 agents, round robin, (1, 1e-6), samples of a known deviation of .15.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np

from meanstream.lab.papers.colme.pairwise_stream import PairwiseStream
from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Floats

AGENTS = 60
STDDEV = 0.15
LOOKS = (50, 200, 500, 1000, 3000)
POPULATIONS: dict[str, Callable[[np.random.Generator], Floats]] = {
    "three classes (.3, .4, .7)": lambda rng: rng.permutation(np.repeat([0.3, 0.4, 0.7], 20)),
    "no classes, means' deviation .05": lambda rng: np.clip(
        rng.normal(0.5, 0.05, AGENTS), 0.2, 0.8
    ),
    "no classes, means' deviation .01": lambda rng: np.clip(
        rng.normal(0.5, 0.01, AGENTS), 0.2, 0.8
    ),
}


def main() -> None:
    """Run both modes on the same samples and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    print("| means | samples of each | paper covers | covers | length | squared error |")
    print("|---|---|---|---|---|---|")
    for population in POPULATIONS:
        seeds = range(options.seed, options.seed + options.runs)
        figures = {mode: np.mean([list(looks(population, mode, s)) for s in seeds], axis=0)
                   for mode in ("paper", "tuned")}  # fmt: skip
        for look, paper, tuned in zip(LOOKS, figures["paper"], figures["tuned"], strict=True):
            shown = (f"{paper[0]:.2f}", f"{tuned[0]:.2f}", f"{tuned[1]:.2f}", f"{tuned[2]:.1f}")
            print(f"| {population} | {look:,} | {' | '.join(shown)} |", flush=True)


def looks(population: str, mode: str, seed: int) -> Iterator[tuple[float, float, float]]:
    """Give cover, median length over that of alone, and squared error over that of alone, at each look."""
    rng = np.random.default_rng(seed)
    means = POPULATIONS[population](rng)
    release = AgentsSettings(
        lower=0, upper=1, epsilon=1, delta=1e-6, counter="pm1", horizon=10**6, spread_share=0.0,
        mode=mode,
    )  # fmt: skip
    settings = PairwiseStreamSettings(release=release, stddev=STDDEV)
    noise = KeyedNoise(rng.bytes(32), deployment="benchmark", purpose="pairs")
    stream = PairwiseStream(settings, noise, capacity=AGENTS)

    names = [f"agent {number}" for number in range(AGENTS)]

    before = 0
    for look in LOOKS:
        steps = look - before
        spread = STDDEV * 3**0.5 * rng.uniform(-1, 1, (steps, AGENTS))
        values = np.clip(means + spread, 0, 1)
        times = np.repeat(np.arange(before, look, dtype=float), AGENTS)
        stream.take(np.tile(np.arange(AGENTS), steps), values.ravel(), times, names)
        before = look

        answer, alone = stream.estimate(np.arange(AGENTS))
        covers = (answer.lower <= means) & (means <= answer.upper)
        length = np.median((answer.upper - answer.lower) / (alone.upper - alone.lower))
        loss = ((answer.value - means) ** 2).mean() / ((alone.value - means) ** 2).mean()
        yield float(covers.mean()), float(length), float(loss)


if __name__ == "__main__":
    main()
