"""Everyone's releases from a topic.

The latest of each agent, rebuilt from the topic alone, and what comes after.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from meanstream.operators.agents.release_checks import PossibleReleases
from meanstream.streaming.events.event_columns import Position
from meanstream.streaming.kafka.connection.kafka_client import (
    OFFSET_BEGINNING,
    KafkaError,
    KafkaLostError,
    TopicPartition,
    client_event_error,
    client_health,
    describe_client_error,
    is_retriable_by_client,
    make_client_admin,
    make_client_consumer,
    message_position,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.kafka_topics import require_topic
from meanstream.streaming.kafka.connection.registered import without_wire_head
from meanstream.streaming.sources.received_releases import Line, ReceivedReleases, Releases

READ_RECORDS = 20_000
READ_SECONDS = 60.0
"""So long the end of a topic may not come nearer before reading it is given up."""


class ReleasesTopic:
    """Reads a topic of releases from its beginning, each release once, and goes on with what comes.

    Parameters
    ----------
    location : KafkaLocation
        The topic. All of its partitions are read, without a consumer group.
    possible : PossibleReleases, optional
        As for `ReceivedReleases`.

    Notes
    -----
    **Privacy.** Releases are public, and so is all that is computed from them. Records of aborted transactions are not
    read.
    """

    watched = True

    def __init__(self, location: KafkaLocation, possible: PossibleReleases | None = None) -> None:
        self._location = location
        self.received = ReceivedReleases(possible)
        admin = make_client_admin(location)
        self._offsets = dict.fromkeys(
            range(require_topic(admin, location, "READ").partitions), OFFSET_BEGINNING
        )
        self._behind = set(self._offsets)
        self._health = client_health(location)

        self._consumer = make_client_consumer(
            location,
            health=self._health,
            enable_partition_eof=True,
            auto_offset_reset="earliest",  # what retention took was older than what stays
            # The default stops reading for a second whenever the queue is full.
            fetch_queue_backoff_ms=10,
        )
        self._assigned = False

    @property
    def client(self) -> str:
        """Name of the option that named the topic."""
        return self._location.role

    def connection_problem(self) -> str | None:
        """Say why no broker answers, or None."""
        return self._health.problem()

    @property
    def names(self) -> list[str]:
        """All agents that were met, in this order."""
        return self.received.names

    @property
    def rejected(self) -> Counter[str]:
        """Records that were left out, by reason; see `ReceivedReleases`."""
        return self.received.rejected

    @property
    def caught_up(self) -> bool:
        """Whether every partition was read to its end."""
        return not self._behind

    def poll(self, max_records: int = READ_RECORDS, seconds: float = 1.0) -> Releases:
        """Give the releases that come next, in the order of the topic.

        None if none come for that many seconds.
        """
        if not self._assigned:
            topic = self._location.topic
            self._consumer.assign([TopicPartition(topic, p, at) for p, at in self._offsets.items()])
            self._assigned = True

        lines: list[Line] = []
        for message in self._consumer.consume(max_records, seconds):
            (partition, offset) = message_position(message)
            error = message.error()
            if error is None:
                self._offsets[partition] = offset + 1
                self._behind.add(partition)
                value = message.value()
                lines.append((message.key(), value and without_wire_head(value)))
            else:
                self._note(error, partition)

        return self.received.take(lines)

    def latest(self) -> Releases:
        """Give the newest release of each agent, in the order of `names`."""
        return self.received.latest()

    def read_to_end(
        self, *, seconds: float = READ_SECONDS, each: Callable[[Releases], None] | None = None
    ) -> Releases:
        """Read to the end of the topic and give everyone's latest release."""
        until = time.monotonic() + seconds
        while not self.caught_up:
            before = dict(self._offsets), set(self._behind)
            releases = self.poll()
            if each is not None and len(releases):
                each(releases)

            if before != (self._offsets, self._behind):
                until = time.monotonic() + seconds
            elif time.monotonic() > until:
                raise KafkaLostError(
                    f"{self._location.role} must be read to its end, got nothing for {seconds:g} s from "
                    f"{str(self._location)!r}"
                )

        return self.latest()

    def position(self) -> Position:
        """Tell how far each partition was read."""
        offsets = {
            str(partition): offset for partition, offset in self._offsets.items() if offset >= 0
        }
        return {"topic": self._location.topic, "offsets": offsets}

    def restore(self, position: Position, latest: Releases) -> None:
        """Continue after a position, knowing everyone's latest release up to it.

        Call before reading.

        The position in another topic is ignored: that one is read from its beginning.
        """
        if position["topic"] != self._location.topic:
            return
        self._offsets.update(
            {int(p): at for p, at in position["offsets"].items() if int(p) in self._offsets}
        )
        self.received.restore(latest)

    def close(self) -> None:
        """Let go of the brokers."""
        self._consumer.close()

    def _note(self, error: KafkaError, partition: int) -> None:
        """Take an event that is not a record."""
        if client_event_error(error).code() == KafkaError._PARTITION_EOF:
            self._behind.discard(partition)
        elif not is_retriable_by_client(error):
            raise KafkaLostError(
                f"{self._location.role} must be a topic that can be read, got {describe_client_error(error)} from "
                f"{str(self._location)!r}"
            )


def read_latest_releases(location: KafkaLocation, *, seconds: float = READ_SECONDS) -> Releases:
    """Rebuild everyone's latest release from a topic alone; see `ReleasesTopic`."""
    topic = ReleasesTopic(location)
    try:
        return topic.read_to_end(seconds=seconds)
    finally:
        topic.close()
