"""The watermark follows the slowest active partition; lateness is a matter of the own partition."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meanstream.streaming.engine import watermark as module
from meanstream.streaming.engine.watermark import ALONE, Watermark

arrivals = st.lists(st.tuples(st.integers(0, 2), st.floats(0, 100)), min_size=1, max_size=40)


def late_ones(events: list[tuple[int, float]], batch: int) -> list[tuple[int, float]]:
    """Events that a watermark with lateness 10 finds late, offered so many at a time, with all
    partitions active."""
    watermark, late = Watermark(10.0, quorum=1), []
    for at in range(0, len(events), batch):
        part = events[at : at + batch]
        partition, time = np.array([p for p, _ in part]), np.array([t for _, t in part])
        late += [
            event
            for event, is_late in zip(part, watermark.late(partition, time), strict=True)
            if is_late
        ]
        watermark.advance([0, 1, 2])
    return sorted(late)


@given(arrivals, st.integers(1, 7), st.randoms(use_true_random=False))
def test_neither_batches_nor_the_interleaving_of_partitions_decide_what_is_late(
    events: list[tuple[int, float]], batch: int, random: object
) -> None:
    one_after_the_other = [event for p in range(3) for event in events if event[0] == p]
    queues = [[e for e in events if e[0] == p] for p in range(3)]
    shuffled = []
    while any(queues):
        queue = random.choice([q for q in queues if q])  # type: ignore[attr-defined]
        shuffled.append(queue.pop(0))
    expected = late_ones(one_after_the_other, len(events))
    assert late_ones(events, batch) == expected
    assert late_ones(shuffled, batch) == expected


@given(arrivals)
def test_against_the_definition(events: list[tuple[int, float]]) -> None:
    watermark, newest = Watermark(10.0, quorum=1), dict.fromkeys(range(3), -math.inf)
    for p, t in events:
        assert watermark.late(np.array([p]), np.array([t])).tolist() == [t < newest[p] - 10]
        newest[p] = max(newest[p], t)
        assert watermark.advance([0, 1, 2]) == min(newest.values()) - 10


def test_a_partition_without_data_holds_event_time_back_only_while_it_is_active() -> None:
    watermark = Watermark(0.0, quorum=1)
    watermark.late(np.array([0]), np.array([50.0]))
    assert watermark.advance([0, 1]) == -math.inf
    assert watermark.advance([0]) == 50.0
    assert watermark.late(np.array([1, 1]), np.array([49.0, 50.0])).tolist() == [True, False]
    assert watermark.advance([0, 1]) == 50.0


def test_with_every_partition_idle_it_goes_as_far_as_the_newest() -> None:
    watermark = Watermark(5.0, quorum=1)
    watermark.late(np.array([0, 1]), np.array([50.0, 70.0]))
    assert watermark.advance([]) == 65.0


@pytest.mark.parametrize("newest", [None, 7.5, {"0": 7.5, "3": 9.0}])
def test_states_of_before_and_after_partitions_are_read(newest: object) -> None:
    watermark = Watermark(1.0, quorum=1)
    watermark.restore({"watermark": 6.5, "newest": newest})
    assert watermark.newest == {None: -math.inf, 7.5: 7.5}.get(
        newest if not isinstance(newest, dict) else 0, 9.0
    )
    again = Watermark(1.0, quorum=1)
    again.restore(json.loads(json.dumps(watermark.snapshot())))
    assert (again.reached, again.newest) == (watermark.reached, watermark.newest)


def agreed(events: list[tuple[int, float]]) -> float:
    """The second of everybody's newest times."""
    newest: dict[int, float] = {}
    for sender, time in events:
        newest[sender] = max(newest.get(sender, -math.inf), time)
    return sorted([-math.inf, -math.inf, *newest.values()])[-2]


@given(arrivals, st.integers(1, 7))
def test_a_quorum_of_two_is_the_second_newest_of_all_senders(
    events: list[tuple[int, float]], batch: int
) -> None:
    watermark, at = Watermark(10.0, quorum=2), 0
    for at in range(0, len(events), batch):
        part = events[at : at + batch]
        sender, time = np.array([s for s, _ in part], np.uint64), np.array([t for _, t in part])
        late = watermark.late(np.zeros(len(part), np.int64), time, sender)
        expected = [t < agreed(events[: at + i]) - 10 for i, (_, t) in enumerate(part)]
        assert late.tolist() == expected
        assert watermark.advance([0]) == agreed(events[: at + batch]) - 10
        again = Watermark(10.0, quorum=2)
        again.restore(json.loads(json.dumps(watermark.snapshot())))
        watermark = again
    assert watermark.finish() > max(time for _, time in events)


@pytest.mark.parametrize("fast", [7200.0, 100 * 365.25 * 86400])
@pytest.mark.parametrize("quorum", [1, 2])
def test_one_fast_clock_makes_nobody_late(fast: float, quorum: int) -> None:
    senders = np.arange(3000, dtype=np.uint64) % 30
    time = np.arange(3000.0) + np.where(senders == 7, fast, 0.0)
    late = Watermark(3600.0, quorum=quorum).late(np.zeros(3000, np.int64), time, senders)
    assert late.any() == (quorum == 1)  # the maximum of one sender is the known-bad twin


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from([0.0, 0.0, 1.0, 2.0]), st.integers(1, 7)),
        min_size=1,
    )
)
def test_the_last_samples_of_a_batch_in_order_decide_as_all_do(
    steps: list[tuple[int, float, int]],
) -> None:
    """Runs of a sender, some of equal times, in batches; a sender speaks for itself after three."""
    sender = np.repeat([who for who, _, _ in steps], [run for _, _, run in steps]).astype(np.uint64)
    time = np.cumsum(np.repeat([step for _, step, _ in steps], [run for _, _, run in steps]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ALONE", 3)
        states = []
        for tail in (2, 5, 10**9):
            patch.setattr(module, "TAIL", tail)
            watermark = Watermark(10.0, quorum=2)
            for at in range(0, len(time), 11):
                assert not watermark.late(
                    np.zeros(11, np.int64), time[at : at + 11], sender[at : at + 11]
                ).any()
            states.append(watermark.snapshot())
    assert states[0] == states[1] == states[2]


def test_a_sender_that_is_alone_speaks_for_itself() -> None:
    watermark = Watermark(0.0, quorum=2)
    zeros, one = np.zeros(ALONE, np.int64), np.full(ALONE, 5, np.uint64)
    watermark.late(zeros[:1], np.array([3.0]), one[:1] + np.uint64(1))
    watermark.late(zeros[1:], np.arange(ALONE - 1.0), one[1:])
    assert watermark.advance([0]) == 3.0
    watermark.late(zeros[:1], np.array([float(ALONE)]), one[:1])
    assert watermark.advance([0]) == ALONE


def test_a_partition_with_one_sender_moves_as_far_as_one_of_another_partition_has_come() -> None:
    """Six agents on four partitions: none waits for a thousand records, and a fast clock still
    moves nobody."""
    watermark = Watermark(10.0, quorum=2)
    senders = np.array([7, 8, 9, 7, 8, 9], np.uint64)
    partition, time = (
        np.array([0, 1, 2, 0, 1, 2]),
        np.array([100.0, 101.0, 102.0, 130.0, 131.0, 132.0]),
    )
    assert not watermark.late(partition, time, senders).any()
    assert watermark.advance([0, 1, 2]) == 120.0
    fast = watermark.late(np.array([0, 0]), np.array([700.0, 701.0]), np.array([7, 7], np.uint64))
    assert not fast.any()
    assert watermark.advance([0, 1, 2]) == 121.0, "the slowest of the others"
    assert watermark.advance([0]) == 122.0, "as far as another has come"
    again = Watermark(10.0, quorum=2)
    again.restore(json.loads(json.dumps(watermark.snapshot())))
    assert again.advance([0]) == 122.0
    moved = Watermark(10.0, quorum=2)  # one agent in two partitions is no second one
    moved.late(np.array([0, 1]), np.array([500.0, 600.0]), np.array([7, 7], np.uint64))
    assert moved.advance([0, 1]) == -math.inf


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.floats(0, 100), st.integers(1, 4)), min_size=1, max_size=12
    )
)
def test_the_watermark_passes_no_time_that_fewer_than_two_senders_have_reached(
    events: list[tuple[int, float, int]],
) -> None:
    watermark = Watermark(0.0, quorum=2)
    for partition, time, sender in events:
        watermark.late(np.array([partition]), np.array([time]), np.array([sender], np.uint64))
    reached = watermark.advance(sorted({p for p, _, _ in events}))
    newest = {s: max(t for _, t, one in events if one == s) for _, _, s in events}
    assert reached == -math.inf or sum(time >= reached for time in newest.values()) >= 2
