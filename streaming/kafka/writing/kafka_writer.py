"""A transactional producer: records and offsets go out together, or not at all."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from meanstream.streaming.crash import CrashHook, CrashPoint, crash_step, no_crash
from meanstream.streaming.kafka.connection.kafka_client import (
    KafkaError,
    KafkaException,
    TopicPartition,
    describe_client_error,
    make_client_producer,
)
from meanstream.streaming.kafka.connection.kafka_health import Health
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.retry_policy import Detached, Patience, is_retry_refused
from meanstream.streaming.kafka.writing.marker import Headers, Records

DEFAULTS = {"transaction.timeout.ms": "90000", "queue.buffering.max.kbytes": "65536"}
"""Properties that a file may set otherwise.

A transaction may stand open for 90 seconds: so long brokers may be away without anything having to
be written again. After that the broker aborts it, the delivery fails, and is written again when
brokers are back. Longer would keep readers of the topics waiting when the process dies and is not
started again. What waits to be sent takes at most 64 MiB of memory.
"""

POLL_EVERY = 1000
ABORT_SECONDS = 2.0

logger = logging.getLogger("meanstream.kafka")


class RecordsFailed(Exception):  # noqa: N818 - the caller raises the error
    """A broker did not take a record: nothing of the transaction may be committed."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(describe_client_error(error))
        self.error = error


class Writer:
    """One producer under a transactional id, for one transaction after the other.

    Every method may raise `KafkaException`, after which the writer is to be discarded, and
    `DeliveryFailedError` if the run shall stop while brokers do not answer.

    Parameters
    ----------
    location : KafkaLocation
        Brokers and properties.
    transactional_id : str
        A new writer under the same id shuts out the one before.
    patience : Patience
        How long brokers are waited for.
    crash : callable
        Called on both sides of each step.
    health : Health, optional
        Follows the producer, which is then to be heard each second.
    """

    def __init__(
        self,
        location: KafkaLocation,
        transactional_id: str,
        patience: Patience,
        crash: CrashHook = no_crash,
        *,
        health: Health | None = None,
    ) -> None:
        configured = dict(location.settings)
        self._crash = crash
        self._wait_for = patience.wait_for
        self._failures: list[KafkaError] = []
        self._on_delivery = partial(
            _note, self._failures
        )  # holds no writer: records that stay would keep it alive
        self._open = False

        self._producer = make_client_producer(
            location,
            wait=False,
            health=health,
            transactional_id=transactional_id,
            partitioner="murmur2_random",  # as Java's clients choose
            delivery_report_only_error=True,
            metadata_recovery_strategy="none",  # brokers that are away stay known: see `Detached`
            **{
                name.replace(".", "_"): value
                for name, value in DEFAULTS.items()
                if name not in configured
            },
        )

    def start(self) -> None:
        """Shut out every other producer of this id, and wait until its transaction has ended."""
        self._wait_for("the end of earlier transactions", self._producer.init_transactions)

    def hear(self) -> None:
        """Take what the client has to say, without waiting.

        A fault that it tells of meets the next call.
        """
        with suppress(KafkaException, SystemError):
            self._producer.poll(0)

    @property
    def open(self) -> bool:
        """Whether a transaction was begun."""
        return self._open

    def send(self, records: Records) -> None:
        """Queue records, in a transaction that the first ones begin."""
        with self._raising(), crash_step(CrashPoint.PRODUCE, self._crash):
            self._begin()
            topic = records.topic
            for number, (value, key, headers) in enumerate(records.rows()):
                if not number % POLL_EVERY:
                    self._producer.poll(0)
                    self._check()

                try:
                    self._producer.produce(
                        topic, value, key, headers=headers, on_delivery=self._on_delivery
                    )
                except BufferError:
                    self._send_when_there_is_room(topic, value, key, headers)

    def commit(self, offsets: Sequence[TopicPartition], group: object) -> None:
        """Commit records and offsets; nothing if a broker did not take one of the records."""
        producer = self._producer

        def acknowledged(seconds: float) -> None:
            if producer.flush(seconds):
                raise BufferError(f"{len(producer)} records are not acknowledged")

        with self._raising():
            self._begin()
            self._wait_for("records to be acknowledged", acknowledged)
            self._check()
            send_offsets = producer.send_offsets_to_transaction

            with crash_step(CrashPoint.SEND_MARKER, self._crash):
                self._wait_for(
                    "the marker",
                    Detached(lambda seconds: send_offsets(list(offsets), group, seconds)),
                )

            with crash_step(CrashPoint.COMMIT_TRANSACTION, self._crash):
                self._wait_for("the commit", producer.commit_transaction)

        self._open = False

    def abort(self) -> None:
        """Try to take an open transaction back; otherwise it times out."""
        if self._open:
            try:
                self._producer.abort_transaction(ABORT_SECONDS)
            except KafkaException as error:
                logger.debug("transaction not aborted: %s", describe_client_error(error))

        self.discard()

    def discard(self) -> None:
        """Forget what is queued."""
        self._open = False
        self._producer.purge()

    def _begin(self) -> None:
        if not self._open:
            self._producer.begin_transaction()
            self._open = True

    @contextmanager
    def _raising(self) -> Iterator[None]:
        """Raise the first cause of an error."""
        try:
            yield
        except (KafkaException, SystemError) as error:
            # The binding shows a fatal error that it meets before a callback as the cause of a
            # SystemError.
            cause = error.__cause__ if isinstance(error, SystemError) else error
            if not isinstance(cause, KafkaException):
                raise

            with suppress(KafkaException, SystemError):
                self._producer.poll(0)

            self._check()  # a record that was not taken makes every further call fail
            raise cause from None

    def _check(self) -> None:
        if self._failures:
            raise RecordsFailed(next(filter(is_retry_refused, self._failures), self._failures[0]))

    def _send_when_there_is_room(
        self, topic: str, value: bytes, key: str | None, headers: Headers
    ) -> None:
        def attempt(seconds: float) -> None:
            self._producer.poll(seconds)
            self._check()
            self._producer.produce(
                topic, value, key, headers=headers, on_delivery=self._on_delivery
            )

        self._wait_for("room in the queue of records", attempt)


def _note(failures: list[KafkaError], error: KafkaError | None, _: object) -> None:
    if error is not None:
        failures.append(error)
