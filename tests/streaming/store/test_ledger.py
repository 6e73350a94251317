"""The ledger: charged once and in order, chained, and any later change of it found and named."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanstream.streaming.agents.agents_budget import agents_budgets
from meanstream.streaming.store.ledger_chain import START
from meanstream.streaming.store.spend_ledger import CHUNK
from meanstream.streaming.store.state_store import DamagedStoreError
from meanstream.streaming.store.store_audit import LedgerReport, NotedLedger, audit_ledger
from tests.streaming.store.conftest import NAMES, charge, open_store, rows
from tests.streaming.store.test_ledger_tampered import repack
from tests.streaming.support.stored_rows import stored_rows


def test_charges_once_and_refuses_another_version(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with store.transaction():
        store.add_agents(0, ["ann"])
    assert charge(store, rows([], [])) == []
    assert charge(store, rows([0, 0], [1, 2], [7, 8])) == []
    assert charge(store, rows([0, 0, 0], [1, 2, 3], [7, 9, 5])) == [1]
    assert charge(store, rows([0, 0, 0, 0], [4, 4, 3, 4], [1, 2, 5, 1])) == [1]
    assert charge(store, rows([0], [2], [9])) == [0]
    assert store.ledger.after(0) == [b"release %d of 0" % i for i in (1, 2, 3, 4)]
    assert (store.ledger.charges(), store.ledger.rows(), store.ledger.last()) == ([(0, 4)], 4, 4)
    assert (store.ledger.head().refused, store.ledger.head().size) == (
        3,
        4 * len(b"release 1 of 0"),
    )
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
    for agent, index in (([0], [0]), ([0, 1], [0, 2])):
        with pytest.raises(ValueError, match="release_index must be at least 1, got 0"):
            charge(store, rows(agent, index))
    with pytest.raises(ValueError, match="agent must be one of 2, got 2"):
        charge(store, rows([2], [1]))
    assert store.ledger.charges() == [(0, 2), (1, 1)]
    assert charge(store, rows([0, 1], [3, 2])) == []
    store.close()
    assert audit_ledger(tmp_path / "s.db").rows == 5


def test_a_transaction_that_failed_charged_nothing(filled: Path) -> None:
    before = audit_ledger(filled)
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
    assert (store.ledger.rows(), store.ledger.after(9)) == (
        11,
        [b"release 3 of 2", b"release 5 of 1"],
    )
    assert store.ledger.charges() == [(0, 3), (1, 5), (2, 3)]
    assert audit_ledger(filled) == before
    with store.transaction():
        store.add_agents(3, ["eve"])
        assert store.ledger.charge(rows([3, 0], [1, 4])) == []
    store.close()
    assert [row.agent for row in agents_budgets(filled).agents] == [*NAMES, "eve"]


def test_what_was_just_charged_and_what_is_read_are_the_same(filled: Path) -> None:
    store = open_store(filled.parent)
    charge(store, rows([0, 0, 1], [4, 5, 6]))
    for seq in (12, 11, 13, 14, 0, 5):
        assert store.ledger.after(seq) == [row[6] for row in stored_rows(filled)][seq:]
    charge(store, rows([0, 1], [6, 7]))
    assert store.ledger.after(15) == [b"release 7 of 1"]
    assert store.ledger.after(15) == [b"release 7 of 1"]
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
    assert audit_ledger(tmp_path / "s.db").rows == charged.sum() + new


@settings(max_examples=30, deadline=None)
@given(
    asked=st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), max_size=6),
        max_size=8,
    )
)
def test_any_order_of_asking_charges_each_release_once(
    asked: list[list[tuple[int, int, bool]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each asks for a new release, or for one that was made up to three before, from the same input
    or another."""
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
        columns = (
            [list(column) for column in zip(*entries, strict=True)] if entries else [[], [], []]
        )
        assert charge(store, rows(*columns)) == refused
    assert store.ledger.charges() == [(a, len(made[a])) for a in range(3) if made[a]]
    store.close()
    assert audit_ledger(folder / "s.db").rows == sum(map(len, made))


def value_by_hand(rows: list[tuple[Any, ...]]) -> bytes:
    """The chain's value after rows of (number, agent, index, version, charge, time, output), from
    its description."""
    value = START
    for first in range(0, len(rows), 4096):
        segment = rows[first : first + 4096]
        names = [NAMES[agent].encode() for _, agent, *_ in segment]
        numbers = b"".join(
            struct.pack(">4qd2q", seq, *numbers, time, len(name), len(output))
            for (seq, _, *numbers, time, output), name in zip(segment, names, strict=True)
        )
        parts = (numbers, b"".join(names), b"".join(row[-1] for row in segment))
        value = hashlib.sha256(
            value + b"".join(hashlib.sha256(part).digest() for part in parts)
        ).digest()
    return value


def test_the_chain_is_what_its_description_says(filled: Path) -> None:
    """Computed by hand from the rows, as an auditor would; each block of the table ends with the
    value there."""
    found = [row[:-1] for row in stored_rows(filled)]
    connection = sqlite3.connect(filled)
    ends = [(last, value_by_hand(found[:last])) for last in (4, 7, 11)]
    assert connection.execute("SELECT last, chain FROM ledger").fetchall() == ends
    connection.close()
    assert audit_ledger(filled) == LedgerReport(rows=11, agents=3, head=ends[-1][1])


def test_the_chain_does_not_hang_on_what_was_charged_together(tmp_path: Path) -> None:
    """Segments end where they do, also within a commit; a store that is opened again goes on within
    one."""
    heads, every = [], [(a, i) for i in range(1, 2800) for a in (0, 1, 2)]
    for size in (len(every), 3000, 4096):
        (tmp_path / str(size)).mkdir()
        for first in range(0, len(every), size):
            store = open_store(tmp_path / str(size))
            if not first:
                with store.transaction():
                    store.add_agents(0, NAMES)
            agent, index = zip(*every[first : first + size], strict=True)
            assert charge(store, rows(list(agent), list(index))) == []
            assert store.ledger.after(first + 1)[0] == b"release %d of %d" % (index[1], agent[1])
            store.close()
        path = tmp_path / str(size) / "s.db"
        heads.append(audit_ledger(path).head)
        assert heads[-1] == value_by_hand([row[:-1] for row in stored_rows(path)])
    assert len(set(heads)) == 1


def test_the_chain_does_not_tell_who_was_seen_first(tmp_path: Path) -> None:
    """Agents are numbered as they are first seen, which in rounds is private."""
    heads = []
    for order in ((0, 1, 2), (2, 0, 1)):
        (tmp_path / str(order)).mkdir()
        store = open_store(tmp_path / str(order))
        with store.transaction():
            store.add_agents(0, [NAMES[number] for number in order])
        for agent in (1, 0, 2):
            one = replace(rows([agent], [1]), agent=[order.index(agent)])
            assert charge(store, one) == []
        store.close()
        heads.append(audit_ledger(tmp_path / str(order) / "s.db").head)
    assert heads[0] == heads[1]


def test_an_empty_ledger_is_sound(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    assert audit_ledger(tmp_path / "s.db") == LedgerReport(0, 0, START)
    assert audit_ledger(tmp_path / "s.db", NotedLedger(rows=0, head=START)).rows == 0
    assert agents_budgets(tmp_path / "s.db").agents == []


@pytest.mark.parametrize("change", ["UPDATE ledger SET chain = x'00'", "DELETE FROM ledger"])
def test_the_table_is_append_only(change: str, filled: Path) -> None:
    connection = sqlite3.connect(filled)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(change)
    connection.close()


def test_a_release_that_was_charged_but_is_not_there_is_no_new_one(filled: Path) -> None:
    """The counts say that it was charged: it must not be charged, and noised, again."""
    repack(filled, 11, "release_index", 7)
    store = open_store(filled.parent)
    with pytest.raises(DamagedStoreError), store.transaction():
        store.ledger.charge(rows([1], [5]))
    store.close()


def test_budgets_as_of_a_time_count_the_rows_up_to_it(filled: Path) -> None:
    now = agents_budgets(filled)
    assert [(row.agent, row.spent, row.remaining) for row in now.agents] == [
        ("ann", 3, 6),
        ("bob b", 5, 4),
        ("żaneta", 3, 6),
    ]
    assert (
        now.summary.agents,
        now.summary.spent_max,
        now.summary.at_horizon,
        now.summary.refused,
    ) == (3, 5, 0, 0)
    for at, spent in (
        (0.0, [0, 0, 0]),
        (10.0, [1, 0, 0]),
        (22.0, [2, 2, 2]),
        (30.9999996, [3, 3, 2]),
        (99.0, [3, 5, 3]),
    ):
        then = agents_budgets(filled, as_of=at)
        assert [row.spent for row in then.agents] == spent
        assert then.summary.spent_max == max(spent)
        assert then.summary.refused is None


def test_budgets_count_refusals_and_horizons(filled: Path) -> None:
    store = open_store(filled.parent)
    assert charge(store, rows([1, 1, 1, 1, 0], [6, 7, 8, 9, 2], [1, 1, 1, 1, 1])) == [4]
    store.close()
    summary = agents_budgets(filled).summary
    assert (summary.spent_max, summary.horizon, summary.at_horizon, summary.refused) == (9, 9, 1, 1)
