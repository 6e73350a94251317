"""Reading a ledger: every row is compared with the chain before it is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from meanstream.operators.records import Ints
from meanstream.streaming.store.database import DamagedStoreError, Database
from meanstream.streaming.store.ledger_blocks import joined_ledger_rows, unpack_ledger_rows
from meanstream.streaming.store.ledger_chain import START, LedgerColumns, chain_links
from meanstream.streaming.store.store_tables import StoreTables

BLOCK = 4096
"""Rows that are read, or written, at a time."""

HEAD = "ledger"
"""Name of the state that says where the ledger ends."""

_EVERY = 2**63 - 1


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
        return {"rows": self.rows, "chain": self.chain.hex(), "size": self.size, "refused": self.refused}


@dataclass(frozen=True, slots=True)
class LedgerBlock:
    """Rows, one after the other, and the chain's value at each."""

    rows: LedgerColumns
    chain: Sequence[bytes]


class _Part(NamedTuple):
    """Rows of a stored block, and the chain's value that is stored with it."""

    rows: LedgerColumns
    chain: bytes


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
                LedgerHead() if plain is None else LedgerHead(**plain | {"chain": bytes.fromhex(plain["chain"])})
            )
        return self._head

    def check_end(self) -> None:
        """Compare where the last block ends with what the last commit said."""
        self._compare_end(*self._end_before(None))

    def verified(self, seq: int = 0) -> Iterator[LedgerBlock]:
        """Give the rows with a sequence number greater than `seq`, in order and in blocks."""
        if seq > self.head().rows:
            self._compare_end(seq, None)
        end, link = self._end_before(seq)
        query = "SELECT last, chain, data FROM ledger WHERE last > ? ORDER BY last"
        before, parts = end, list[_Part]()
        for ((last, chain, data),) in self._database.blocks(query, (end,)):
            parts.append(_Part(self._unpacked(end, last, data), chain))
            end = last
            if end - before >= BLOCK:
                yield _after(seq, self._followed(link, parts))
                before, link, parts = end, chain, []
        if parts:
            yield _after(seq, self._followed(link, parts))
            link = parts[-1].chain
        self._compare_end(end, link)

    def fault(self, row: int, what: str = "") -> LedgerFaultError:
        """Say that a row is not what was written."""
        return LedgerFaultError(str(self._database.damage(f"row {row}{what} of the ledger")), row)

    def _end_before(self, seq: int | None) -> tuple[Any, Any]:
        """Give where the last block ends that has no row after `seq`, and the chain's value there."""
        query = "SELECT last, chain FROM ledger WHERE last <= ? ORDER BY last DESC LIMIT 1"
        found = self._database.rows(query, (_EVERY if seq is None else seq,))
        return found[0] if found else (0, START)

    def _unpacked(self, end: int, last: int, data: bytes) -> LedgerColumns:
        """Read a block that follows on row `end`."""
        try:
            rows = unpack_ledger_rows(data, last=last)
        except ValueError:
            raise self._block_fault(end + 1, last) from None
        if not len(rows) or rows.seq[0] != end + 1:
            raise self._block_fault(end + 1, last)
        return rows

    def _followed(self, link: bytes, parts: list[_Part]) -> LedgerBlock:
        """Compute the chain over rows; it must come to what is stored at the end of each block."""
        chain: list[bytes] = []
        for rows, stored in parts:
            try:
                chain += chain_links(chain[-1] if chain else link, rows, self._tables.encoded_names())
            except IndexError:  # a number of no agent
                raise self._block_fault(rows.seq[0], rows.seq[-1]) from None
            if chain[-1] != stored:
                raise self._block_fault(rows.seq[0], rows.seq[-1])
        return LedgerBlock(joined_ledger_rows([rows for rows, _ in parts]), chain)

    def _block_fault(self, first: int, last: int) -> LedgerFaultError:
        """Say that a block is not what was written: which of its rows, nothing can say."""
        if last <= first:
            return self.fault(first)
        return LedgerFaultError(str(self._database.damage(f"rows {first} to {last} of the ledger")), first)

    def _compare_end(self, seq: Any, link: object) -> None:
        head = self.head()
        if (seq, link) == (head.rows, head.chain):
            return
        if seq == head.rows:
            raise self.fault(seq)
        raise self.fault(min(seq, head.rows) + 1, " (missing)" if seq < head.rows else " (added)")


def _after(seq: int, block: LedgerBlock) -> LedgerBlock:
    """Leave out rows up to a number, where a block begins before it."""
    skip = max(0, seq + 1 - block.rows.seq[0])
    if not skip:
        return block
    return LedgerBlock(LedgerColumns(*(column[skip:] for column in block.rows.columns())), block.chain[skip:])


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
