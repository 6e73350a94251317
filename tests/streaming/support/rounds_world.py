"""A deployment of rounds in a folder: settings, store, sinks, an engine that can die anywhere, a
statistician."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from meanstream.streaming.clock import Clock
from meanstream.streaming.crash import CrashHook, no_crash
from meanstream.streaming.engine.engine_loop import never_stop_loop
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.event_columns import Batch, Rejects
from meanstream.streaming.rounds.predictions_table import PredictionsTable
from meanstream.streaming.rounds.rounds_deployment import (
    open_rounds_deployment,
    rounds_deployment_identity,
)
from meanstream.streaming.rounds.rounds_engine import RoundsEngine
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.rounds_statistician import (
    PUBLIC_SECRET,
    ReportsFile,
    Statistician,
    statistician_identity,
)
from meanstream.streaming.rounds.rounds_stats import RoundsStats, StatisticianStats
from meanstream.streaming.rounds.stage_results import StageResultsFile
from meanstream.streaming.sinks.jsonl_sink import JsonlSink
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.sources.source_protocol import Source
from meanstream.streaming.store.state_store import Store
from tests.streaming.support.scripted_source import ScriptedSource, SettableClock
from tests.streaming.support.stored_rows import forget_names

ROLES = ("reports", "stages", "means", "dead_letters", "notices")
SECRET = "7c1e94b05fa3d2681be60c9d37f25a84"  # noqa: S105 - of a test
DAY = 86_400.0


def rounds_settings(**changes: Any) -> RoundsSettings:
    """Settings of the tiny estimator, by day."""
    tiny = {
        "lower": 0,
        "upper": 10,
        "epsilon": 2.0,
        "window": "1d",
        "estimator": "tiny",
        "name": "rounds",
    }
    return RoundsSettings(**{**tiny, **changes})


def samples(
    n: int = 240, users: int = 12, days: float = 4.0, seed: int = 5
) -> list[tuple[str, float, float]]:
    """Samples in the order of time, all users in every day."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, days * DAY, n))
    return [
        (f"user {int(u)}", float(v), float(t))
        for u, v, t in zip(rng.integers(0, users, n), rng.normal(6, 2, n), times, strict=True)
    ]


class Spoiled(ScriptedSource):
    """Every batch also has a record that cannot be read."""

    def next_batch(self, max_samples: int) -> Batch:
        batch = super().next_batch(max_samples)
        rejects = Rejects()
        if len(batch.samples):
            rejects.add("malformed", int(batch.samples.position[0]), 12)
        return Batch(batch.samples, rejects, batch.position, batch.exhausted)


@dataclass
class RoundsWorld:
    """One store and its sinks in a folder; `run` is one life of the process."""

    folder: Path
    settings: RoundsSettings = field(default_factory=rounds_settings)
    options: EngineOptions = field(default_factory=lambda: EngineOptions(batch_size=32))
    clock: Clock = field(default_factory=lambda: SettableClock(2e9))
    predictions: PredictionsTable | None = None

    def run(
        self,
        source: Source,
        *,
        crash: CrashHook = no_crash,
        stop: Callable[[], bool] = never_stop_loop,
        roles: Sequence[str] = ROLES,
        stages: Path | None = None,
        on_turn: Callable[[RoundsStats], None] | None = None,
    ) -> RoundsStats:
        """Read the source to its end; only reports, if there is a file of stage results to go on
        from."""
        self.folder.mkdir(exist_ok=True)
        opened = open_rounds_deployment(
            self.folder / "s.db", self.settings, environment={"MEANSTREAM_SECRET": SECRET}
        )
        if stages is not None:
            roles = [role for role in roles if role not in ("stages", "means")]
        sinks = self._sinks(roles)
        try:
            self.engine = RoundsEngine(
                source=source,
                settings=opened.settings,
                secret=opened.secret,
                store=opened.store,
                sinks=sinks,
                options=self.options,
                results=None if stages is None else StageResultsFile(stages),
                predictions=self.predictions,
                clock=self.clock,
                crash=crash,
                on_turn=on_turn,
            )
            return self.engine.run(stop)
        finally:
            source.close()
            sinks.close()
            opened.store.close()

    def tally(self, reports: Path, *, crash: CrashHook = no_crash) -> StatisticianStats:
        """Run the statistician's side on a file of reports."""
        self.folder.mkdir(exist_ok=True)
        store = Store.open(
            self.folder / "statistician.db",
            settings=statistician_identity(self.settings),
            secret=PUBLIC_SECRET,
        )
        sinks = self._sinks(("stages", "means"))
        try:
            place = ReportsFile(reports)
            return Statistician(
                reports=place, settings=self.settings, store=store, sinks=sinks, crash=crash
            ).run()
        finally:
            sinks.close()
            store.close()

    def lose_state(self) -> None:
        """Forget where the source was and what was open, and keep the ledger."""
        store = Store.open(
            self.folder / "s.db",
            settings=rounds_deployment_identity(self.settings),
            secret=SECRET.encode(),
        )
        with store.transaction():
            store.put_state("rounds", None)
            for kind in ("rounds_open", "ids", "agent ids"):
                store.drop_chunks(kind, [number for number, _ in store.chunks(kind)])
            forget_names(store)
        store.close()

    def lines(self, role: str) -> list[bytes]:
        return (self.folder / f"{role}.jsonl").read_bytes().splitlines()

    def events(self, role: str) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.lines(role)]

    def files(self) -> dict[str, bytes]:
        return {role: (self.folder / f"{role}.jsonl").read_bytes() for role in ROLES}

    def _sinks(self, roles: Sequence[str]) -> Sinks:
        trusts = {"dead_letters": Trust.PRIVATE}
        opened = {
            role: (self.folder / f"{role}.jsonl", trusts.get(role, Trust.PUBLIC)) for role in roles
        }
        return Sinks(
            **{role: JsonlSink(path, trust=trust) for role, (path, trust) in opened.items()}
        )
