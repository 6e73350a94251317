"""Several topics as one.

Read side by side, each at its own offsets, or one after the other for a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from meanstream.streaming.events.event_columns import (
    Batch,
    Position,
    Rejects,
    topics_partition,
    topics_position,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.values import (
    PartitionRecords,
    ReadValues,
    join_joined_values,
)
from meanstream.streaming.kafka.reading.kafka_reader import FIRST_SECONDS, TopicReader
from meanstream.streaming.kafka.reading.scan import ScannedTopic
from meanstream.streaming.sources.formats.alike_records import joined_columns
from meanstream.streaming.sources.source_protocol import SourceLostError


class TopicReaders:
    """Reads all partitions of several topics, as `TopicReader` does those of one.

    Numbers tell topic and partition.

    Parameters
    ----------
    location : KafkaLocation
        The topics.
    open_reader : callable
        Opens the reader of one topic.
    """

    def __init__(
        self, location: KafkaLocation, open_reader: Callable[[KafkaLocation], TopicReader]
    ) -> None:
        self.name = location.topic
        self.role = location.role
        self._readers: list[TopicReader] = []

        try:
            for one in location.each():
                self._readers.append(open_reader(one))
                self._number(len(self._readers) - 1, self._readers[-1].most_partition)
        except BaseException:
            self.close()
            raise

        self.cluster = self._readers[0].cluster
        self._turn = 0

    def take(
        self, count: int, first: float = FIRST_SECONDS, *, more: bool = False
    ) -> PartitionRecords | None:
        """Give the records that are there, of all topics in turn, or wait a moment for one.

        None if there was none.
        """
        readers = self._begun()
        going = list[int]()
        for turn in range(self._turn, self._turn + len(readers)):
            i = turn % len(readers)  # another topic is first each time
            if readers[i].done:
                readers[i].rest()  # nothing behind the end of a bounded reading piles up
            else:
                going.append(i)

        self._turn += 1
        parts = []
        left = count
        for others, i in zip(range(len(going), 0, -1), going, strict=True):
            if (
                left
                and (taken := self._take(i, max(left // others, 1), 0.0, more=more)) is not None
            ):
                parts.append(taken)
                left -= len(taken.offset)

        wait = first / max(len(going), 1)
        if (
            not parts
            and going
            and (taken := self._take(going[0], count, wait, more=more)) is not None
        ):
            parts.append(taken)

        if parts:
            return _joined(parts)
        return None

    def _take(self, i: int, count: int, wait: float, *, more: bool) -> PartitionRecords | None:
        taken = self._readers[i].take(count, wait, more=more)
        if taken is None:
            return None
        self._number(i, int(taken.partition.max(initial=0)))

        return taken._replace(partition=taken.partition + self._number(i, 0))

    def _number(self, i: int, partition: int) -> int:
        return topics_partition(i, partition, self._readers[i].name)

    def rest(self) -> None:
        """Take nothing for a while, but hear what the brokers say."""
        for reader in self._readers:
            reader.rest()

    def hold(self) -> bool:
        """Read on to where all topics end now; False if no broker says where one of them does."""
        held = [reader.hold() for reader in self._begun()]  # each of them, whatever the others say
        return all(held)

    def reached_hold(self) -> bool:
        """Say whether that was given."""
        return all(reader.reached_hold() for reader in self._begun())

    def go_on(self) -> None:
        """Read on."""
        for reader in self._begun():
            reader.go_on()

    def position(self) -> Position:
        """Tell the next offset of each partition of each topic."""
        return {
            "topic": self.name,
            "topics": {reader.name: reader.position() for reader in self._begun()},
        }

    def commit(self, position: Position) -> None:
        """Tell lag tools what the store has committed.

        Best effort, without waiting, once a second at most.
        """
        for reader in self._readers:
            reader.commit(position["topics"][reader.name])

    @property
    def commit_age(self) -> float | None:
        """Seconds since the broker took what the store has committed of each topic."""
        ages = [reader.commit_age for reader in self._readers]
        return max((age for age in ages if age is not None), default=None)

    def lags(self) -> dict[tuple[str, int], int]:
        """Count the offsets between what was given out and the end of each partition, as last heard of."""
        return {place: lag for reader in self._readers for place, lag in reader.lags().items()}

    def _begun(self) -> Sequence[TopicReader]:
        """Give the readers, once all have begun.

        One whose position is queried begins alone, and claims its topic.
        """
        if not all(reader.begun for reader in self._readers):
            self.begin(None)

        return self._readers

    def begin(self, position: Position | None) -> None:
        """Find where to begin, own the partitions of all topics, and read them from there."""
        for reader in self._readers:
            reader.require_unowned()  # of all topics, before one is claimed

        for reader in self._readers:
            reader.begin(None if position is None else position["topics"][reader.name])

    @property
    def done(self) -> bool:
        """Whether a bounded reading of all topics is complete."""
        return all(reader.done for reader in self._begun())

    def active(self, now: float, idle_seconds: float) -> tuple[int, ...]:
        """List the partitions that more is expected of soon."""
        return tuple(self._numbers(lambda reader: reader.active(now, idle_seconds)))

    @property
    def partitions(self) -> tuple[int, ...]:
        """All partitions that are read."""
        return tuple(self._numbers(lambda reader: reader.partitions))

    def _numbers(self, of: Callable[[TopicReader], Sequence[int]]) -> Iterator[int]:
        return (
            self._number(i, partition)
            for i, reader in enumerate(self._begun())
            for partition in of(reader)
        )

    def problem(self) -> str | None:
        """Say why no broker answers, or None."""
        return next(
            (problem for reader in self._readers if (problem := reader.problem()) is not None), None
        )

    @property
    def skipped(self) -> int:
        """Offsets that retention took away before they were read."""
        return sum(reader.skipped for reader in self._readers)

    def close(self) -> None:
        """Let go of the brokers."""
        for reader in self._readers:
            reader.close()


def _joined(parts: Sequence[PartitionRecords]) -> PartitionRecords:
    if len(parts) == 1:
        return parts[0]
    joined = [part.joined for part in parts if part.joined is not None]
    return PartitionRecords(
        np.concatenate([part.partition for part in parts]),
        np.concatenate([part.offset for part in parts]),
        list(chain.from_iterable(part.values for part in parts)),
        {
            name: list(chain.from_iterable(part.beside[name] for part in parts))
            for name in parts[0].beside
        },
        join_joined_values(joined) if joined else None,
        _joined_reads(parts),
    )


def _joined_reads(parts: Sequence[PartitionRecords]) -> ReadValues | None:
    read = [part.read for part in parts if part.read is not None]
    if not read:
        return None
    none = [
        np.zeros(len(part.offset), np.bool_) if part.read is None else part.read.which
        for part in parts
    ]

    return ReadValues(np.concatenate(none), joined_columns([one.columns for one in read]))


class ScannedTopics:
    """A source of samples for a replay.

    Topics one after the other, each by its number among all; it cannot be resumed.

    Parameters
    ----------
    name : str
        Of the source.
    topics : sequence of (int, ScannedTopic)
        Number and topic.
    """

    bounded = True

    def __init__(self, name: str, topics: Sequence[tuple[int, ScannedTopic]]) -> None:
        self.name = name
        self._topics = topics
        self._left = list(topics)

    @property
    def complete(self) -> bool:
        """Whether retention has left every record that was ever there."""
        return all(topic.complete for _, topic in self._topics)

    def next_batch(self, max_samples: int) -> Batch:
        """Give the next records."""
        while True:
            number, topic = self._left[0]
            batch = topic.next_batch(max_samples)
            if not batch.exhausted:
                break
            if len(self._left) == 1:
                return batch

            del self._left[0]

        samples = batch.samples
        rejects = batch.rejects
        position = topics_position(number, np.array(rejects.position, np.int64)).tolist()
        samples = replace(samples, position=topics_position(number, samples.position))

        return Batch(samples, Rejects(rejects.reason, position, rejects.size), {})

    def restore(self, position: Position) -> None:  # noqa: ARG002 - every source has it
        """Refuse: what is left is chosen again."""
        raise SourceLostError(f"a scan of the topics {self.name!r} cannot be resumed")

    def close(self) -> None:
        """Let go of the brokers."""
        for _, topic in self._topics:
            topic.close()
