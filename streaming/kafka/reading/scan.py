"""A topic from given offsets to where it ends now.

For replays, for dead letters, for single records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import numpy as np

from meanstream.operators.records import Ints
from meanstream.streaming.events.event_columns import (
    Batch,
    Position,
    Rejects,
    column_partitions,
    column_position,
    column_positions,
    no_sample_columns,
)
from meanstream.streaming.kafka.connection.kafka_client import (
    KafkaError,
    KafkaException,
    KafkaLostError,
    Message,
    TopicPartition,
    client_event_error,
    describe_client_error,
    is_retriable_by_client,
    make_client_admin,
    make_client_consumer,
    message_position,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.kafka_topics import check_same_topic, require_topic
from meanstream.streaming.kafka.connection.registered import without_wire_head
from meanstream.streaming.kafka.connection.schema_registry import RegistryAwayError
from meanstream.streaming.kafka.connection.values import PartitionRecords, message_extras
from meanstream.streaming.kafka.reading.kafka_messages import topic_parser
from meanstream.streaming.sources.lines import MAX_LINE_BYTES
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_protocol import SourceLostError

ASK_SECONDS = 10.0
READ_SECONDS = 60.0
"""So long nothing may come before reading is given up."""
READ_RECORDS = 10_000
FAR = 10_000
"""So many offsets are passed by seeking rather than by reading."""


class TopicScan:
    """Reads committed records, once each, up to the ends that partitions have when it is made.

    It is no member of a group, owns nothing and commits nothing: it may read next to an engine.

    Parameters
    ----------
    location : KafkaLocation
        The topic; only these of its partitions, if it names some.
    start : mapping, optional
        First offset to read of each partition; others are not read. By default all from their
        beginning.
    known_id : str
        Id of the topic that is expected, empty if any is.
    newest : int, optional
        Read at most that many offsets before the end of each partition.
    next to : sequence of str
        What is taken of messages besides their values.
    """

    def __init__(
        self,
        location: KafkaLocation,
        *,
        start: Mapping[int, int] | None = None,
        known_id: str = "",
        newest: int | None = None,
        beside: Sequence[str] = (),
    ) -> None:
        self._location = location
        self._beside = beside
        topic = require_topic(make_client_admin(location), location, "READ")
        check_same_topic(location, known_id, topic)
        self._consumer = make_client_consumer(
            location, enable_partition_eof=True, auto_offset_reset="earliest"
        )

        try:
            marks = {p: self._marks(p) for p in start or location.own_partitions(topic.partitions)}
        except BaseException:
            self._consumer.close()
            raise

        self.complete = not any(low for low, _ in marks.values())
        """Whether retention has left every record that was ever in the partitions."""
        back = {p: 0 if newest is None else high - newest for p, (_, high) in marks.items()}
        self._next = {
            p: max(low, back[p], start[p] if start else low) for p, (low, _) in marks.items()
        }
        self._end = {p: high for p, (_, high) in marks.items() if self._next[p] < high}
        self._consumer.assign([TopicPartition(location.topic, p, self._next[p]) for p in self._end])

    def read(self, count: int) -> PartitionRecords | None:
        """Give the records that come next, at most that many; None at the end."""
        until = time.monotonic() + READ_SECONDS
        while self._end:
            kept = [
                m for m in self._consumer.consume(min(count, READ_RECORDS), 0.2) if self._takes(m)
            ]
            if kept:
                partition = np.array([m.partition() for m in kept], np.int64)
                offset = np.array([m.offset() for m in kept], np.int64)
                return PartitionRecords(
                    partition, offset, [m.value() for m in kept], message_extras(kept, self._beside)
                )

            # A broker that answers nothing for so long is taken for lost.
            if time.monotonic() > until:
                raise KafkaLostError(
                    f"{self._what()} that can be read to its end, got nothing for {READ_SECONDS:g} s"
                )

        return None

    def seek(self, partition: int, offset: int) -> None:
        """Pass records of a partition."""
        # Nothing is left behind the end.
        if offset >= self._end.get(partition, 0):
            self._finish(partition)
            return

        self._consumer.seek(TopicPartition(self._location.topic, partition, offset))
        self._next[partition] = offset

    def close(self) -> None:
        """Let go of the brokers."""
        self._consumer.close()

    def _takes(self, message: Message) -> bool:
        """Note what a message means for the end of its partition.

        Say whether it is a record to give.
        """
        # The end of a partition comes as an error that is none.
        error = message.error()
        (partition, offset) = message_position(message)
        if error is not None:
            if client_event_error(error).code() == KafkaError._PARTITION_EOF:
                self._finish(partition)
            elif not is_retriable_by_client(error):
                raise KafkaLostError(
                    f"{self._what()} that can be read, got {describe_client_error(error)}"
                )

            return False

        # Records may come again after a seek.
        if partition not in self._end or offset < self._next[partition]:
            return False
        self._next[partition] = offset + 1
        end = self._end[partition]

        if offset + 1 >= end:
            self._finish(partition)

        return offset < end

    def _finish(self, partition: int) -> None:
        if self._end.pop(partition, None) is not None:
            self._consumer.incremental_unassign([TopicPartition(self._location.topic, partition)])

    def _marks(self, partition: int) -> tuple[int, int]:
        """Ask for the first offset and the end.

        A topic that was just made may not have leaders yet.
        """
        # Brokers that restart are asked again for a while.
        until = time.monotonic() + ASK_SECONDS
        while True:
            try:
                place = TopicPartition(self._location.topic, partition)
                low, high = self._consumer.get_watermark_offsets(place, timeout=ASK_SECONDS / 2)
                return int(low), int(high)
            except KafkaException as error:
                if time.monotonic() > until or not is_retriable_by_client(error):
                    raise ValueError(
                        f"{self._what()} that can be read, got {describe_client_error(error)}"
                    ) from None

                time.sleep(0.1)

    def _what(self) -> str:
        return f"{self._location.role} must be a topic"


class ScannedTopic:
    """A source of samples for a replay.

    A topic from some offsets to where it ends now; it cannot be resumed.
    """

    bounded = True

    def __init__(
        self,
        location: KafkaLocation,
        mapping: ColumnMapping,
        *,
        start: Mapping[int, int] | None = None,
        known_id: str = "",
        id_key: bytes = b"",
        max_record_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self.name = location.topic
        self._parser = topic_parser(
            location, mapping, id_key=id_key, max_record_bytes=max_record_bytes
        )
        self._scan = TopicScan(location, start=start, known_id=known_id, beside=self._parser.wanted)

    @property
    def complete(self) -> bool:
        """Whether retention has left every record that was ever there."""
        return self._scan.complete

    def next_batch(self, max_samples: int) -> Batch:
        """Give the next records."""
        rejects = Rejects()

        # An outage ends a scan: it begins anew when it is called again.
        try:
            records = self._scan.read(max_samples)
        except KafkaLostError as error:
            raise SourceLostError(str(error)) from None

        if records is None:
            return Batch(no_sample_columns(), rejects, {}, exhausted=True)

        try:
            return Batch(self._parser.parse(records, rejects), rejects, {})
        except RegistryAwayError as error:
            raise SourceLostError(str(error)) from None

    def restore(self, position: Position) -> None:  # noqa: ARG002 - every source has it
        """Refuse: what is left is chosen again."""
        raise SourceLostError(f"a scan of the topic {self.name!r} cannot be resumed")

    def close(self) -> None:
        """Let go of the brokers."""
        self._scan.close()


def scan_values(location: KafkaLocation, *, newest: int | None = None) -> Iterator[bytes | None]:
    """Give the values of events of a topic, up to its present end.

    Of each partition at most the `newest` ones.
    """
    try:
        with closing(TopicScan(location, newest=newest)) as scan:
            while (records := scan.read(READ_RECORDS)) is not None:
                yield from (value and without_wire_head(value) for value in records.values)
    except KafkaLostError as error:
        raise ValueError(str(error)) from None


def scan_records(location: KafkaLocation, positions: Ints) -> Iterator[tuple[int, bytes | None]]:
    """Give the values at some positions, in their order; those that are gone are left out."""
    # Partition by partition, as positions are in one number.
    wanted = np.unique(positions)
    partition = column_partitions(wanted)
    try:
        for number in np.unique(partition).tolist():
            yield from _read_partition(
                location, number, column_positions(wanted[partition == number])
            )
    except KafkaLostError as error:
        raise ValueError(str(error)) from None


def _read_partition(
    location: KafkaLocation, partition: int, wanted: Ints
) -> Iterator[tuple[int, bytes | None]]:
    at = 0
    with closing(TopicScan(location, start={partition: int(wanted[0])})) as scan:
        while at < len(wanted) and (records := scan.read(READ_RECORDS)) is not None:
            number = column_position(partition, records.offset).tolist()
            for i in np.flatnonzero(np.isin(records.offset, wanted)).tolist():
                yield number[i], records.values[i]

            # What lies far ahead is sought; what is near is read over.
            last = int(records.offset[-1])
            at = int(np.searchsorted(wanted, last, "right"))
            if at < len(wanted) and wanted[at] > last + FAR:
                scan.seek(partition, int(wanted[at]))
