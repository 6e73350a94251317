"""Answers of one engine, of four engines that learn apart, and of four that learn together.

Prints one JSON object. Run from the repository: `python benchmarks/learning_together.py`. The same
agents, samples and noise each time: only the releases that an answer rests on differ. Errors are
from each agent's true mean, as a ratio to those of learning alone; standard errors over seeds.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.streaming.agents.engine_summary import EngineSummary, OtherReleases
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.engine.engine_options import EngineOptions

PARTS = 4
SETTINGS = AgentsSettings(
    lower=0, upper=10, epsilon=4, delta=1e-6, schedule="geometric:4,1.5", name="benchmark"
)
OPTIONS = EngineOptions()


class Part:
    """An engine's agents, and what they have released."""

    def __init__(self, names: list[str], samples: np.ndarray, noise: KeyedNoise) -> None:
        self.agents = Agents(SETTINGS, noise)
        self.agents.add_agents(names)
        self.followed = FollowedReleases(SETTINGS)
        self.host = PersonalEstimates(SETTINGS, OPTIONS)
        number, count = samples.shape
        who = np.tile(np.arange(number), count)
        time = np.repeat(np.arange(count, dtype=np.float64), number)
        made = self.agents.update(who, samples.T.reshape(-1), time)
        self.followed.observe(made.releases, made.before)
        self.latest = self.followed.combined(self.agents.latest())

    def summary(self) -> EngineSummary:
        """What its engine publishes."""
        names = self.agents.names
        own = self.host.own_summary(self.latest, names)
        return EngineSummary(names[0], "", own.n, own, self.followed.pool())

    def answers(self, others: OtherReleases) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Value, half of the interval, and effective class size of each agent."""
        names = self.agents.names
        pool = others.posterior(self.followed)
        own = self.agents.own()
        self.host.refresh(names, self.latest, own, pool, 1.0, others=others)
        answered = self.host.answered
        assert answered is not None  # noqa: S101 - refresh has just made it
        half = (answered.interval[:, 1] - answered.interval[:, 0]) / 2
        return answered.value, half, answered.effective_class_size


def world(seed: int, agents: int, samples: int) -> dict[str, list[float]]:
    """Answer the same agents in three ways; give the errors, half-widths and class sizes of each."""
    rng = np.random.default_rng([seed, agents, samples])
    means = rng.choice([3.0, 4.0, 7.0], agents)
    values = np.clip(rng.normal(means[:, None], 2.0, (agents, samples)), 0, 10)
    names = [f"a{number:04}" for number in range(agents)]
    key = np.random.default_rng(seed).bytes(32)
    noise = KeyedNoise(key, purpose="benchmark", deployment="benchmark")
    groups = [np.arange(k, agents, PARTS) for k in range(PARTS)]
    parts = [Part([names[i] for i in group], values[group], noise) for group in groups]
    whole = Part(names, values, noise)

    # The truth is the mean of clipped samples.
    law = np.clip(
        np.random.default_rng(0).normal(0, 2.0, 400_000)[:, None] + [3.0, 4.0, 7.0], 0, 10
    )
    truth = law.mean(axis=0)[np.searchsorted([3.0, 4.0, 7.0], means)]
    alone = float(np.mean((values.mean(axis=1) - truth) ** 2))
    figures = {}
    ways: dict[str, list[Any]] = {
        "one": [whole.answers(OtherReleases())],
        "apart": [],
        "together": [],
    }
    for part in parts:
        rest = [other.summary() for other in parts if other is not part]
        ways["apart"].append(part.answers(OtherReleases()))
        ways["together"].append(part.answers(OtherReleases(rest)))

    orders = {"one": np.arange(agents)}
    for way, answers in ways.items():
        value, half, size = (np.concatenate(column) for column in zip(*answers, strict=True))
        order = orders.get(way, np.concatenate(groups))
        error = float(np.mean((value - truth[order]) ** 2)) / alone
        figures[way] = [error, float(np.median(half)), float(np.median(size))]

    return figures


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=12)
    options = parser.parse_args()
    shown: dict[str, Any] = {}
    for agents, samples in ((48, 100), (200, 100), (800, 40)):
        runs = [world(seed, agents, samples) for seed in range(options.seeds)]
        shape = f"{agents} agents, {samples} samples each"
        shown[shape] = {}
        for way in runs[0]:
            table = np.array([run[way] for run in runs])
            error = table.std(axis=0, ddof=1) / np.sqrt(len(runs))
            shown[shape][way] = {
                name: [round(float(mean), 3), round(float(one), 3)]
                for name, mean, one in zip(
                    ("squared_error", "half_width", "class_size"),
                    table.mean(axis=0),
                    error,
                    strict=True,
                )
            }

        for name, way in (("apart_less_one", "apart"), ("together_less_one", "together")):
            paired = np.array([run[way][0] - run["one"][0] for run in runs])
            error = paired.std(ddof=1) / np.sqrt(len(paired))
            shown[shape][name] = [round(float(paired.mean()), 4), round(float(error), 4)]

    print(json.dumps(shown, indent=1))


if __name__ == "__main__":
    main()
