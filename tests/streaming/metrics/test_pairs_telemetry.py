"""What the page shows of agents that query each other: budgets by pair, and nothing of classes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from meanstream.lab.papers.colme.pairwise_stream import PairwiseStream
from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.pipelines.page.page_figures import page_figures
from meanstream.streaming.agents.pairwise.pairs_picture import pairs_picture
from meanstream.streaming.agents.public_population import AnsweredAgents
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.metrics.telemetry import AgentsTelemetry

NAMES = [f"agent {number}" for number in range(9)]
MEANS = np.array([2.0, 4.0, 7.0])[np.arange(9) % 3]
RELEASE = AgentsSettings(
    lower=0,
    upper=10,
    epsilon=20,
    delta=1e-6,
    counter="pm2",
    horizon=12,
    spread_share=0,
    name="test",
)


def stream_of(steps: int, partners: Any = None) -> PairwiseStream:
    """Return the pairs of three classes of three agents after so many samples of each."""
    settings = PairwiseStreamSettings(release=RELEASE, stddev=0.1, partners=partners)
    key = bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d")
    stream = PairwiseStream(
        settings, KeyedNoise(key, deployment="test", purpose="agents"), capacity=12
    )
    rng = np.random.default_rng(5)
    agent = np.tile(np.arange(9), steps)
    time = np.repeat(60.0 * np.arange(steps), 9)
    stream.take(agent, MEANS[agent] + rng.normal(0, 0.1, len(agent)), time, NAMES)
    return stream


def answers_of(stream: PairwiseStream) -> AnsweredAgents:
    answer, alone = stream.estimate(np.arange(9))
    ends = [np.stack([one.lower, one.upper], axis=1) for one in (answer, alone)]
    return AnsweredAgents(
        time=0.0, names=tuple(NAMES), agent=np.arange(9), count=stream.counts(),
        value=answer.value, interval=ends[0], local=alone.value, local_interval=ends[1],
        effective_class_size=answer.effective_class_size, class_size=answer.class_size,
    )  # fmt: skip


def figures(telemetry: AgentsTelemetry) -> dict[str, Any]:
    return page_figures(telemetry.view(), kind="agents", horizon=telemetry.horizon, bounds=None)


def test_the_page_draws_what_pairs_have_spent() -> None:
    stream = stream_of(200)
    telemetry = AgentsTelemetry(settings=RELEASE)
    stats = EngineStats(pairs_picture=partial(pairs_picture, stream), answers=answers_of(stream))
    telemetry.observe(stats)
    found = figures(telemetry)

    # Each pair is at its horizon of 12 releases.
    assert found["counts"]["releases"] == 9 * 8 * 12
    assert found["budget"]["agents"] == [0] * 10 + [72]


def test_pairs_are_as_new_as_the_answers() -> None:
    stream = stream_of(200)
    telemetry = AgentsTelemetry(settings=RELEASE)
    drawn = []

    def picture() -> Any:
        drawn.append(pairs_picture(stream))
        return drawn[-1]

    stats = EngineStats(pairs_picture=picture)
    for _ in range(3):
        telemetry.observe(stats)
    assert len(drawn) == 1, "before the first answers the page knows that there will be pairs"
    stats.answers = answers_of(stream)
    for _ in range(3):
        telemetry.observe(stats)
    assert len(drawn) == 2


def test_agents_without_exchanges_have_spent_nothing_and_forgotten_ones_what_they_had() -> None:
    alone = pairs_picture(stream_of(1, partners={NAMES[0]: ("dee",)}))
    assert (alone.releases, alone.pairs) == (0, 0)
    stream = stream_of(200)
    before = pairs_picture(stream)
    stream.forget(0)
    assert pairs_picture(stream).spent == before.spent


def test_a_page_of_other_agents_has_no_pairs() -> None:
    telemetry = AgentsTelemetry(settings=RELEASE)
    telemetry.observe(EngineStats())
    assert figures(telemetry)["pairs"] is None
