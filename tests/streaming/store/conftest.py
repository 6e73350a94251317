"""A ledger with some rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meanstream.streaming.store.spend_ledger import LedgerRows
from meanstream.streaming.store.state_store import Store

SECRET = b"a secret of more than sixteen bytes"
SETTINGS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "horizon": 9}
NAMES = ["ann", "bob b", "żaneta"]


def open_store(folder: Path) -> Store:
    return Store.open(folder / "s.db", settings=SETTINGS, secret=SECRET)


def rows(agent: list[int], index: list[int], version: list[int] | None = None) -> LedgerRows:
    return LedgerRows(
        agent=agent,
        release_index=index,
        input_version=version or [100 * a + i for a, i in zip(agent, index, strict=True)],
        time=[10.0 * i + a for a, i in zip(agent, index, strict=True)],
        output=[f"release {i} of {a}".encode() for a, i in zip(agent, index, strict=True)],
    )


def charge(store: Store, new: LedgerRows) -> list[int]:
    with store.transaction():
        return store.ledger.charge(new)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Eleven rows of three agents, in three commits."""
    store = open_store(tmp_path)
    with store.transaction():
        store.add_agents(0, NAMES)
        store.ledger.charge(rows([0, 1, 0, 2], [1, 1, 2, 1]))
    charge(store, rows([1, 1, 1], [2, 3, 4]))
    charge(store, rows([2, 0, 2, 1], [2, 3, 3, 5]))
    store.close()
    return tmp_path / "s.db"
