"""What the statistician's side shows to Prometheus is what its events say, and its health is that
of its topic."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from meanstream.operators.estimators.registry import ESTIMATORS
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.metrics.rounds_metrics import StatisticianMetrics
from meanstream.streaming.rounds.rounds_statistician import (
    PUBLIC_SECRET,
    Statistician,
    statistician_identity,
)
from meanstream.streaming.rounds.rounds_stats import (
    REFUSED_REPORTS,
    RoundsStats,
    StatisticianStats,
    statistician_stats,
)
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.store.state_store import Store
from tests.streaming.metrics.test_rounds_metrics import shown
from tests.streaming.support.rounds_world import RoundsWorld, rounds_settings, samples
from tests.streaming.support.scripted_source import MemorySink, ScriptedSource, SettableClock
from tests.streaming.support.tiny_estimator import TINY


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "tiny", TINY)


def figures(world: RoundsWorld, stats: StatisticianStats) -> dict[str, float]:
    metrics = StatisticianMetrics(
        settings=world.settings, health=EngineHealth(), clock=SettableClock(2e9)
    )
    metrics.observe(stats)
    return shown(metrics)


def test_metrics_are_what_the_events_say(tmp_path: Path) -> None:
    users, world = (
        RoundsWorld(tmp_path / name, rounds_settings()) for name in ("users", "statistician")
    )
    users.run(ScriptedSource(samples()))
    reports = users.folder / "reports.jsonl"
    lines = reports.read_bytes().splitlines()
    first = next(line for line in lines if b"payload" in line)
    reports.write_bytes(b"\n".join([*lines, first, b"no report"]) + b"\n")
    stats = world.tally(reports)
    found, newest = figures(world, stats), world.events("means")[-1]
    assert found["meanstream_rounds_total"] == stats.estimates == 4
    assert (
        found["meanstream_statistician_reports_total"]
        == stats.reports
        == sum(b"payload" in x for x in lines) + 1
    )
    assert found["meanstream_statistician_stages_total"] == stats.stages > 0
    assert found["meanstream_rounds_waiting"] == 0
    assert found["meanstream_rounds_value"] == newest["value"]
    assert found["meanstream_rounds_window_users"] == newest["users"]
    assert (
        found["meanstream_rounds_window_end_timestamp_seconds"]
        == datetime.fromisoformat(newest["end"]).timestamp()
    )
    rejects = {reason: found[f"meanstream_rejects_total:{reason}"] for reason in REFUSED_REPORTS}
    assert {reason for reason, n in rejects.items() if n} == {"duplicate", "malformed"}
    assert "meanstream_allowed_lateness_seconds" in found  # an alert adds it


class Topic:
    """Reports of a topic whose brokers go away."""

    client, watched, follows = "from_reports", True, True

    def __init__(self, health: EngineHealth) -> None:
        self._health, self.problem, self.seen = health, None, []
        self.turns = 0

    def lines(self) -> Any:
        self.seen.append(self._health.not_ready())
        return iter(())

    def grew(self) -> bool:
        self.turns += 1
        self.problem = "_TRANSPORT: no broker" if self.turns == 2 else None
        self.seen.append(self._health.not_ready())
        return False

    def connection_problem(self) -> str | None:
        return self.problem


def test_ready_once_reports_were_read_and_while_brokers_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    settings, health, told = rounds_settings(), EngineHealth(), []
    topic = Topic(health)
    store = Store.open(
        tmp_path / "s.db", settings=statistician_identity(settings), secret=PUBLIC_SECRET
    )
    sinks = Sinks(means=MemorySink(trust=Trust.PUBLIC), stages=MemorySink(trust=Trust.PUBLIC))
    try:
        Statistician(
            reports=topic,
            settings=settings,
            store=store,
            sinks=sinks,
            health=health,
            on_pass=lambda stats: told.append(stats.reports),
        ).run(lambda: topic.turns >= 3)
    finally:
        store.close()
    assert topic.seen == [
        "reports are being read",
        None,
        "from_reports cannot be reached: _TRANSPORT: no broker",
        None,
    ]
    assert told == [0, 0]
    assert health.not_ready() == "stopping"


def test_figures_of_an_engine_are_refused() -> None:
    with pytest.raises(TypeError, match="figures must be of a statistician, got RoundsStats"):
        statistician_stats(RoundsStats())
