"""Topics that are written to: they are there, or are made as their role needs them."""

from __future__ import annotations

import json
import logging
import time

from meanstream.streaming.events.wire import wire_event_schema
from meanstream.streaming.kafka.connection.kafka_client import (
    AdminClient,
    ConfigResource,
    KafkaException,
    describe_client_error,
    make_client_admin,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.kafka_topics import (
    ensure_topic,
    find_topic,
    require_topic,
)
from meanstream.streaming.kafka.connection.schema_registry import RegistryAwayError, SchemaRegistry

COMPACTED = ("releases", "sink", "estimates", "population", "stages")
"""Roles of which the newest record of each key is what counts: their topics are made compacted."""

REQUEST_SECONDS = 10.0
APPEAR_SECONDS = 2.0
"""So long after it was made, or after a broker was started, a broker may not know a topic yet."""

logger = logging.getLogger("meanstream.kafka")


def require_releases(location: KafkaLocation) -> None:
    """Refuse a registry where it has no schema to keep."""
    if location.registry is not None and location.role != "releases":
        raise ValueError(
            f"registry must be given with releases, which others read, got it with {location.role}"
        )


def register_releases(location: KafkaLocation) -> int:
    """Register the schema of releases under the topic's name, readable for ever by its newest version; give its id."""
    require_releases(location)
    registry = SchemaRegistry.answering(str(location.registry), location.registry_settings)
    try:
        return registry.register(
            f"{location.topic}-value", json.dumps(wire_event_schema("release"))
        )
    except RegistryAwayError as error:
        raise ValueError(str(error)) from None


def check_output_topic(location: KafkaLocation) -> None:
    """Refuse a topic that may not be written to, or that is not there and shall not be made.

    Make nothing.
    """
    _check(make_client_admin(location), location)


def open_output_topic(location: KafkaLocation) -> str:
    """Make a topic if it is missing and shall be made; return the id of its cluster."""
    admin = make_client_admin(location)
    _check(admin, location)
    policy = "compact" if location.role in COMPACTED else "delete"
    ensure_topic(admin, location, config={"cleanup.policy": policy})

    if location.role == "releases" and not _is_compacted(admin, location.topic):
        logger.warning(
            "topic %r of the releases is not compacted (cleanup.policy): it keeps each agent's latest release only as "
            "long as its retention",
            location.topic,
        )

    return str(admin.list_topics(location.topic, timeout=REQUEST_SECONDS).cluster_id)


def _check(admin: AdminClient, location: KafkaLocation) -> None:
    until = time.monotonic() + APPEAR_SECONDS
    found = find_topic(admin, location)
    while found is None and location.create is None and time.monotonic() < until:
        time.sleep(0.1)
        found = find_topic(admin, location)

    if found is not None:
        require_topic(admin, location, "WRITE")
    elif location.create is None:
        raise ValueError(
            f"{location.role} must be a topic that exists, got {location.topic!r} on {location.brokers}: add "
            f"?create=PARTITIONS to have it made, or use kafka-topics --create --topic {location.topic}"
        )


def _is_compacted(admin: AdminClient, topic: str) -> bool:
    """Say whether a topic is compacted; yes where that may not be looked up."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        found = admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)[
            resource
        ].result()
    except KafkaException as error:
        logger.debug("configuration of topic %r: %s", topic, describe_client_error(error))
        return True

    return "compact" in found["cleanup.policy"].value
