"""The first answer of brokers that may not have been started yet."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from meanstream.streaming.kafka.connection.kafka_client import (
    make_client_admin,
    wait_for_client_answer,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.kafka_topics import GONE_SECONDS, find_topic

FIRST_LOG_SECONDS = 2.0
LOG_EVERY_SECONDS = 30.0

logger = logging.getLogger("meanstream.kafka")


def wait_for_first_answers(
    topics: Sequence[KafkaLocation], seconds: float, noted: Callable[[str], None]
) -> None:
    """Wait until the brokers of every topic answer.

    Brokers that were late, until they know the topics.
    """
    end = time.monotonic() + seconds
    waited_for: set[str] = set()
    for first in {(topic.brokers, topic.settings): topic for topic in reversed(topics)}.values():
        if _wait_for_brokers(first, end - time.monotonic(), noted):
            waited_for.add(first.brokers)

    for topic in topics:
        if topic.brokers in waited_for and topic.create is None:
            _wait_until_known(topic, noted)


def _wait_for_brokers(
    location: KafkaLocation, seconds: float, noted: Callable[[str], None]
) -> bool:
    """Wait for one cluster; tell whether it took long enough to be told."""
    told: list[float] = []

    def each(waited: float, why: str) -> None:
        what = f"{location.role} waits for the brokers {location.brokers} ({why})"
        noted(what)

        if waited >= (told[-1] + LOG_EVERY_SECONDS if told else FIRST_LOG_SECONDS):
            told.append(waited)
            logger.warning("%s: %.0f s of at most %.0f s", what, waited, seconds)

    began = time.monotonic()
    wait_for_client_answer(location, max(seconds, 0.0), each)

    if told:
        logger.warning(
            "%s: the brokers %s answer, after %.0f s",
            location.role,
            location.brokers,
            time.monotonic() - began,
        )

    return bool(told)


def _wait_until_known(topic: KafkaLocation, noted: Callable[[str], None]) -> None:
    """Give brokers that were just started time to learn which topics they have.

    Opening a missing one fails later.
    """
    admin = make_client_admin(topic)
    end = time.monotonic() + GONE_SECONDS
    while find_topic(admin, topic) is None and time.monotonic() < end:
        noted(f"{topic.role} waits for the topic {topic.topic}")
        time.sleep(0.2)
