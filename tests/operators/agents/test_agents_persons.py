"""At most K samples of a person count within an agent: against a plain dictionary, over any cut,
restart and bound."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meanstream.operators.agents.admission import (
    COUNTS,
    OVER_PERSON,
    TOO_MANY_PERSONS,
    PersonCounts,
    order_by_hash,
)

SAMPLES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=60)


def words(samples: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    agent, person = np.array(samples, np.uint64).reshape(-1, 2).T
    scale = np.uint64(0x9E3779B97F4A7C15)
    return agent * scale, (person + np.uint64(7)) * np.uint64(0xC2B2AE3D27D4EB4F)


def by_hand(samples: list[tuple[int, int]], limit: int, most: int) -> list[int]:
    counted: Counter[tuple[int, int]] = Counter()
    fates = []
    for one in samples:
        if not counted[one] and sum(n > 0 for n in counted.values()) >= most:
            fates.append(TOO_MANY_PERSONS)
        elif counted[one] >= limit:
            fates.append(OVER_PERSON)
        else:
            counted[one] += 1
            fates.append(COUNTS)
    return fates


@given(SAMPLES, st.integers(1, 4), st.integers(0, 12), st.lists(st.integers(0, 60), max_size=6))
def test_any_cut_into_batches_and_any_restart_is_the_plain_count(
    samples: list[tuple[int, int]], limit: int, most: int, cuts: list[int]
) -> None:
    counts, store, fates = PersonCounts(limit, most=most), {}, []
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), 60], strict=True):
        fates += counts.take(*words(samples[start:stop])).tolist()
        new, dropped = counts.changes()
        store.update(new)
        for number in dropped:
            del store[number]
        counts = PersonCounts(limit, most=most)
        for number, columns in store.items():
            counts.restore(number, columns)
    assert fates == by_hand(samples, limit, most)
    assert len(counts) == min(len(set(samples)), most)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)), max_size=70))
def test_hashes_are_ordered_stably_where_their_leading_bits_are_equal(
    parts: list[tuple[int, int, int]],
) -> None:
    key = np.array([(high << 62) + (middle << 30) + low for high, middle, low in parts], np.uint64)
    assert order_by_hash(key).tolist() == np.argsort(key, kind="stable").tolist()


def test_what_is_written_is_the_logarithm_of_the_persons() -> None:
    """A person is written again only when its run is merged: 14 times at most in 2**14 commits of
    one person each."""
    counts, pieces, written = PersonCounts(3), 0, 0
    n = 1 << 12
    for person in range(n):
        counts.take(
            np.zeros(1, np.uint64), np.array([person * 0x9E3779B97F4A7C15 % 2**64], np.uint64)
        )
        new, dropped = counts.changes()
        pieces += len(new) - len(dropped)
        written += sum(len(columns["key"]) for columns in new.values())
    assert pieces <= 13
    assert written <= 13 * n


def test_a_flood_of_persons_changes_nothing_for_those_who_are_known() -> None:
    counts = PersonCounts(2, most=3)
    ward = np.zeros(3, np.uint64)
    assert counts.take(ward, np.arange(3, dtype=np.uint64)).tolist() == [COUNTS] * 3
    flood = np.arange(100, 200, dtype=np.uint64)
    assert set(counts.take(np.zeros(100, np.uint64), flood).tolist()) == {TOO_MANY_PERSONS}
    assert counts.take(ward, np.arange(3, dtype=np.uint64)).tolist() == [COUNTS] * 3
    assert counts.take(ward, np.arange(3, dtype=np.uint64)).tolist() == [OVER_PERSON] * 3
    assert len(counts) == 3


@pytest.mark.parametrize("limit", [1, 65_535])
def test_the_limit_is_kept_at_the_ends_of_its_range(limit: int) -> None:
    counts, n = PersonCounts(limit), 70_000
    first = counts.take(np.zeros(n, np.uint64), np.full(n, 9, np.uint64))
    assert int((first == COUNTS).sum()) == limit
    assert set(counts.take(np.zeros(5, np.uint64), np.full(5, 9, np.uint64)).tolist()) == {
        OVER_PERSON
    }
    piece = PersonCounts(limit)
    piece.restore(0, counts.whole())
    assert set(piece.take(np.zeros(5, np.uint64), np.full(5, 9, np.uint64)).tolist()) == {
        OVER_PERSON
    }


@given(SAMPLES, SAMPLES, SAMPLES)
def test_a_copy_that_comes_back_counts_what_was_counted_since_and_nothing_twice(
    before: list[tuple[int, int]], since: list[tuple[int, int]], again: list[tuple[int, int]]
) -> None:
    """A store that is given another's counts, an older copy of them or its own, goes on as the one
    that has all."""
    here, there = PersonCounts(3), PersonCounts(3)
    here.take(*words(before))
    there.count_at_least(here.whole())
    there.take(*words(since))
    here.count_at_least(there.whole())
    here.count_at_least(there.whole())
    whole = PersonCounts(3)
    whole.take(*words([*before, *since]))
    assert here.take(*words(again)).tolist() == whole.take(*words(again)).tolist()
    assert len(here) == len(whole)
