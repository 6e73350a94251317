"""Other deployments that read the same partitions: what they release of a sample adds up.

Each deployment notes the partitions that it owns in a group of its name (`name_owners`). Kafka
keeps such a note for `offsets.retention.minutes` (a week by default) behind the last run.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from meanstream.streaming.kafka.claims.name_owners import NAME_GROUPS
from meanstream.streaming.kafka.connection.kafka_client import (
    AdminClient,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation

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
        known = answers[group].result().topic_partitions or ()
        others += any(place.error is None and place.offset >= 0 for place in known)

    return others
