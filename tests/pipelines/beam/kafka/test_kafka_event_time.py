"""Event time of a Kafka partition on Beam: it passes a partition in which nothing has come for long, and no other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp

from meanstream.pipelines.beam.kafka import read
from meanstream.pipelines.beam.kafka.offsets import UNBOUNDED, OffsetsTracker
from meanstream.pipelines.beam.kafka.read import ReadPartition
from meanstream.streaming.kafka.partition import Taken
from meanstream.streaming.kafka.values import PartitionRecords
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

    def __init__(self, monkeypatch: pytest.MonkeyPatch, idle_seconds: float | None) -> None:
        self.passed = 0.0
        clock = SimpleNamespace(monotonic=lambda: STARTED + self.passed, time=lambda: EPOCH + self.passed)
        monkeypatch.setattr(read, "time", clock)
        self.records: dict[int, list[bytes]] = {0: [], 1: []}
        self.watermark = {p: ManualWatermarkEstimator(MIN_TIMESTAMP) for p in self.records}
        self._trackers = {p: Tracker(OffsetRange(0, UNBOUNDED)) for p in self.records}
        self._worker = ReadPartition("kafka://nobody:1/topic", ColumnMapping(), None, 10, 1e9, idle_seconds, "user")
        self._worker._name, self._worker._silent_since = "topic", {}
        self._worker._reader = self
        self._worker._parser = read.MessageParser(ColumnMapping(), None, 1e9, "user")

    def take(self, partition: int, at: int, _most: int, _seconds: float) -> Taken:
        values = self.records[partition][at:]
        offsets = np.arange(at, at + len(values))
        return Taken(
            PartitionRecords(np.full(len(values), partition), offsets, values), at + len(values), ended=not values
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


def test_event_time_passes_a_partition_only_after_it_was_silent_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
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
