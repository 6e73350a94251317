"""Engines whose metrics are looked at, whole or in several lives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.streaming.agents import agents_budget
from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.metrics.engine_metrics import Metrics
from meanstream.streaming.metrics.telemetry import AgentsTelemetry
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.store.deployment_store import open_deployment
from tests.streaming.support.scripted_source import (
    MemorySink,
    ScriptedSample,
    ScriptedSource,
    SettableClock,
)

LOWER, UPPER = 0.0, 10.0
SETTINGS = AgentsSettings(
    name="test",
    lower=LOWER,
    upper=UPPER,
    epsilon=5,
    delta=1e-6,
    counter="pm1",
    schedule="geometric:2,1.5",
    horizon=5,
    spread_share=0,
)
OPTIONS = EngineOptions(batch_size=10, refresh=10.0, final_release=False)
TIMINGS = re.compile(rb"meanstream_(commit|delivery|batch)_seconds_")
SAMPLES = [
    (f"agent {i % 12}", float((i % 3) * 3 + (i * 7 % 11) / 11), float(i)) for i in range(180)
]


@dataclass
class Life:
    """One engine over one script; what its metrics said after each turn."""

    folder: Path
    settings: AgentsSettings = SETTINGS
    options: EngineOptions = OPTIONS
    metrics_type: type[Metrics] = Metrics
    pages: list[bytes] = field(default_factory=list)

    def run(self, samples: Sequence[ScriptedSample], ids: Sequence[int] | None = None) -> Life:
        store = self.folder / "s.db"
        environment = {"MEANSTREAM_SECRET": "7c1e94b05fa3d2681be60c9d37f25a84"}
        deployment = open_deployment(store, self.settings, environment=environment)
        clock = SettableClock(1000.0)
        health = EngineHealth(now=clock.now)
        self.metrics = self.metrics_type(
            settings=self.settings, health=health, store=store, clock=clock
        )
        self.telemetry = AgentsTelemetry(settings=self.settings)
        self.releases, self.estimates = (
            MemorySink(trust=Trust.PUBLIC),
            MemorySink(trust=Trust.PRIVATE),
        )
        engine = Engine(
            source=ScriptedSource(samples, ids=ids),
            settings=self.settings,
            noise=deployment.noise,
            store=deployment.store,
            sinks=Sinks(releases=self.releases, estimates=self.estimates),
            options=self.options,
            clock=clock,
            on_turn=self._observe,
            health=health,
        )
        self.stats = engine.run()
        deployment.store.close()
        return self

    def _observe(self, stats: EngineStats) -> None:
        self.telemetry.observe(stats)
        self.metrics.observe(stats)
        self.pages.append(self.metrics.exposition())

    @property
    def figures(self) -> dict[str, float]:
        """The last page, by name and labels."""
        lines = [line for line in self.pages[-1].decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    @property
    def untimed(self) -> list[bytes]:
        """Each page without what depends on the speed of the machine."""
        return [
            b"\n".join(row for row in page.split(b"\n") if not TIMINGS.match(row))
            for page in self.pages
        ]


@pytest.fixture
def new_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Life]:
    # On a slow machine the forecast of budgets rests between two looks, and pages would differ.
    monkeypatch.setattr(agents_budget, "LONG_SECONDS", float("inf"))

    def make(**changes: Any) -> Life:
        folder = tmp_path / f"life {sum(1 for _ in tmp_path.iterdir())}"
        folder.mkdir()
        return Life(folder, **changes)

    return make
