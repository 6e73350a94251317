"""One Pub/Sub server in memory, on a free port of 127.0.0.1, and topics and subscriptions in it."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.servers.support.broker import SERVERS

BINARY = SERVERS / "pubsub-fake"
PROJECT = "projects/meanstream-tests"
_numbers = itertools.count()


def missing() -> str | None:
    """Say what is not there to start the server, or None."""
    return (
        None
        if BINARY.is_file()
        else f"no Pub/Sub server in {BINARY}: run `make servers` where there is Go"
    )


@contextmanager
def running() -> Iterator[str]:
    """Start it, give its address, and stop it."""
    process = subprocess.Popen([str(BINARY), "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


class Clients:
    """Google's clients, for tests to look at what is in a topic and to send what nobody else
    would."""

    def __init__(self) -> None:
        from google.cloud import pubsub_v1

        self.subscriber, self.publisher = pubsub_v1.SubscriberClient(), pubsub_v1.PublisherClient()

    def new_topic(self, subscriptions: int = 1) -> tuple[str, list[str]]:
        """Make a topic that nobody else uses, and subscriptions of it."""
        number = next(_numbers)
        topic = f"{PROJECT}/topics/topic-{number}"
        self.publisher.create_topic(name=topic)
        names = [f"{PROJECT}/subscriptions/subscription-{number}-{i}" for i in range(subscriptions)]
        for name in names:
            request = {
                "name": name,
                "topic": topic,
                "enable_message_ordering": True,
                "ack_deadline_seconds": 60,
            }
            self.subscriber.create_subscription(request=request)
        return topic, names

    def publish(self, topic: str, values: Sequence[bytes]) -> None:
        """Send payloads; one attribute goes with each, for a message of nothing is refused."""
        for future in [self.publisher.publish(topic, value, sent_by="a test") for value in values]:
            future.result(30)

    def pulled(self, subscription: str, count: int) -> list[Any]:
        """Take so many messages, for good, and see that there are no more."""
        from google.api_core.exceptions import Cancelled, DeadlineExceeded

        messages: list[Any] = []
        for _ in range(60):
            enough = len(messages) >= count
            try:
                answer = self.subscriber.pull(
                    subscription=subscription, max_messages=1000, timeout=0.5
                )
            except (Cancelled, DeadlineExceeded):  # there are none now
                if enough:
                    break
                continue
            taken = list(answer.received_messages)
            if taken:
                self.subscriber.acknowledge(
                    subscription=subscription, ack_ids=[one.ack_id for one in taken]
                )
                messages += [one.message for one in taken]
        return messages

    def close(self) -> None:
        """Let go of the server."""
        self.publisher.stop()
        self.subscriber.close()
