"""The tables of a store's file, by version."""

from __future__ import annotations

from meanstream.streaming.store.database import APPLICATION_ID, Database, StoreError

VERSION = 3
"""Of new stores. Version 3 has the tables of 2 and chains its ledger without the agents' numbers."""

OLDEST_READ = 2
"""Older ones are brought up to date before they are read; those from this one on stay what they are."""

_LEDGER_RULES = {
    "ledger_keeps": "CREATE TRIGGER ledger_keeps BEFORE UPDATE ON ledger "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "ledger_stays": "CREATE TRIGGER ledger_stays BEFORE DELETE ON ledger "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
}

_KEPT = {
    "state": "CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT",
    "agents": "CREATE TABLE agents (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT",
    "chunks": "CREATE TABLE chunks (kind TEXT, number INTEGER, data BLOB NOT NULL, PRIMARY KEY (kind, number)) STRICT",
}

NEW_IN_2 = {
    "outbox": "CREATE TABLE outbox (seq INTEGER PRIMARY KEY, topic TEXT NOT NULL, lines BLOB NOT NULL) STRICT",
    "ledger": """CREATE TABLE ledger (
    seq INTEGER PRIMARY KEY,
    agent INTEGER NOT NULL,
    release_index INTEGER NOT NULL,
    input_version INTEGER NOT NULL,
    charge INTEGER NOT NULL,
    time REAL NOT NULL,
    output BLOB NOT NULL,
    chain BLOB NOT NULL
) STRICT""",
    **_LEDGER_RULES,
}

OLD_IN_1 = {
    "outbox": "CREATE TABLE outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, line BLOB NOT NULL) "
    "STRICT",
    "ledger": """CREATE TABLE ledger (
    seq INTEGER PRIMARY KEY,
    release_id TEXT NOT NULL,
    agent INTEGER NOT NULL,
    release_index INTEGER NOT NULL,
    input_version INTEGER NOT NULL,
    charge INTEGER NOT NULL,
    time REAL NOT NULL,
    output BLOB NOT NULL,
    UNIQUE (agent, release_index)
) STRICT""",
    **_LEDGER_RULES,
}

_VERSIONS = {1: _KEPT | OLD_IN_1, 2: _KEPT | NEW_IN_2, 3: _KEPT | NEW_IN_2}
_SQLITES_OWN = "sqlite_sequence"  # stays in a file that was made in version 1


def create_layout(database: Database) -> None:
    """Make the tables of a new store, within a transaction."""
    for statement in _VERSIONS[VERSION].values():
        database.execute(statement)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {VERSION}")


def layout_version(database: Database) -> int:
    """Tell the version of a file, whose tables are exactly those of the version.

    Raises
    ------
    StoreError
        If the version is not known or the tables are others.
    """
    version = database.one("PRAGMA user_version")
    if version not in _VERSIONS:
        raise StoreError(f"store must have schema version {VERSION}, got {version} in {str(database.path)!r}")
    found: dict[str, str] = dict(database.rows("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))
    found.pop(_SQLITES_OWN, None)
    if found != _VERSIONS[version]:
        raise database.damage("its tables")
    return int(version)


def layout_chains_numbers(database: Database) -> bool:
    """Tell whether the chain of a file's ledger holds the numbers of the agents."""
    return int(database.one("PRAGMA user_version")) < 3
