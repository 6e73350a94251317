"""Which estimator is taken where none is named: that of the store, or one that learns from the
windows before."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from meanstream.pipelines.options.rounds_options import RoundsOptions
from meanstream.streaming.rounds.rounds_deployment import open_rounds_deployment
from meanstream.streaming.rounds.rounds_settings import RoundsSettings

ASKED: dict[str, Any] = {
    "lower": "0",
    "upper": "1",
    "epsilon": 1.0,
    "window": "1d",
    "name": "taken",
}


def taken(store: Path, **changes: Any) -> str:
    return RoundsOptions(**{**ASKED, "store": store, **changes}).settings().estimator


def begun(store: Path, **changes: Any) -> None:
    settings = RoundsSettings(lower=0, upper=1, epsilon=1.0, window="1d", name="taken", **changes)
    open_rounds_deployment(
        store, settings, environment={"MEANSTREAM_SECRET": "9b1f6c04d2a85e73bb40c9f1e6a7250d"}
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "repeating"),
        ({"users": 300, "sizes": "point:3"}, "repeating"),
        ({"runner": "FnApiRunner"}, "repeating"),
        ({"estimator": "one_shot"}, "one_shot"),
        ({"window": "2d,1d", "user_budget": 9.0}, "plan"),
        ({"window": "session:1h"}, "plan"),
        ({"between_users": 0.1, "sizes": "point:3"}, "plan"),
        ({"tails": "exponential"}, "plan"),
        ({"sizes": "unknown", "users": 20_000, "between_users": 0.0}, "plan"),
        ({"reports_only": "reports.jsonl", "stages": "stages.jsonl"}, "plan"),
        ({"from_reports": "reports.jsonl", "stages": "stages.jsonl"}, "plan"),
    ],
)
def test_fixed_windows_learn_and_what_cannot_does_as_before(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    assert taken(tmp_path / "none.db", **changes) == expected


@pytest.mark.parametrize("estimator", ["plan", "one_shot", "repeating"])
def test_a_store_goes_on_with_its_estimator(tmp_path: Path, estimator: str) -> None:
    begun(tmp_path / "s.db", estimator=estimator)
    assert taken(tmp_path / "s.db") == estimator
    assert taken(tmp_path / "s.db", estimator="duchi") == "duchi"  # which opening the store refuses
    assert taken(tmp_path / "s.db", runner="FnApiRunner") == "repeating"  # where no store is read


@pytest.mark.parametrize("what", ["a file of something else", "another program's"])
def test_what_is_no_store_of_rounds_is_left_to_opening_it(tmp_path: Path, what: str) -> None:
    path = tmp_path / "s.db"
    if what == "another program's":
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE other (x)")
        connection.close()
    else:
        path.write_text(what)
    assert taken(path) == "repeating"
