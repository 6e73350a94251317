"""Reading a ledger: every row is compared with the chain before it is given."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanstream.operators.records import Ints
from meanstream.streaming.events.release_ids import release_ids
from meanstream.streaming.store.database import DamagedStoreError, Database
from meanstream.streaming.store.ledger_chain import START, LedgerColumns, chain_links
from meanstream.streaming.store.store_tables import StoreTables

BLOCK = 4096
"""Rows that are read, or written, at a time."""

HEAD = "ledger"
"""Name of the state that says where the ledger ends."""

_COLUMNS = "seq, agent, release_index, input_version, charge, time, output, chain"


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
        """Compare the last row with what the last commit said it is."""
        found = self._database.rows("SELECT seq, chain FROM ledger ORDER BY seq DESC LIMIT 1")
        self._compare_end(*(found[0] if found else (0, START)))

    def verified(self, seq: int = 0) -> Iterator[LedgerBlock]:
        """Give the rows with a sequence number greater than `seq`, in order and in blocks."""
        link = START if seq == 0 else self._database.one("SELECT chain FROM ledger WHERE seq = ?", (seq,))
        query = f"SELECT {_COLUMNS} FROM ledger WHERE seq > ? ORDER BY seq"  # noqa: S608 - of constants
        for rows in self._database.blocks(query, (seq,), size=BLOCK):
            *columns, chain = zip(*rows, strict=True)
            block = LedgerBlock(LedgerColumns(*columns), chain)
            if not self._follows(block, seq, link):
                raise self._first_fault(rows, seq, link)
            seq, link = seq + len(rows), chain[-1]
            yield block
        self._compare_end(seq, link)

    def fault(self, row: int, what: str = "") -> LedgerFaultError:
        """Say that a row is not what was written."""
        return LedgerFaultError(str(self._database.damage(f"row {row}{what} of the ledger")), row)

    def _follows(self, block: LedgerBlock, seq: int, link: bytes) -> bool:
        """Say whether a block has the rows after `seq`, where the chain had this value."""
        try:
            in_order = tuple(block.rows.seq) == tuple(range(seq + 1, seq + 1 + len(block.rows)))
            names = self._tables.encoded_names()
            return in_order and chain_links(link, block.rows, names) == list(block.chain)
        except (IndexError, TypeError, struct.error):  # a number of no agent, or a value of another type
            return False

    def _first_fault(self, rows: list[tuple[Any, ...]], seq: int, link: bytes) -> LedgerFaultError:
        """Find the row at which a block does not follow."""
        for row in rows:
            *columns, chain = ((value,) for value in row)
            if not self._follows(LedgerBlock(LedgerColumns(*columns), chain), seq, link):
                return self.fault(seq + 1, self._id_of(row))
            seq, link = seq + 1, chain[0]
        return self.fault(seq)

    def _id_of(self, row: tuple[Any, ...]) -> str:
        """Name the release that a row claims to be, if it names an agent."""
        agent, index = row[1:3]
        names = self._tables.agents()
        if not (isinstance(agent, int) and isinstance(index, int) and 0 <= agent < len(names)):
            return ""
        return f" ({release_ids(names, [agent], [index])[0]})"

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
