"""A stream of agents that goes on, written to a topic at the pace of the clock, and what the engine
makes of it."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
from confluent_kafka import Producer

from meanstream.operators.agents.agents import Agents, AgentsSettings
from tests.pipelines.beam.support.agents_world import engine_on
from tests.streaming.support.rounds_world import SECRET

__all__ = ["SECRET", "SETTINGS", "PacedProducer", "expected_releases"]

WINDOW = 60.0
"""Seconds of event time; agents are answered so often."""
PARTITIONS = 2
AGENTS = 10
SAMPLES = 30
LIFE = 8
"""Windows after which other agents come: each has a horizon of few releases."""
SETTINGS = AgentsSettings(
    name="test", lower=0, upper=10, epsilon=1, delta=1e-6, schedule="geometric:2,1.5", horizon=12
)
SENTINEL = "sentinel"
"""Its one sample in each partition moves event time past the last window; it never releases."""

Samples = list[tuple[str, float, float]]


def samples_of(window: int) -> Samples:
    """Samples of a window in the order of event time."""
    rng = np.random.default_rng([7, window])
    who = rng.integers(0, AGENTS, SAMPLES)
    time = np.sort(rng.uniform(window * WINDOW, (window + 1) * WINDOW, SAMPLES))
    value = np.where(who % 2 == 0, 3.0, 7.0) + rng.normal(0, 2, SAMPLES)
    names = [f"agent {window // LIFE}-{a}" for a in who.tolist()]
    return list(zip(names, value.tolist(), time.tolist(), strict=True))


def sentinel(windows: int) -> tuple[str, float, float]:
    """Return a sample after all others."""
    return SENTINEL, 5.0, (windows + 1) * WINDOW


def expected_releases(folder: Path, windows: int) -> list[bytes]:
    """What the engine releases, whose agents vote alone."""
    stream = [sample for window in range(windows) for sample in samples_of(window)]
    alone = partial(Agents, votes_alone=True)  # as on Beam; an engine casts one vote per host
    with mock.patch("meanstream.streaming.agents.agents_engine.Agents", alone):
        world = engine_on(folder, [*stream, sentinel(windows)], SETTINGS, final_release=False)
    return world.lines("releases")


@dataclass
class PacedProducer:
    """Writes so many windows a second until it is ended; then event time passes the last one.

    Parameters
    ----------
    address, topic : str
        Broker and topic.
    pace : float
        Windows a second; 0: only what `write` is asked for.
    partitions : int
        Of the topic.
    """

    address: str
    topic: str
    pace: float = 1.5
    partitions: int = PARTITIONS
    windows: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": self.address, "enable.idempotence": True})
        self._thread = threading.Thread(target=self._run, daemon=True)
        if self.pace:
            self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(1 / self.pace):
            self.write(1)

    def write(self, windows: int) -> None:
        """Write the next windows at once."""
        for window in range(self.windows, self.windows + windows):
            for place, sample in enumerate(samples_of(window)):
                self._send(sample, place % self.partitions)
        assert self._producer.flush(30) == 0
        self.windows += windows

    def end(self) -> None:
        """Write no more."""
        self._ended.set()
        if self.pace:
            self._thread.join()
        for partition in range(self.partitions):
            self._send(sentinel(self.windows), partition)
        assert self._producer.flush(30) == 0

    def _send(self, sample: tuple[str, float, float], partition: int) -> None:
        agent, value, time = sample
        text = json.dumps(
            {
                "agent": agent,
                "value": value,
                "time": time,
                "id": f"{agent} at {time!r} in {partition}",
            }
        )
        self._producer.produce(self.topic, text.encode(), partition=partition)
