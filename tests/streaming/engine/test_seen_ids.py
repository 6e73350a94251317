"""Ids that were seen, against a plain dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meanstream.streaming.engine.seen_ids import SeenIds

BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 40), st.floats(0, 100)), max_size=30),  # id, event time
        st.floats(0, 100),  # forget before
        st.booleans(),  # save and restore
    ),
    max_size=12,
)


def columns(batch: list[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([k for k, _ in batch], np.uint64), np.array([t for _, t in batch], np.float64)


@given(BATCHES)
def test_duplicates_are_those_of_a_dictionary(
    batches: list[tuple[list[tuple[int, float]], float, bool]],
) -> None:
    seen, plain, before = SeenIds(), dict[int, float](), -np.inf
    for batch, until, _ in batches:
        key, time = columns(batch)
        expected, here = [], set[int]()
        for one in key.tolist():
            expected.append(one in here or plain.get(one, np.nan) >= before)
            here.add(one)
        again = seen.duplicates(key)
        assert again.tolist() == expected
        assert seen.known(key).tolist() == [
            plain.get(one, np.nan) >= before for one in key.tolist()
        ]
        seen.add(key[~again], time[~again])
        plain.update(zip(key[~again].tolist(), time[~again].tolist(), strict=True))
        before = max(before, until)
        seen.forget(until)
        assert len(seen) == sum(at >= before for at in plain.values())


@given(BATCHES)
def test_what_was_saved_is_known_again(
    batches: list[tuple[list[tuple[int, float]], float, bool]],
) -> None:
    seen, store = SeenIds(), dict[int, dict[str, np.ndarray]]()
    for batch, until, save in batches:
        key, time = columns(batch)
        again = seen.duplicates(key)
        seen.add(key[~again], time[~again])
        seen.forget(until)
        if save:
            new, dropped = seen.changes()
            store.update(new)
            for number in dropped:
                del store[number]
    new, dropped = seen.changes()
    store.update(new)
    for number in dropped:
        del store[number]
    restored = SeenIds()
    for number in sorted(store):
        restored.restore(number, store[number])
    everything = np.arange(41, dtype=np.uint64)
    assert not np.any(seen.known(everything) & ~restored.known(everything))
    new, dropped = restored.changes()
    assert not new
    assert not dropped
    restored.add(np.array([99], np.uint64), np.array([1.0]))
    assert not restored.changes()[0].keys() & store.keys()


def test_the_oldest_go_where_there_are_too_many() -> None:
    seen = SeenIds(max_ids=100)
    for start in range(0, 1000, 10):
        seen.add(
            np.arange(start, start + 10, dtype=np.uint64),
            np.arange(start, start + 10, dtype=np.float64),
        )
        seen.forget(0.0)
        assert len(seen) <= 125
    known = seen.known(np.arange(1000, dtype=np.uint64))
    assert known[-100:].all()
    assert not known[:875].any()


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_runs_stay_few(batch: int) -> None:
    seen = SeenIds()
    rng = np.random.default_rng(batch)
    for _ in range(300):
        seen.add(rng.integers(0, 2**63, batch).astype(np.uint64), rng.uniform(0, 1, batch))
        seen.forget(0.0)
    assert len(seen._runs) <= 1 + np.log2(300)
    assert sum(len(run.key) for run in seen._runs) == 300 * batch


def test_where_there_are_too_many_the_newest_stay() -> None:
    time = np.random.default_rng(4).permutation(300).astype(np.float64)  # in no order
    seen = SeenIds(max_ids=100)
    seen.add(time.astype(np.uint64), time)
    seen.forget(-np.inf)
    assert time[seen.known(time.astype(np.uint64))].min() == 200.0
    assert seen.known(time.astype(np.uint64)).sum() == 100
