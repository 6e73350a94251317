"""Reading a whole ledger: what was charged to whom, and whether it is what was written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meanstream.streaming.store.ledger_chain import START
from meanstream.streaming.store.ledger_reader import LedgerBlock, next_ledger_indexes
from meanstream.streaming.store.state_store import Store, StoreError


class OtherLedgerError(StoreError):
    """A ledger does not begin with what was noted of it."""


@dataclass(frozen=True, slots=True)
class NotedLedger:
    """What an auditor noted of a ledger: its number of rows, its head, or both."""

    rows: int | None = None
    head: bytes | None = None


@dataclass(frozen=True, slots=True)
class LedgerReport:
    """Public: how much a ledger holds, and the head, which stands for all of it."""

    rows: int
    agents: int
    head: bytes


def audit_ledger(store: Path, noted: NotedLedger | None = None) -> LedgerReport:
    """Compute the chain of a ledger again and compare it with every row.

    An engine may be running on the store.

    A ledger whose head was noted is its own prefix forever after: rows that were changed later are
    found even if the chain was computed again and sealed again.
    """
    opened = Store.read(store)
    try:
        prefix = _Prefix(noted or NotedLedger())
        for block in audited_rows(opened):
            prefix.take(block)

        prefix.check()
        head = opened.ledger.head()
        return LedgerReport(head.rows, len(opened.ledger.charges()), head.chain)
    finally:
        opened.close()


def audited_rows(store: Store) -> Iterator[LedgerBlock]:
    """Give all rows of a ledger, each compared with the chain and with the rules of charging."""
    counted = np.zeros(len(store.agents()), np.int64)
    for block in store.ledger.verified():
        agent = np.array(block.rows.agent, np.int64)
        index = np.array(block.rows.release_index, np.int64)
        wrong = (index != next_ledger_indexes(agent, counted)) | (np.array(block.rows.charge) != 1)
        if wrong.any():
            raise store.ledger.fault(block.rows.seq[int(np.argmax(wrong))])

        counted += np.bincount(agent, minlength=len(counted))
        yield block

    store.ledger.check_charges(counted)


class _Prefix:
    """Looks for what was noted among the rows that go by."""

    def __init__(self, noted: NotedLedger) -> None:
        self._noted = noted
        self._rows = 0
        self._at_rows = (
            START if noted.rows == 0 else None
        )  # the chain's value at the noted number of rows
        self._found = noted.head in (None, START)

    def take(self, block: LedgerBlock) -> None:
        """Take rows."""
        rows = self._noted.rows
        head = self._noted.head
        self._at_rows = block.chain.get(-1 if rows is None else rows, self._at_rows)
        self._found = self._found or head in block.chain.values()
        self._rows += len(block.rows)

    def check(self) -> None:
        """Say whether the rows that went by begin with what was noted."""
        rows = self._noted.rows
        head = self._noted.head

        if rows is not None and rows > self._rows:
            raise OtherLedgerError(
                f"ledger must have at least the {rows} rows that were noted, got {self._rows}"
            )

        if rows is not None and head is not None and self._at_rows != head:
            found = "no head" if self._at_rows is None else self._at_rows.hex()
            raise OtherLedgerError(f"ledger must have the noted head at row {rows}, got {found}")

        if not self._found:
            raise OtherLedgerError(
                f"ledger must have had the noted head at one of its {self._rows} rows, got none"
            )
