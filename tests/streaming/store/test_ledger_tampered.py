"""A ledger that somebody has changed: any byte, row or end of it is found and named."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.streaming.agents.agents_budget import agents_budgets
from meanstream.streaming.store.ledger_chain import (
    LedgerColumns,
    pack_ledger_rows,
    unpack_ledger_rows,
)
from meanstream.streaming.store.ledger_reader import LedgerFaultError
from meanstream.streaming.store.schema_migrations import TABLES
from meanstream.streaming.store.spend_ledger import CHUNK
from meanstream.streaming.store.state_store import DamagedStoreError, Store
from meanstream.streaming.store.store_audit import NotedLedger, OtherLedgerError, audit_ledger
from tests.streaming.store.conftest import charge, open_store, rows


def spoil(path: Path, *changes: tuple[str, tuple[Any, ...]]) -> None:
    """Change the ledger behind its rules, which are in force again afterwards."""
    connection = sqlite3.connect(path)
    rules = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
    ).fetchall()
    for name, _ in rules:
        connection.execute(f"DROP TRIGGER {name}")
    for sql, values in changes:
        connection.execute(sql, values)
    for _, sql in rules:
        connection.execute(sql)
    connection.commit()
    connection.close()


def blocks(path: Path) -> dict[int, tuple[bytes, bytes]]:
    """The blocks of a ledger by their last row: the chain's value, and the rows."""
    connection = sqlite3.connect(path)
    found = {
        last: (chain, data)
        for last, chain, data in connection.execute("SELECT * FROM ledger ORDER BY last")
    }
    connection.close()
    return found


def repack(path: Path, row: int, column: str, value: Any) -> None:
    """Change one value of one row, and seal its block as if it had been written so; the chain
    stays."""
    last = min(last for last in blocks(path) if last >= row)
    found = unpack_ledger_rows(blocks(path)[last][1], last=last)
    values = list(getattr(found, column))
    values[row - found.seq[0]] = value
    data = pack_ledger_rows(replace(found, **{column: values}))
    spoil(path, ("UPDATE ledger SET data = ? WHERE last = ?", (data, last)))


def fault_of(path: Path) -> int:
    """The row at which the ledger's fault is; everything that reads the ledger finds it."""
    with pytest.raises(
        LedgerFaultError,
        match=r"^store must be undamaged, got a fault in rows? \d+.* of the ledger of '.*'$",
    ) as caught:
        audit_ledger(path)
    with pytest.raises(DamagedStoreError):
        agents_budgets(path)
    looked = Store.read(path)
    with pytest.raises(DamagedStoreError):
        looked.ledger.after(0)
    looked.close()
    return caught.value.row


def other(value: Any, at: int) -> Any:
    """Change one byte of a value of the table."""
    if isinstance(value, bytes):
        return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
    kind = "<d" if isinstance(value, float) else "<q"
    return struct.unpack(kind, other(struct.pack(kind, value), at))[0]


LAST = {1: 4, 5: 7, 8: 11}
"""First and last row of each block."""


@pytest.mark.parametrize("column", ["chain", "data"])
def test_any_changed_byte_of_a_block_is_found_and_named(column: str, filled: Path) -> None:
    sound = filled.read_bytes()
    for first, last in LAST.items():
        value = blocks(filled)[last][column == "data"]
        for at in range(len(value)):
            change = f"UPDATE ledger SET {column} = ? WHERE last = ?"  # noqa: S608
            spoil(filled, (change, (other(value, at), last)))
            with pytest.raises(
                LedgerFaultError, match=rf"got a fault in rows {first} to {last} of the ledger"
            ) as at_it:
                audit_ledger(filled)
            assert at_it.value.row == first
            filled.write_bytes(sound)
        spoil(filled, (f"UPDATE ledger SET {column} = ? WHERE last = ?", (value[:-1], last)))  # noqa: S608
        assert fault_of(filled) == first
        filled.write_bytes(sound)


@pytest.mark.parametrize(
    "column", ["agent", "release_index", "input_version", "charge", "time", "output"]
)
def test_any_changed_value_of_a_row_in_a_sealed_block_is_found(column: str, filled: Path) -> None:
    """The chain proves each row: a block that is sound in itself does not follow on what was before
    it."""
    sound = filled.read_bytes()
    for row in (1, 4, 6, 11):  # the fourth is of the last agent: the number after it is nobody's
        (block,) = [(first, last) for first, last in LAST.items() if first <= row <= last]
        found = unpack_ledger_rows(blocks(filled)[block[1]][1], last=block[1])
        value = getattr(found, column)[row - block[0]]
        for at in range(len(value) if isinstance(value, bytes) else 8):
            repack(filled, row, column, other(value, at))
            assert fault_of(filled) == block[0]
            filled.write_bytes(sound)


@pytest.mark.parametrize("first", LAST)
def test_a_block_that_is_gone_or_moved_is_found_and_named(first: int, filled: Path) -> None:
    sound, last = filled.read_bytes(), LAST[first]
    spoil(filled, ("DELETE FROM ledger WHERE last = ?", (last,)))
    assert fault_of(filled) == first
    filled.write_bytes(sound)
    size = last - first + 1
    close_gap = ("UPDATE ledger SET last = last - ? WHERE last > ?", (size, last))
    spoil(filled, ("DELETE FROM ledger WHERE last = ?", (last,)), close_gap)
    assert fault_of(filled) == first
    for start in set(LAST) - {first}:
        filled.write_bytes(sound)
        moves = [(99, LAST[start]), (LAST[start], last), (last, 99)]
        spoil(filled, *(("UPDATE ledger SET last = ? WHERE last = ?", move) for move in moves))
        assert fault_of(filled) == min(start, first)


def test_rows_that_are_left_out_of_a_block_are_found(filled: Path) -> None:
    sound = filled.read_bytes()
    for first, last in LAST.items():
        found = unpack_ledger_rows(blocks(filled)[last][1], last=last)
        for left in (slice(1, None), slice(None, -1), slice(0)):
            data = pack_ledger_rows(LedgerColumns(*(column[left] for column in found.columns())))
            spoil(filled, ("UPDATE ledger SET data = ? WHERE last = ?", (data, last)))
            assert fault_of(filled) == first
            filled.write_bytes(sound)


def test_blocks_that_are_cut_off_or_added_are_found_and_named(filled: Path) -> None:
    sound = filled.read_bytes()
    for left in (0, 4, 7):
        spoil(filled, ("DELETE FROM ledger WHERE last > ?", (left,)))
        assert fault_of(filled) == left + 1
        with pytest.raises(LedgerFaultError, match=rf"row {left + 1} \(missing\) of the ledger"):
            open_store(filled.parent)
        filled.write_bytes(sound)
    spoil(filled, ("INSERT INTO ledger SELECT 15, chain, data FROM ledger WHERE last = 11", ()))
    assert fault_of(filled) == 12
    with pytest.raises(LedgerFaultError, match=r"row 12 \(added\) of the ledger"):
        open_store(filled.parent)


def test_rows_after_any_number_are_given(filled: Path) -> None:
    store = Store.read(filled)
    every = store.ledger.after(0)
    assert len(every) == 11
    for seq in range(12):
        assert store.ledger.after(seq) == every[seq:]
        assert [n for block in store.ledger.verified(seq) for n in block.rows.seq] == list(
            range(seq + 1, 12)
        )
    store.close()


def test_a_name_that_was_changed_is_found(filled: Path) -> None:
    spoil(filled, ("UPDATE agents SET names = CAST(replace(names, 'bob b', 'bill') AS BLOB)", ()))
    for read in (audit_ledger, agents_budgets):
        with pytest.raises(DamagedStoreError, match="got a fault in agents"):
            read(filled)


def forge(path: Path, change: Callable[[Store], None]) -> None:
    """Change the ledger as somebody who can write the file and knows how it is sealed."""
    store = open_store(path.parent)
    with store.transaction():
        change(store)
    store.close()


def cut_off(store: Store) -> None:
    """Take the last block away, and seal what is left."""
    for name in ("ledger_stays", "ledger_keeps"):
        store._database.execute(f"DROP TRIGGER {name}")
    store._database.execute("DELETE FROM ledger WHERE last > 7")
    head = store.ledger.head()
    (chain,) = store._database.rows("SELECT chain FROM ledger WHERE last = 7")[0]
    store.put_state("ledger", {**head.plain(), "rows": 7, "chain": chain.hex()})
    store.put_chunk("spent", 0, {"count": np.array([2, 4, 1] + [0] * (CHUNK - 3), np.int32)})
    for name in ("ledger_stays", "ledger_keeps"):
        store._database.execute(TABLES[name])


def test_a_forged_ledger_is_found_by_what_was_noted(filled: Path) -> None:
    before = audit_ledger(filled)
    forge(filled, cut_off)
    cut = audit_ledger(filled)
    assert cut.rows == 7
    for noted in (
        NotedLedger(rows=11),
        NotedLedger(head=before.head),
        NotedLedger(11, before.head),
    ):
        with pytest.raises(OtherLedgerError, match=r"ledger must have .*got (7|none)$"):
            audit_ledger(filled, noted)
    with pytest.raises(
        OtherLedgerError, match=r"must have the noted head at row 7, got [0-9a-f]{64}"
    ):
        audit_ledger(filled, NotedLedger(7, before.head))
    assert audit_ledger(filled, NotedLedger(7, cut.head)) == cut


def test_a_noted_ledger_stays_a_prefix(filled: Path) -> None:
    notes = [audit_ledger(filled)]
    store = open_store(filled.parent)
    charge(store, rows([0], [4]))
    notes.append(audit_ledger(filled))
    charge(store, rows([0, 1], [5, 6]))
    store.close()
    for note in notes:
        for noted in (
            NotedLedger(note.rows, note.head),
            NotedLedger(rows=note.rows),
            NotedLedger(head=note.head),
        ):
            assert audit_ledger(filled, noted).rows == 14


def test_counts_that_were_sealed_wrongly_are_found(filled: Path) -> None:
    def one_less(store: Store) -> None:
        store.put_chunk("spent", 0, {"count": np.array([2, 5, 3] + [0] * (CHUNK - 3), np.int32)})

    forge(filled, one_less)
    with pytest.raises(DamagedStoreError, match="got a fault in the numbers of charges"):
        audit_ledger(filled)
