"""Events of a pipeline to a Pub/Sub topic, on any runner: at least once, and the same each time."""

from __future__ import annotations

from typing import Any

import apache_beam as beam

from meanstream.pipelines.beam.element_types.events import beam_events_as_lines, check_beam_events
from meanstream.pipelines.beam.pubsub.pubsub_client import check_pubsub_name, make_pubsub_publisher
from meanstream.pipelines.beam.worker.beam_metrics import count_sent_metrics
from meanstream.pipelines.beam.worker.beam_steps import Step
from meanstream.streaming.kafka.writing.kafka_sink import sink_records
from meanstream.streaming.sinks.sink_protocol import DeliveryFailedError, Trust

ANSWER_SECONDS = 300.0
"""So long is waited for a message to be taken."""
WAITING = 10_000
"""So many messages may be on their way."""


class WritePubSub(beam.PTransform):  # type: ignore[misc]
    """Events to messages of a topic: the bytes that the engine's sinks write.

    Input: events such as `WindowEstimate` or `DeadLetter`, or `EventLines` of many, which are
    written byte for byte. There is no output. Attributes are `schema_version`, `event` (the name
    that `meanstream schema` takes) and, of releases and refusals, `release_id`. The ordering key is
    the agent or, of a window estimate, the round: subscribers with message ordering get an agent's
    releases in order. Beam's own sink is not used: on Dataflow it drops the key.

    **What is guaranteed.** A bundle is done when the service has taken its messages. A bundle that
    the runner executes again is written again: at least once. What is written again is the same,
    because noise is keyed by what it is for: anyone who drops a `release_id` that it has seen has
    each release exactly once.

    **Privacy.** A repeated message tells nothing new. Private events are refused unless the topic
    is declared private.

    Parameters
    ----------
    topic : str
        `projects/PROJECT/topics/NAME`; it must exist. Workers find Google's credentials as its
        clients do, or the emulator that the variable `PUBSUB_EMULATOR_HOST` names.
    trust : Trust
        Who can subscribe.

    Examples
    --------
    >>> WritePubSub("projects/my-project/subscriptions/means")
    Traceback (most recent call last):
    ValueError: topic must be projects/PROJECT/topics/NAME, got 'projects/my-project/subscriptions/means'
    """

    def __init__(self, topic: str, *, trust: Trust = Trust.PUBLIC) -> None:
        super().__init__()
        check_pubsub_name("topic", "topics", topic)
        self._trust = trust
        self._send = SendMessages(topic, trust)

    def expand(self, pcoll: beam.PCollection) -> None:
        """Send; `TypeError` where the PCollection is of private events, and the topic is not."""
        check_beam_events(pcoll.element_type, self._trust)
        _ = pcoll | "Send" >> beam.ParDo(self._send)


class SendMessages(Step):
    """Events to a topic; a bundle ends when they are taken."""

    def __init__(self, topic: str, trust: Trust) -> None:
        self._topic = topic
        self._trust = trust

    def setup(self) -> None:
        """Connect."""
        self._publisher = make_pubsub_publisher()

    def start_bundle(self) -> None:
        """Begin with nothing on its way."""
        self._waiting: list[Any] = []

    def process(self, element: Any) -> None:
        """Send an event, or many."""
        lines = beam_events_as_lines(element, self._trust)
        records = sink_records(self._topic, lines)
        for value, key, headers in zip(records.values, records.keys, records.headers, strict=True):
            future = self._publisher.publish(
                self._topic, value, ordering_key=key or "", **dict(headers)
            )
            self._waiting.append(future)

            if len(self._waiting) >= WAITING:
                self._wait()

        count_sent_metrics(lines)

    def finish_bundle(self) -> None:
        """Wait until they are taken."""
        self._wait()

    def teardown(self) -> None:
        """Let go of the service."""
        if hasattr(self, "_publisher"):
            self._publisher.stop()

    def _wait(self) -> None:
        for future in self._waiting:
            try:
                future.result(ANSWER_SECONDS)
            except Exception as error:
                said = (
                    f"topic must accept messages, got {type(error).__name__} from {self._topic!r}"
                )
                raise DeliveryFailedError(said) from None

        self._waiting.clear()
