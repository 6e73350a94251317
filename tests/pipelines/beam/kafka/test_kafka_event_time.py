"""Event time of a Kafka partition on Beam: it passes a partition in which nothing has come for
long, and no other."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp

from meanstream.pipelines.beam.element_types.partition import Marks, Taken
from meanstream.pipelines.beam.input.parse_lines import PrivacyUnit
from meanstream.pipelines.beam.kafka import read_kafka as read
from meanstream.pipelines.beam.kafka.offsets import UNBOUNDED, OffsetsTracker
from meanstream.pipelines.beam.kafka.read_kafka import ReadPartition
from meanstream.streaming.kafka.connection.values import PartitionRecords
from meanstream.streaming.sources.mapping import ColumnMapping

IDLE_SECONDS = 10.0
STARTED, EPOCH = 500.0, 1e9
"""What the monotonic clock and the wall clock show at first."""


class Tracker(OffsetsTracker):
    """Offsets whose remainder nobody takes away."""

    def defer_remainder(self, deferred_time: Any = None) -> None:
        """Give the rest back."""


class Partitions:
    """A topic, a clock, and turns of one worker on its partitions."""

    log = "id of the topic"

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        idle_seconds: float | None,
        unit: PrivacyUnit = "sample",
    ) -> None:
        self.passed = 0.0
        self.before_take: Callable[[], None] = lambda: None
        clock = SimpleNamespace(
            monotonic=lambda: STARTED + self.passed, time=lambda: EPOCH + self.passed
        )
        monkeypatch.setattr(read, "time", clock)
        self.records: dict[int, list[bytes]] = {0: [], 1: []}
        self.watermark = {p: ManualWatermarkEstimator(MIN_TIMESTAMP) for p in self.records}
        self._trackers = {p: Tracker(OffsetRange(0, UNBOUNDED)) for p in self.records}
        self._worker = ReadPartition(
            "kafka://nobody:1/topic", ColumnMapping(), None, 10, 1e9, idle_seconds, unit
        )
        self._worker._name, self._worker._silent_since = "topic", {}
        self._worker._reader = self
        self._worker._parser = read.MessageParser(ColumnMapping(), None, 1e9, unit)

    def marks(self, partitions: list[int]) -> dict[int, Marks]:
        return {p: Marks(0, len(self.records[p])) for p in partitions}

    def take(self, partition: int, at: int, most: int, _seconds: float) -> Taken:
        self.before_take()
        values = self.records[partition][at : at + most]
        offsets = np.arange(at, at + len(values))
        return Taken(
            PartitionRecords(np.full(len(values), partition), offsets, values),
            at + len(values),
            ended=not values,
        )

    def turn(self, partition: int, passed: float) -> Timestamp:
        """Let the worker look at a partition once, so many seconds after the beginning."""
        self.passed = passed
        tracker = self._trackers[partition]
        tracker._range = OffsetRange(tracker._next, UNBOUNDED)  # a checkpoint: the rest of the rest
        list(self._worker.process((partition, 0, UNBOUNDED), tracker, self.watermark[partition]))
        return self.watermark[partition].current_watermark()


def sample(at: float) -> bytes:
    return b'{"agent": "ann", "value": 1.0, "time": %r, "id": "%r"}' % (at, at)


def test_event_time_passes_a_partition_only_after_it_was_silent_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = Partitions(monkeypatch, IDLE_SECONDS)
    assert topic.turn(0, 3.0) == MIN_TIMESTAMP  # silence is counted from the first look on
    assert topic.turn(0, 12.9) == MIN_TIMESTAMP
    assert topic.turn(0, 13.0) == Timestamp(EPOCH + 3.0)
    assert topic.turn(0, 15.0) == Timestamp(EPOCH + 5.0)
    assert topic.turn(1, 15.0) == MIN_TIMESTAMP  # each partition has a silence of its own


def test_a_record_ends_the_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Partitions(monkeypatch, IDLE_SECONDS)
    topic.turn(0, 0.0)
    topic.records[0].append(sample(EPOCH - 500.0))
    assert topic.turn(0, 9.0) == Timestamp(EPOCH - 500.0)
    assert topic.turn(0, 18.9) == Timestamp(EPOCH - 500.0)
    assert topic.turn(0, 19.0) == Timestamp(EPOCH + 9.0)
    topic.records[0].append(sample(EPOCH - 400.0))
    assert topic.turn(0, 20.0) == Timestamp(EPOCH + 9.0)  # event time never goes back


def test_a_batch_is_at_the_time_of_its_oldest_record_and_event_time_at_that_of_its_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = Partitions(monkeypatch, None)
    topic.records[0] += [sample(EPOCH - ago) for ago in (300.0, 500.0, 400.0)]
    tracker = Tracker(OffsetRange(0, UNBOUNDED))
    (batch,) = topic._worker.process((0, 0, UNBOUNDED), tracker, topic.watermark[0])
    assert batch.timestamp == Timestamp(EPOCH - 500.0)
    assert topic.watermark[0].current_watermark() == Timestamp(EPOCH - 300.0)


def test_without_idle_seconds_event_time_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Partitions(monkeypatch, None)
    topic.turn(0, 0.0)
    assert topic.turn(0, 1e6) == MIN_TIMESTAMP


@pytest.mark.parametrize("ago", [500.0, 300.0])
@pytest.mark.parametrize("number", [1, 25])
def test_event_time_of_rounds_is_the_clock_whatever_is_sent(
    ago: float, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times and number of samples do not move it; known bad is the newest sample's, above."""
    topic = Partitions(monkeypatch, None, "user")
    assert topic.turn(0, 1.0) == Timestamp(EPOCH + 1.0)
    topic.records[0] += [sample(EPOCH - ago)] * number
    assert topic.turn(0, 2.0) == Timestamp(EPOCH + 2.0)
    assert topic.turn(1, 3.0) == Timestamp(EPOCH + 3.0)


def test_a_batch_of_rounds_ends_where_the_partition_did_at_the_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = Partitions(monkeypatch, None, "user")
    topic.records[0] += [sample(EPOCH - 500.0)] * 3
    late = iter([[sample(EPOCH - 400.0)]])
    topic.before_take = lambda: topic.records[0].extend(next(late, []))  # just behind the moment
    tracker, seen = Tracker(OffsetRange(0, UNBOUNDED)), []
    for batch in topic._worker.process((0, 0, UNBOUNDED), tracker, topic.watermark[0]):
        seen.append((len(batch.value), topic.watermark[0].current_watermark()))
        topic.passed += 0.25
    assert seen == [(3, MIN_TIMESTAMP), (1, Timestamp(EPOCH))]


def test_where_reading_ends_event_time_of_rounds_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = Partitions(monkeypatch, None, "user")
    topic.records[0] += [sample(EPOCH - ago) for ago in (500.0, 300.0)]
    tracker = Tracker(OffsetRange(0, 2))
    assert (
        len(list(read.ReadRange.process(topic._worker, (0, 0, 2), tracker, topic.watermark[0])))
        == 1
    )
    assert topic.watermark[0].current_watermark() == MIN_TIMESTAMP
