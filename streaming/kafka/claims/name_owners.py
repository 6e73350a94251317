"""Which store of a deployment's name a partition belongs to, in whichever group it is read.

Noted as `ownership` does, in a group of the name: two stores of one name would release the same
samples under the same ids, or under two budgets.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

from meanstream.streaming.kafka.claims.ownership import (
    RENEW_SECONDS,
    FormerOwners,
    GroupOffsets,
    OwnedElsewhereError,
    claim_ownership,
    require_unowned_in_time,
)
from meanstream.streaming.kafka.connection.kafka_client import (
    AdminClient,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
    make_client_consumer,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation

NAME_GROUPS = "meanstream-name-"
"""How the groups of all names begin."""


def name_owner_group(name: str) -> str:
    """Give the group that notes who owns what under a name.

    Examples
    --------
    >>> name_owner_group("delays")
    'meanstream-name-6434c51fa4df3703'
    """
    return f"{NAME_GROUPS}{hashlib.sha256(name.encode()).hexdigest()[:16]}"


class NameOwners:
    """Owners of partitions under a name.

    Parameters
    ----------
    location : KafkaLocation
        The topic.
    name : str
        Name of the deployment.
    owner : str
        Public id of the store.
    former : mapping
        Stores that have given a partition to this one, by partition.
    """

    def __init__(
        self, location: KafkaLocation, name: str, owner: str, former: FormerOwners
    ) -> None:
        self._former = former
        self._location = replace(location, group=name_owner_group(name))
        self._name = name
        self._owner = owner
        self._offsets = GroupOffsets(self._location, owner)
        self._consumer = make_client_consumer(self._location, on_commit=self._offsets.on_commit)

    @property
    def group(self) -> str:
        """Group that notes who owns what under the name."""
        return self._location.group

    def check(self, offsets: Mapping[int, int]) -> None:
        """Refuse partitions that another store of the name owns."""
        try:
            require_unowned_in_time(
                self._location, self._consumer, offsets, self._owner, self._former
            )
        except OwnedElsewhereError as error:
            raise self._refused(error) from None

    def claim(self, offsets: Mapping[int, int]) -> None:
        """Own partitions under the name, all or none; see `ownership.claim`."""
        try:
            claim_ownership(self._location, self._consumer, offsets, self._owner, self._former)
        except OwnedElsewhereError as error:
            raise self._refused(error) from None

    def renew(self, offsets: Mapping[str, int]) -> None:
        """Note the owner again, before Kafka forgets it; without waiting."""
        self._offsets.note(offsets)
        self._offsets.send(self._consumer, after=RENEW_SECONDS)
        self._consumer.poll(0)

    def close(self) -> None:
        """Let go of the brokers."""
        self._consumer.close()

    def _refused(self, error: OwnedElsewhereError) -> OwnedElsewhereError:
        return OwnedElsewhereError(
            f"{error}; name must be another than {self._name!r} for another deployment, whatever its group"
        )


logger = logging.getLogger("meanstream.kafka")

MOST_GROUPS = 200
"""So many groups are asked, at most: each is a question to a broker."""
ASK_SECONDS = 5.0


def warn_of_other_readers(
    admin: AdminClient, location: KafkaLocation, own_group: str, partitions: Collection[int]
) -> None:
    """Say once at the start how many other deployments have read these partitions.

    A broker that does not answer, or that may not be asked, says nothing; the run goes on.
    """
    try:
        others = _other_readers(admin, location, own_group, partitions)
    except KafkaException:
        return

    if others:
        logger.warning(
            "topic %r is read by other deployments, too: of each sample that several count, the "
            "privacy losses add up (meanstream explain together)",
            location.topic,
            extra={"other_deployments": others},
        )


def _other_readers(
    admin: AdminClient, location: KafkaLocation, own_group: str, partitions: Collection[int]
) -> int:
    """Count the other names under which someone owns some of these partitions."""
    listed = admin.list_consumer_groups(request_timeout=ASK_SECONDS).result()
    groups = sorted(
        group.group_id
        for group in listed.valid or ()
        if group.group_id.startswith(NAME_GROUPS) and group.group_id != own_group
    )
    asked = [TopicPartition(location.topic, partition) for partition in sorted(partitions)]
    others = 0

    for group in groups[:MOST_GROUPS]:
        question = ConsumerGroupTopicPartitions(group, asked)
        answers = admin.list_consumer_group_offsets([question], request_timeout=ASK_SECONDS)
        offsets = answers[group].result().topic_partitions or ()
        others += any(
            offset_of_partition.error is None and offset_of_partition.offset >= 0
            for offset_of_partition in offsets
        )

    return others
