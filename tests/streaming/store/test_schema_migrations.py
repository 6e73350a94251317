"""A store of an older schema version: it is read without a change, and migrated whole or not at
all."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from meanstream.streaming.store import schema_migrations
from meanstream.streaming.store.database import Database
from meanstream.streaming.store.schema_migrations import MIGRATIONS, OLDEST, Migration
from meanstream.streaming.store.state_store import DamagedStoreError, Store, StoreError
from meanstream.streaming.store.store_audit import audit_ledger, back_up_store
from meanstream.streaming.store.store_tables import StoreTables
from tests.streaming.store.conftest import SECRET, SETTINGS, charge, open_store, rows
from tests.streaming.store.test_ledger_tampered import spoil

NOTES = "CREATE TABLE notes (number INTEGER PRIMARY KEY, note BLOB NOT NULL) STRICT"
NOTES_LATER = (
    "CREATE TABLE notes (number INTEGER PRIMARY KEY, note BLOB NOT NULL, written REAL) STRICT"
)
NOW = schema_migrations.VERSION
BEFORE = dict(schema_migrations.TABLES)

Change = Callable[[Database, StoreTables], None]


def add_notes(database: Database, tables: StoreTables) -> None:
    database.execute(NOTES)
    tables.put_state("noted", {"rows": tables.state("ledger")["rows"]})


def extend_notes(database: Database, tables: StoreTables) -> None:
    database.execute("DROP TABLE notes")
    database.execute(NOTES_LATER)
    tables.put_state("noted", {**tables.state("noted"), "written": True})


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make this a later version of Meanstream, with a step of each of these changes."""

    def become(first: Change, second: Change | None = None) -> None:
        later = {**BEFORE, "notes": NOTES}
        changes = {NOW: Migration(BEFORE, first)}
        if second is not None:
            changes[NOW + 1] = Migration(later, second)
            later = {**BEFORE, "notes": NOTES_LATER}
        monkeypatch.setattr(schema_migrations, "VERSION", NOW + len(changes))
        monkeypatch.setattr(schema_migrations, "TABLES", later)
        monkeypatch.setattr(schema_migrations, "MIGRATIONS", changes)

    return become


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def test_there_is_a_step_for_each_version_since_the_oldest() -> None:
    assert sorted(MIGRATIONS) == list(range(OLDEST, schema_migrations.VERSION))


def test_what_reads_leaves_the_file_as_it_is(filled: Path, steps: Callable[..., None]) -> None:
    before = audit_ledger(filled), filled.read_bytes()
    steps(add_notes)

    with closing(Store.read(filled)) as store:
        assert store.state("noted") == {"rows": 11}
        assert store.state("public")["version"] == NOW + 1
        assert store.settings() is not None
    assert (audit_ledger(filled), filled.read_bytes()) == before


def test_a_backup_is_of_the_schema_of_the_file(
    filled: Path, tmp_path: Path, steps: Callable[..., None]
) -> None:
    before = audit_ledger(filled)
    steps(add_notes)
    assert back_up_store(filled, tmp_path / "copy.db") == before
    assert version_of(tmp_path / "copy.db") == NOW


@pytest.mark.parametrize("opened", ["run", "amend"])
def test_what_writes_takes_all_steps_once(
    opened: str, filled: Path, steps: Callable[..., None]
) -> None:
    before = audit_ledger(filled)
    steps(add_notes, extend_notes)

    for _ in range(2):
        store = open_store(filled.parent) if opened == "run" else Store.amend(filled)
        assert store.state("noted") == {"rows": 11, "written": True}
        commits = store.commits()
        store.close()

    assert (audit_ledger(filled), version_of(filled)) == (before, NOW + 2)
    with closing(Store.read(filled)) as read:
        assert read.commits() == commits

    # It goes on as a store of the later version.
    continued = open_store(filled.parent)
    charge(continued, rows([0], [4]))
    continued.close()
    assert audit_ledger(filled).rows == 12


def test_a_store_that_was_migrated_is_refused_by_who_knows_no_such_schema(
    filled: Path, steps: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps(add_notes)
    open_store(filled.parent).close()
    monkeypatch.undo()

    for opened in (lambda: open_store(filled.parent), lambda: Store.read(filled)):
        with pytest.raises(
            StoreError, match=rf"schema version {NOW}, got {NOW + 1} in .*; a later release"
        ):
            opened()


def test_a_store_from_before_the_oldest_schema_is_told_how_to_upgrade(filled: Path) -> None:
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute(f"PRAGMA user_version = {OLDEST - 1}")
    with pytest.raises(StoreError, match=r"before 0.3.0 wrote it: see Upgrading in docs/"):
        Store.read(filled)


@pytest.mark.parametrize("failing", ["first", "second", "tables"])
def test_a_step_that_fails_leaves_the_store_as_it_was(
    failing: str, filled: Path, steps: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = audit_ledger(filled)

    def fail(database: Database, tables: StoreTables) -> None:
        extend_notes(database, tables) if failing == "second" else add_notes(database, tables)
        if failing == "tables":
            database.execute("CREATE TABLE more (number INTEGER)")
        else:
            raise OSError("the machine is gone")

    steps(*{"first": (fail, extend_notes), "second": (add_notes, fail), "tables": (fail,)}[failing])
    monkeypatch.setattr(Store, "_require_same_before_migration", lambda *_: None)
    kind = DamagedStoreError if failing == "tables" else OSError
    with pytest.raises(kind):
        open_store(filled.parent)

    monkeypatch.undo()
    assert (audit_ledger(filled), version_of(filled)) == (before, NOW)
    with closing(open_store(filled.parent)) as store:
        assert store.state("noted") is None


@pytest.mark.parametrize("other", ["settings", "secret"])
def test_a_run_that_is_refused_migrates_nothing(
    other: str, filled: Path, steps: Callable[..., None]
) -> None:
    steps(add_notes)
    settings = {**SETTINGS, "horizon": 8} if other == "settings" else SETTINGS
    secret = SECRET[::-1] if other == "secret" else SECRET
    with pytest.raises(StoreError, match="must be"):
        Store.open(filled, settings=settings, secret=secret)
    assert version_of(filled) == NOW


def test_a_damaged_store_is_not_migrated(filled: Path, steps: Callable[..., None]) -> None:
    steps(add_notes)
    spoil(filled, ("DELETE FROM ledger WHERE last > 7", ()))
    with pytest.raises(DamagedStoreError, match=r"row 8 \(missing\)"):
        open_store(filled.parent)
    assert version_of(filled) == NOW


@pytest.mark.parametrize("changed", ["state", "tables"])
def test_what_is_not_of_its_version_is_damage(
    changed: str, filled: Path, steps: Callable[..., None]
) -> None:
    steps(add_notes)
    with closing(sqlite3.connect(filled)) as connection:
        if changed == "tables":
            connection.execute(NOTES)
        else:  # the header says this version, and the seal the earlier one
            connection.execute(NOTES)
            connection.execute(f"PRAGMA user_version = {NOW + 1}")

    fault = "its tables" if changed == "tables" else "its version"
    for opened in (lambda: open_store(filled.parent), lambda: Store.read(filled)):
        with pytest.raises(DamagedStoreError, match=f"got a fault in {fault}"):
            opened()


def test_no_step_may_change_a_row_of_the_ledger(filled: Path, steps: Callable[..., None]) -> None:
    def drop_rows(database: Database, tables: StoreTables) -> None:
        add_notes(database, tables)
        database.execute("DELETE FROM ledger WHERE last > 7")

    steps(drop_rows)
    refused: Any = pytest.raises(StoreError)
    with refused:
        open_store(filled.parent)
    assert version_of(filled) == NOW
