"""The tables of a store's file."""

from __future__ import annotations

from collections.abc import Mapping

from meanstream.streaming.store.database import APPLICATION_ID, Database

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
