"""The log of a store keeps no room that only one large transaction has needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from meanstream.streaming.store import database
from meanstream.streaming.store.database import PAGE, Database

PAGES = 8


def test_a_long_log_is_cut_while_the_store_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CHECKPOINT_PAGES", PAGES)
    path = tmp_path / "s.db"
    path.touch()
    store = Database(path, read_only=False)
    log = path.with_name("s.db-wal")

    with store.transaction():
        store.execute("CREATE TABLE t (x BLOB)")
        store.execute("INSERT INTO t VALUES (zeroblob(409600))")
    assert log.stat().st_size > 100 * PAGE

    # The first transaction after the log was written to the file begins it anew.
    with store.transaction():
        store.execute("INSERT INTO t VALUES (1)")
    assert log.stat().st_size <= (PAGES + 1) * PAGE
    store.close()
