"""The watermark follows the slowest active partition; lateness is a matter of the own partition."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.watermark import Watermark

arrivals = st.lists(st.tuples(st.integers(0, 2), st.floats(0, 100)), min_size=1, max_size=40)


def late_ones(events: list[tuple[int, float]], batch: int) -> list[tuple[int, float]]:
    """Events that a watermark with lateness 10 finds late, offered so many at a time, with all partitions active."""
    watermark, late = Watermark(10.0), []
    for at in range(0, len(events), batch):
        part = events[at : at + batch]
        partition, time = np.array([p for p, _ in part]), np.array([t for _, t in part])
        late += [event for event, is_late in zip(part, watermark.late(partition, time), strict=True) if is_late]
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
    watermark, newest = Watermark(10.0), dict.fromkeys(range(3), -math.inf)
    for p, t in events:
        assert watermark.late(np.array([p]), np.array([t])).tolist() == [t < newest[p] - 10]
        newest[p] = max(newest[p], t)
        assert watermark.advance([0, 1, 2]) == min(newest.values()) - 10


def test_a_partition_without_data_holds_event_time_back_only_while_it_is_active() -> None:
    watermark = Watermark(0.0)
    watermark.late(np.array([0]), np.array([50.0]))
    assert watermark.advance([0, 1]) == -math.inf
    assert watermark.advance([0]) == 50.0
    assert watermark.late(np.array([1, 1]), np.array([49.0, 50.0])).tolist() == [True, False]
    assert watermark.advance([0, 1]) == 50.0


def test_with_every_partition_idle_it_goes_as_far_as_the_newest() -> None:
    watermark = Watermark(5.0)
    watermark.late(np.array([0, 1]), np.array([50.0, 70.0]))
    assert watermark.advance([]) == 65.0


@pytest.mark.parametrize("newest", [None, 7.5, {"0": 7.5, "3": 9.0}])
def test_states_of_before_and_after_partitions_are_read(newest: object) -> None:
    watermark = Watermark(1.0)
    watermark.restore({"watermark": 6.5, "newest": newest})
    assert watermark.newest == {None: -math.inf, 7.5: 7.5}.get(newest if not isinstance(newest, dict) else 0, 9.0)
    again = Watermark(1.0)
    again.restore(json.loads(json.dumps(watermark.snapshot())))
    assert (again.reached, again.newest) == (watermark.reached, watermark.newest)
