"""Reading a whole ledger: what was charged to whom, and whether it is what was written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from meanstream.operators.validation import require
from meanstream.streaming.store.database import new_file
from meanstream.streaming.store.ledger_chain import (
    START,
    LedgerColumns,
    chain_value,
    chained_bytes,
)
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
    with Store.read(store) as opened:
        prefix = _Prefix(noted or NotedLedger())
        for block in audited_rows(opened):
            prefix.take(block)

        prefix.check()
        head = opened.ledger.head()
        return LedgerReport(head.rows, len(opened.ledger.charges()), head.chain)


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
            shown_head = "no head" if self._at_rows is None else self._at_rows.hex()
            raise OtherLedgerError(
                f"ledger must have the noted head at row {rows}, got {shown_head}"
            )

        if not self._found:
            raise OtherLedgerError(
                f"ledger must have had the noted head at one of its {self._rows} rows, got none"
            )


FORMAT = "meanstream ledger"
"""First word of an export, by which readers recognize it."""
VERSION = 1
"""Of the format of exports."""


def export_ledger(store: Path, target: Path, *, rows: int | None = None) -> LedgerReport:
    """Write the rows of a ledger, or its first ones, into a new file; all rows are verified before.

    **Privacy.** An export holds what left the process, and of the rest one digest per segment.
    Input versions are private, and they are in that digest alone, as they are in the chain's
    values. Of agents and rounds it is public; of agents that query each other a row is private to
    its reader.

    Returns
    -------
    LedgerReport
        Rows, agents and head of what was exported.
    """
    with Store.read(store) as opened:
        count = opened.ledger.rows() if rows is None else rows
        require(
            0 <= count <= opened.ledger.rows(),
            "rows",
            f"be at most {opened.ledger.rows()}, the rows of the ledger",
            count,
        )

        export = _Export(opened, count)
        with new_file(target, "export") as file:
            file.writelines(export.lines())

    return export.report()


class _Export:
    """The lines of an export, and what they come to."""

    def __init__(self, store: Store, rows: int) -> None:
        self._store = store
        self._rows = rows
        self._names = store.agents()
        self._seen = set[int]()
        self._chain = START

    def lines(self) -> Iterator[bytes]:
        """Give the lines: a header, rows, and a value of the chain after each segment."""
        name = (self._store.settings() or {}).get("name")
        yield _line({"format": FORMAT, "version": VERSION, "deployment": name, "rows": self._rows})

        # Blocks begin and end with segments; those after the last exported row are verified, too.
        for block in audited_rows(self._store):
            first = block.rows.seq[0]
            if first <= self._rows:
                yield from self._segment(block.rows.part(slice(0, self._rows - first + 1)))

    def report(self) -> LedgerReport:
        """Tell what was exported."""
        return LedgerReport(self._rows, len(self._seen), self._chain)

    def _segment(self, rows: LedgerColumns) -> Iterator[bytes]:
        encoded = self._store.encoded_names()
        for seq, agent, output in zip(rows.seq, rows.agent, rows.output, strict=True):
            yield _line({"seq": seq, "agent": self._names[agent], "output": output.decode()})

        # The numbers hold input versions, which are private: their digest stands for them.
        digests = [sha256(chained).digest() for chained in chained_bytes(rows, encoded)]
        self._chain = chain_value(self._chain, digests)
        self._seen.update(rows.agent)

        yield _line({"rows": rows.seq[-1], "numbers": digests[0].hex(), "chain": self._chain.hex()})


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode("ascii") + b"\n"


def back_up_store(store: Path, place: Path) -> LedgerReport:
    """Copy a store and verify the copy's ledger.

    Copying the file by hand misses what is still in the write-ahead log.

    **Privacy.** The copy is on the private side as the store is: it holds raw sums, and raw samples that wait for
    their event time. Only its owner can read it. It does not hold the secret, without which it cannot be continued.
    Restored, it is an older copy: continued on other input than before, it would give the noise of one release to two
    sums. Restore the newest only, onto the input that it had read from.

    Returns
    -------
    LedgerReport
        Rows, agents and head of the copy's ledger, to be noted elsewhere.
    """
    with Store.read(store) as opened:
        try:
            with new_file(place, "backup"):
                opened.copy_to(place)
                report = audit_ledger(place)

            _sync(place.parent)
        finally:  # anyone who reads a copy leaves these next to it; there is nothing in them
            for suffix in ("-wal", "-shm"):
                place.with_name(place.name + suffix).unlink(missing_ok=True)

    return report


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
