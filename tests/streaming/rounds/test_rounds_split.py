"""The two sides apart: the users' side emits reports only, the statistician's side sees nothing
else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meanstream.operators.estimators.registry import ESTIMATORS
from meanstream.operators.rounds.round_records import Summaries
from meanstream.streaming.rounds.summarize_users import UserSums
from tests.streaming.support.rounds_world import DAY, RoundsWorld, rounds_settings, samples
from tests.streaming.support.scripted_source import ScriptedSource
from tests.streaming.support.tiny_estimator import TINY


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "tiny", TINY)


@pytest.fixture
def new_rounds(tmp_path: Path) -> Callable[..., RoundsWorld]:
    return lambda name, **changes: RoundsWorld(tmp_path / name, rounds_settings(**changes))


def to_and_fro(users: RoundsWorld, statistician: RoundsWorld, stream: list[Any]) -> list[int]:
    """Run the two sides in turn until nothing waits; return how many rounds waited after each
    turn."""
    waiting = []
    while not waiting or waiting[-1]:
        stats = users.run(ScriptedSource(stream), stages=statistician.folder / "stages.jsonl")
        statistician.tally(users.folder / "reports.jsonl")
        waiting.append(stats.waiting)
        assert len(waiting) < 5
    return waiting


@pytest.mark.parametrize("changes", [{}, {"users": 12}, {"user_budget": 4.0}])
def test_the_sides_apart_find_what_they_find_together(
    changes: dict[str, Any], new_rounds: Any
) -> None:
    together, users, statistician = (
        new_rounds(name, **changes) for name in ("together", "users", "statistician")
    )
    statistician.settings = rounds_settings(
        **{k: v for k, v in changes.items() if k != "user_budget"}
    )
    together.run(ScriptedSource(samples()))
    assert to_and_fro(users, statistician, samples()) == [4, 0]
    assert statistician.lines("means") == together.lines("means")
    assert statistician.lines("stages") == together.lines("stages")
    assert sorted(users.lines("reports")) == sorted(together.lines("reports"))


def test_a_tiny_window_comes_to_an_end(new_rounds: Any) -> None:
    """Nobody may be asked in a stage; the round goes on all the same."""
    stream = [(f"user {i}", 5.0, i * DAY) for i in range(8)]
    together, users, statistician = (
        new_rounds(name) for name in ("together", "users", "statistician")
    )
    together.run(ScriptedSource(stream))
    to_and_fro(users, statistician, stream)
    assert statistician.lines("means") == together.lines("means")
    asked = {(e["stage"], e["reports"]) for e in users.events("reports") if "reports" in e}
    assert asked == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_the_statistician_knows_no_raw_type(
    new_rounds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, statistician = new_rounds("together"), new_rounds("statistician")
    together.run(ScriptedSource(samples()))

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a raw type was made")

    monkeypatch.setattr(Summaries, "__init__", refuse)
    monkeypatch.setattr(UserSums, "__init__", refuse)
    with pytest.raises(AssertionError, match="raw type"):  # the users' side does make them
        new_rounds("known-bad").run(ScriptedSource(samples()))
    stats = statistician.tally(together.folder / "reports.jsonl")
    assert (stats.estimates, stats.waiting, dict(stats.rejected)) == (4, 0, {})
    assert (stats.rounds, stats.stages) == (4, len(statistician.lines("stages")))
    assert stats.reports == sum("payload" in event for event in together.events("reports"))
    assert statistician.lines("means") == together.lines("means")


def test_the_users_side_writes_neither_results_nor_estimates(new_rounds: Any) -> None:
    users = new_rounds("users")
    stats = users.run(ScriptedSource(samples()), stages=users.folder / "none.jsonl")
    assert (stats.rounds, stats.estimates, stats.waiting) == (0, 0, 4)
    assert not (users.folder / "means.jsonl").exists()
    assert {e["stage"] for e in users.events("reports")} == {0}


def test_a_second_result_of_a_stage_is_not_listened_to(new_rounds: Any) -> None:
    users, statistician = new_rounds("users"), new_rounds("statistician")
    stages = statistician.folder / "stages.jsonl"
    users.run(ScriptedSource(samples()), stages=stages)
    statistician.tally(users.folder / "reports.jsonl")
    users.run(ScriptedSource(samples()), stages=stages)
    before = users.lines("reports")
    with stages.open("a") as file:
        for event in statistician.events("stages"):
            event["public"]["center"] = -event["public"]["center"]
            file.write(json.dumps(event) + "\n")
        file.write("no result\n")
    users.run(ScriptedSource(samples()), stages=stages)
    assert users.lines("reports") == before
    users_of = [e["user"] + e["round_id"] for e in users.events("reports") if "user" in e]
    assert len(users_of) == len(set(users_of)) == 48


def test_rounds_that_wait_hold_the_budget(new_rounds: Any) -> None:
    """A user who has entered two rounds and was asked in neither yet has nothing left for a
    third."""
    users = new_rounds("users", user_budget=4.0)
    stats = users.run(ScriptedSource(samples()), stages=users.folder / "none.jsonl")
    assert stats.over_budget == 24


def test_reports_that_are_not_counted(new_rounds: Any) -> None:
    together = new_rounds("together")
    together.run(ScriptedSource(samples()))
    lines = together.lines("reports")
    first = json.loads(next(line for line in lines if b'"stage":0' in line and b"payload" in line))
    name = first["round_id"]
    bad = [
        b"no report",
        json.dumps({**first, "user": "stranger", "payload": [1, 1]}).encode(),
        json.dumps({**first, "payload": [-first["payload"][0]]}).encode(),
        json.dumps({**first, "epsilon": 9.0, "user": "generous"}).encode(),
        json.dumps({**first, "payload": [2**70]}).encode(),
        json.dumps({**first, "round_id": name + "x"}).encode(),
    ]
    mixed = together.folder / "mixed.jsonl"
    mixed.write_bytes(b"\n".join([*lines, *bad]) + b"\n")
    stats = new_rounds("statistician").tally(mixed)
    assert stats.rejected["duplicate"] == 1
    # Strangers are asked in the stage that their name says: some of these are in the wrong one.
    assert (
        stats.rejected["malformed"]
        + stats.rejected["wrong_stage"]
        + stats.rejected["other_epsilon"]
        == 4
    )
    assert new_rounds("statistician").lines("means") == together.lines("means")


def test_no_line_of_a_stranger_stops_the_statistician(new_rounds: Any) -> None:
    together = new_rounds("together")
    together.run(ScriptedSource(samples()))
    lines = together.lines("reports")
    complete = json.loads(next(line for line in lines if b"payload" not in line))
    bad = [
        b'{"round_id":"\xff","user":"a"}',
        b'{"user":' + b"[" * 100_000,
        b'{"other":' + b"[" * 100_000,
        *(json.dumps({**complete, n: 10**400}).encode() for n in ("users", "reports", "stage")),
    ]
    mixed = together.folder / "mixed.jsonl"
    mixed.write_bytes(b"\n".join([*bad, *lines]) + b"\n")
    stats = new_rounds("statistician").tally(mixed)
    assert stats.rejected["malformed"] == len(bad)
    assert new_rounds("statistician").lines("means") == together.lines("means")


def test_reports_of_other_settings_and_late_ones_are_counted(new_rounds: Any) -> None:
    together = new_rounds("together")
    together.run(ScriptedSource(samples()))
    reports = together.folder / "reports.jsonl"
    other = new_rounds("other", epsilon=1.0).tally(reports)
    assert (other.rounds, other.rejected["other_round"]) == (0, 48)
    statistician = new_rounds("statistician")
    statistician.tally(reports)
    line = next(line for line in together.lines("reports") if b"payload" in line)
    with reports.open("ab") as file:
        file.write(line.replace(b"user ", b"late user ") + b"\n")
    stats = statistician.tally(reports)
    assert (stats.rejected["late"], stats.estimates) == (1, 0)


def test_more_reports_than_are_there_are_waited_for(new_rounds: Any) -> None:
    together, statistician = new_rounds("together"), new_rounds("statistician")
    together.run(ScriptedSource(samples()))
    lines = together.lines("reports")
    missing = next(i for i, line in enumerate(lines) if b"payload" in line)
    part = together.folder / "part.jsonl"
    part.write_bytes(b"\n".join(lines[:missing] + lines[missing + 1 :]) + b"\n")
    stats = statistician.tally(part)
    assert (stats.estimates, stats.waiting) == (3, 1)
    part.write_bytes(b"\n".join(lines) + b"\n")
    assert statistician.tally(part).estimates == 1
    assert sorted(statistician.lines("means")) == sorted(together.lines("means"))
