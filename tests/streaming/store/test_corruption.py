"""A changed byte anywhere in a store's files is either found, in one line, or without effect:
nothing wrong is read."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.streaming.agents.agents_budget import agents_budgets
from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.event_columns import Batch, Rejects
from meanstream.streaming.store.state_store import Store, StoreError
from meanstream.streaming.store.store_audit import audit_ledger
from tests.streaming.support.scripted_source import ScriptedSource

HEADER = 100  # bytes of SQLite's file header
USED = (*range(15, 24), *range(31, 64, 4), 68)  # where a single bit gives another plausible number


class Spoiled(ScriptedSource):
    """Every batch also has a record that cannot be read, so that the outbox has something."""

    def next_batch(self, max_samples: int) -> Batch:
        batch = super().next_batch(max_samples)
        rejects = Rejects()
        if len(batch.samples):
            rejects.add("malformed", int(batch.samples.position[0]), 12)
        return Batch(batch.samples, rejects, batch.position, batch.exhausted)


def source(n: int = 120) -> Spoiled:
    return Spoiled(
        [(f"agent {i % 3}", float(i % 11), float(i - 2 * (i % 2))) for i in range(n)],
        ids=list(range(1, n + 1)),
    )


class Killed(Exception):  # noqa: N818 - a death is no error
    """The process is gone."""


class Trials:
    """A store that was left in the middle of a stream, and what a run over the rest makes of it."""

    def __init__(self, new_world: Callable[[str], Any], *, killed: bool) -> None:
        self.left = new_world("left")
        self.again = new_world("again")
        self.left.options = self.again.options = EngineOptions(
            batch_size=16, refresh=20.0, allowed_lateness=3.0, collaboration="none"
        )
        if killed:
            self._leave_as_killed()
        else:
            turns = iter([False] * 4)
            self.left.run(source(), stop=lambda: next(turns, True))
        self.expected = self.outcome(lambda _: None)
        assert not isinstance(self.expected, StoreError)

    def _leave_as_killed(self) -> None:
        """Copy the files while the process works: after a commit, whose events are delivered but
        not noted so."""
        commits = iter(range(100))

        def kill(point: CrashPoint, moment: Moment) -> None:
            if (point, moment) == (CrashPoint.FLUSH_SINKS, Moment.AFTER) and next(commits) == 4:
                shutil.copytree(self.left.folder, self.again.folder)
                raise Killed

        with pytest.raises(Killed):
            self.left.run(source(), crash=kill)
        shutil.rmtree(self.left.folder)
        self.again.folder.rename(self.left.folder)

    def outcome(self, spoil: Callable[[Path], None]) -> Any:
        """Everything that the rest of the stream and the reading commands give, or the one line
        that refuses."""
        shutil.rmtree(self.again.folder, ignore_errors=True)
        shutil.copytree(self.left.folder, self.again.folder)
        store = self.again.folder / "s.db"
        spoil(store)
        try:
            self.again.run(source())
            report, shown = audit_ledger(store), agents_budgets(store)
            self.again.run(source())
        except StoreError as error:
            return error
        return self.again.files(), report, shown

    def flipped(self, name: str, at: int, mask: int) -> Any:
        """The outcome with one byte changed."""

        def flip(store: Path) -> None:
            file = store.with_name(name)
            data = bytearray(file.read_bytes())
            data[at] ^= mask
            file.write_bytes(data)

        return self.outcome(flip)


@pytest.fixture
def stopped(new_world: Callable[[str], Any]) -> Trials:
    return Trials(new_world, killed=False)


@pytest.fixture
def killed(new_world: Callable[[str], Any]) -> Trials:
    return Trials(new_world, killed=True)


def holds(trials: Trials, outcome: Any) -> bool:
    """Refused in one line, or the same in every byte."""
    if isinstance(outcome, StoreError):
        return len(str(outcome).splitlines()) == 1
    return bool(outcome == trials.expected)


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_byte_anywhere_in_the_file_is_refused_or_without_effect(
    seed: int, stopped: Trials
) -> None:
    rng = np.random.default_rng(seed)
    file = (stopped.left.folder / "s.db").read_bytes()
    used = np.flatnonzero(np.frombuffer(file, np.uint8))  # most of a small file is empty pages
    found = 0
    for place in (*rng.choice(used, 40), *rng.integers(0, len(file), 10)):
        outcome = stopped.flipped("s.db", int(place), int(rng.integers(1, 256)))
        assert holds(stopped, outcome), place
        found += isinstance(outcome, StoreError)
    assert found > 20


def test_a_changed_byte_of_the_header_is_refused_or_without_effect(stopped: Trials) -> None:
    for place in range(HEADER):
        for mask in (1, 0xFF) if place in USED else (0xFF,):
            assert holds(stopped, stopped.flipped("s.db", place, mask)), (place, mask)


@pytest.mark.parametrize("name", ["s.db", "s.db-wal", "s.db.lock", "s.db-shm"])
def test_after_a_kill_a_changed_byte_of_any_file_is_refused_or_without_effect(
    name: str, killed: Trials
) -> None:
    """The write-ahead log above all: SQLite takes a damaged one for one that ends earlier."""
    rng = np.random.default_rng(9)
    size = (killed.left.folder / name).stat().st_size
    assert size > 0
    refused = 0
    log = name == "s.db-wal"
    for place in (*range(0, 32, 1 if log else 4), *rng.integers(0, size, 30 if log else 10)):
        outcome = killed.flipped(name, int(place), int(rng.integers(1, 256)))
        assert holds(killed, outcome), place
        refused += isinstance(outcome, StoreError)
    assert refused > 30 or not log


def test_a_file_that_was_cut_off_is_refused_or_without_effect(stopped: Trials) -> None:
    size = (stopped.left.folder / "s.db").stat().st_size
    for left in (1, 99, 512, 4096, 4097, 8192, size // 2, size - 4096):
        assert isinstance(stopped.outcome(lambda path, left=left: _cut(path, left)), StoreError), (
            left
        )  # type: ignore[misc]
    # The last byte may be a zero of a page that is free: SQLite reads what is missing there as
    # zeros.
    assert holds(stopped, stopped.outcome(lambda path: _cut(path, size - 1)))


def _cut(path: Path, left: int) -> None:
    with path.open("r+b") as file:
        file.truncate(left)


# -- each table and each column --------------------------------------------------------------------------------------


def tables(path: Path) -> dict[str, list[str]]:
    """Every table but the ledger, which has its own tests, with its columns."""
    connection = sqlite3.connect(path)
    names = [
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    ]
    found = {
        t: [row[1] for row in connection.execute(f"PRAGMA table_info({t})")]
        for t in names
        if t != "ledger"
    }
    connection.close()
    return found


def test_each_row_and_each_column_of_each_table_is_watched(killed: Trials) -> None:
    """Changed, lost, added or exchanged through SQL, so that the file is a sound one for SQLite."""
    _recover(killed.left.folder / "s.db")
    known = tables(killed.left.folder / "s.db")
    assert set(known) == {"state", "agents", "chunks", "outbox"}
    for table, columns in known.items():
        connection = sqlite3.connect(killed.left.folder / "s.db")
        ids = [rowid for (rowid,) in connection.execute(f"SELECT rowid FROM {table}")]  # noqa: S608
        connection.close()
        assert ids
        changes = [f"DELETE FROM {table} WHERE rowid = {rowid}" for rowid in ids]  # noqa: S608
        for column in columns:
            changes += [
                f"UPDATE {table} SET {column} = {_other(column)} WHERE rowid = {rowid}"  # noqa: S608
                for rowid in ids
            ]
        values = ", ".join(_other(column) for column in columns)
        changes.append(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {table} LIMIT 1"  # noqa: S608
        )
        for change in changes:
            outcome = killed.outcome(lambda path, change=change: _execute(path, change))  # type: ignore[misc]
            assert isinstance(outcome, StoreError), change


def _other(column: str) -> str:
    """SQL of another value of a column's kind."""
    if column in ("number", "seq"):
        return f"{column} + 1000"
    if column in ("data", "value", "lines", "names", "chain"):
        return f"CAST(substr({column}, 2) || x'00' AS BLOB)"
    return f"{column} || 'x'"


def _execute(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(sql)
    connection.commit()
    connection.close()


def _recover(path: Path) -> None:
    """Fold the write-ahead log of a killed process in."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE chunks SET number = CASE number WHEN 0 THEN 1000 ELSE 0 END WHERE kind = 'agent ids'",
        "UPDATE agents SET names = CAST(replace(names, 'agent 1', 'agent 1?') AS BLOB)",
        "UPDATE state SET value = (SELECT value FROM state WHERE name = 'delivered') WHERE name = 'engine'",
        "DELETE FROM state",
        "DELETE FROM chunks",
        "DROP TRIGGER ledger_stays",
        "CREATE INDEX mine ON ledger (chain)",
        "PRAGMA application_id = 1",
        "PRAGMA user_version = 1",
        "PRAGMA user_version = 2",
        "PRAGMA user_version = 3",
        "PRAGMA user_version = 4",
        "PRAGMA user_version = 6",
    ],
)
def test_rows_that_are_exchanged_and_other_tables_are_found(change: str, stopped: Trials) -> None:
    assert isinstance(stopped.outcome(lambda path: _execute(path, change)), StoreError)


def test_what_is_wrong_is_named_without_a_value(stopped: Trials) -> None:
    said = {
        "UPDATE chunks SET data = zeroblob(length(data)) WHERE kind = 'agents'": "a fault in agents of",
        "UPDATE state SET value = zeroblob(length(value)) WHERE name = 'engine'": "a fault in state of",
        "UPDATE state SET value = zeroblob(length(value)) WHERE name = 'contents'": "a fault in contents of",
    }
    for change, what in said.items():
        error = stopped.outcome(lambda path, change=change: _execute(path, change))  # type: ignore[misc]
        assert f"store must be undamaged, got {what}" in str(error)


def test_an_older_state_of_one_piece_is_found(new_world: Callable[[str], Any]) -> None:
    """A page that was not written: each piece is sound by itself, and they do not belong
    together."""
    world = new_world("world")
    older: dict[str, Any] = {}
    turns = iter([False] * 3)
    world.run(source(), stop=lambda: next(turns, True))
    path = world.folder / "s.db"
    connection = sqlite3.connect(path)
    for kind, number, data in connection.execute("SELECT kind, number, data FROM chunks"):
        older[f"UPDATE chunks SET data = ? WHERE kind = '{kind}' AND number = {number}"] = data  # noqa: S608
    for name, value in connection.execute(
        "SELECT name, value FROM state WHERE name IN ('engine', 'ledger', 'contents')"
    ):
        older[f"UPDATE state SET value = ? WHERE name = '{name}'"] = value  # noqa: S608
    connection.close()
    turns = iter([False] * 2)
    world.run(source(), stop=lambda: next(turns, True))
    sound = path.read_bytes()
    found = 0
    for change, data in older.items():
        connection = sqlite3.connect(path)
        changed = connection.execute(change, (data,)).rowcount
        connection.commit()
        connection.close()
        if changed and path.read_bytes() != sound:
            with pytest.raises(StoreError, match="must be undamaged"):
                world.run(source())
            found += 1
        path.write_bytes(sound)
    assert found >= 5


def test_a_reader_finds_damage_too(stopped: Trials) -> None:
    path = stopped.left.folder / "s.db"
    _execute(path, "DELETE FROM agents WHERE number = 0")
    store = Store.read(path)
    with pytest.raises(StoreError, match="a fault in agents"):
        store.agents()
    store.close()
