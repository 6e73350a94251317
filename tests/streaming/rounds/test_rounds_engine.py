"""The engine of rounds: windows, lateness, budgets, estimates; equal to the pieces run by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meanstream.operators.estimators.registry import ESTIMATORS
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.rounds.round_records import Estimate
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.base import PublicEvent
from meanstream.streaming.events.wire import EVENTS
from meanstream.streaming.rounds.rounds_budget import rounds_budgets
from meanstream.streaming.rounds.summarize_users import summarize
from meanstream.streaming.rounds.window_round import WindowRound, estimate_event_line
from meanstream.streaming.rounds.window_widths import MICROS, Window
from meanstream.streaming.store.store_audit import audit_ledger
from tests.streaming.support.rounds_world import (
    DAY,
    ROLES,
    SECRET,
    RoundsWorld,
    Spoiled,
    rounds_settings,
    samples,
)
from tests.streaming.support.scripted_source import Script, ScriptedSource, SettableClock
from tests.streaming.support.tiny_estimator import TINY


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "tiny", TINY)


@pytest.fixture
def new_rounds(tmp_path: Path) -> Callable[..., RoundsWorld]:
    return lambda name="world", **changes: RoundsWorld(tmp_path / name, rounds_settings(**changes))


def by_hand(
    stream: list[Any], world: RoundsWorld, window: Window
) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """The round of one window in memory: every user at once, nothing streamed."""
    inside = [s for s in stream if window.start <= s[2] * MICROS < window.end]
    names = sorted({name for name, _, _ in inside})
    user = np.array([names.index(name) for name, _, _ in inside])
    sums = summarize(
        user,
        np.array([v for _, v, _ in inside]),
        np.array([t for *_, t in inside]),
        world.settings.grid,
    )
    this = WindowRound(world.settings, window, users=len(names))
    words, public, said = keyed_owner_words(names), {}, {}
    for stage in this.stages:
        mine = np.flatnonzero(this.stage_of(words) == stage)
        reports = this.reports(
            SECRET.encode(),
            stage,
            public,
            sums.take(mine).summaries(words[mine], world.settings.grid),
        )
        said.update({names[i]: row for i, row in zip(mine.tolist(), reports.tolist(), strict=True)})
        public: Any = this.decode(stage, public, this.tally(stage, public, reports)[0])
    assert isinstance(public, Estimate)
    return json.loads(estimate_event_line(this, public, len(names)).lines[0]), said


@pytest.mark.parametrize("batch_size", [7, 10_000])
def test_each_window_is_answered_once_as_if_it_were_alone(batch_size: int, new_rounds: Any) -> None:
    world = new_rounds()
    world.options = EngineOptions(batch_size=batch_size)
    stats = world.run(ScriptedSource(samples()))
    assert (stats.accepted, stats.rounds, stats.estimates, stats.open_windows) == (240, 4, 4, 0)
    estimates = world.events("means")
    for day, estimate in enumerate(estimates):
        window = Window(day * 86_400 * MICROS, (day + 1) * 86_400 * MICROS)
        expected, said = by_hand(samples(), world, window)
        assert estimate == expected
        reports = [
            e
            for e in world.events("reports")
            if e["round_id"] == estimate["round_id"] and "user" in e
        ]
        assert {e["user"]: e["payload"] for e in reports} == said
        assert len(reports) == len(said) == estimate["users"]
    assert [e["end"] for e in estimates] == [f"1970-01-0{d}T00:00:00Z" for d in (2, 3, 4, 5)]


def test_everything_that_is_written_is_a_public_event(new_rounds: Any) -> None:
    world = new_rounds(user_budget=4.0)
    world.run(Spoiled(samples()))
    for role in ROLES:
        assert world.lines(role), role
    kinds = {"stages": "stage_result", "means": "window_estimate", "dead_letters": "dead_letter"}
    for role in ROLES:
        for line in world.lines(role):
            name = kinds.get(role) or ("round_refusal" if role == "notices" else "report")
            if b'"reports":' in line:
                name = "stage_reports"
            kind = EVENTS[name]
            assert issubclass(kind, PublicEvent)
            kind.model_validate_json(line, strict=True)
            optional = (
                {"values", "categories", "quantiles", "components", "function", "user_windows"}
                if name == "window_estimate"
                else set()
            )
            assert list(json.loads(line)) == [
                field for field in kind.model_fields if field not in optional
            ]


def test_a_window_closes_by_the_clock_with_all_that_was_there(new_rounds: Any) -> None:
    world = new_rounds(allowed_lateness=100.0)
    world.options = EngineOptions(batch_size=1, allowed_lateness=100.0, max_future=DAY)
    clock = world.clock = SettableClock(DAY + 99.0)
    script = [
        ("a", 1.0, 10.0),
        ("b", 2.0, DAY + 99.0),  # event time closes nothing
        ("c", 3.0, 20.0),
        Script.PAUSE,  # here the clock passes the end and the lateness
        ("d", 4.0, 40.0),  # was there then, as far as it is read
        Script.PAUSE,
        ("e", 5.0, 30.0),
        ("f", 6.0, DAY + 1.0),
        Script.PAUSE,
    ]
    source, at = ScriptedSource(script, bounded=False), []

    def stop() -> bool:
        at.append(source._at)
        if at[-1] == 4:
            clock.set(DAY + 100.0)
        return len(at) > 30

    stats = world.run(source, stop=stop)
    assert dict(stats.rejected) == {"late": 1}
    assert [e["users"] for e in world.events("means")] == [3]
    assert [e["position"] for e in world.events("dead_letters")] == [7]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    times=st.lists(st.integers(0, 60), min_size=1, max_size=40),
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    window=st.sampled_from(["10s", "20s,5s", "session:3s"]),
)
def test_how_the_source_is_cut_changes_nothing(
    times: list[int], sizes: tuple[int, int], window: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = []
    for size in sizes:
        changes = {"window": window, "allowed_lateness": 6.0, "user_budget": 2000.0}
        world = RoundsWorld(tmp_path_factory.mktemp("w") / "w", rounds_settings(**changes))
        world.options = EngineOptions(batch_size=size, allowed_lateness=6.0)
        script = [(f"user {i % 5}", float(i % 11), float(t)) for i, t in enumerate(times)]
        stats = world.run(ScriptedSource(script, ids=[i % 30 for i in range(len(times))]))
        lines = {
            role: sorted(world.lines(role))
            for role in ("reports", "means", "stages", "dead_letters")
        }
        found.append((dict(stats.rejected), lines))
    assert found[0] == found[1]


def test_sliding_windows_and_sessions(new_rounds: Any) -> None:
    sliding = new_rounds("sliding", window="2d,1d", user_budget=40.0)
    sliding.run(ScriptedSource(samples()))
    estimates = sliding.events("means")
    assert [e["start"][:10] for e in estimates] == [
        f"19{d}" for d in ("69-12-31", "70-01-01", "70-01-02", "70-01-03", "70-01-04")
    ]
    assert estimates[1] == by_hand(samples(), sliding, Window(0, 2 * 86_400 * MICROS))[0]
    session = new_rounds("session", window="session:10m")
    session.run(
        ScriptedSource([("a", 1.0, 0.0), ("b", 1.0, 599.0), ("a", 1.0, 1199.5), ("a", 1.0, 1)])
    )
    assert [(e["start"], e["end"], e["users"]) for e in session.events("means")] == [
        ("1970-01-01T00:00:00Z", "1970-01-01T00:19:59Z", 2),
        ("1970-01-01T00:19:59.500000Z", "1970-01-01T00:29:59.500000Z", 1),
    ]


def test_a_user_over_budget_does_not_enter(new_rounds: Any) -> None:
    """Known bad beside it: without a budget the same user enters every round."""
    stream = [("often", 5.0, d * DAY + 1) for d in range(4)] + [("once", 5.0, 3 * DAY + 2)]
    world, bad = new_rounds("kept", user_budget=5.0), new_rounds("bad")
    stats = world.run(ScriptedSource(stream))
    assert [e["users"] for e in world.events("means")] == [1, 1, 0, 1]
    assert stats.over_budget == 2
    refused = world.events("notices")
    assert [(e["user"], e["spent"], e["asked"], e["remaining"]) for e in refused] == [
        ("often", 4.0, 2.0, 1.0)
    ] * 2
    bad.run(ScriptedSource(stream))
    assert [e["users"] for e in bad.events("means")] == [1, 1, 1, 2]


def test_a_budget_that_is_spent_to_the_last_has_nothing_left(new_rounds: Any) -> None:
    world = new_rounds(user_budget=4.0)
    stats = world.run(
        ScriptedSource(
            [("often", 5.0, d * DAY + 1) for d in range(4)] + [("once", 5.0, 3 * DAY + 2)]
        )
    )
    assert [(e["spent"], e["remaining"]) for e in world.events("notices")] == [(4.0, 0.0)] * 2
    found = rounds_budgets(world.folder / "s.db")
    assert [(u.user, u.reports, u.spent, u.remaining) for u in found.users] == [
        ("often", 2, 4.0, 0.0),
        ("once", 1, 2.0, 2.0),
    ]
    summary = found.summary
    assert (summary.users, summary.reports, summary.spent_max, summary.at_budget) == (2, 3, 4.0, 1)
    assert (stats.rounds, stats.estimates, stats.releases, stats.refusals) == (
        4,
        len(world.lines("means")),
        3,
        0,
    )
    assert stats.spent == (0, 1, 1)


def test_the_budget_holds_over_restarts_and_within_one_turn(new_rounds: Any) -> None:
    stream = [("often", 5.0, d * DAY + 1) for d in range(6)]
    counts = []
    for pieces in ([6], [2, 4, 6]):
        world = new_rounds(f"{len(pieces)}", user_budget=5.0)
        for end in pieces:
            world.run(ScriptedSource(stream[:end]))
        counts.append(sum(e["users"] for e in world.events("means")))
        report = audit_ledger(world.folder / "s.db")
        assert (report.rows, report.agents) == (2, 1)
    assert counts == [2, 2]


def test_a_window_without_anybody_is_answered_honestly(new_rounds: Any) -> None:
    world = new_rounds(user_budget=2.0)
    world.run(ScriptedSource([("a", 9.0, 1.0), ("a", 9.0, DAY + 1)]))
    nobody = world.events("means")[1]
    assert (nobody["users"], nobody["interval"]) == (0, [0.0, 10.0])


def test_values_are_clipped_and_counted(new_rounds: Any) -> None:
    worlds = [new_rounds("wild"), new_rounds("tame")]
    for world, value in zip(worlds, (1e9, 10.0), strict=True):
        stats = world.run(ScriptedSource([("a", value, 1.0), ("b", 3.0, 2.0)]))
        assert (stats.accepted, stats.clipped) == (2, int(value > 10))
    assert worlds[0].files() == worlds[1].files()


def test_a_replay_over_the_same_ledger_repeats_every_report(new_rounds: Any) -> None:
    """State lost, ledger kept: what leaves again is what left before, never fresh noise."""
    world = new_rounds()
    world.run(ScriptedSource(samples()))
    before = world.lines("reports")
    world.lose_state()
    world.run(ScriptedSource(samples()))
    assert len(world.lines("reports")) == 2 * len(before)
    assert set(world.lines("reports")) == set(before)


def test_other_settings_are_refused_by_the_store(new_rounds: Any) -> None:
    world = new_rounds()
    world.run(ScriptedSource(samples()))
    world.settings = replace(world.settings, epsilon=1.0)
    with pytest.raises(
        Exception, match=r"epsilon must be 2\.0 as in the store that is continued, got 1\.0"
    ):
        world.run(ScriptedSource(samples()))


def test_an_unbounded_source_closes_windows_as_time_passes(new_rounds: Any) -> None:
    world = new_rounds()
    world.clock = SettableClock(4 * DAY - 100)
    turns = iter([False] * 20)
    stream: list[Any] = [*samples(), Script.PAUSE]
    stats = world.run(ScriptedSource(stream, bounded=False), stop=lambda: next(turns, True))
    assert (stats.estimates, stats.open_windows) == (3, 1)
