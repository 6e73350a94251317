"""A ledger that somebody has changed: any byte, row or end of it is found and named."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.streaming.agents.agents_budget import agents_budgets
from meanstream.streaming.store.layout import TABLES
from meanstream.streaming.store.ledger_reader import LedgerFaultError
from meanstream.streaming.store.spend_ledger import CHUNK
from meanstream.streaming.store.state_store import DamagedStoreError, Store
from meanstream.streaming.store.store_audit import NotedLedger, OtherLedgerError, audit_ledger
from tests.streaming.store.conftest import charge, open_store, rows


def spoil(path: Path, *changes: tuple[str, tuple[Any, ...]]) -> None:
    """Change the ledger behind its rules, which are in force again afterwards."""
    connection = sqlite3.connect(path)
    rules = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in rules:
        connection.execute(f"DROP TRIGGER {name}")
    for sql, values in changes:
        connection.execute(sql, values)
    for _, sql in rules:
        connection.execute(sql)
    connection.commit()
    connection.close()


def _column(path: Path, name: str) -> list[Any]:
    connection = sqlite3.connect(path)
    found = [value for (value,) in connection.execute(f"SELECT {name} FROM ledger ORDER BY seq")]  # noqa: S608
    connection.close()
    return found


def fault_of(path: Path) -> int:
    """The row at which the ledger's fault is; everything that reads the ledger finds it."""
    with pytest.raises(
        LedgerFaultError, match=r"^store must be undamaged, got a fault in row \d+ .*of the ledger of '.*'$"
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


@pytest.mark.parametrize("column", ["agent", "release_index", "input_version", "charge", "time", "output", "chain"])
def test_any_changed_byte_of_a_row_is_found_and_named(column: str, filled: Path) -> None:
    sound = filled.read_bytes()
    for row in (1, 4, 6, 11):  # the fourth is of the last agent: the number after it is nobody's
        value = _column(filled, column)[row - 1]
        for at in range(len(value) if isinstance(value, bytes) else 8):
            change = f"UPDATE ledger SET {column} = ? WHERE seq = ?"  # noqa: S608
            spoil(filled, (change, (other(value, at), row)))
            assert fault_of(filled) == row
            filled.write_bytes(sound)


@pytest.mark.parametrize("row", range(1, 12))
def test_a_row_that_is_gone_or_moved_is_found_and_named(row: int, filled: Path) -> None:
    sound = filled.read_bytes()
    spoil(filled, ("DELETE FROM ledger WHERE seq = ?", (row,)))
    assert fault_of(filled) == row
    filled.write_bytes(sound)
    close_gap = "UPDATE ledger SET seq = seq - 1 WHERE seq > ?"
    spoil(filled, ("DELETE FROM ledger WHERE seq = ?", (row,)), (close_gap, (row,)))
    assert fault_of(filled) == row
    for new in {1, 7, 11} - {row}:
        filled.write_bytes(sound)
        moves = [(99, new), (new, row), (row, 99)]
        spoil(filled, *(("UPDATE ledger SET seq = ? WHERE seq = ?", move) for move in moves))
        assert fault_of(filled) == min(new, row)


def test_rows_that_are_cut_off_or_added_are_found_and_named(filled: Path) -> None:
    sound = filled.read_bytes()
    for left in (0, 5, 10):
        spoil(filled, ("DELETE FROM ledger WHERE seq > ?", (left,)))
        assert fault_of(filled) == left + 1
        with pytest.raises(LedgerFaultError, match=rf"row {left + 1} \(missing\) of the ledger"):
            open_store(filled.parent)
        filled.write_bytes(sound)
    copied = (
        "INSERT INTO ledger SELECT 12, agent, release_index, input_version, charge, time, output, chain FROM ledger"
    )
    spoil(filled, (f"{copied} WHERE seq = 11", ()))
    assert fault_of(filled) == 12
    with pytest.raises(LedgerFaultError, match=r"row 12 \(added\) of the ledger"):
        open_store(filled.parent)


def test_a_name_that_was_changed_is_found(filled: Path) -> None:
    spoil(filled, ("UPDATE agents SET name = 'bill' WHERE number = 1", ()))
    for read in (audit_ledger, agents_budgets):
        with pytest.raises(DamagedStoreError, match="got a fault in agents"):
            read(filled)


def test_the_first_bad_row_is_named_as_its_release(filled: Path) -> None:
    spoil(filled, ("UPDATE ledger SET output = x'00' WHERE seq IN (2, 5)", ()))
    with pytest.raises(LedgerFaultError, match=r"got a fault in row 2 \(bob%20b:1\) of the ledger of"):
        audit_ledger(filled)


def forge(path: Path, change: Callable[[Store], None]) -> None:
    """Change the ledger as somebody who can write the file and knows how it is sealed."""
    store = open_store(path.parent)
    with store.transaction():
        change(store)
    store.close()


def cut_off(store: Store) -> None:
    """Take the last two rows away, and seal what is left."""
    for name in ("ledger_stays", "ledger_keeps"):
        store._database.execute(f"DROP TRIGGER {name}")
    store._database.execute("DELETE FROM ledger WHERE seq > 9")
    head = store.ledger.head()
    (chain,) = store._database.rows("SELECT chain FROM ledger WHERE seq = 9")[0]
    store.put_state("ledger", {**head.plain(), "rows": 9, "chain": chain.hex()})
    store.put_chunk("spent", 0, {"count": np.array([3, 4, 2] + [0] * (CHUNK - 3), np.int32)})
    for name in ("ledger_stays", "ledger_keeps"):
        store._database.execute(TABLES[name])


def test_a_forged_ledger_is_found_by_what_was_noted(filled: Path) -> None:
    before = audit_ledger(filled)
    forge(filled, cut_off)
    cut = audit_ledger(filled)
    assert cut.rows == 9
    for noted in (NotedLedger(rows=11), NotedLedger(head=before.head), NotedLedger(11, before.head)):
        with pytest.raises(OtherLedgerError, match=r"ledger must have .*got (9|none)$"):
            audit_ledger(filled, noted)
    with pytest.raises(OtherLedgerError, match=r"must have the noted head at row 9, got [0-9a-f]{64}"):
        audit_ledger(filled, NotedLedger(9, before.head))
    assert audit_ledger(filled, NotedLedger(9, cut.head)) == cut


def test_a_noted_ledger_stays_a_prefix(filled: Path) -> None:
    notes = [audit_ledger(filled)]
    store = open_store(filled.parent)
    charge(store, rows([0], [4]))
    notes.append(audit_ledger(filled))
    charge(store, rows([0, 1], [5, 6]))
    store.close()
    for note in notes:
        for noted in (NotedLedger(note.rows, note.head), NotedLedger(rows=note.rows), NotedLedger(head=note.head)):
            assert audit_ledger(filled, noted).rows == 14


def test_counts_that_were_sealed_wrongly_are_found(filled: Path) -> None:
    def one_less(store: Store) -> None:
        store.put_chunk("spent", 0, {"count": np.array([2, 5, 3] + [0] * (CHUNK - 3), np.int32)})

    forge(filled, one_less)
    with pytest.raises(DamagedStoreError, match="got a fault in the numbers of charges"):
        audit_ledger(filled)
