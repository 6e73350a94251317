"""Samples leave the buffer by event time, then by the hash of their id, then by position: never by
value."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meanstream.streaming.engine.sample_buffer import EventBuffer, Piece
from meanstream.streaming.events.event_columns import column_position

SAMPLE = st.tuples(
    st.integers(0, 9), st.integers(0, 3), st.booleans()
)  # time, id, whether it has one
BATCHES = st.lists(st.tuples(st.lists(SAMPLE, max_size=20), st.integers(0, 10)), max_size=8)


def piece(*times: float) -> Piece:
    time = np.array(times)
    number = time.astype(np.int64)
    return Piece(number, time, time, number.astype(np.uint64), number).sorted_by_time()


def test_what_comes_after_a_restart_leaves_what_waited_in_its_place() -> None:
    before = EventBuffer()
    for times in ((5.0, 9.0), (3.0, 8.0), (7.0,)):
        before.add(piece(*times))
    before.drain(4.0)
    saved, dropped = before.changes()
    assert dropped == []
    after = EventBuffer()
    for number, columns in saved.items():
        after.restore(number, columns, 4.0)
    after.add(piece(6.0))
    assert set(after.changes()[0]).isdisjoint(saved)  # a row of its own in the store
    assert after.drain(np.inf).time.tolist() == [5.0, 6.0, 7.0, 8.0, 9.0]


SPREAD = (1, 2**62)  # hashes that have the same leading bits, and some that have others


@given(BATCHES, st.sampled_from(SPREAD), st.randoms(use_true_random=False))
def test_the_order_is_that_of_a_plain_sort(
    batches: list[tuple[list[tuple[int, int, bool]], int]], spread: int, rng: object
) -> None:
    buffer, waiting, position, watermark = EventBuffer(), list[tuple[float, int, int]](), 0, 0
    for batch, until in batches:
        rows = [
            (float(time), number * has * spread, position + at)
            for at, (time, number, has) in enumerate(batch)
        ]
        rng.shuffle(rows)  # type: ignore[attr-defined]  # several partitions give positions in any order
        position += len(rows)
        time, key, place = (
            np.array([row[i] for row in rows], kind)
            for i, kind in enumerate((float, np.uint64, int))
        )
        value = -place.astype(np.float64)
        buffer.add(
            Piece(
                place, value, time.astype(np.float64), key.astype(np.uint64), place
            ).sorted_by_time()
        )
        waiting += rows
        watermark = max(watermark, until)
        due = buffer.drain(watermark)
        expected = sorted(row for row in waiting if row[0] < watermark)
        assert due.agent.tolist() == [row[2] for row in expected]
        assert due.time.tolist() == [row[0] for row in expected]
        waiting = [row for row in waiting if row[0] >= watermark]
    assert len(buffer) == len(waiting)


TIMES = (-5.0, -0.0, 0.0, 1.5, 1.7e9, float(np.nextafter(1.7e9, np.inf)), 4e9)
PARTITIONS = (0, 1, 7, 2**19 - 1)


@given(
    st.lists(
        st.tuples(st.sampled_from(TIMES), st.sampled_from(PARTITIONS), st.integers(0, 2**43)),
        unique=True,
    )
)
def test_samples_without_ids_leave_by_time_and_position(rows: list[tuple[float, int, int]]) -> None:
    buffer = EventBuffer()
    for some in (rows[::2], rows[1::2]):
        time, partition, offset = (np.array([row[i] for row in some]) for i in range(3))
        where = column_position(partition.astype(np.int64), offset.astype(np.int64))
        buffer.add(Piece(where, time, time, np.zeros(len(some), np.uint64), where).sorted_by_time())
    due = buffer.drain(np.inf)
    expected = sorted((time, (partition << 44) | offset) for time, partition, offset in rows)
    assert list(zip(due.time.tolist(), due.position.tolist(), strict=True)) == expected
