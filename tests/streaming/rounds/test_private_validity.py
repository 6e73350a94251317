"""Whether a record holds a valid value is as private as the value: it decides nothing about who
takes part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.open_source import open_source
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.sources.decode import Decoder
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.streaming.support.rounds_world import DAY, RoundsWorld, rounds_settings

USERS = 30
CHANGED = "u7"
INVALID = ("", "nan", "inf", "abc", "0x10", "1;5", "fridge")
SETTINGS: dict[str, dict[str, Any]] = {
    "number": {"estimator": "one_shot"},
    "central": {"estimator": "central.mean"},
    "category": {
        "estimator": "category_shares",
        "categories": ("1", "2", "3"),
        "lower": 0,
        "upper": 1,
    },
    "quantiles": {"estimator": "quantile_tree", "quantiles": (0.5,)},
}


def settings_of(kind: str) -> RoundsSettings:
    return rounds_settings(**{"epsilon": 1.0, **SETTINGS[kind]})


def mapping_of(kind: str, **more: Any) -> ColumnMapping:
    categories = SETTINGS[kind].get("categories")
    return ColumnMapping(
        agent="user", value="v", time="time", categories=categories, owner="user", **more
    )


def records(value: Any, *, repeated: bool = False) -> list[dict[str, Any]]:
    """A record of each user on one day, and of the changed user one of another day."""
    rows = [
        {"user": f"u{i}", "v": str(1 + i % 3), "time": 1000.0 + i, "id": f"a{i}"}
        for i in range(USERS)
    ]
    rows[7]["v"] = value
    again = "a7" if repeated else "b7"
    return [*rows, {"user": CHANGED, "v": "2", "time": DAY + 1000.0, "id": again}]


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    if path.suffix == ".csv":
        lines = [",".join(str(row[name]) for name in ("user", "v", "time", "id")) for row in rows]
        path.write_text("\n".join(["user,v,time,id", *lines]) + "\n")
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    else:
        parquet.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


def taking_part(
    folder: Path, kind: str, rows: list[dict[str, Any]], suffix: str = ".csv", **mapped: Any
) -> tuple[list[Any], list[Any], list[str]]:
    """Run rounds; give the users of each report, the number of users of each answer, and reasons."""
    folder.mkdir()
    world = RoundsWorld(folder, settings_of(kind))
    world.run(open_source(write(folder / f"s{suffix}", rows), mapping_of(kind, **mapped)))
    reports = [
        (event["user"], event["round_id"]) for event in world.events("reports") if "user" in event
    ]
    answers = [(event["round_id"], event["users"]) for event in world.events("means")]
    return reports, answers, [letter["reason"] for letter in world.events("dead_letters")]


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("value", INVALID)
def test_a_record_without_a_valid_value_counts_for_its_user(
    kind: str, value: str, tmp_path: Path
) -> None:
    valid = taking_part(tmp_path / "valid", kind, records("1"))
    invalid = taking_part(tmp_path / "invalid", kind, records(value))
    assert valid[:2] == invalid[:2]
    assert max(dict(valid[1]).values()) == USERS
    assert not valid[2]
    assert len(invalid[2]) == 1


@pytest.mark.parametrize("kind", ["number", "category"])
@pytest.mark.parametrize("value", [None, True, [1], {"a": 1}, "x"])
def test_neither_do_types_of_json(kind: str, value: Any, tmp_path: Path) -> None:
    valid = taking_part(
        tmp_path / "valid", kind, records("1"), ".jsonl", numbers_in_text=kind == "number"
    )
    invalid = taking_part(
        tmp_path / "invalid", kind, records(value), ".jsonl", numbers_in_text=kind == "number"
    )
    assert valid[:2] == invalid[:2]
    assert len(invalid[2]) == 1


@pytest.mark.parametrize("kind", ["number", "category"])
def test_neither_does_a_null_of_a_table(kind: str, tmp_path: Path) -> None:
    valid = taking_part(tmp_path / "valid", kind, records("1"), ".parquet")
    invalid = taking_part(tmp_path / "invalid", kind, records(None), ".parquet")
    assert valid[:2] == invalid[:2]


def test_neither_does_an_id_that_was_used_in_another_window(tmp_path: Path) -> None:
    own, repeated = (
        taking_part(tmp_path / str(again), "number", records("1", repeated=again), id="id")
        for again in (False, True)
    )
    assert own[:2] == repeated[:2]
    assert repeated[2] == ["duplicate"]


def test_neither_does_an_id_that_is_none(tmp_path: Path) -> None:
    rows = records("1")
    rows[7]["id"] = ""
    found = taking_part(tmp_path / "none", "number", rows, id="id")
    assert found[:2] == taking_part(tmp_path / "own", "number", records("1"), id="id")[:2]
    assert found[2] == ["bad_id"]


def test_a_valid_value_of_the_window_counts_alone(tmp_path: Path) -> None:
    """A central mean over one user with a valid and an invalid value is that of the valid one."""
    found = []
    for extra in ([], [{"user": CHANGED, "v": "nan", "time": 900.0, "id": "c"}]):
        folder = tmp_path / str(len(extra))
        folder.mkdir()
        world = RoundsWorld(folder, settings_of("central"))
        world.run(
            open_source(write(folder / "s.csv", [*extra, *records("3")]), mapping_of("central"))
        )
        found.append((folder / "means.jsonl").read_bytes())
    assert found[0] == found[1]


def test_a_name_or_a_time_that_is_none_counts_for_nobody() -> None:
    decoder = Decoder(mapping_of("number"))
    raw = {
        "agent": pa.array(["a", None, "c", "d"]),
        "value": pa.array(["x", "y", "z", "1"]),
        "time": pa.array(["1000", "1000", "later", "1000"]),
    }
    samples, rejects = decoder.decode(raw, pa.array(range(4)).to_numpy())
    assert isinstance(rejects, Rejects)
    assert [samples.names[code] for code in samples.agent] == ["a", "d"]
    assert rejects.reason == ["missing_agent", "bad_time", "bad_value"]
