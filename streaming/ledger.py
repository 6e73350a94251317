"""The ledger: one row per release, written before the release leaves, never changed afterwards."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

SCHEMA = """
CREATE TABLE ledger (
    seq INTEGER PRIMARY KEY,
    release_id TEXT NOT NULL,
    agent INTEGER NOT NULL,
    release_index INTEGER NOT NULL,
    input_version INTEGER NOT NULL,
    charge INTEGER NOT NULL,
    time REAL NOT NULL,
    output BLOB NOT NULL,
    UNIQUE (agent, release_index)
) STRICT;
CREATE TRIGGER ledger_keeps BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_stays BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""

_INSERT = """
INSERT INTO ledger (release_id, agent, release_index, input_version, charge, time, output)
VALUES (?, ?, ?, ?, 1, ?, ?) ON CONFLICT (agent, release_index) DO NOTHING
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRows:
    """Releases that ask to be charged, one entry each.

    Attributes
    ----------
    release_id : list of str
        Stable identity; one to one with agent and index, which are what is compared.
    agent, release_index : list of int
        Number of the agent in the store, and which release of it this is, from 1.
    input_version : list of int
        Keyed digest of the exact input, as a signed 64-bit integer.
    time : list of float
        Event time, seconds.
    output : list of bytes
        What will leave the process, exactly.
    """

    release_id: list[str]
    agent: list[int]
    release_index: list[int]
    input_version: list[int]
    time: list[float]
    output: list[bytes]

    def __len__(self) -> int:
        return len(self.release_id)


class Ledger:
    """Charges releases within the transaction of a store.

    A charge is one release of an agent's horizon: the horizon is the budget, within which every sample is protected by
    the (epsilon, delta) of the settings.

    **Privacy.** The same release id with the same input version is the stored release again and costs nothing. With
    another version it would be a second look at the agent's data under the same noise index, and is refused.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def charge(self, rows: LedgerRows) -> list[int]:
        """Write new rows; return which entries were refused."""
        if not len(rows):
            return []
        columns = (rows.release_id, rows.agent, rows.release_index, rows.input_version, rows.time, rows.output)
        inserted = self._connection.executemany(_INSERT, zip(*columns, strict=True)).rowcount
        if inserted == len(rows):
            return []
        find = "SELECT input_version FROM ledger WHERE agent = ? AND release_index = ?"
        return [
            i
            for i, (agent, index, version) in enumerate(
                zip(rows.agent, rows.release_index, rows.input_version, strict=True)
            )
            if self._connection.execute(find, (agent, index)).fetchone()[0] != version
        ]

    def after(self, seq: int) -> list[tuple[int, bytes]]:
        """Give the outputs with a sequence number greater than `seq`, in order."""
        query = "SELECT seq, output FROM ledger WHERE seq > ? ORDER BY seq"
        return self._connection.execute(query, (seq,)).fetchall()

    def last(self) -> int:
        """Tell the sequence number of the newest row, 0 if there is none."""
        return int(self._connection.execute("SELECT coalesce(max(seq), 0) FROM ledger").fetchone()[0])

    def size(self, seq: int = 0) -> tuple[int, int, int]:
        """Tell the newest sequence number, and the number and bytes of the outputs after `seq`."""
        query = "SELECT coalesce(max(seq), ?), count(*), coalesce(sum(length(output)), 0) FROM ledger WHERE seq > ?"
        newest, rows, size = self._connection.execute(query, (seq, seq)).fetchone()
        return newest, rows, size

    def charges(self) -> list[tuple[int, int]]:
        """Count for every agent with a release the releases it was charged."""
        return self._connection.execute(
            "SELECT agent, sum(charge) FROM ledger GROUP BY agent ORDER BY agent"
        ).fetchall()
