"""The marker of a delivery.

Which deliveries of a store a cluster has, committed together with their records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from meanstream.streaming.events.base import Event, PublicEvent
from meanstream.streaming.events.encode import UNREADABLE
from meanstream.streaming.events.wire import EVENTS, PersonalEstimate, Population
from meanstream.streaming.kafka.connection.kafka_client import (
    KafkaException,
    TopicPartition,
    make_client_consumer,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.retry_policy import Patience
from meanstream.streaming.sinks.sink_protocol import SinkLostError

Place = tuple[str, str]
"""Topic, and name of the event type written to it."""

VERSION = 1


@dataclass(frozen=True, slots=True)
class Written:
    """How many events of one type one delivery wrote to one topic, and a digest of them.

    **Privacy.** Consumer groups can be looked at by others than the readers of a private topic, so
    private events are only counted: a digest of few and short lines can be guessed. How many there
    are follows, of agents, from who produced samples, which is public; of rounds they are noted in
    a group of their own.
    """

    count: int
    digest: str


class WrittenTally:
    """What a delivery writes, however it is cut into pieces."""

    def __init__(self) -> None:
        self._counts: dict[Place, int] = {}
        self._digests: dict[Place, hashlib.blake2b] = {}

    def add(self, topic: str, kind: type[Event], lines: Sequence[bytes]) -> None:
        """Take lines."""
        written_to = (topic, kind.topic)
        self._counts[written_to] = self._counts.get(written_to, 0) + len(lines)

        if issubclass(kind, PublicEvent):
            digest = self._digests.setdefault(written_to, hashlib.blake2b(digest_size=8))
            digest.update(b"".join([line + b"\n" for line in lines]))

    def written(self) -> dict[Place, Written]:
        """Sum up."""
        digests = {written_to: digest.hexdigest() for written_to, digest in self._digests.items()}
        return {
            written_to: Written(count, digests.get(written_to, ""))
            for written_to, count in self._counts.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """What a cluster knows of the deliveries of a store.

    Attributes
    ----------
    delivery : int
        Number of the last delivery that was committed; 0 before the first one.
    owner : str
        Which process may write: a random name that it gave itself.
    written : mapping
        What that delivery wrote.
    """

    delivery: int
    owner: str
    written: Mapping[Place, Written] = field(default_factory=dict)

    def encode(self) -> str:
        r"""Write everything but the number, as the metadata of an offset (the broker takes 4095 bytes).

        Examples
        --------
        >>> Marker(delivery=3, owner="f00d", written={("releases", "release"): Written(2, "ab12")}).encode()
        '{"version":1,"owner":"f00d","written":[["releases","release",2,"ab12"]]}'
        """
        written = [
            [*written_to, what.count, what.digest] for written_to, what in self.written.items()
        ]
        return msgspec.json.encode(
            {"version": VERSION, "owner": self.owner, "written": written}
        ).decode()

    @classmethod
    def decode(cls, delivery: int, text: str) -> Marker:
        """Read what `encode` wrote."""
        plain = msgspec.json.decode(text, type=_Plain)
        if plain.version != VERSION:
            raise ValueError(f"version {plain.version}")
        written = {
            (topic, kind): Written(count, digest) for topic, kind, count, digest in plain.written
        }

        return cls(delivery=delivery, owner=plain.owner, written=written)


class _Plain(msgspec.Struct):
    version: int
    owner: str
    written: list[tuple[str, str, int, str]]


class MarkerGroup:
    """The consumer group of a store that holds its marker: no one consumes in it.

    The marker stands as the offset of partition 0 of each topic of the cluster that the store
    writes to, so that it is found as long as one of them stays.

    Parameters
    ----------
    location : KafkaLocation
        Any of the topics.
    name : str
        Name of the group.
    patience : Patience
        How long is waited for brokers.
    """

    def __init__(self, location: KafkaLocation, name: str, patience: Patience) -> None:
        self.name = name
        self.metadata: object = None
        self._location = location
        self._patience = patience

    def read(self, topics: Sequence[str], *, pending: bool) -> Marker | None:
        """Read the marker; None if there is none (yet, or any more: offsets expire)."""
        isolation = "read_committed" if pending else "read_uncommitted"
        consumer = make_client_consumer(
            self._location,
            wait=False,
            group_id=self.name,
            isolation_level=isolation,
            statistics_interval_ms=0,
        )

        try:
            self.metadata = consumer.consumer_group_metadata()
            places = [TopicPartition(topic, 0) for topic in topics]

            def ask(seconds: float) -> list[TopicPartition]:
                consumer.poll(0)
                return _checked(consumer.committed(places, seconds))

            offsets = self._patience.wait_for("the marker of the last delivery", ask)
        finally:
            consumer.close()

        return self._newest(offsets)

    def offsets(self, marker: Marker, topics: Sequence[str]) -> list[TopicPartition]:
        """Give the offsets to commit."""
        text = marker.encode()
        return [TopicPartition(topic, 0, marker.delivery, text) for topic in topics]

    def _newest(self, found: Sequence[TopicPartition]) -> Marker | None:
        marked = [offset_of_topic for offset_of_topic in found if offset_of_topic.offset >= 0]
        if not marked:
            return None
        newest = max(marked, key=lambda offset_of_topic: offset_of_topic.offset)

        try:
            return Marker.decode(newest.offset, newest.metadata or "")
        except (ValueError, *UNREADABLE):
            raise SinkLostError(
                f"consumer group {self.name!r} must be written by meanstream only, got offsets of another client"
            ) from None


def _checked(places: list[TopicPartition]) -> list[TopicPartition]:
    for offset_of_topic in places:
        if offset_of_topic.error is not None:
            raise KafkaException(offset_of_topic.error)

    return places


COMPUTED: frozenset[type[Event]] = frozenset({PersonalEstimate, Population})
"""Computed from the committed state when they are written; everything else is stored and comes
again byte for byte."""

Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Events of one type for one topic; `values`, `keys` and `headers` have one entry per record.

    What stands before each value is no part of the event: a registry that was made again may give
    its schema another id.
    """

    topic: str
    kind: type[Event]
    values: Sequence[bytes]
    keys: Sequence[str | None]
    headers: Sequence[Headers]
    head: bytes = b""

    def rows(self) -> Iterator[tuple[bytes, str | None, Headers]]:
        """Give value, key and headers of each record as they are sent."""
        for value, key, headers in zip(self.values, self.keys, self.headers, strict=True):
            yield self.head + value, key, headers


class Mismatch(Exception):  # noqa: N818 - says what is wrong, the caller raises the error
    """What is written again is not what was written before."""


class Repeat:
    """Takes the records of a delivery that was committed before, and tells which of them are new after all.

    New are records for a topic that was not written to before, and estimates that other options
    made different.

    Parameters
    ----------
    before : mapping
        What the delivery had written, from its marker.
    """

    def __init__(self, before: Mapping[Place, Written]) -> None:
        self.before = before
        self._taken: list[Records] = []
        self._tally = WrittenTally()

    def take(self, records: Records) -> None:
        """Keep records until all are there."""
        self._taken.append(records)
        self._tally.add(records.topic, records.kind, records.values)

    def rest(self, topics: Collection[str]) -> list[Records]:
        """Give the records that are new."""
        now = self._tally.written()
        for written_to, what in self.before.items():
            stored = EVENTS.get(written_to[1]) not in COMPUTED
            if written_to[0] in topics and stored and now.get(written_to) != what:
                raise Mismatch(written_to[0])

        return [r for r in self._taken if self.before.get(p := (r.topic, r.kind.topic)) != now[p]]
