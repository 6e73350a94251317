"""The ledger: charged once and in order, chained, and any later change of it found and named."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.budget import budgets
from streaming.store.audit import LedgerReport, NotedLedger, OtherLedgerError, verify_ledger
from streaming.store.chain import START
from streaming.store.layout import NEW_IN_2
from streaming.store.ledger import CHUNK, LedgerRows
from streaming.store.ledger_reader import LedgerFaultError
from streaming.store.store import DamagedStoreError, Store

SECRET = b"a secret of more than sixteen bytes"
SETTINGS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "horizon": 9}
NAMES = ["ann", "bob b", "żaneta"]


def open_store(folder: Path) -> Store:
    return Store.open(folder / "s.db", settings=SETTINGS, secret=SECRET)


def rows(agent: list[int], index: list[int], version: list[int] | None = None) -> LedgerRows:
    return LedgerRows(
        release_id=[f"{a}:{i}" for a, i in zip(agent, index, strict=True)],
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


# -- charging ------------------------------------------------------------------------------------------------


def test_charges_once_and_refuses_another_version(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with store.transaction():
        store.add_agents(0, ["ann"])
    assert charge(store, rows([], [])) == []
    assert charge(store, rows([0, 0], [1, 2], [7, 8])) == []
    assert charge(store, rows([0, 0, 0], [1, 2, 3], [7, 9, 5])) == [1]
    assert charge(store, rows([0, 0, 0, 0], [4, 4, 3, 4], [1, 2, 5, 1])) == [1]
    assert charge(store, rows([0], [2], [9])) == [0]
    assert [output for _, output in store.ledger.after(0)] == [b"release %d of 0" % i for i in (1, 2, 3, 4)]
    assert (store.ledger.charges(), store.ledger.rows(), store.ledger.last()) == ([(0, 4)], 4, 4)
    assert (store.ledger.head().refused, store.ledger.head().size) == (3, 4 * len(b"release 1 of 0"))
    store.close()
    store = open_store(tmp_path)
    assert charge(store, rows([0, 0], [1, 5], [6, 1])) == [0]
    assert (store.ledger.rows(), store.ledger.head().refused) == (5, 4)
    store.close()


def test_releases_are_charged_in_their_order(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with store.transaction():
        store.add_agents(0, ["ann", "bob"])
    charge(store, rows([0, 1, 0], [1, 1, 2]))
    for agent, index in (([0], [4]), ([1, 0], [2, 4]), ([1, 1], [3, 2])):
        with pytest.raises(ValueError, match="release_index must be the next one of agent"):
            charge(store, rows(agent, index))
    with pytest.raises(ValueError, match="release_index must be at least 1, got 0"):
        charge(store, rows([0], [0]))
    with pytest.raises(ValueError, match="agent must be one of 2, got 2"):
        charge(store, rows([2], [1]))
    assert store.ledger.charges() == [(0, 2), (1, 1)]
    assert charge(store, rows([0, 1], [3, 2])) == []
    store.close()
    assert verify_ledger(tmp_path / "s.db").rows == 5


def test_a_transaction_that_failed_charged_nothing(filled: Path) -> None:
    before = verify_ledger(filled)
    store = open_store(filled.parent)
    store.ledger.charges()

    def fail() -> None:
        with store.transaction():
            store.add_agents(3, ["dan"])
            store.ledger.charge(rows([3, 0], [1, 4]))
            raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            fail()
    assert (store.ledger.rows(), store.ledger.after(9)) == (11, [(10, b"release 3 of 2"), (11, b"release 5 of 1")])
    assert store.ledger.charges() == [(0, 3), (1, 5), (2, 3)]
    assert verify_ledger(filled) == before
    with store.transaction():
        store.add_agents(3, ["eve"])
        assert store.ledger.charge(rows([3, 0], [1, 4])) == []
    store.close()
    assert [row.agent for row in budgets(filled).agents] == [*NAMES, "eve"]


def test_what_was_just_charged_and_what_is_read_are_the_same(filled: Path) -> None:
    store = open_store(filled.parent)
    charge(store, rows([0, 0, 1], [4, 5, 6]))
    for seq in (12, 11, 13, 14, 0, 5):
        charged = [(i + 1, o) for i, o in enumerate(_column(filled, "output")) if i >= seq]
        assert store.ledger.after(seq) == charged
    charge(store, rows([0, 1], [6, 7]))
    assert store.ledger.after(15) == [(16, b"release 7 of 1")]
    assert store.ledger.after(15) == [(16, b"release 7 of 1")]
    with pytest.raises(DamagedStoreError):
        store.ledger.after(17)
    store.close()


def test_many_agents(tmp_path: Path) -> None:
    """More agents than counts are saved of at once, and more rows than are read at once."""
    n = 2 * CHUNK + 5
    rng = np.random.default_rng(1)
    store = open_store(tmp_path)
    with store.transaction():
        store.add_agents(0, [f"agent {i}" for i in range(n)])
    charged = np.zeros(n, np.int64)
    for _ in range(3):
        who = rng.permutation(n)[: rng.integers(1, n)]
        charged[who] += 1
        assert charge(store, rows(who.tolist(), charged[who].tolist())) == []
    assert store.ledger.charges() == [(int(i), int(charged[i])) for i in np.flatnonzero(charged)]
    again = [*range(0, n, 7)]
    index = np.maximum(charged[again], 1).tolist()
    new = int(np.count_nonzero(charged[again] == 0))
    assert charge(store, rows(again, index)) == []
    assert store.ledger.rows() == charged.sum() + new
    store.close()
    assert verify_ledger(tmp_path / "s.db").rows == charged.sum() + new


@settings(max_examples=30, deadline=None)
@given(asked=st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), max_size=6), max_size=8))
def test_any_order_of_asking_charges_each_release_once(
    asked: list[list[tuple[int, int, bool]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each asks for a new release, or for one that was made up to three before, from the same input or another."""
    folder = tmp_path_factory.mktemp("asked")
    store = open_store(folder)
    with store.transaction():
        store.add_agents(0, NAMES)
    made: list[list[int]] = [[], [], []]
    for batch in asked:
        entries, refused = [], []
        for agent, back, same in batch:
            index = max(len(made[agent]) + 1 - back, 1)
            new = index > len(made[agent])
            if new:
                made[agent].append(index)
            elif not same:
                refused.append(len(entries))
            entries.append((agent, index, 7 if new or same else 8))
        columns = [list(column) for column in zip(*entries, strict=True)] if entries else [[], [], []]
        assert charge(store, rows(*columns)) == refused
    assert store.ledger.charges() == [(a, len(made[a])) for a in range(3) if made[a]]
    store.close()
    assert verify_ledger(folder / "s.db").rows == sum(map(len, made))


# -- the chain -----------------------------------------------------------------------------------------------


def test_the_chain_is_what_its_description_says(filled: Path) -> None:
    """Computed by hand from the table, as an auditor would."""
    connection = sqlite3.connect(filled)
    chain = START
    for *numbers, time, output, stored in connection.execute(
        "SELECT seq, agent, release_index, input_version, charge, time, output, chain FROM ledger ORDER BY seq"
    ):
        name = NAMES[numbers[1]].encode()
        chain = hashlib.sha256(chain + struct.pack(">5qdq", *numbers, time, len(name)) + name + output).digest()
        assert stored == chain
    connection.close()
    assert verify_ledger(filled) == LedgerReport(rows=11, agents=3, head=chain)


def test_an_empty_ledger_is_sound(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    assert verify_ledger(tmp_path / "s.db") == LedgerReport(0, 0, START)
    assert verify_ledger(tmp_path / "s.db", NotedLedger(rows=0, head=START)).rows == 0
    assert budgets(tmp_path / "s.db").agents == []


@pytest.mark.parametrize("change", ["UPDATE ledger SET charge = 0", "DELETE FROM ledger"])
def test_the_table_is_append_only(change: str, filled: Path) -> None:
    connection = sqlite3.connect(filled)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(change)
    connection.close()


# -- known-bad twins -----------------------------------------------------------------------------------------


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
        verify_ledger(path)
    with pytest.raises(DamagedStoreError):
        budgets(path)
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
    for row in (1, 6, 11):
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
    for read in (verify_ledger, budgets):
        with pytest.raises(DamagedStoreError, match="got a fault in agents"):
            read(filled)


def test_the_first_bad_row_is_named_as_its_release(filled: Path) -> None:
    spoil(filled, ("UPDATE ledger SET output = x'00' WHERE seq IN (2, 5)", ()))
    with pytest.raises(LedgerFaultError, match=r"got a fault in row 2 \(bob%20b:1\) of the ledger of"):
        verify_ledger(filled)


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
        store._database.execute(NEW_IN_2[name])


def test_a_forged_ledger_is_found_by_what_was_noted(filled: Path) -> None:
    before = verify_ledger(filled)
    forge(filled, cut_off)
    cut = verify_ledger(filled)
    assert cut.rows == 9
    for noted in (NotedLedger(rows=11), NotedLedger(head=before.head), NotedLedger(11, before.head)):
        with pytest.raises(OtherLedgerError, match=r"ledger must have .*got (9|none)$"):
            verify_ledger(filled, noted)
    with pytest.raises(OtherLedgerError, match=r"must have the noted head at row 9, got [0-9a-f]{64}"):
        verify_ledger(filled, NotedLedger(9, before.head))
    assert verify_ledger(filled, NotedLedger(9, cut.head)) == cut


def test_a_noted_ledger_stays_a_prefix(filled: Path) -> None:
    notes = [verify_ledger(filled)]
    store = open_store(filled.parent)
    charge(store, rows([0], [4]))
    notes.append(verify_ledger(filled))
    charge(store, rows([0, 1], [5, 6]))
    store.close()
    for note in notes:
        for noted in (NotedLedger(note.rows, note.head), NotedLedger(rows=note.rows), NotedLedger(head=note.head)):
            assert verify_ledger(filled, noted).rows == 14


def test_counts_that_were_sealed_wrongly_are_found(filled: Path) -> None:
    def one_less(store: Store) -> None:
        store.put_chunk("spent", 0, {"count": np.array([2, 5, 3] + [0] * (CHUNK - 3), np.int32)})

    forge(filled, one_less)
    with pytest.raises(DamagedStoreError, match="got a fault in the numbers of charges"):
        verify_ledger(filled)


def test_a_release_that_was_charged_but_is_not_there_is_no_new_one(filled: Path) -> None:
    """The counts say that it was charged: it must not be charged, and noised, again."""
    spoil(filled, ("UPDATE ledger SET release_index = 7 WHERE seq = 11", ()))
    store = open_store(filled.parent)
    with pytest.raises(DamagedStoreError), store.transaction():
        store.ledger.charge(rows([1], [5]))
    store.close()


# -- budgets -------------------------------------------------------------------------------------------------


def test_budgets_as_of_a_time_count_the_rows_up_to_it(filled: Path) -> None:
    now = budgets(filled)
    assert [(row.agent, row.spent, row.remaining) for row in now.agents] == [
        ("ann", 3, 6),
        ("bob b", 5, 4),
        ("żaneta", 3, 6),
    ]
    assert (now.summary.agents, now.summary.spent_max, now.summary.at_horizon, now.summary.refused) == (3, 5, 0, 0)
    for at, spent in (
        (0.0, [0, 0, 0]),
        (10.0, [1, 0, 0]),
        (22.0, [2, 2, 2]),
        (30.9999996, [3, 3, 2]),
        (99.0, [3, 5, 3]),
    ):
        then = budgets(filled, as_of=at)
        assert [row.spent for row in then.agents] == spent
        assert then.summary.spent_max == max(spent)
        assert then.summary.refused is None


def test_budgets_count_refusals_and_horizons(filled: Path) -> None:
    store = open_store(filled.parent)
    assert charge(store, rows([1, 1, 1, 1, 0], [6, 7, 8, 9, 2], [1, 1, 1, 1, 1])) == [4]
    store.close()
    summary = budgets(filled).summary
    assert (summary.spent_max, summary.horizon, summary.at_horizon, summary.refused) == (9, 9, 1, 1)
