"""The first answer of brokers that may not have been started yet."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from meanstream.streaming.kafka.connection.kafka_client import make_client_admin, wait_for_client_answer
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.kafka_topics import GONE_SECONDS, find_topic

FIRST_TOLD_SECONDS = 2.0
TOLD_EVERY_SECONDS = 30.0

logger = logging.getLogger("meanstream.kafka")


def wait_for_first_answers(topics: Sequence[KafkaLocation], seconds: float, noted: Callable[[str], None]) -> None:
    """Wait until the brokers of every topic answer; of brokers that had to be waited for, until they know the topics.

    Parameters
    ----------
    topics : sequence of KafkaLocation
        Each with the option that names it.
    seconds : float
        How long, over all of them.
    noted : callable
        Called about once a second with what is waited for; what it raises ends the wait.

    Raises
    ------
    ValueError
        At once where no waiting helps: a property, a login or TLS is refused; else when the time is over.
    """
    end = time.monotonic() + seconds
    waited_for: set[str] = set()
    for first in {(topic.brokers, topic.settings): topic for topic in reversed(topics)}.values():
        if _wait_for_brokers(first, end - time.monotonic(), noted):
            waited_for.add(first.brokers)
    for topic in topics:
        if topic.brokers in waited_for and topic.create is None:
            _wait_until_known(topic, noted)


def _wait_for_brokers(location: KafkaLocation, seconds: float, noted: Callable[[str], None]) -> bool:
    """Wait for one cluster; tell whether it took long enough to be told."""
    told: list[float] = []

    def each(waited: float, why: str) -> None:
        what = f"{location.role} waits for the brokers {location.brokers} ({why})"
        noted(what)
        if waited >= (told[-1] + TOLD_EVERY_SECONDS if told else FIRST_TOLD_SECONDS):
            told.append(waited)
            logger.warning("%s: %.0f s of at most %.0f s", what, waited, seconds)

    began = time.monotonic()
    wait_for_client_answer(location, max(seconds, 0.0), each)
    if told:
        logger.warning(
            "%s: the brokers %s answer, after %.0f s", location.role, location.brokers, time.monotonic() - began
        )
    return bool(told)


def _wait_until_known(topic: KafkaLocation, noted: Callable[[str], None]) -> None:
    """Give brokers that were just started time to learn which topics they have; whoever opens it says if it is none."""
    admin = make_client_admin(topic)
    end = time.monotonic() + GONE_SECONDS
    while find_topic(admin, topic) is None and time.monotonic() < end:
        noted(f"{topic.role} waits for the topic {topic.topic}")
        time.sleep(0.2)
