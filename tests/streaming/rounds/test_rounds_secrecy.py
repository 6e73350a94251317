"""A user's number of samples and their times reach nobody: every public surface of rounds, byte for
byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.operators.estimators.registry import ESTIMATORS
from meanstream.pipelines.commands.run.checks import private_rounds_figures
from meanstream.pipelines.commands.run.run_rounds import RoundsProgress, rounds_summary
from meanstream.pipelines.page.page_figures import page_figures
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.metrics.private_answers import PrivateRoundsMetrics
from meanstream.streaming.metrics.rounds_metrics import RoundsMetrics
from meanstream.streaming.metrics.telemetry import RoundsTelemetry
from meanstream.streaming.rounds.rounds_budget import rounds_budgets
from meanstream.streaming.rounds.rounds_stats import RoundsStats, public_stats
from meanstream.streaming.sinks.jsonl_sink import JsonlSink
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from tests.streaming.support.rounds_world import DAY, RoundsWorld, Spoiled, rounds_settings
from tests.streaming.support.scripted_source import ScriptedSource, SettableClock
from tests.streaming.support.tiny_estimator import TINY, OneBit

USERS = [f"user {i}" for i in range(9)]
DAYS = 4


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "tiny", TINY)


@pytest.fixture
def same_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The charged releases are forced to be the same: every report says +1, whatever the user
    holds."""
    monkeypatch.setattr(
        OneBit,
        "encode",
        lambda self, summaries, public, words: np.ones((len(summaries), 1), np.int64),
    )


def stream(world: str) -> list[tuple[str, float, float]]:
    """Everybody twice a day. In the second world one user sends ten times as much, at other times,
    before others."""
    rows = [(user, 5.0, (day + 0.3 + 0.01 * i + 0.2 * k) * DAY)
            for day in range(DAYS) for k in range(2) for i, user in enumerate(USERS)]  # fmt: skip
    if world == "more":
        rows = [row for row in rows if row[0] != USERS[4]]
        rows += [
            (USERS[4], 99.0, (day + 0.02 * k + 0.01) * DAY)
            for day in range(DAYS)
            for k in range(20)
        ]
    rows += [(USERS[0], 5.0, (DAYS + 1.0) * DAY)]  # closes the last day
    return sorted(rows, key=lambda row: row[2])


class Watched:
    """A run of one world and everything that it shows to anybody."""

    def __init__(
        self, folder: Path, world: str, *, batch: int, clock: float = 2e9, **settings: Any
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.world = RoundsWorld(folder / world, rounds_settings(**settings))
        self.world.options = type(self.world.options)(batch_size=batch)
        self.telemetry = RoundsTelemetry(settings=self.world.settings, clock=lambda: 1.0)
        health = EngineHealth()
        self.metrics = [
            kind(settings=self.world.settings, health=health, clock=SettableClock(clock))
            for kind in (RoundsMetrics, PrivateRoundsMetrics)
        ]
        self.lines: list[str] = []
        self.stats = self.world.run(Spoiled(stream(world)), on_turn=self._look)
        self.telemetry.finish()
        progress = RoundsProgress()
        self.lines.append(progress.line(public_stats(self.stats), 1.0))

    def _look(self, stats: RoundsStats) -> None:
        for one in (*self.metrics, self.telemetry):
            one.observe(stats)

    def surfaces(self) -> dict[str, bytes]:
        folder = self.world.folder
        found = {
            role: (folder / f"{role}.jsonl").read_bytes()
            for role in ("reports", "stages", "means", "notices")
        }
        view = page_figures(
            self.telemetry.view(),
            kind="rounds",
            horizon=self.world.settings.horizon,
            bounds=(0.0, 10.0),
        )
        exposed = [
            line for line in self.metrics[0].exposition().splitlines() if b"_created" not in line
        ]
        return found | {
            "page": json.dumps(view, default=str).encode(),
            "metrics": b"\n".join(exposed),
            "json": json.dumps(rounds_summary(self.stats)).encode(),
            "progress": "\n".join(self.lines).encode(),
            "budget": repr(rounds_budgets(folder / "s.db")).encode(),
        }


@pytest.mark.usefixtures("same_reports")
@pytest.mark.parametrize("settings", [{}, {"user_budget": 4.0}, {"users": 9}])
def test_another_number_of_samples_at_other_times_changes_no_public_byte(
    tmp_path: Path, settings: Any
) -> None:
    """Row 8, where the order of reports was that of arrival, and metrics and the page counted
    events."""
    usual = Watched(tmp_path, "usual", batch=7, **settings)
    more = Watched(tmp_path, "more", batch=200, **settings)  # all windows end in one turn
    assert usual.stats.events != more.stats.events
    assert usual.stats.clipped != more.stats.clipped
    first, second = usual.surfaces(), more.surfaces()
    for name, data in first.items():
        assert data == second[name], name
    assert private_rounds_figures(usual.stats) != private_rounds_figures(more.stats)
    assert usual.metrics[1].exposition() != more.metrics[1].exposition()


@pytest.mark.usefixtures("same_reports")
def test_reports_in_the_order_of_arrival_would_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The known-bad twin: how reports were ordered."""
    monkeypatch.setattr(
        "meanstream.streaming.rounds.round_runner.rounds_run_order",
        lambda words: np.arange(len(words)),
    )
    first, second = (Watched(tmp_path, name, batch=7).surfaces() for name in ("usual", "more"))
    assert first["reports"] != second["reports"]
    assert sorted(first["reports"].splitlines()) == sorted(second["reports"].splitlines())


@pytest.mark.usefixtures("same_reports")
def test_the_sides_apart_show_no_more(tmp_path: Path) -> None:
    told = []
    for name in ("usual", "more"):
        world, stages = RoundsWorld(tmp_path / name, rounds_settings()), tmp_path / f"{name}.jsonl"
        for _ in range(2):
            world.run(Spoiled(stream(name)), stages=stages)
            events = [e for e in world.events("reports") if "reports" in e and e["stage"] == 0]
            lines = [
                json.dumps({k: e[k] for k in ("round_id", "start", "end", "stage")}
                           | {"users": 1, "public": {"center": 0.1, "votes": 3}})
                for e in events
            ]  # fmt: skip
            stages.write_text("\n".join(lines) + "\n")
        told.append((tmp_path / name / "reports.jsonl").read_bytes())
    assert told[0] == told[1]


def test_dead_letters_of_rounds_are_private(tmp_path: Path) -> None:
    world = RoundsWorld(tmp_path / "w")
    public = JsonlSink(tmp_path / "d.jsonl", trust=Trust.PUBLIC)
    world._sinks = lambda roles: Sinks(dead_letters=public)  # type: ignore[method-assign]
    with pytest.raises(
        TypeError, match="public sink must be given public events, got PrivateDeadLetter"
    ):
        world.run(ScriptedSource([]))


def test_nobody_is_seen_before_its_window_has_ended(tmp_path: Path) -> None:
    """Twenty samples were taken, of many users: nothing of it is public yet."""
    world, turns = RoundsWorld(tmp_path / "w"), iter(range(5))
    world.options = type(world.options)(batch_size=4)
    stats = world.run(ScriptedSource(stream("usual")), stop=lambda: next(turns) == 4)
    assert 0 < stats.accepted < len(USERS) * 2
    assert stats.agents > 1
    assert public_stats(stats) == type(stats)(
        spent=(0,), lateness=stats.lateness
    )  # which was declared


@pytest.mark.usefixtures("same_reports")
@pytest.mark.parametrize("batch", [1, 5, 1000])
def test_where_batches_end_shows_nowhere(tmp_path: Path, batch: int) -> None:
    """All windows in one batch, or each in its own: also the mark that reports are complete stands
    in one place."""
    surfaces = Watched(tmp_path, "usual", batch=batch, user_budget=4.0).surfaces()
    expected = Watched(tmp_path / "other", "usual", batch=7, user_budget=4.0).surfaces()
    assert surfaces == expected


def test_figures_of_another_engine_are_refused() -> None:
    """What is public of agents is not of rounds: whoever shows figures of rounds takes no
    others."""
    progress = RoundsProgress(quiet=True)
    with pytest.raises(TypeError, match="figures must be of an engine of rounds, got EngineStats"):
        progress(EngineStats(events=3, accepted=2, agents=1))
