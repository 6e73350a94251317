"""The rows of a store's ledger, as anyone reads them who has the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meanstream.streaming.store.ledger_chain import LedgerChain
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_tables import _name_mark


def stored_rows(path: Path) -> list[tuple[Any, ...]]:
    """Number, agent, index, input version, charge, time, output and the chain's value after each
    row."""
    store, chain, values = Store.read(path), LedgerChain(), list[bytes]()
    try:
        rows, stored = [], dict[int, bytes]()
        for block in store.ledger.verified():
            rows += zip(*block.rows.columns(), strict=True)
            stored.update(block.chain)
            for at in range(len(block.rows)):
                chain.extend(block.rows.part(slice(at, at + 1)), store.encoded_names())
                values.append(chain.value)
        assert all(values[row - 1] == value for row, value in stored.items())
        return [(*row, value) for row, value in zip(rows, values, strict=True)]
    finally:
        store.close()


def forget_names(store: Store) -> None:
    """Drop the names of all agents, as after a wrong repair, within a transaction."""
    rows = store._database.rows("SELECT number, names FROM agents")
    store._count("agents", _name_mark, rows, -1)
    store._database.execute("DELETE FROM agents")
    store._encoded_names = None
