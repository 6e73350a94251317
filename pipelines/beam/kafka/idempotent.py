"""Records to a topic without a transaction.

Acknowledged by all replicas, in order, none twice by a resent request.
"""

from __future__ import annotations

from meanstream.streaming.kafka.connection.kafka_client import (
    KafkaError,
    Message,
    make_client_producer,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.writing.kafka_writer import POLL_EVERY, RecordsFailed
from meanstream.streaming.kafka.writing.marker import Records

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
