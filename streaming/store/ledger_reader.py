"""Reading a ledger: every row is compared with the chain before it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanstream.operators.records import Ints
from meanstream.streaming.store.database import DamagedStoreError, Database
from meanstream.streaming.store.ledger_chain import (
    SEGMENT,
    START,
    LedgerChain,
    LedgerColumns,
    joined_ledger_rows,
    unpack_ledger_rows,
)
from meanstream.streaming.store.store_tables import StoreTables

HEAD = "ledger"
"""Name of the state that says where the ledger ends."""


@dataclass(frozen=True, slots=True)
class LedgerHead:
    """Where a ledger ends.

    Attributes
    ----------
    rows : int
        Number of rows, and the sequence number of the last one.
    chain : bytes
        The chain's value there, which stands for the whole ledger.
    size : int
        Bytes of all outputs.
    refused : int
        Releases that were refused, ever.
    """

    rows: int = 0
    chain: bytes = START
    size: int = 0
    refused: int = 0

    def plain(self) -> dict[str, Any]:
        """Give it as plain values."""
        return {
            "rows": self.rows,
            "chain": self.chain.hex(),
            "size": self.size,
            "refused": self.refused,
        }


@dataclass(frozen=True, slots=True)
class LedgerBlock:
    """Rows, one after the other, and the chain's value by the row numbers at which rows were written together."""

    rows: LedgerColumns
    chain: Mapping[int, bytes]


class LedgerFaultError(DamagedStoreError):
    """The ledger is not what was written; `row` is the first row that shows it."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


class LedgerReader:
    """Gives the rows of a ledger that are what was charged."""

    def __init__(self, database: Database, tables: StoreTables) -> None:
        self._database = database
        self._tables = tables
        self._head: LedgerHead | None = None

    def head(self) -> LedgerHead:
        """Tell where the ledger ends, without a look at its rows."""
        if self._head is None:
            plain = self._tables.state(HEAD)
            self._head = (
                LedgerHead()
                if plain is None
                else LedgerHead(**plain | {"chain": bytes.fromhex(plain["chain"])})
            )

        return self._head

    def check_end(self) -> None:
        """Compare where the last block ends with what the last commit said."""
        rows = self._database.rows("SELECT last, chain FROM ledger ORDER BY last DESC LIMIT 1")
        self._compare_end(*(rows[0] if rows else (0, START)))

    def verified(self, seq: int = 0) -> Iterator[LedgerBlock]:
        """Give the rows with a sequence number greater than `seq`, in order and in blocks."""
        if seq > self.head().rows:
            self._compare_end(seq, None)

        yield from self._blocks_after(seq, self._chain_before(seq))

    def fault(self, row: int, what: str = "") -> LedgerFaultError:
        """Say that a row is not what was written."""
        return LedgerFaultError(str(self._database.damage(f"row {row}{what} of the ledger")), row)

    def _chain_before(self, seq: int) -> LedgerChain:
        """Give the chain at the begin of the segment that row `seq + 1` belongs to."""
        begin = seq - seq % SEGMENT
        if not begin:
            return LedgerChain()
        stored = self._database.one("SELECT chain FROM ledger WHERE last = ?", (begin,))

        if stored is None:
            raise self.fault(begin)
        return LedgerChain(begin, stored)

    def _blocks_after(self, seq: int, chain: LedgerChain) -> Iterator[LedgerBlock]:
        """Follow a chain to the end of the ledger, and give the rows after `seq`."""
        parts = list[LedgerColumns]()
        ends = dict[int, bytes]()
        query = "SELECT last, chain, data FROM ledger WHERE last > ? ORDER BY last"
        for ((last, stored, packed),) in self._database.blocks(query, (chain.rows,)):
            rows = self._unpacked(chain.rows, last, packed)
            self._follow(chain, rows, stored)

            if last > seq:
                parts.append(rows.part(slice(max(0, seq + 1 - rows.seq[0]), None)))
                ends[last] = stored

            if parts and chain.room == SEGMENT:
                yield LedgerBlock(joined_ledger_rows(parts), ends)
                parts = []
                ends = {}

        if parts:
            yield LedgerBlock(joined_ledger_rows(parts), ends)

        self._compare_end(chain.rows, chain.value)

    def _unpacked(self, end: int, last: int, data: bytes) -> LedgerColumns:
        """Read a block that follows on row `end`."""
        try:
            rows = unpack_ledger_rows(data, last=last)
        except ValueError:
            raise self._block_fault(end + 1, last) from None

        if not len(rows) or rows.seq[0] != end + 1:
            raise self._block_fault(end + 1, last)
        return rows

    def _follow(self, chain: LedgerChain, rows: LedgerColumns, stored: bytes) -> None:
        """Add rows of a stored block to the chain, which must come to what is stored with them."""
        try:
            fits = len(rows) <= chain.room
            if fits:
                chain.extend(rows, self._tables.encoded_names())
        except IndexError:  # a number of no agent
            fits = False

        if not fits or chain.value != stored:
            raise self._block_fault(rows.seq[0], rows.seq[-1])

    def _block_fault(self, first: int, last: int) -> LedgerFaultError:
        """Say that a block is not what was written: which of its rows, nothing can say."""
        if last <= first:
            return self.fault(first)
        return LedgerFaultError(
            str(self._database.damage(f"rows {first} to {last} of the ledger")), first
        )

    def _compare_end(self, seq: Any, link: object) -> None:
        head = self.head()
        if (seq, link) == (head.rows, head.chain):
            return
        if seq == head.rows:
            raise self.fault(seq)

        raise self.fault(min(seq, head.rows) + 1, " (missing)" if seq < head.rows else " (added)")


def next_ledger_indexes(agent: Ints, charged: Ints) -> Ints:
    """Give the index that each of some releases must have, one after the other.

    Examples
    --------
    >>> next_ledger_indexes(np.array([1, 0, 1, 1]), np.array([7, 2])).tolist()
    [3, 8, 4, 5]
    """
    order = np.argsort(agent, kind="stable")
    who = agent[order]
    index = np.empty(len(agent), np.int64)
    index[order] = charged[who] + 1 + np.arange(len(who)) - np.searchsorted(who, who)

    return index
