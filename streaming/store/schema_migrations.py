"""The tables of a store's file, and how a store of an older schema version becomes one of this version.

Numbered steps: all of them, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from meanstream.streaming.store.database import APPLICATION_ID, Database, StoreError
from meanstream.streaming.store.store_tables import StoreTables

VERSION = 5
"""Schema version of the stores that are written; older ones are migrated."""

_LEDGER_RULES = {
    "ledger_keeps": "CREATE TRIGGER ledger_keeps BEFORE UPDATE ON ledger "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "ledger_stays": "CREATE TRIGGER ledger_stays BEFORE DELETE ON ledger "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
}

TABLES = {
    "state": "CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT",
    "agents": "CREATE TABLE agents (number INTEGER PRIMARY KEY, names BLOB NOT NULL) STRICT",  # of the first one
    "chunks": "CREATE TABLE chunks (kind TEXT, number INTEGER, data BLOB NOT NULL, PRIMARY KEY (kind, number)) STRICT",
    "outbox": "CREATE TABLE outbox (seq INTEGER PRIMARY KEY, topic TEXT NOT NULL, lines BLOB NOT NULL) STRICT",
    "ledger": "CREATE TABLE ledger (last INTEGER PRIMARY KEY, chain BLOB NOT NULL, data BLOB NOT NULL) STRICT",
    **_LEDGER_RULES,
}


def create_layout(database: Database) -> None:
    """Make the tables of a new store, within a transaction."""
    for statement in TABLES.values():
        database.execute(statement)

    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {VERSION}")


def check_layout(database: Database, tables: Mapping[str, str]) -> None:
    """Refuse a file whose tables are not exactly those of its version."""
    schema: dict[str, str] = dict(
        database.rows("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    )
    if schema != tables:
        raise database.damage("its tables")


OLDEST = 5
"""Oldest schema version that is read: that of 0.3.0."""

PUBLIC = "public"
"""Name of the state that holds the store's public id and, under seal, its schema version."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step, from a schema version to the next.

    Attributes
    ----------
    tables : mapping
        Name and SQL of everything that a store of the earlier version has.
    change : callable
        Makes it one of the next version. It changes rows through the methods of the tables alone,
        which keep the sealed contents right, and never a row of the ledger.
    """

    tables: Mapping[str, str]
    change: Callable[[Database, StoreTables], None]


MIGRATIONS: dict[int, Migration] = {}
"""The step that each schema version from `OLDEST` on begins with; none for that of `layout`."""


def checked_schema_version(database: Database) -> int:
    """Give the schema version of a file, whose tables must be those of that version."""
    version = int(database.one("PRAGMA user_version"))
    if not OLDEST <= version <= VERSION:
        raise StoreError(_refusal(database, version))

    tables = TABLES if version == VERSION else MIGRATIONS[version].tables
    check_layout(database, tables)

    return version


def migrate_schema(database: Database, tables: StoreTables, version: int) -> None:
    """Take all steps from a version to this one in one transaction; without a step, do nothing."""
    if version == VERSION:
        return

    with tables.transaction():
        for step in range(version, VERSION):
            MIGRATIONS[step].change(database, tables)

        # The version stands in the file's header and under the seal of the contents.
        database.execute(f"PRAGMA user_version = {VERSION}")
        tables.put_state(PUBLIC, {**tables.state(PUBLIC), "version": VERSION})

        # A step that makes something else is a defect: it must not be committed.
        check_layout(database, TABLES)


def _refusal(database: Database, version: int) -> str:
    """Say which versions are read, and what reads this one."""
    readable = str(VERSION) if VERSION == OLDEST else f"{OLDEST} to {VERSION}"
    cure = (
        "a later release of Meanstream wrote it: use that one"
        if version > VERSION
        else "a release before 0.3.0 wrote it: see Upgrading in docs/deployment.md"
    )

    rule = f"store must have schema version {readable}, got {version} in {str(database.path)!r}"
    return f"{rule}; {cure}"
