"""Snapshots for a page: bounded, consistent, and computed from what the engine hands over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from meanstream.streaming.agents.public_population import AnsweredAgents
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.metrics import telemetry as module
from meanstream.streaming.metrics.metric_records import Thinned, budget_histogram_record
from meanstream.streaming.metrics.telemetry import LEAST_SECONDS, AgentsTelemetry, Telemetry

SETTINGS: Any = SimpleNamespace(lower=0.0, upper=10.0, horizon=10, protected="")


class Steps:
    """A clock that goes on by so much with every look."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


def answered(names: list[int], half_width: float, *, time: float = 0.0) -> AnsweredAgents:
    n = len(names)
    reach = np.stack([np.full(n, 5 - half_width), np.full(n, 5 + half_width)], axis=1)
    return AnsweredAgents(
        time=time,
        names=tuple(f"agent {i}" for i in names),
        agent=np.array(names),
        count=np.full(n, 3),
        value=np.full(n, 5.0),
        interval=reach,
        local=np.full(n, 5.0),
        local_interval=2 * reach - 5,
        effective_class_size=np.full(n, 4.0),
        class_size=np.full(n, 2.0),
    )


def test_turns_are_bounded_and_the_newest_is_there() -> None:
    telemetry = Telemetry(settings=SETTINGS, clock=Steps(LEAST_SECONDS / 50))
    stats = EngineStats()
    for events in range(20_000):
        stats.events = events
        telemetry.observe(stats)
    turns = telemetry.view().turns
    assert turns[-1].events == 19_999
    assert 300 < len(turns) <= module.MOST_TURNS
    seconds = np.diff([turn.seconds for turn in turns[:-1]])
    assert seconds.min() >= LEAST_SECONDS * (1 - 1e-9)


def test_a_view_does_not_change_when_the_engine_goes_on() -> None:
    telemetry = Telemetry(settings=SETTINGS)
    stats = EngineStats(events=1, spent=(1, 2))
    stats.rejected["late"] = 1
    telemetry.observe(stats)
    view = telemetry.view()
    stats.events, stats.spent = 2, (0, 3)
    stats.rejected["late"] = 5
    telemetry.observe(stats)
    assert (view.turns[-1].events, view.turns[-1].spent, view.turns[-1].rejected) == (
        1,
        (1, 2),
        (("late", 1),),
    )
    telemetry.finish()
    assert view.running
    assert not telemetry.view().running


def test_precision_is_over_everybodys_newest_estimate() -> None:
    telemetry = AgentsTelemetry(settings=SETTINGS)
    stats = EngineStats(answers=answered([0, 1, 2], 3.0))
    telemetry.observe(stats)
    telemetry.observe(stats)  # the same answers are not new
    stats.answers = answered([7], 1.0)
    telemetry.observe(stats)
    first, second = telemetry.view().precision
    assert (first.answered, first.together, first.alone) == (3, (3.0, 3.0, 3.0), (6.0, 6.0, 6.0))
    assert second.answered == 4
    np.testing.assert_allclose(second.together, np.quantile([3, 3, 3, 1], [0.1, 0.5, 0.9]))


def test_histories_are_of_one_agent_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 100)
    telemetry = AgentsTelemetry(settings=SETTINGS)
    stats = EngineStats()
    for turn in range(200):
        stats.answers = answered([4, 9] if turn % 2 else [4], 3.0, time=float(turn))
        telemetry.observe(stats)
    kept = telemetry._answers.points()
    assert sum(len(record.names) for record in kept) <= 100
    rows = telemetry.history("agent 4")
    assert [row["time"] for row in rows] == sorted({row["time"] for row in rows})
    assert (rows[0]["time"], rows[-1]["time"]) == (0.0, 199.0)
    told = ("n", "value", "lower", "upper", "local", "local_lower", "local_upper")
    assert [rows[-1][name] for name in told] == [3, 5.0, 2.0, 8.0, 5.0, -1.0, 11.0]
    assert telemetry.history("agent 5") == []
    assert telemetry.names_like("GENT 9") == ["agent 9"]


def test_what_is_thinned_keeps_begin_and_end() -> None:
    for n in (1, 7, 8, 9, 1000):
        course: Thinned[int] = Thinned(8)
        for i in range(n):
            course.add(i)
        points = course.points()
        assert (points[0], points[-1]) == (0, n - 1)
        assert len(points) <= 9
        assert len(set(points)) == len(points)


def test_shares_of_the_budget_count_every_agent() -> None:
    spent = tuple(range(1, 12))  # k + 1 agents have spent k of 10
    found = budget_histogram_record(sum(spent), spent, 10)
    assert found["agents"] == list(spent)
    assert (
        budget_histogram_record(sum(spent) + 5, spent, 10)["agents"][0] == 6
    )  # who came later has spent nothing
    assert budget_histogram_record(66, spent, 100)["agents"] == [1, sum(spent[1:]), *[0] * 9]
    assert budget_histogram_record(66, spent, None)["labels"] == [str(k) for k in range(11)]
