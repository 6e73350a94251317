"""Offsets as a restriction: whatever a runner takes away and whenever, each offset is read once, by
any worker."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.pvalue import TaggedOutput
from apache_beam.runners.sdf_utils import RestrictionTrackerView, ThreadsafeRestrictionTracker
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from hypothesis import given
from hypothesis import strategies as st

import meanstream.pipelines.beam.kafka.read_kafka as reading
from meanstream.pipelines.beam.element_types.partition import Marks, Taken
from meanstream.pipelines.beam.kafka.beam_kafka_source import ReadKafka
from meanstream.pipelines.beam.kafka.offsets import (
    UNBOUNDED,
    Claim,
    OffsetRangeCoder,
    OffsetsProvider,
    OffsetsTracker,
)
from meanstream.pipelines.beam.kafka.read_kafka import EventTimeProvider, ReadPartition, ReadRange
from meanstream.streaming.events.event_columns import column_positions
from meanstream.streaming.kafka.connection.values import PartitionRecords
from meanstream.streaming.sources.mapping import ColumnMapping

GAPS = (3, 4, 11)
"""Offsets that hold no record: marks of transactions, or what compaction took."""


class FakeReader:
    """A partition of some records, in place of a broker's."""

    log = "id of the topic"

    def __init__(self, end: int) -> None:
        self.end = end

    def take(self, partition: int, offset: int, count: int, wait: float) -> Taken:
        there = [at for at in range(offset, self.end) if at not in GAPS][:count]
        following = there[-1] + 1 if len(there) == count else self.end
        values: list[bytes | None] = [
            b'{"agent":"a","value":1,"time":%d}' % (100 - at) for at in there
        ]
        return Taken(
            PartitionRecords(np.full(len(there), partition), np.array(there, np.int64), values),
            following,
            True,
        )

    def marks(self, partitions: list[int]) -> dict[int, Marks]:
        return {partition: Marks(0, self.end) for partition in partitions}

    def close(self) -> None:
        """Nothing is open."""


def worker(
    kind: type[ReadRange], end: int, batch: int, unit: str = "user", **more: Any
) -> ReadRange:
    with patch.object(reading, "PartitionReader", lambda *_, **__: FakeReader(end)):
        read = kind(
            "kafka://127.0.0.1:1/t", ColumnMapping(), None, batch, 86_400.0, None, unit, **more
        )
        read.setup()
    return read


def offsets(out: Any) -> list[int]:
    assert not isinstance(out, TaggedOutput)
    return [int(at) for at in column_positions(out.value.position)]


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(1, 5))
def test_cut_anywhere_every_record_is_read_once(cuts: list[int], batch: int) -> None:
    """A new worker goes on from the bytes of each checkpoint, which a runner makes after some
    batches."""
    coder, provider = OffsetRangeCoder(), OffsetsProvider()
    encoded: bytes | None = coder.encode(provider.initial_restriction((0, 1, 15)))
    event_time: Timestamp = EventTimeProvider().initial_estimator_state(
        (0, 1, 15), OffsetRange(1, 15)
    )
    found: list[int] = []
    while encoded is not None:
        tracker = ThreadsafeRestrictionTracker(provider.create_tracker(coder.decode(encoded)))
        watermark = EventTimeProvider().create_watermark_estimator(event_time)
        taken = worker(ReadRange, 20, batch, "sample").process(
            (0, 1, 15), RestrictionTrackerView(tracker), watermark
        )
        encoded = None
        left = cuts.pop() if cuts else 99
        for out in taken:
            found += offsets(out)
            left -= 1
            if left <= 0 and (split := tracker.try_split(0)) is not None:
                encoded = coder.encode(split[1])
        tracker.check_done()
        event_time = watermark.current_watermark()
    assert found == [at for at in range(1, 15) if at not in GAPS]
    assert event_time == Timestamp(99)  # of the newest sample, which came first


def turns(end: int) -> Iterator[tuple[list[int], OffsetRange]]:
    """What each turn of a partition without end reads, by a worker of its own, and what it
    leaves."""
    restriction = OffsetRange(0, UNBOUNDED)
    while True:
        tracker = ThreadsafeRestrictionTracker(OffsetsTracker(restriction))
        watermark = EventTimeProvider().create_watermark_estimator(MIN_TIMESTAMP)
        found = [
            at
            for out in worker(ReadPartition, end, 4).process(
                (0, 0, UNBOUNDED), RestrictionTrackerView(tracker), watermark
            )
            for at in offsets(out)
        ]
        tracker.check_done()
        left = tracker.deferred_status()
        assert left is not None
        restriction = left[0]
        yield found, restriction
        end += 3


def test_a_partition_without_end_goes_on_where_it_was_left() -> None:
    reading = turns(6)
    (first, left), (second, later) = next(reading), next(reading)
    assert (first, left) == ([0, 1, 2, 5], OffsetRange(6, UNBOUNDED))
    assert (second, later) == ([6, 7, 8], OffsetRange(9, UNBOUNDED))


def test_claims_in_another_order_and_offsets_left_out_are_errors() -> None:
    tracker = OffsetsTracker(OffsetRange(2, 9))
    with pytest.raises(ValueError, match="offsets must be claimed in order from 2, got 4"):
        tracker.try_claim(Claim(4, 5))
    claim = Claim(2, 12)
    assert not OffsetsTracker(OffsetRange(2, 2)).try_claim(Claim(2, 3))
    with pytest.raises(
        ValueError, match="offsets from 2 to 9 must be claimed, got an end before them"
    ):
        tracker.check_done()
    assert tracker.try_claim(claim)
    assert claim.following == 9
    tracker.check_done()
    assert tracker.try_split(0) is None
    with pytest.raises(ValueError, match="offsets of a checkpoint must be of version 1, got 2"):
        OffsetRangeCoder().decode(b"\2" + OffsetRangeCoder().encode(OffsetRange(1, 2))[1:])


@pytest.mark.parametrize("turn", [1.0, 10.0, 7.5])
def test_who_has_read_all_lets_a_partition_be_for_the_rest_of_the_turn(turn: float) -> None:
    """Whole seconds are left when Flink's runner hears of it: it drops the rest, and each turn
    costs a name."""
    tracker = ThreadsafeRestrictionTracker(OffsetsTracker(OffsetRange(0, UNBOUNDED)))
    watermark = EventTimeProvider().create_watermark_estimator(MIN_TIMESTAMP)
    list(
        worker(ReadPartition, 6, 4, turn=turn).process(
            (0, 0, UNBOUNDED), RestrictionTrackerView(tracker), watermark
        )
    )
    left = tracker.deferred_status()
    assert left is not None
    assert math.floor(left[1].micros / 1e6) == math.ceil(turn)


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        (0.5, "turn must be in 1..300 s, got 0.5"),
        ("10m", "turn must be in 1..300 s, got 600.0"),
        (
            "soon",
            "turn must be a duration such as 90s, 15m (minutes), 1h, 1d or 2w, got 'soon'",
        ),
        (float("nan"), "turn must be "),
    ],
)
def test_a_turn_is_checked_where_a_pipeline_is_built(turn: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ReadKafka(
            "kafka://127.0.0.1:1/t",
            ColumnMapping(),
            until_end=False,
            turn=turn,
            privacy_unit="sample",
        )


def test_the_last_run_reads_what_is_there_and_ends() -> None:
    tracker = ThreadsafeRestrictionTracker(OffsetsTracker(OffsetRange(6, UNBOUNDED)))
    watermark = EventTimeProvider().create_watermark_estimator(MIN_TIMESTAMP)
    step = worker(ReadPartition, 9, 4, turn=10.0, drain=True)
    out = list(step.process((0, 0, UNBOUNDED), RestrictionTrackerView(tracker), watermark))
    assert [at for one in out for at in offsets(one)] == [6, 7, 8]
    tracker.check_done()
    assert tracker.deferred_status() is None
    with pytest.raises(ValueError, match="drain must be left out where reading ends, got True"):
        ReadKafka("kafka://127.0.0.1:1/t", ColumnMapping(), drain=True)
