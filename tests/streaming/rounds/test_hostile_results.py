"""A statistician who lies: its results stop nobody, are read once and for all, and never a second
time otherwise."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meanstream.operators.estimators.registry import ESTIMATORS
from meanstream.streaming.rounds import user_side
from meanstream.streaming.rounds.rounds_deployment import rounds_deployment_identity
from meanstream.streaming.store.state_store import Store
from tests.streaming.support.rounds_world import SECRET, RoundsWorld, rounds_settings, samples
from tests.streaming.support.scripted_source import ScriptedSource
from tests.streaming.support.tiny_estimator import TINY

ADAPTIVE = {"estimator": "adaptive", "epsilon": 2.0, "users": 20_000}
TINY_WINDOW = {"n_users": 1, "parts": [], "mode": "narrow", "window": [0.0, 1e-310], "moment": 0.06}
CENTER = {"n_users": 1, "parts": [], "center": 0.0, "center_stderr": 0.1}


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "tiny", TINY)


@pytest.fixture
def new_rounds(tmp_path: Path) -> Callable[..., RoundsWorld]:
    return lambda name, **changes: RoundsWorld(tmp_path / name, rounds_settings(**changes))


def said(users: RoundsWorld, stages: Path, public: Any, *, stage: int = 0, form: str = "") -> None:
    """Publish a result of every round that has told of its reports."""
    events = [e for e in users.events("reports") if "reports" in e and e["stage"] == 0]
    with stages.open("a") as file:
        for e in events:
            result = {
                "round_id": e["round_id"],
                "start": e["start"],
                "end": e["end"],
                "stage": stage,
                "users": 1,
            }
            file.write((form or json.dumps({**result, "public": public})) + "\n")


def lived(users: RoundsWorld, stages: Path, stream: list[Any] | None = None) -> Any:
    return users.run(ScriptedSource(samples() if stream is None else stream), stages=stages)


def test_a_tiny_window_stops_nobody_and_a_result_after_it_counts(
    new_rounds: Any, tmp_path: Path
) -> None:
    """Row 2: a user far from a window so narrow overflows, the users' side stopped, and said how
    many overflowed."""
    stages, users = tmp_path / "stages.jsonl", new_rounds("users", **ADAPTIVE)
    assert lived(users, stages).waiting == 4
    said(users, stages, CENTER)
    said(users, stages, TINY_WINDOW, stage=1)
    stats = lived(users, stages)
    assert (stats.waiting, stats.results_refused) == (4, 4)
    assert {e["stage"] for e in users.events("reports")} == {0, 1}
    said(users, stages, {**CENTER, "mode": "narrow", "window": [0.0, 0.1], "moment": 0.06}, stage=1)
    lived(users, stages)
    assert {e["stage"] for e in users.events("reports")} == {0, 1, 2}


BAD = [
    {"center": math.nan, "votes": 1},
    {"center": 1e308, "votes": 1},
    {"center": 10**400, "votes": 1},
    {"center": "0.1", "votes": 1},
    {"center": 0.1, "votes": -1},
    {"center": 0.1, "votes": True},
    {"center": 0.1},
    {"center": 0.1, "votes": 1, "more": 1},
    {"center": [[[]]], "votes": 1},
    {},
]


@pytest.mark.parametrize("public", BAD)
def test_a_result_that_no_stage_finds_is_waited_out(
    public: Any, new_rounds: Any, tmp_path: Path
) -> None:
    stages, users = tmp_path / "stages.jsonl", new_rounds("users")
    lived(users, stages)
    said(users, stages, public)
    stats = lived(users, stages)
    assert (stats.waiting, stats.results_refused) == (4, 4)
    said(users, stages, {"center": 0.1, "votes": 3})
    assert lived(users, stages).waiting == 0


@pytest.mark.parametrize(
    "line", ["[" * 100_000, '{"round_id":' + "[" * 100_000, "\x00", '{"stage":1e999}', "9" * 5000]
)
def test_lines_that_are_no_results_are_passed_over(
    line: str, new_rounds: Any, tmp_path: Path
) -> None:
    stages, users = tmp_path / "stages.jsonl", new_rounds("users")
    lived(users, stages)
    said(users, stages, None, form=line)
    said(users, stages, {"center": 0.1, "votes": 3})
    assert lived(users, stages).waiting == 0


def test_a_result_of_another_window_is_refused(new_rounds: Any, tmp_path: Path) -> None:
    stages, users = tmp_path / "stages.jsonl", new_rounds("users")
    lived(users, stages)
    first = next(e for e in users.events("reports") if "reports" in e)
    result = {
        "round_id": first["round_id"],
        "start": "0001-01-01T00:00:00+14:00",
        "end": first["end"],
        "stage": 0,
    }
    stages.write_text(
        json.dumps({**result, "users": 1, "public": {"center": 0.1, "votes": 3}}) + "\n"
    )
    stats = lived(users, stages)
    assert (stats.waiting, stats.results_refused) == (4, 1)


def test_the_accepted_result_is_kept_in_the_store_and_another_one_refused(
    new_rounds: Any, tmp_path: Path
) -> None:
    """The file is replaced under the users' side, between two of its lives."""
    stages, users = tmp_path / "stages.jsonl", new_rounds("users", **ADAPTIVE)
    lived(users, stages)
    said(users, stages, CENTER)
    lived(users, stages)
    before = users.lines("reports")
    stages.unlink()
    said(users, stages, {**CENTER, "center": 0.4})
    stats = lived(users, stages)
    assert (users.lines("reports"), stats.waiting, stats.results_refused) == (before, 4, 4)
    # What comes next must follow upon what was accepted, not upon what is in the file now.
    said(
        users,
        stages,
        {"n_users": 0, "mode": "wide", "window": [0.0, 1.0], "moment": 0.5, "parts": []},
        stage=1,
    )
    assert (lived(users, stages).waiting, users.lines("reports")) == (4, before)


def test_a_store_that_did_not_keep_results_takes_them_from_the_file(
    new_rounds: Any, tmp_path: Path
) -> None:
    stages, users = tmp_path / "stages.jsonl", new_rounds("users", **ADAPTIVE)
    lived(users, stages)
    said(users, stages, CENTER)
    lived(users, stages)
    store = Store.open(
        users.folder / "s.db",
        settings=rounds_deployment_identity(users.settings),
        secret=SECRET.encode(),
    )
    state = store.state("rounds")
    with store.transaction():
        store.put_state("rounds", state | {"waiting": [one[:5] for one in state["waiting"]]})
    store.close()
    said(users, stages, {**CENTER, "mode": "narrow", "window": [0.0, 0.1], "moment": 0.06}, stage=1)
    lived(users, stages)
    assert {e["stage"] for e in users.events("reports")} == {0, 1, 2}


def test_whatever_users_hold_the_reports_have_the_same_form(
    new_rounds: Any, tmp_path: Path
) -> None:
    """One user at either end, or far beyond, upon an accepted narrow window: same users, stages and
    log."""
    told = []
    for name, value in (("low", -1e308), ("high", 1e308), ("middle", 5.0)):
        users, stages = new_rounds(name, **ADAPTIVE), tmp_path / f"{name}.jsonl"
        stream = [(user, value if user == "user 3" else v, t) for user, v, t in samples()]
        lived(users, stages, stream)
        said(users, stages, CENTER)
        said(
            users,
            stages,
            {**CENTER, "mode": "narrow", "window": [0.9, 1e-5], "moment": 0.06},
            stage=1,
        )
        stats = lived(users, stages, stream)
        events = users.events("reports")
        told.append(([{**e, "payload": 0} for e in events], stats.waiting, stats.results_refused))
    assert told[0] == told[1] == told[2]


def test_refused_results_fill_no_log(
    new_rounds: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """So many are a line each, then one says that further ones are counted only; all are
    counted."""
    monkeypatch.setattr(user_side, "MOST_LOGGED", 2)
    monkeypatch.setattr(user_side, "_MOST_NOTED", 1)
    stages, users = tmp_path / "stages.jsonl", new_rounds("users", **ADAPTIVE)
    lived(users, stages)
    said(users, stages, TINY_WINDOW)
    with caplog.at_level(logging.WARNING, "meanstream.rounds"):
        assert lived(users, stages).results_refused == 4
    told = [
        record.getMessage() for record in caplog.records if "stage result" in record.getMessage()
    ]
    assert told == ["a stage result was refused"] * 2 + [
        "further refused stage results are only counted"
    ]
