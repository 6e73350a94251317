"""Offsets committed to the consumer group.

For lag tools, and to keep the note of who owns a partition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from meanstream.streaming.kafka.claims.ownership import owned_offsets
from meanstream.streaming.kafka.connection.kafka_client import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
    client_event_error,
    describe_client_error,
    is_retriable_by_client,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation

logger = logging.getLogger("meanstream.kafka")

COMMIT_SECONDS = 1.0
"""Offsets are committed so often at most."""
RENEW_SECONDS = 600.0
"""Unchanged ones are committed again so often, or Kafka would forget the owners of a quiet
topic."""


class GroupOffsets:
    """Commits offsets without waiting.

    If that fails nothing is lost: the store knows where it stands.

    Parameters
    ----------
    location : KafkaLocation
        Topic and group.
    owner : str
        Public id of the store.
    """

    def __init__(self, location: KafkaLocation, owner: str) -> None:
        self._location = location
        self._owner = owner
        self._offsets: Mapping[str, int] = {}
        self._sent: Mapping[str, int] = {}
        self._sent_at = 0.0
        self._refused = False

    def note(self, offsets: Mapping[str, int]) -> None:
        """Take the offsets that the store has committed."""
        self._offsets = offsets

    def send(self, consumer: Consumer, after: float = COMMIT_SECONDS) -> None:
        """Commit offsets if there are new ones and the last ones are old enough."""
        now = time.monotonic()
        due = RENEW_SECONDS if self._offsets == self._sent else after
        if not self._offsets or now - self._sent_at < due:
            return

        self._sent = self._offsets
        self._sent_at = now
        offsets = {int(partition): offset for partition, offset in self._offsets.items()}
        try:
            consumer.commit(
                offsets=owned_offsets(self._location.topic, offsets, self._owner), asynchronous=True
            )
        except KafkaException as error:
            self.on_commit(client_event_error(error), [])

    def on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:  # noqa: ARG002 - a callback
        """Take the broker's answer; say once that it refuses."""
        if error is not None and not is_retriable_by_client(error) and not self._refused:
            self._refused = True
            logger.warning(
                "offsets of group %r are not taken: %s",
                self._location.group,
                describe_client_error(error),
            )
