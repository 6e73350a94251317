"""The rows of a store's ledger, as anyone reads them who has the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meanstream.streaming.store.state_store import Store


def stored_rows(path: Path) -> list[tuple[Any, ...]]:
    """Number, agent, index, input version, charge, time, output and the chain's value of each row."""
    store = Store.read(path)
    try:
        return [
            row for block in store.ledger.verified() for row in zip(*block.rows.columns(), block.chain, strict=True)
        ]
    finally:
        store.close()
