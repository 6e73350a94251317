"""Stores of 0.3.0 that were killed in the middle of a stream, and a shard of a Beam job: this version
still reads them byte for byte, and goes on where they stopped."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from meanstream.pipelines.beam.keyed_state.beam_state import StateMark
from meanstream.streaming.store import schema_migrations
from meanstream.streaming.store.schema_migrations import Migration
from meanstream.streaming.store.store_identity import OtherIdentityError
from tests.conformance.make_kept_beam import (
    IDENTITY,
    KEPT_WINDOWS,
    Cell,
    release_window,
    shard_of,
)
from tests.conformance.make_kept_store import RELEASED, event_schemas, facts_of, make, run_in
from tests.pipelines.command_line import SECRET, meanstream

KEPT = Path(__file__).parent / "kept_0_3"
FACTS: dict[str, Any] = json.loads((KEPT / "facts.json").read_text())
READING = {
    "ledger verify": ("ledger", "verify"),
    "budget": ("budget",),
    "store show": ("store", "show"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(KEPT, tmp_path / "kept"))


def holds(wanted: Any, given: Any) -> bool:
    """Whether there is all that there was, with the same values; fields may be added."""
    if isinstance(wanted, Mapping):
        return all(name in given and holds(value, given[name]) for name, value in wanted.items())
    if isinstance(wanted, list):
        return len(wanted) == len(given) and all(map(holds, wanted, given))
    return bool(wanted == given)


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def has_all_of(folder: Path, name: str) -> bool:
    """Whether a file has the events of the run that nothing killed, in their order."""
    return holds(events(folder / f"all_{name}"), events(folder / name))


def outputs(folder: Path) -> list[bytes]:
    """The releases of the kept ledger, as they left."""
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_bytes().splitlines()]
    return [line["output"].encode() for line in lines if "output" in line]


def test_every_reading_command_says_what_it_said_and_changes_nothing(folder: Path) -> None:
    before = (folder / "state.db").read_bytes()
    facts = facts_of(folder)
    assert holds(FACTS["verify"], facts["verify"])
    assert holds(FACTS["show"], facts["show"])

    # When a budget ends is a forecast, which may be made in another way.
    assert holds(FACTS["budget"]["summary"], facts["budget"]["summary"])
    agents = [{**agent, "ends": None} for agent in FACTS["budget"]["agents"]]
    assert holds(agents, [{**agent, "ends": None} for agent in facts["budget"]["agents"]])
    assert (folder / "state.db").read_bytes() == before


def test_the_signed_head_and_the_export_are_the_same(folder: Path) -> None:
    store = ("--store", str(folder / "state.db"))
    signed = ("--signature", str(folder / "head.json"), "--signer", str(folder / "signer.pub"))
    assert meanstream("ledger", "verify", *store, *signed).code == 0
    assert meanstream("ledger", "export", *store, "--to", str(folder / "again.jsonl")).code == 0
    assert (folder / "again.jsonl").read_bytes() == (folder / "ledger.jsonl").read_bytes()


def test_a_run_goes_on_where_the_killed_one_stopped(folder: Path) -> None:
    delivered = len(events(folder / "releases.jsonl"))
    ran = run_in(folder)
    assert ran.code == 0, ran.err.decode()

    # What was charged leaves as it was written; the rest is what the whole run released.
    lines = (folder / "releases.jsonl").read_bytes().splitlines()
    charged = outputs(folder)
    assert lines[: len(charged)] == charged
    assert len(lines) > len(charged) > delivered > 0
    assert len(charged) == FACTS["verify"]["rows"]
    assert has_all_of(folder, "releases.jsonl")

    store = ("--store", str(folder / "state.db"))
    signed = ("--signature", str(folder / "head.json"), "--signer", str(folder / "signer.pub"))
    verified = meanstream("ledger", "verify", *store, *signed, "--json")
    assert verified.json["rows"] == len(lines)


def test_the_same_input_under_the_same_name_and_key_gives_the_same_releases(folder: Path) -> None:
    (folder / "state.db").unlink()
    (folder / "releases.jsonl").unlink()
    assert run_in(folder).code == 0
    assert has_all_of(folder, "releases.jsonl")


def test_pairs_say_what_they_said_and_go_on_where_they_stopped(folder: Path) -> None:
    place = folder / "pairs"
    before = (place / "state.db").read_bytes()
    facts = facts_of(place)
    assert all(holds(FACTS["pairs"][name], facts[name]) for name in facts)
    assert (place / "state.db").read_bytes() == before
    rows = FACTS["pairs"]["verify"]["rows"]
    assert 0 < rows < len(events(place / "all_ledger.jsonl")) - 2

    # Each release of a pair is what the whole run released.
    ran = run_in(place, "pairs")
    assert ran.code == 0, ran.err.decode()
    assert (place / "ledger.jsonl").read_bytes() == (place / "all_ledger.jsonl").read_bytes()


def test_rounds_say_what_they_said_and_go_on_where_they_stopped(folder: Path) -> None:
    place = folder / "rounds"
    before = (place / "state.db").read_bytes()
    facts = facts_of(place)
    assert all(holds(FACTS["rounds"][name], facts[name]) for name in facts)
    assert (place / "state.db").read_bytes() == before
    reports = (place / "reports.jsonl").read_bytes().splitlines()
    delivered = [line for line in reports if b'"user"' in line]
    assert FACTS["rounds"]["verify"]["rows"] > len(delivered) > 0

    ran = run_in(place, "rounds")
    assert ran.code == 0, ran.err.decode()
    for name in RELEASED["rounds"]:
        assert len(events(place / name)) > len(events(KEPT / "rounds" / name)) > 0
        assert has_all_of(place, name)


def test_a_shard_of_a_beam_job_releases_what_it_would_have_released() -> None:
    place = KEPT / "beam"
    encoded = (place / "shard.bin").read_bytes()
    releases = json.loads((place / "releases.json").read_text())
    shard = shard_of(encoded)
    windows = range(KEPT_WINDOWS, 2 * KEPT_WINDOWS)
    after = [[list(one) for one in release_window(shard, number)] for number in windows]
    assert after == releases["after"]
    assert sum(map(len, after)) > 0

    # It is the shard of a job that never stopped.
    whole = shard_of()
    before = [[list(one) for one in release_window(whole, n)] for n in range(KEPT_WINDOWS)]
    assert before == releases["before"]
    with pytest.raises(ValueError, match="snapshot must match its checksum"):
        shard_of(encoded[:-1] + bytes([encoded[-1] ^ 1]))


def test_the_mark_of_a_beam_state_is_known_again() -> None:
    made = (KEPT / "beam" / "made.json").read_bytes()
    StateMark(IDENTITY, SECRET.encode()).claim(Cell(made))
    for identity, secret in (
        ({**IDENTITY, "shards": 4}, SECRET),
        (IDENTITY, SECRET[::-1]),
    ):
        with pytest.raises(OtherIdentityError):
            StateMark(identity, secret.encode()).claim(Cell(made))


@pytest.mark.parametrize("name", ["ledger verify", "budget", "ledger export"])
def test_a_changed_row_of_the_store_is_found(name: str, folder: Path) -> None:
    store = ("--store", str(folder / "tampered" / "state.db"))
    words = ("--to", str(folder / "new.jsonl")) if name == "ledger export" else ()
    ran = meanstream(*name.split(), *store, *words)
    assert ran.code in {1, 2}
    assert ran.out == b""
    assert b"store must be undamaged, got a fault in row" in ran.err
    assert not (folder / "new.jsonl").exists()


@pytest.mark.parametrize("step", [-1, 1])
@pytest.mark.parametrize("name", READING)
def test_a_schema_that_is_not_known_is_refused_with_what_to_do(
    name: str, step: int, folder: Path
) -> None:
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {version + step}")

    refused = meanstream(*READING[name], "--store", str(folder / "state.db")).message
    assert f"got {version + step} in" in refused
    cure = "a later release of Meanstream wrote it: use that one"
    assert refused.endswith(cure if step > 0 else "see Upgrading in docs/deployment.md")


def changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What an event of today lacks of the one that was, and what it asks for besides."""
    read, written = now["validation"], now["serialization"]
    found = [
        f"{name} is another type"
        for name, field in was["serialization"]["properties"].items()
        if plain(field) != plain(written["properties"].get(name))
    ]
    added = set(read.get("required", ())) - set(was["validation"].get("required", ()))
    left = set(was["serialization"].get("required", ())) - set(written.get("required", ()))
    return [
        *found,
        *(f"{name} is required now" for name in added),
        *(f"{n} may lack" for n in left),
    ]


def plain(field: Any) -> Any:
    """A field's type without the words about it."""
    if isinstance(field, dict):
        return {
            key: plain(value) for key, value in field.items() if key not in {"description", "title"}
        }
    return [plain(value) for value in field] if isinstance(field, list) else field


def test_events_have_all_fields_that_they_had_and_ask_for_no_others() -> None:
    now = event_schemas()
    for name, was in json.loads((KEPT / "event_schemas.json").read_text()).items():
        assert changes(was, now[name]) == [], name


def test_a_field_that_is_gone_new_or_of_another_type_is_found() -> None:
    was = event_schemas()["release"]
    for mode in ("validation", "serialization"):
        now = json.loads(json.dumps(was))
        now[mode]["required"] = [*now[mode]["required"], "more"]
        assert bool(changes(was, now)) == (mode == "validation")
    del now["serialization"]["properties"]["total"]
    now["serialization"]["required"].remove("n")
    now["validation"]["required"].append("more")
    assert len(changes(was, now)) == 3


def test_the_command_makes_such_files_today(tmp_path: Path) -> None:
    make(tmp_path / "made")
    names = {str(path.relative_to(KEPT)) for path in KEPT.rglob("*") if path.is_file()}
    made = tmp_path / "made"
    assert {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()} == names
    assert (
        json.loads((made / "facts.json").read_text())["verify"]["rows"] == FACTS["verify"]["rows"]
    )


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> int:
    """Make this a later version, whose stores have one more table; give its schema."""
    table = "CREATE TABLE notes (number INTEGER PRIMARY KEY) STRICT"
    before, schema = dict(schema_migrations.TABLES), schema_migrations.VERSION + 1
    step = Migration(before, lambda database, _: database.execute(table))
    steps = {**schema_migrations.MIGRATIONS, schema_migrations.VERSION: step}
    monkeypatch.setattr(schema_migrations, "TABLES", {**before, "notes": table})
    monkeypatch.setattr(schema_migrations, "VERSION", schema)
    monkeypatch.setattr(schema_migrations, "MIGRATIONS", steps)
    return schema


def schema_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.parametrize("kind", ["agents", "pairs", "rounds"])
def test_a_later_schema_reads_migrates_and_continues_the_kept_stores(
    kind: str, later: int, folder: Path
) -> None:
    place = folder if kind == "agents" else folder / kind
    facts = facts_of(place)
    wanted = FACTS if kind == "agents" else FACTS[kind]
    assert holds([wanted["verify"], wanted["show"]], [facts["verify"], facts["show"]])
    assert holds(wanted["budget"]["summary"], facts["budget"]["summary"])
    assert facts["show"]["schema"] == schema_of(place / "state.db") == later - 1

    ran = run_in(place, kind)
    assert ran.code == 0, ran.err.decode()
    shown = meanstream("store", "show", "--store", str(place / "state.db"), "--json")
    assert shown.json["schema"] == schema_of(place / "state.db") == later
    for name in RELEASED[kind]:
        assert has_all_of(place, name)
    assert facts_of(place)["verify"]["rows"] > wanted["verify"]["rows"]
