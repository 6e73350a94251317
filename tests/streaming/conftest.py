"""A small deployment in a folder: settings, store, sinks, and an engine that can die anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.agents.agents_settings import settings_identity
from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.clock import Clock
from meanstream.streaming.crash import CrashHook, no_crash
from meanstream.streaming.engine.engine_loop import never_stop_loop
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.sinks.jsonl_sink import JsonlSink
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.sources.source_protocol import Source
from meanstream.streaming.store.deployment_store import open_deployment
from meanstream.streaming.store.state_store import Store
from tests.fitted_once import fitted_once  # noqa: F401 - fixture
from tests.streaming.support.scripted_source import SettableClock
from tests.streaming.support.stored_rows import forget_names

ROLES = {
    "releases": Trust.PUBLIC,
    "estimates": Trust.PRIVATE,
    "population": Trust.PUBLIC,
    "dead_letters": Trust.PUBLIC,
    "notices": Trust.PUBLIC,
}


@dataclass
class World:
    """One store and its sinks in a folder; `run` is one life of the process."""

    folder: Path
    settings: AgentsSettings = field(
        default_factory=lambda: AgentsSettings(
            lower=0,
            upper=10,
            epsilon=1,
            delta=1e-6,
            counter="pm1",
            schedule="geometric:2,1.5",
            horizon=12,
            name="world",
            spread_share=0,
        )
    )
    options: EngineOptions = field(
        default_factory=lambda: EngineOptions(batch_size=16, refresh=20.0, allowed_lateness=3.0)
    )
    clock: Clock = field(default_factory=lambda: SettableClock(2e9))
    secret: str = "7c1e94b05fa3d2681be60c9d37f25a84"  # noqa: S105 - of a test

    def run(
        self,
        source: Source,
        *,
        crash: CrashHook = no_crash,
        stop: Callable[[], bool] = never_stop_loop,
        roles: Sequence[str] = tuple(ROLES),
    ) -> EngineStats:
        self.folder.mkdir(exist_ok=True)
        deployment = open_deployment(
            self.folder / "s.db", self.settings, environment={"MEANSTREAM_SECRET": self.secret}
        )
        sinks = Sinks(
            **{role: JsonlSink(self.folder / f"{role}.jsonl", trust=ROLES[role]) for role in roles}
        )
        try:
            self.engine = Engine(
                source=source,
                settings=deployment.settings,
                noise=deployment.noise,
                store=deployment.store,
                sinks=sinks,
                options=self.options,
                clock=self.clock,
                crash=crash,
            )
            return self.engine.run(stop)
        finally:
            source.close()
            sinks.close()
            deployment.store.close()

    def lose_agents(self) -> None:
        """Forget the state of the agents, as after a wrong repair, and keep the ledger."""
        store = Store.open(
            self.folder / "s.db",
            settings=settings_identity(self.settings),
            secret=self.secret.encode(),
        )
        with store.transaction():
            store.put_state("engine", None)
            for kind in ("agents", "changed agents", "own releases", "pending", "ids", "agent ids"):
                store.drop_chunks(kind, [number for number, _ in store.chunks(kind)])
            forget_names(store)
        store.close()

    def lines(self, role: str) -> list[bytes]:
        return (self.folder / f"{role}.jsonl").read_bytes().splitlines()

    def events(self, role: str) -> list[dict[str, object]]:
        return [msgspec.json.decode(line) for line in self.lines(role)]

    def files(self) -> dict[str, bytes]:
        return {role: (self.folder / f"{role}.jsonl").read_bytes() for role in ROLES}


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies loses nothing that it wrote; only a machine that dies would."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setattr("meanstream.streaming.store.database.SYNCHRONOUS", "OFF")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


@pytest.fixture(scope="session")
def world_type() -> type[World]:
    return World


@pytest.fixture
def new_world(tmp_path: Path) -> Callable[[str], World]:
    return lambda name: World(tmp_path / name)
