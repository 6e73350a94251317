"""One partition, from a given offset on.

For anyone who decides about offsets, as a restriction of Beam does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from meanstream.operators.validation import require
from meanstream.streaming.events.event_columns import Batch, Position, Rejects, no_sample_columns
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
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.kafka_topics import require_topic
from meanstream.streaming.kafka.connection.schema_registry import RegistryAwayError
from meanstream.streaming.kafka.connection.values import PartitionRecords, message_extras
from meanstream.streaming.kafka.reading.kafka_messages import topic_parser
from meanstream.streaming.sources.mapping import ColumnMapping

ASK_SECONDS = 10.0
"""Seconds to wait for an answer of a broker."""
CHUNK = 500
"""So many messages are taken at once, as in `meanstream.streaming.kafka.reading.kafka_reader`."""
MORE_SECONDS = 0.05
"""So long more records are waited for at once, and if there are some and no more come, not
again."""


class Marks(NamedTuple):
    """What a partition holds: its first offset, and the one after its last committed record."""

    low: int
    high: int


class Taken(NamedTuple):
    """Records of a partition, the offset after them, and whether there are no more for now."""

    records: PartitionRecords
    following: int
    ended: bool


class PartitionReader:
    """Reader of committed records, one partition at a time, at offsets that the caller decides.

    It is no member of a group, owns nothing and commits nothing: it may read next to an engine.

    Parameters
    ----------
    location : KafkaLocation
        The topic; of its partitions only those that it names, if it names some.
    next to : sequence of str
        What is taken of messages besides their values.

    Attributes
    ----------
    log : str
        Identifies the topic: its id, or where brokers give none the cluster's id and the topic's
        name.
    """

    def __init__(self, location: KafkaLocation, *, beside: Sequence[str] = ()) -> None:
        self._beside = beside
        self._location = location
        admin = make_client_admin(location)
        topic = require_topic(admin, location, "READ")
        cluster = "" if topic.id else admin.list_topics(topic.name, timeout=ASK_SECONDS).cluster_id
        self.log = topic.id or f"{cluster}/{topic.name}"

        location.require_partitions(topic.partitions)
        self.partitions = tuple(location.own_partitions(topic.partitions))
        self._consumer = make_client_consumer(
            location, enable_partition_eof=True, auto_offset_reset="error"
        )
        self._at: tuple[int, int] | None = None  # partition and next offset, where it is assigned

    def marks(self, partitions: Iterable[int]) -> dict[int, Marks]:
        """Ask what partitions hold; a topic that was just made may not have leaders yet."""
        until = time.monotonic() + ASK_SECONDS
        marks = {}
        for partition in partitions:
            while partition not in marks:
                try:
                    place = TopicPartition(self._location.topic, partition)
                    low, high = self._consumer.get_watermark_offsets(place, timeout=ASK_SECONDS / 2)
                    marks[partition] = Marks(int(low), int(high))
                except KafkaException as error:
                    if time.monotonic() > until or not is_retriable_by_client(error):
                        raise ValueError(
                            f"{self._what()} ({describe_client_error(error)})"
                        ) from None

                    time.sleep(0.1)

        return marks

    def take(self, partition: int, offset: int, count: int, wait: float) -> Taken:
        """Give up to `count` records from an offset on, after at most `wait` seconds."""
        if self._at != (partition, offset):
            self._consumer.assign([TopicPartition(self._location.topic, partition, offset)])

        records: list[Message] = []
        following = offset
        ended = False
        left = wait
        until = time.monotonic() + wait

        while len(records) < count and not ended and left > 0:
            messages = self._consume(min(CHUNK, count - len(records)), min(left, MORE_SECONDS))
            if records and not messages:
                break

            for message in messages:
                error = message.error()
                if error is not None:
                    ended |= self._is_end(error, partition)
                    following = max(following, message.offset() or 0) if ended else following
                    continue

                message_offset = message.offset() or 0
                if message_offset >= following:
                    records.append(message)
                    following = message_offset + 1

            left = until - time.monotonic()

        self._at = (partition, following)
        return Taken(self._columns(partition, records), following, ended)

    def close(self) -> None:
        """Let go of the brokers."""
        self._consumer.close()

    def _columns(self, partition: int, records: list[Message]) -> PartitionRecords:
        """Lay out records as columns."""
        offsets = np.fromiter(map(_offset, records), np.int64, len(records))
        values = [message.value() for message in records]
        number = np.full(len(records), partition, np.int64)
        return PartitionRecords(number, offsets, values, message_extras(records, self._beside))

    def _consume(self, count: int, wait: float) -> list[Message]:
        try:
            return self._consumer.consume(count, wait)
        except KafkaException as error:
            if is_retriable_by_client(error):
                return []
            raise KafkaLostError(f"{self._what()} ({describe_client_error(error)})") from None

    def _is_end(self, error: KafkaError, partition: int) -> bool:
        """Say whether an event is the end of the partition; pass over what will pass by itself."""
        code = client_event_error(error).code()
        if code == KafkaError._PARTITION_EOF:
            return True

        if code == KafkaError._AUTO_OFFSET_RESET:
            raise KafkaLostError(
                f"{self._location.role} must hold every requested record, got partition "
                f"{partition} of {self._location.topic!r} without them (retention deleted them, or "
                "they were never there)"
            )

        if not is_retriable_by_client(error):
            raise KafkaLostError(f"{self._what()} ({describe_client_error(error)})")
        return False

    def _what(self) -> str:
        return (
            f"{self._location.role} must be a topic that can be read, got {self._location.topic!r}"
        )


def _offset(message: Message) -> int:
    return message.offset() or 0


WAIT_SECONDS = 0.5
SILENT_SECONDS = 60.0
"""So long records that must be there may not come before reading is given up."""


class RangeSource:
    """Reads committed records of ranges, each once, for no one's store.

    Again the same as often as one likes.

    Lateness is by partition, so the order of the partitions decides nothing; of samples of one id
    in several partitions that of the first partition counts.

    Parameters
    ----------
    location : KafkaLocation
        The topic.
    mapping : ColumnMapping
        Which JSON field means what.
    ranges : sequence of (int, int, int)
        Partition, first offset, and the offset after the last one; each partition once.
    id_key : bytes
        Secret key of the hash of ids.
    """

    waits = True
    bounded = True

    def __init__(
        self,
        location: KafkaLocation,
        mapping: ColumnMapping,
        ranges: Sequence[tuple[int, int, int]],
        *,
        id_key: bytes = b"",
    ) -> None:
        self.name = location.topic
        self._parser = topic_parser(location, mapping, id_key=id_key)
        self._reader = PartitionReader(location, beside=self._parser.wanted)
        self._left = [place for place in ranges if place[1] < place[2]]

    def next_batch(self, max_samples: int) -> Batch:
        """Give the next records."""
        if not self._left:
            return Batch(
                no_sample_columns(), Rejects(), self._position(), exhausted=True, active=()
            )

        (partition, at, stop) = self._left[0]
        rejects = Rejects()
        until = time.monotonic() + SILENT_SECONDS
        taken = self._reader.take(partition, at, min(max_samples, stop - at), WAIT_SECONDS)

        while taken.following == at:
            what = f"offset {at} of partition {partition} within {SILENT_SECONDS:g} s"
            require(time.monotonic() < until, "source", f"give {what}", self.name)
            taken = self._reader.take(partition, at, min(max_samples, stop - at), WAIT_SECONDS)

        try:
            samples = self._parser.parse(taken.records.before(stop), rejects)
        except RegistryAwayError as error:
            raise ValueError(str(error)) from None

        active = tuple(place[0] for place in self._left)
        self._left[0] = (partition, min(taken.following, stop), stop)

        if taken.following >= stop:
            del self._left[0]

        return Batch(samples, rejects, self._position(), active=active)

    def restore(self, position: Position) -> None:
        """Continue with the offsets that were left."""
        self._left = [(int(p), int(at), int(stop)) for p, at, stop in position["left"]]

    def _position(self) -> Position:
        return {"topic": self.name, "left": [list(place) for place in self._left]}

    def close(self) -> None:
        """Let go of the brokers."""
        self._reader.close()
