"""Which store a partition belongs to: read under two ledgers, its agents would be released twice.

The owner is noted in the metadata of the group's committed offset, by everyone who commits.
Supported are fixed sets of partitions per store (`partitions=`), and an engine that moves to
another machine together with its store. A store hands over a partition with its agents only
(`meanstream store move`): their sums are in the store, hence another one is refused. A set may grow
by partitions that no one owns.

Kafka forgets the offsets of a group that commits nothing for `offsets.retention.minutes` (a week by
default), and the owners with them. The same is noted under the deployment's name (`name_owners`),
whatever the group. Another name is another deployment, with a budget of its own: what it releases
comes on top.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Collection, Iterable, Mapping

from meanstream.streaming.kafka.connection.kafka_client import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
    client_event_error,
    describe_client_error,
    is_fatal_to_client,
    is_retriable_by_client,
    make_client_producer,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation

WAIT_SECONDS = 15.0
ATTEMPTS = 8
_MARK = "meanstream-store="

FormerOwners = Mapping[int, Collection[str]]
"""Ids of stores by partition that they have given away; what is noted of them does not count any
more."""
_NOBODY: FormerOwners = {}

_OVERTAKEN = (
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_TXN_STATE,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError._FENCED,
    KafkaError._STATE,
)


class OwnedElsewhereError(ValueError):
    """A partition belongs to another store."""


def owned_offsets(topic: str, offsets: Mapping[int, int], owner: str) -> list[TopicPartition]:
    """Offsets to commit, each with its owner."""
    return [
        TopicPartition(topic, p, offset, metadata=_MARK + owner)
        for p, offset in sorted(offsets.items())
    ]


def _owners(
    location: KafkaLocation, consumer: Consumer, partitions: Iterable[int]
) -> dict[int, str]:
    """Read which stores own partitions, without those that no one owns."""
    asked = [TopicPartition(location.topic, partition) for partition in partitions]
    committed = consumer.committed(asked, timeout=WAIT_SECONDS / 3)
    for partition in committed:
        if partition.error is not None:
            raise KafkaException(partition.error)

    return {
        p.partition: p.metadata.removeprefix(_MARK)
        for p in committed
        if p.offset >= 0 and p.metadata is not None and p.metadata.startswith(_MARK)
    }


def unowned_partitions(
    location: KafkaLocation,
    consumer: Consumer,
    offsets: Mapping[int, int],
    owner: str,
    former: FormerOwners = _NOBODY,
) -> dict[int, int]:
    """Say which partitions no one owns, or one who has given them away; without claiming any."""
    owners = _owners(location, consumer, offsets)
    owners = {
        partition: store
        for partition, store in owners.items()
        if store not in former.get(partition, ())
    }

    return _missing(location, owners, offsets, owner)


def require_unowned_in_time(
    location: KafkaLocation,
    consumer: Consumer,
    offsets: Mapping[int, int],
    owner: str,
    former: FormerOwners = _NOBODY,
) -> None:
    """Refuse partitions that another store owns.

    Ask again for some seconds where someone claims them just now.
    """
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            unowned_partitions(location, consumer, offsets, owner, former)
            return
        except KafkaException as error:
            if not is_retriable_by_client(error) or time.monotonic() >= end:
                raise
            time.sleep(0.1)


def claim_ownership(
    location: KafkaLocation,
    consumer: Consumer,
    offsets: Mapping[int, int],
    owner: str,
    former: FormerOwners = _NOBODY,
) -> None:
    """Make a store the owner of partitions, all or none, unless another one is.

    One transactional producer per group and topic: who claims at the same time is fenced, looks
    again, and finds the owner. Nothing is claimed that the store owns already.
    """
    try:
        missing = unowned_partitions(location, consumer, offsets, owner, former)
    except KafkaException:
        missing = dict(offsets)  # someone claims them just now

    attempts = 0
    try:
        while missing:
            attempts += 1
            try:
                missing = _claim_once(location, consumer, missing, owner, former)
            except KafkaException as error:
                overtaken = (
                    is_fatal_to_client(error) or client_event_error(error).code() in _OVERTAKEN
                )
                if not overtaken or attempts == ATTEMPTS:
                    raise

                time.sleep(random.uniform(0.05, 0.2) * attempts)  # noqa: S311 - two must not overtake each other for ever

        # Refused where the group has members, whose commits would take the notes of owners away.
        consumer.commit(offsets=owned_offsets(location.topic, offsets, owner), asynchronous=False)
    except KafkaException as error:
        if is_retriable_by_client(error):
            raise
        raise ValueError(_refused(location, error)) from None


def _claim_once(
    location: KafkaLocation,
    consumer: Consumer,
    offsets: Mapping[int, int],
    owner: str,
    former: FormerOwners,
) -> dict[int, int]:
    """Claim in a transaction; return what is still missing, which is nothing if all went well."""
    claiming = _claim_name(location)
    producer = make_client_producer(
        location, wait=False, transactional_id=claiming, transaction_timeout_ms=10_000
    )

    try:
        producer.init_transactions(
            WAIT_SECONDS
        )  # anyone who is claiming is fenced and undone, who has claimed is seen
        missing = unowned_partitions(location, consumer, offsets, owner, former)

        if missing:
            producer.begin_transaction()
            marked = owned_offsets(location.topic, missing, owner)
            producer.send_offsets_to_transaction(
                marked, consumer.consumer_group_metadata(), WAIT_SECONDS
            )
            producer.commit_transaction(WAIT_SECONDS)
    finally:
        producer.close()

    return unowned_partitions(location, consumer, offsets, owner, former)


def _claim_name(location: KafkaLocation) -> str:
    return f"meanstream-claim-{location.group}-{location.topic}"


def _missing(
    location: KafkaLocation, found: Mapping[int, str], offsets: Mapping[int, int], owner: str
) -> dict[int, int]:
    """Say which partitions no one owns; refuse those that another store does."""
    for partition in sorted(offsets):
        if found.get(partition, owner) != owner:
            raise OwnedElsewhereError(
                f"{location.role} must be partitions of this store, got partition {partition} of {location.topic!r}, "
                f"which store {found[partition]} reads in group {location.group!r}: give each engine its own "
                "partitions=, a run of its own another group=, or start this one with that store"
            )

    return {partition: offset for partition, offset in offsets.items() if partition not in found}


def _refused(location: KafkaLocation, error: KafkaException) -> str:
    code = client_event_error(error).code()
    if code in (
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
    ):
        return f"group must not be used by other consumers, got {location.group!r}"

    if code in (
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ):
        return (
            "group must be one with the rights to READ it and to WRITE the transactional id "
            f"{_claim_name(location)!r}, got {location.group!r}"
        )

    return f"group must be one whose partitions can be claimed, got {location.group!r} ({describe_client_error(error)})"


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
        self._taken_at: float | None = None
        self._refused = False

    @property
    def age(self) -> float | None:
        """Seconds since the broker took offsets, or since some were first sent."""
        if self._taken_at is None:
            return None
        return time.monotonic() - self._taken_at

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
        self._taken_at = now if self._taken_at is None else self._taken_at
        offsets = {int(partition): offset for partition, offset in self._offsets.items()}
        try:
            consumer.commit(
                offsets=owned_offsets(self._location.topic, offsets, self._owner), asynchronous=True
            )
        except KafkaException as error:
            self.on_commit(client_event_error(error), [])

    def on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:  # noqa: ARG002 - a callback
        """Take the broker's answer; say once that it refuses."""
        if error is None:
            self._taken_at = time.monotonic()
        if error is not None and not is_retriable_by_client(error) and not self._refused:
            self._refused = True
            logger.warning(
                "offsets of group %r are not taken: %s",
                self._location.group,
                describe_client_error(error),
            )
