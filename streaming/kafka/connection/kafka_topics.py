"""Topics: what a broker says of one, making it where it is missing, and noticing that it is another one now."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from meanstream.operators.validation import closest_valid
from meanstream.streaming.kafka.connection.kafka_client import (
    AdminClient,
    KafkaError,
    KafkaException,
    KafkaLostError,
    NewTopic,
    TopicCollection,
    client_event_error,
    describe_client_error,
    is_retriable_by_client,
    make_client_admin,
    wait_for_client_answer,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation

WAIT_SECONDS = 15.0
"""Seconds to wait for an answer of a broker."""

GONE_SECONDS = 10.0
"""A topic that is unknown for so long is taken as deleted: a broker that has just started may not
know it yet."""

MADE_SECONDS = 60.0
"""A topic that was made now is waited for so long: a busy broker may list it half a minute later."""

UNLISTED_SECONDS = 1.0
"""A topic that is unknown for so long is refused: a broker acknowledges a topic a moment before it
lists it."""

_NO_ID = "A" * 22  # sixteen zero bytes: a broker older than topic ids


@dataclass(frozen=True, slots=True)
class Topic:
    """What a broker says of a topic.

    Attributes
    ----------
    name : str
    id : str
        Differs from that of an earlier topic of the same name; empty if the broker gives none.
    partitions : int
        Number of partitions.
    operations : frozenset of str
        What these credentials may do, such as "READ" and "WRITE"; empty if the broker does not
        tell.
    """

    name: str
    id: str
    partitions: int
    operations: frozenset[str] = field(default=frozenset())

    def allows(self, operation: str) -> bool:
        """Say whether these credentials may do something; true if the broker does not tell."""
        return not self.operations or operation in self.operations


def find_topic(admin: AdminClient, location: KafkaLocation) -> Topic | None:
    """Ask for a topic; None if it does not exist."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return _described(_ask(admin, location.topic, operations=True).result(WAIT_SECONDS))
        except KafkaException as error:
            code = client_event_error(error).code()
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            if not is_retriable_by_client(error) or time.monotonic() > end:
                raise ValueError(_refused(location, error)) from None

            time.sleep(0.1)


def require_topic(admin: AdminClient, location: KafkaLocation, operation: str) -> Topic:
    """Ask for a topic that must exist, and on which an operation ("READ", "WRITE") must be allowed."""
    topic = _find_listed(admin, location, UNLISTED_SECONDS)
    if topic is None:
        topic_names = sorted(
            name
            for name in admin.list_topics(timeout=WAIT_SECONDS).topics
            if not name.startswith("__")
        )
        hint = closest_valid(location.topic, topic_names, listed="the brokers have")
        raise ValueError(
            f"{location.role} must be a topic that exists, got {location.topic!r}{hint}"
        )

    if not topic.allows(operation):
        raise ValueError(
            f"{location.role} must be a topic with the right to {operation}, got {location.topic!r}"
        )

    return topic


def ensure_topic(
    admin: AdminClient,
    location: KafkaLocation,
    *,
    operation: str = "WRITE",
    config: Mapping[str, str] | None = None,
) -> Topic:
    """Ask for a topic, and make it if it is missing and the address says with how many partitions (`create=N`)."""
    if location.create is not None and find_topic(admin, location) is None:
        new = NewTopic(location.topic, location.create, -1, config=dict(config or {}))
        try:
            admin.create_topics([new])[location.topic].result(WAIT_SECONDS)
        except KafkaException as error:
            if (
                client_event_error(error).code() != KafkaError.TOPIC_ALREADY_EXISTS
            ):  # someone else was faster
                raise ValueError(_refused(location, error)) from None

        _find_listed(admin, location, MADE_SECONDS)

    return require_topic(admin, location, operation)


def _find_listed(admin: AdminClient, location: KafkaLocation, seconds: float) -> Topic | None:
    """Ask for a topic until it is listed; None if that takes longer."""
    end = time.monotonic() + seconds
    while (topic := find_topic(admin, location)) is None and time.monotonic() < end:
        time.sleep(0.05)

    return topic


class TopicWatch:
    """Asks for a topic now and then without waiting for the answer.

    Parameters
    ----------
    admin : AdminClient
    location : KafkaLocation
    topic : Topic
        As it was when reading began.
    seconds : float
        Time between two questions.
    """

    def __init__(
        self, admin: AdminClient, location: KafkaLocation, topic: Topic, seconds: float
    ) -> None:
        self._admin = admin
        self._location = location
        self._topic = topic
        self._seconds = seconds
        self._next = time.monotonic() + seconds
        self._asked: Future[Any] | None = None
        self._missing_since: float | None = None

    def soon(self) -> None:
        """Ask at the next opportunity."""
        self._next = min(self._next, time.monotonic() + 0.2)

    def look(self) -> Topic | None:
        """Give what the broker said since the last look, if it said anything."""
        now = time.monotonic()
        self._admin.poll(0)  # what it has to say would pile up

        if self._asked is None:
            if now >= self._next:
                self._asked = _ask(self._admin, self._topic.name, operations=False)

            return None

        if not self._asked.done():
            return None
        asked, self._asked, self._next = self._asked, None, now + self._seconds
        error = asked.exception()

        if error is None:
            self._missing_since = None
            topic = _described(asked.result())
            try:
                check_same_topic(self._location, self._topic.id, topic)
            except ValueError as other:
                raise KafkaLostError(str(other)) from None

            return topic

        if (
            isinstance(error, KafkaException)
            and client_event_error(error).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        ):
            self._missing_since = now if self._missing_since is None else self._missing_since
            if now - self._missing_since > GONE_SECONDS:
                raise KafkaLostError(
                    f"{self._location.role} must keep existing, got no topic {self._topic.name!r}"
                )

            self.soon()

        return None


def check_same_topic(location: KafkaLocation, known_id: str, topic: Topic) -> None:
    """Refuse a topic that was deleted and made again: its offsets mean other records."""
    if known_id and topic.id and known_id != topic.id:
        raise ValueError(
            f"{location.role} must be the topic that this store was filled from, got a new one of the name "
            f"{topic.name!r}: begin a new store"
        )


def _ask(admin: AdminClient, name: str, *, operations: bool) -> Future[Any]:
    futures: Mapping[str, Future[Any]] = admin.describe_topics(
        TopicCollection([name]),
        include_authorized_operations=operations,
        request_timeout=WAIT_SECONDS,
    )

    return futures[name]


def _described(found: Any) -> Topic:
    topic_id = str(found.topic_id)
    operations = frozenset(operation.name for operation in found.authorized_operations or ())
    return Topic(
        found.name, "" if topic_id == _NO_ID else topic_id, len(found.partitions), operations
    )


def _refused(location: KafkaLocation, error: KafkaException) -> str:
    if client_event_error(error).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return f"{location.role} must be a topic that these credentials may use, got {location.topic!r}"
    return f"{location.role} must be a topic that can be used, got {location.topic!r} ({describe_client_error(error)})"


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
    logged_at: list[float] = []

    def each(waited: float, why: str) -> None:
        what = f"{location.role} waits for the brokers {location.brokers} ({why})"
        noted(what)

        if waited >= (logged_at[-1] + LOG_EVERY_SECONDS if logged_at else FIRST_LOG_SECONDS):
            logged_at.append(waited)
            logger.warning("%s: %.0f s of at most %.0f s", what, waited, seconds)

    began = time.monotonic()
    wait_for_client_answer(location, max(seconds, 0.0), each)

    if logged_at:
        logger.warning(
            "%s: the brokers %s answer, after %.0f s",
            location.role,
            location.brokers,
            time.monotonic() - began,
        )

    return bool(logged_at)


def _wait_until_known(topic: KafkaLocation, noted: Callable[[str], None]) -> None:
    """Give brokers that were just started time to learn which topics they have.

    Opening a missing one fails later.
    """
    admin = make_client_admin(topic)
    end = time.monotonic() + GONE_SECONDS
    while find_topic(admin, topic) is None and time.monotonic() < end:
        noted(f"{topic.role} waits for the topic {topic.topic}")
        time.sleep(0.2)
