"""What a memory is worth where means move: squared error and coverage by the age of the change, by memory and change.

200 agents in three classes (.2, .4, .8), uniform samples of standard deviation 1/2, epsilon 1, delta 1e-6. After 5,000
samples of each agent half of them move by .2 (`step`), all of them by .15 (`all`), or nobody does (`none`). Every agent
is answered as the engine answers it. `EWMA` is an agent alone with an exponentially weighted mean of its own samples.
The table has the squared error in 1e-4 (mean of the runs, and its standard error) and the coverage of the 95 %
intervals; for `step` of the agents that moved, and of the others.
"""

from __future__ import annotations

import argparse

import numpy as np

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.alone import alone_where_ahead
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.registry import make_collaboration
from meanstream.operators.collaboration.variance.pooled import pooled_own_means
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Bools, Floats

AGENTS, CHANGE, HALF_WIDTH = 200, 5000, 0.75**0.5
CENTERS = (0.2, 0.4, 0.8)
LOWER, UPPER = -0.7, 1.9
AGES = (200, 500, 1000, 2000, 5000)
BLOCK = 100
MOVES = {"step": 0.2, "all": 0.15, "none": 0.0}
EWMA = 500
MEMORIES = ("forever", "half-life:500", "half-life:2000", "half-life:5000", f"EWMA:{EWMA}")
Answers = dict[int, tuple[Floats, Bools]]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--change", choices=MOVES, action="append", help="only this one; all of them by default")
    options = parser.parse_args()
    print(f"{'change':<6} {'agents':<9} {'memory':<15} " + " ".join(f"{f'age {age}':>20}" for age in AGES))
    for change in options.change or MOVES:
        for memory in MEMORIES:
            runs = [run(change, memory, options.seed + i) for i in range(options.runs)]
            for part, moved in parts(change).items():
                print(f"{change:<6} {part:<9} {memory:<15} " + " ".join(cell(runs, age, moved) for age in AGES))


def parts(change: str) -> dict[str, Bools]:
    """Give the groups of agents that a change tells apart."""
    half = np.arange(AGENTS) % 2 == 0
    return {"moved": half, "others": ~half} if change == "step" else {"everybody": np.ones(AGENTS, np.bool_)}


def cell(runs: list[Answers], age: int, who: Bools) -> str:
    """Write error, standard error and coverage."""
    error = np.array([found[age][0][who].mean() for found in runs]) * 1e4
    covered = np.mean([found[age][1][who].mean() for found in runs])
    spread = error.std(ddof=1) / len(error) ** 0.5 if len(error) > 1 else np.nan
    return f"{error.mean():>7.3g} ({spread:.2g}) {covered:.2f}".rjust(20)


def run(change: str, memory: str, seed: int) -> Answers:
    """Let agents learn through a change; give squared errors and who is covered, by its age."""
    rng = np.random.default_rng(seed)
    mean = rng.choice(CENTERS, AGENTS)
    after = mean + MOVES[change] * (parts(change).get("moved", np.ones(AGENTS, np.bool_)))
    learns = Alone() if memory.startswith("EWMA") else Together(memory, seed)
    found: Answers = {}
    for count in range(0, CHANGE + max(AGES), BLOCK):
        now = mean if count < CHANGE else after
        learns.take(now + rng.uniform(-HALF_WIDTH, HALF_WIDTH, (BLOCK, AGENTS)), float(count))
        age = count + BLOCK - CHANGE
        if age in AGES:
            value, low, high = learns.answers()
            found[age] = (value - now) ** 2, (low <= now) & (now <= high)
    return found


class Alone:
    """Every agent alone, with its exponentially weighted mean."""

    def __init__(self) -> None:
        self._value = np.zeros(AGENTS)
        self._weight = 0.0

    def take(self, samples: Floats, _: float) -> None:
        """Take a block of samples, one row after the other."""
        for row in samples:
            self._weight = self._weight * (1 - 1 / EWMA) + 1
            self._value += (row - self._value) / self._weight

    def answers(self) -> tuple[Floats, Floats, Floats]:
        """Give the means, and intervals of the weights' own variance, the variance of a sample known."""
        half = 1.96 * 0.5 * (1 / (2 * EWMA - 1)) ** 0.5
        return self._value, self._value - half, self._value + half


class Together:
    """Agents with a memory, answered as the engine does."""

    def __init__(self, memory: str, seed: int) -> None:
        settings = AgentsSettings(lower=LOWER, upper=UPPER, epsilon=1, delta=1e-6, memory=memory)
        key = np.random.default_rng(1000 + seed).bytes(16)
        self._agents = Agents(settings, KeyedNoise(key, deployment="benchmark", purpose="agents"))
        self._agents.add_agents([f"agent {i}" for i in range(AGENTS)])
        self._followed = FollowedReleases(settings)
        self._way = make_collaboration("learned_prior", lower=LOWER, upper=UPPER)

    def take(self, samples: Floats, time: float) -> None:
        """Take a block of samples."""
        agent = np.tile(np.arange(AGENTS), len(samples))
        batch = self._agents.update(agent, samples.ravel(), np.full(samples.size, time))
        self._followed.observe(batch.releases, batch.before)

    def answers(self) -> tuple[Floats, Floats, Floats]:
        """Fit the population and answer everybody."""
        pool = self._followed.posterior
        fitted = self._way.fit_summary(self._way.summarize(self._followed.combined(self._agents.latest())), pool)
        own = pooled_own_means(self._agents.own(), pool)
        found = alone_where_ahead(fitted.estimate(own, level=0.95), own)
        return found.value, found.lower, found.upper


if __name__ == "__main__":
    main()
