"""Events of a pipeline to a Kafka topic, without a JVM.

The engine's records, at least once, and the same each time.
"""

from __future__ import annotations

from typing import Any

import apache_beam as beam

from meanstream.pipelines.beam.element_types.events import beam_events_as_lines, check_beam_events
from meanstream.pipelines.beam.worker.beam_metrics import count_sent_metrics
from meanstream.pipelines.beam.worker.beam_steps import Step
from meanstream.streaming.kafka.connection.kafka_client import (
    KafkaError,
    Message,
    make_client_producer,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.writing.kafka_sink import open_output_topic, sink_records
from meanstream.streaming.kafka.writing.kafka_writer import POLL_EVERY, RecordsFailed
from meanstream.streaming.kafka.writing.marker import Records
from meanstream.streaming.sinks.sink_protocol import Trust


class WriteKafka(beam.PTransform):  # type: ignore[misc]
    """Events to records of a topic: the bytes, keys and headers that the engine's sink writes.

    Input: events such as `WindowEstimate` or `DeadLetter`, or `EventLines` of many, which are
    written byte for byte. There is no output.

    **What is guaranteed.** A bundle is done when all replicas have acknowledged its records, in
    order, and a request that was sent twice is written once (idempotent producer). A bundle that
    the runner executes again, after a failure, is written again: at least once, without a
    transaction, and readers may see a part of a bundle. What is written again is the same: noise is
    keyed by what it is for, so the same release has the same bytes, key (agent or round) and header
    `release_id`. So a reader that keeps the newest record of each key, as a compacted topic does,
    or drops a `release_id` that it has seen, has each release exactly once. The engine's own sink,
    which has a transaction, needs no such reader. Dead letters have no key: a repeated one is known
    by its position.

    **Privacy.** A repeated record tells nothing new. Private events are refused unless the topic is
    declared private.

    Parameters
    ----------
    location : str
        `kafka://HOST:PORT/TOPIC?OPTION=VALUE`, as the engine's sinks take it; `create=N` makes the
        topic where it is missing. Workers read a file of properties (`config=`) themselves.
    role : str
        What the topic is: topics of "sink", "releases", "estimates" and "population" are made
        compacted.
    trust : Trust
        Who can read it.

    Examples
    --------
    >>> WriteKafka("kafka://127.0.0.1:9092/means?group=a")
    Traceback (most recent call last):
    ValueError: sink must have options of a topic that is written to, got 'group'; create, config, registry, shared
    """

    def __init__(self, location: str, *, role: str = "sink", trust: Trust = Trust.PUBLIC) -> None:
        super().__init__()
        KafkaLocation.parse(location, role=role)
        self._trust = trust
        self._send = SendEvents(location, role, trust)

    def expand(self, pcoll: beam.PCollection) -> None:
        """Send; `TypeError` where the PCollection is of private events, and the topic is not."""
        check_beam_events(pcoll.element_type, self._trust)
        _ = pcoll | "Send" >> beam.ParDo(self._send)


class SendEvents(Step):
    """Events to a topic; a bundle ends when they are there."""

    def __init__(self, location: str, role: str, trust: Trust) -> None:
        self._location = location
        self._role = role
        self._trust = trust

    def setup(self) -> None:
        """Connect; make the topic where it is missing and shall be made."""
        location = KafkaLocation.parse(self._location, role=self._role)
        open_output_topic(location)
        self._topic = location.topic
        self._writer = IdempotentWriter(location)

    def process(self, element: Any) -> None:
        """Queue an event, or many."""
        lines = beam_events_as_lines(element, self._trust)
        self._writer.send(sink_records(self._topic, lines))
        count_sent_metrics(lines)

    def finish_bundle(self) -> None:
        """Wait until they are there."""
        self._writer.flush()

    def teardown(self) -> None:
        """Give up what a failed bundle has left."""
        if hasattr(self, "_writer"):
            self._writer.discard()


FLUSH_SECONDS = 1.0


class IdempotentWriter:
    """One producer; what was sent is there when `flush` returns. What is sent again is there again.

    Parameters
    ----------
    location : KafkaLocation
        Brokers and properties; `message.timeout.ms` of librdkafka, five minutes, is how long
        brokers may be away.
    """

    def __init__(self, location: KafkaLocation) -> None:
        self._failed: KafkaError | None = None
        self._producer = make_client_producer(
            location,
            partitioner="murmur2_random",  # as Java's clients choose
            delivery_report_only_error=True,
        )

    def send(self, records: Records) -> None:
        """Queue records."""
        for number, (value, key, headers) in enumerate(records.rows()):
            if not number % POLL_EVERY:
                self._producer.poll(0)
                self._check()

            while True:
                try:
                    self._producer.produce(
                        records.topic, value, key, headers=headers, on_delivery=self._on_delivery
                    )
                    break
                except BufferError:  # the queue is full
                    self._producer.poll(FLUSH_SECONDS)
                    self._check()

    def flush(self) -> None:
        """Wait until everything is acknowledged."""
        while self._producer.flush(FLUSH_SECONDS):
            self._check()

        self._check()

    def discard(self) -> None:
        """Give up what was not acknowledged; some of it may be there."""
        self._producer.purge()
        self._producer.flush(FLUSH_SECONDS)
        self._failed = None

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and self._failed is None:
            self._failed = error

    def _check(self) -> None:
        if self._failed is not None:
            raise RecordsFailed(self._failed)
