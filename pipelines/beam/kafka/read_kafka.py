"""Workers that read partitions of a topic.

Which offsets, batch after batch, and how far event time has come.

Of agents event time is that of the newest sample. Of rounds it must not be: windows of a pipeline
close by it, and times are protected there (`rounds_intake`). Where reading
ends, event time of rounds stands still until then. Where it does not, event time is the clock at a
moment, once a partition was read to where it ended at that moment; batches are cut there.
Partitions are read side by side, so a sample just behind the moment may still count while another
partition is read: the time that computing takes decides, as between two batches of the engine.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.coders import TimestampCoder
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.core import WatermarkEstimatorProvider
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Duration, Timestamp

from meanstream.operators.records import Ints, Words
from meanstream.operators.validation import require
from meanstream.pipelines.beam.element_types.partition import PartitionReader, Taken
from meanstream.pipelines.beam.input.parse_lines import (
    DEAD_LETTERS,
    MessageParser,
    PrivacyUnit,
    dead_letters_of_parse,
    parsed_compact,
    parsed_timestamp,
)
from meanstream.pipelines.beam.kafka.offsets import (
    UNBOUNDED,
    Claim,
    OffsetsProvider,
    PartitionRange,
)
from meanstream.pipelines.beam.worker.beam_metrics import metric_counter
from meanstream.pipelines.beam.worker.beam_steps import Step, with_window_time
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.events.event_columns import SampleColumns
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.sources.mapping import ColumnMapping


def record_keys(log: str, position: Ints) -> Words:
    """Give the key of each record of a topic: a number of the topic, plus the record's place in it.

    Keys stand in the order of places, so that samples of one time keep the order that they have
    without keys. Two topics share a key only where two numbers of 63 bits, which are hashes, lie as
    close as places do.

    Examples
    --------
    >>> keys = record_keys("7EXhRbMqQ2y0", np.array([0, 1, 5]))
    >>> np.diff(keys).tolist(), bool((keys > 0).all())
    ([1, 4], True)
    """
    number = int.from_bytes(hashlib.blake2b(log.encode(), digest_size=8).digest()) >> 1 | 1
    return np.asarray(position.astype(np.uint64) + np.uint64(number))


def with_record_keys(log: str, samples: SampleColumns) -> SampleColumns:
    """Give samples without ids keys by their places."""
    if samples.key is not None:
        return samples
    return replace(samples, key=record_keys(log, samples.position))


WAIT_SECONDS = 0.5
"""So long is waited for records, where there are none."""
TURN_SECONDS = 10.0
"""So long a partition without end is read, or let be, before the runner may make a checkpoint."""
SPARE_SECONDS = 0.5
"""Within this a runner hears of a pause: what is left then must be whole seconds."""
SILENT_SECONDS = 60.0
"""So long records that must be there may not come before reading is given up."""


class PartitionMoment(NamedTuple):
    """The clock, and the offset at which a partition ended then."""

    clock: float
    end: int


class EventTimeProvider(WatermarkEstimatorProvider):  # type: ignore[misc]
    """Event time of a partition.

    None has passed before its first sample was read, and a checkpoint says so.
    """

    def initial_estimator_state(
        self,
        element: PartitionRange,  # noqa: ARG002
        restriction: OffsetRange,  # noqa: ARG002
    ) -> Timestamp:
        """Begin before all times."""
        return MIN_TIMESTAMP

    def create_watermark_estimator(self, estimator_state: Timestamp) -> ManualWatermarkEstimator:
        """Go on from a checkpoint."""
        return ManualWatermarkEstimator(estimator_state)

    def estimator_state_coder(self) -> TimestampCoder:
        """Never pickle."""
        return TimestampCoder()


EVENT_TIME = beam.DoFn.WatermarkEstimatorParam(EventTimeProvider())
OFFSETS = beam.DoFn.RestrictionParam(OffsetsProvider())


class PlanRanges(Step):
    """Which offsets of which partitions are read; decided once, by a worker."""

    def __init__(
        self, location: str, ranges: dict[int, tuple[int, int]] | None, *, until_end: bool
    ) -> None:
        self._location = location
        self._ranges = ranges
        self._until_end = until_end

    def process(self, element: bytes) -> Iterator[PartitionRange]:  # noqa: ARG002 - an impulse
        """Ask the topic."""
        location = KafkaLocation.parse(self._location)
        reader = PartitionReader(location)
        try:
            for partition, start, stop in planned_reads(
                reader, location, self._ranges, until_end=self._until_end
            ):
                if start < stop:
                    yield partition, start, stop
        finally:
            reader.close()


def planned_reads(
    reader: PartitionReader,
    location: KafkaLocation,
    ranges: Mapping[int, tuple[int, int]] | None,
    *,
    until_end: bool,
    name: str = "ranges",
) -> list[PartitionRange]:
    """Give what is to be read: what was requested, if it is there, or what the topic holds now."""
    marks = reader.marks(reader.partitions if ranges is None else ranges)
    if ranges is not None:
        for partition, (start, stop) in ranges.items():
            low, high = marks[partition]
            held = low <= start and stop <= high
            require(
                held, name, f"be held by partition {partition} ([{low}, {high}))", (start, stop)
            )

        return [(partition, start, stop) for partition, (start, stop) in sorted(ranges.items())]

    latest = location.start == "latest"
    return [
        (p, high if latest else low, high if until_end else UNBOUNDED)
        for p, (low, high) in marks.items()
    ]


class ReadRange(Step):
    """Private: offsets of partitions to batches; splittable."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        location: str,
        mapping: ColumnMapping,
        secret: SecretLocation | None,
        batch_size: int,
        max_future: float,
        idle_seconds: float | None,
        privacy_unit: PrivacyUnit,
    ) -> None:
        self._location = location
        self._mapping = mapping
        self._secret = secret
        self._batch_size = batch_size
        self._max_future = max_future
        self._idle_seconds = idle_seconds
        self._unit = privacy_unit

    def setup(self) -> None:
        """Connect."""
        location = KafkaLocation.parse(self._location)
        self._name = location.topic
        self._parser = MessageParser(
            self._mapping, self._secret, self._max_future, self._unit, location
        )
        self._reader = PartitionReader(location, beside=self._parser.wanted)
        self._silent_since: dict[int, float] = {}

    def teardown(self) -> None:
        """Let go of the brokers."""
        self._reader.close()

    def process(
        self,
        element: PartitionRange,
        tracker: Any = OFFSETS,
        watermark: Any = EVENT_TIME,
    ) -> Iterator[Any]:
        """Read to the end of the range."""
        at = tracker.current_restriction().start
        until = time.monotonic() + SILENT_SECONDS
        while at < (stop := tracker.current_restriction().stop):
            taken = self._reader.take(
                element[0], at, min(self._batch_size, stop - at), WAIT_SECONDS
            )
            if taken.following == at:
                what = f"offset {at} of partition {element[0]}"
                require(
                    time.monotonic() < until,
                    "source",
                    f"hold {what} within {SILENT_SECONDS:g} s",
                    self._name,
                )
                continue

            claim = Claim(at, taken.following)
            if not tracker.try_claim(claim):
                return
            yield from self._batch(taken, claim.following, watermark)
            at = claim.following
            until = time.monotonic() + SILENT_SECONDS

    @property
    def _by_clock(self) -> bool:
        """Whether times are protected, so that event time is not made of them."""
        return self._unit == "user"

    def _batch(self, taken: Taken, stop: int, watermark: Any) -> Iterator[Any]:
        """Parse what lies before the stop, then move event time."""
        samples, rejects = self._parser.parse(taken.records.before(stop))
        if len(samples):
            compact = parsed_compact(with_record_keys(self._reader.log, samples))
            yield with_window_time(parsed_timestamp(samples.time.min()), compact)

        for letter in dead_letters_of_parse(rejects, self._name, self._unit):
            yield TaggedOutput(DEAD_LETTERS, letter)

        if len(samples) and not self._by_clock:
            _advance(watermark, parsed_timestamp(samples.time.max()))


class ReadPartition(ReadRange):
    """Private: partitions to batches for ever.

    What is not read yet is handed back to the runner after each turn.

    Flink's runner keeps something of each turn for as long as a job lives, so there is one in
    `turn` seconds and no more: who has come to the end of a partition lets it be until then.
    """

    def __init__(self, *given: Any, turn: float = TURN_SECONDS, drain: bool = False) -> None:
        super().__init__(*given)
        self._turn = turn
        self._drain = drain

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        element: PartitionRange,
        tracker: Any = OFFSETS,
        watermark: Any = EVENT_TIME,
    ) -> Iterator[Any]:
        """Read for a turn, or until there is nothing more for now."""
        metric_counter(
            "reading_turns", private=self._unit == "user"
        ).inc()  # a turn is as long as there is to read
        partition = element[0]
        at = tracker.current_restriction().start
        until = time.monotonic() + self._turn
        moment: PartitionMoment | None = None

        while time.monotonic() < until:
            if self._by_clock:
                moment = self._moment(partition, at, moment, watermark)

            taken = self._reader.take(partition, at, self._batch_size, WAIT_SECONDS)
            if taken.following > at:
                claim = Claim(
                    at, taken.following if moment is None else min(taken.following, moment.end)
                )
                if not tracker.try_claim(claim):
                    return

                self._silent_since.pop(partition, None)
                yield from self._batch(taken, claim.following, watermark)
                at = claim.following
            elif taken.ended and self._drain:
                tracker.try_claim(
                    Claim(at, UNBOUNDED)
                )  # there is no rest: event time passes this partition
                return
            elif taken.ended:
                if not self._by_clock:
                    self._idle(partition, watermark)

                # Beam's runner for Flink waits for whole seconds, of what is left when it hears of
                # them.
                tracker.defer_remainder(
                    Duration(max(1, math.ceil(until - time.monotonic())) + SPARE_SECONDS)
                )
                return

        tracker.defer_remainder()

    def _moment(
        self, partition: int, at: int, moment: PartitionMoment | None, watermark: Any
    ) -> PartitionMoment | None:
        """Let event time come to a moment whose records were all read, and begin the next.

        None if none is begun.
        """
        if moment is not None and at < moment.end:
            return moment

        if moment is not None:
            _advance(watermark, parsed_timestamp(np.float64(moment.clock)))

        clock = time.time()
        try:
            end = self._reader.marks([partition])[partition].high
        except ValueError:  # no broker answers: event time waits
            return None

        if at < end:
            return PartitionMoment(clock, end)
        _advance(watermark, parsed_timestamp(np.float64(clock)))
        return None

    def _idle(self, partition: int, watermark: Any) -> None:
        """Let event time pass a partition in which nothing has come for long."""
        since = self._silent_since.setdefault(partition, time.monotonic())
        if self._idle_seconds is not None and time.monotonic() - since >= self._idle_seconds:
            _advance(watermark, parsed_timestamp(np.float64(time.time() - self._idle_seconds)))


def _advance(watermark: Any, to: Timestamp) -> None:
    """Event time never goes back."""
    if to > watermark.current_watermark():
        watermark.set_watermark(to)
