"""Runs of whole engines in which one sample is changed, what an observer sees, and the epsilon that this proves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.audit.black_box import Event, Outputs, audit_epsilon_lower_bound
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Floats, Ints
from meanstream.streaming.agents.engine import Engine
from meanstream.streaming.crash import CrashHook, no_crash
from meanstream.streaming.engine.options import EngineOptions
from meanstream.streaming.events.columns import Batch, Position, Rejects, SampleColumns
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.sinks.group import Sinks
from meanstream.streaming.sinks.sink import Trust
from meanstream.streaming.store.deployment import open_deployment
from meanstream.streaming.testing import MemorySink, SettableClock

EPSILON, DELTA = 1.0, 0.05  # a large delta makes the bound sharp: the optimal attack proves two thirds of epsilon
N = 6_000
RELEASES = 4
SETTINGS = AgentsSettings(
    name="test",
    lower=0,
    upper=1,
    epsilon=EPSILON,
    delta=DELTA,
    schedule="geometric:2,1.5",
    horizon=RELEASES,
    spread_share=0,
)
SAMPLES = 7  # per agent: releases at 2, 3, 5 and 7


class Rounds:
    """A source in which every agent gives one sample per second; `values[k]` is everybody's k-th."""

    name = "rounds"
    bounded = True

    def __init__(self, values: list[float]) -> None:
        self._values = values
        self._names = [f"agent {i}" for i in range(N)]
        self._at = 0

    def next_batch(self, max_samples: int) -> Batch:
        took = self._values[self._at : self._at + 1]
        n = N * len(took)
        columns = SampleColumns(
            self._names,
            np.arange(n),
            np.full(n, took[0] if took else 0.0),
            np.full(n, float(self._at)),
            None,
            np.arange(n) + self._at * N + 1,
        )
        self._at += len(took)
        return Batch(columns, Rejects(), {"at": self._at}, exhausted=not took)

    def restore(self, position: Position) -> None:
        self._at = int(position["at"])

    def close(self) -> None:
        """Nothing is open."""


class Wiretap(MemorySink):
    """An observer keeps what was ever written, also what the engine took back."""

    def __init__(self, *, trust: Trust = Trust.PUBLIC) -> None:
        super().__init__(trust=trust)
        self.seen: list[bytes] = []

    def write(self, events: EventLines) -> None:
        super().write(events)
        self.seen += events.lines


@dataclass
class Observer:
    """Reads every public sink; knows neither store nor secret."""

    releases: Wiretap = field(default_factory=Wiretap)
    population: Wiretap = field(default_factory=Wiretap)
    dead_letters: Wiretap = field(default_factory=Wiretap)
    notices: Wiretap = field(default_factory=Wiretap)
    estimates: MemorySink = field(default_factory=lambda: MemorySink(trust=Trust.PRIVATE))
    """Private; no part of what an observer reads."""

    def events(self) -> list[dict[str, Any]]:
        decoder = msgspec.json.Decoder(dict[str, Any])
        return [decoder.decode(line) for line in self.releases.seen]

    def totals(self) -> Ints:
        """Noised totals, one row per agent and one column per delivery, in the order of delivery."""
        seen: list[list[int]] = [[] for _ in range(N)]
        for event in self.events():
            seen[int(event["agent"].removeprefix("agent "))].append(event["total"])
        return np.array(seen, dtype=np.int64)


Noise = Callable[[bytes], KeyedNoise]
ALONE = EngineOptions(refresh=None, collaboration="none")


def run(
    folder: Path,
    values: list[float],
    *,
    secret: str,
    settings: AgentsSettings = SETTINGS,
    observer: Observer | None = None,
    noise: Noise | None = None,
    crash: CrashHook = no_crash,
    options: EngineOptions = ALONE,
) -> Observer:
    """One life of a real engine on a real store; everything public goes to the observer."""
    observer = observer or Observer()
    secret = secret.ljust(16, ".")
    with patch("meanstream.streaming.store.secret.key_weakness", return_value=None):  # these are seeds, not keys
        deployment = open_deployment(folder / "s.db", settings, environment={"MEANSTREAM_SECRET": secret})
    sinks = Sinks(
        releases=observer.releases,
        population=observer.population,
        dead_letters=observer.dead_letters,
        notices=observer.notices,
        estimates=observer.estimates,
    )
    try:
        Engine(
            source=Rounds(values),
            settings=settings,
            noise=deployment.noise if noise is None else noise(secret.encode()),
            store=deployment.store,
            sinks=sinks,
            options=options,
            clock=SettableClock(1e9),
            crash=crash,
        ).run()
    finally:
        deployment.store.close()
    return observer


def stream(value: float, *, at: int = 0) -> list[float]:
    """Everybody's samples: known ones, but for one that the adversary does not know."""
    values = [0.5, 0.25, 0.75, 0.5, 0.0, 1.0, 0.5]
    values[at] = value
    return values[:SAMPLES]


def most_powerful(settings: AgentsSettings, thresholds: Floats) -> list[Event]:
    """Threshold events on the best linear statistic of all releases, fixed by the mechanism and not by its outputs.

    With a sample of the first increment replaced all totals move by one span, so the weights are `Cov^-1 1`; they are
    scaled so that the statistic moves from 0 to 1 as the sample moves from the lower bound to the upper.
    """
    covariance = settings.mechanism.covariance(RELEASES)
    weights = np.linalg.solve(covariance, np.ones(RELEASES))
    weights /= weights.sum()
    known = np.cumsum(settings.grid.encode(np.array(stream(0.0))))[settings.times.times(RELEASES) - 1]  # type: ignore[union-attr]

    def statistic(outputs: Outputs) -> Floats:
        return np.asarray((outputs[:, :RELEASES] - known) @ weights / settings.grid.span, dtype=np.float64)

    def event(threshold: float) -> Event:
        return lambda outputs: statistic(outputs) > threshold

    return [event(t) for t in thresholds.tolist()]


THRESHOLDS = np.linspace(-2.5, 3.5, 9)


def audited_epsilon(
    experiment: Callable[[float, str], Outputs],
    events: list[Event],
    *,
    delta: float = DELTA,
    values: tuple[float, float] = (0.0, 1.0),
) -> float:
    """The one audit of this file: an experiment on two neighboring inputs, under a secret of its own each."""
    first, second = (experiment(value, f"secret number {i}") for i, value in enumerate(values))
    return audit_epsilon_lower_bound(first, second, events, delta=delta)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
