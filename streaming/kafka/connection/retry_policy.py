"""The ladder of errors: what is waited out, and what can never succeed.

What lies between fails one delivery.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from meanstream.streaming.kafka.connection.kafka_client import (
    KafkaError,
    KafkaException,
    client_event_error,
    describe_client_error,
    is_retriable_by_client,
)
from meanstream.streaming.kafka.connection.kafka_health import Health
from meanstream.streaming.sinks.sink_protocol import DeliveryFailedError

PIECE_SECONDS = 1.0
"""Longest single wait: so often it is looked whether the run shall stop."""
GRACE_SECONDS = 3.0
"""So long a run that shall stop still tries."""
SILENT_SECONDS = 3.0
"""A wait that takes longer is said, once."""
BACK_OFF_SECONDS = 0.1
"""Between two attempts, where the first was refused at once."""

STUCK_SECONDS = 20.0
"""A call that ignores its time-out for so long is given up, with its client."""

REFUSED = frozenset(
    getattr(KafkaError, name)
    for name in (
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "INVALID_MSG_SIZE",
        "INVALID_RECORD",
        "INVALID_TRANSACTION_TIMEOUT",
        "MSG_SIZE_TOO_LARGE",
        "OFFSET_METADATA_TOO_LARGE",
        "POLICY_VIOLATION",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_EXCEPTION",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_OR_PART",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "UNSUPPORTED_VERSION",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
        "_UNSUPPORTED_FEATURE",
    )
)
"""Codes that the same records would meet again and again; a missing topic is reported after
librdkafka has waited."""

logger = logging.getLogger("meanstream.kafka")

Result = TypeVar("Result")


def is_retry_refused(error: KafkaError | KafkaException) -> bool:
    """Whether the same call can never succeed.

    Examples
    --------
    >>> is_retry_refused(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)), is_retry_refused(KafkaError(KafkaError._TRANSPORT))
    (True, False)
    """
    return client_event_error(error).code() in REFUSED


def _nothing() -> None:
    """Do nothing while something is waited for."""


class Patience:
    """Repeats a call, in short pieces, while brokers are away.

    Never silently, and not after it was queried to stop.

    Parameters
    ----------
    brokers : str
        Addresses, for messages.
    stop : callable
        Whether the run shall stop.
    health : Health, optional
        Is told when a call has to wait for brokers, and when they answer.

    Attributes
    ----------
    meanwhile : callable
        Called about once a second while something is waited for.
    """

    def __init__(
        self, brokers: str, stop: Callable[[], bool], health: Health | None = None
    ) -> None:
        self._health = health
        self.meanwhile: Callable[[], None] = _nothing
        self._brokers = brokers
        self._stop = stop

    def wait_for(self, what: str, attempt: Callable[[float], Result]) -> Result:
        """Call `attempt(seconds)` until it does not say that it may succeed later."""
        began = time.monotonic()
        said = False
        while True:
            called = time.monotonic()
            try:
                result = attempt(PIECE_SECONDS)
            except (KafkaException, BufferError) as error:
                if isinstance(error, KafkaException) and not is_retriable_by_client(error):
                    raise
                why = (
                    describe_client_error(error)
                    if isinstance(error, KafkaException)
                    else str(error)
                )
            else:
                if said:
                    logger.warning(
                        "%s: %s took %.0f s", self._brokers, what, time.monotonic() - began
                    )

                if self._health is not None:
                    self._health.reached()

                return result

            self.meanwhile()
            waited = time.monotonic() - began
            if waited > GRACE_SECONDS and self._stop():
                raise DeliveryFailedError(f"stopped while {self._brokers} did not answer ({why})")

            if waited > SILENT_SECONDS and self._health is not None:
                self._health.lost(why)

            if waited > SILENT_SECONDS and not said:
                logger.warning("%s: waiting for the brokers: %s (%s)", self._brokers, what, why)
                said = True

            if time.monotonic() - called < BACK_OFF_SECONDS:
                time.sleep(BACK_OFF_SECONDS)


class Detached:
    """Makes a call that may ignore its time-out, in a thread that can be left behind.

    An attempt for `Patience`.

    librdkafka 2.10 to 2.16 may wait without end for a group's coordinator that was replaced while
    it was away (confluentinc/librdkafka issues 5456 and 5511).

    Parameters
    ----------
    call : callable
        Takes the time-out in seconds.

    Examples
    --------
    >>> Detached(lambda seconds: print(f"at most {seconds} s"))(1.0)
    at most 1.0 s
    """

    def __init__(self, call: Callable[[float], None]) -> None:
        self._call = call
        self._running: Future[None] | None = None
        self._began = 0.0

    def __call__(self, seconds: float) -> None:
        """Call, or go on waiting for the call that was not answered."""
        if self._running is None:
            self._running = Future()
            self._began = time.monotonic()
            threading.Thread(target=self._run, args=(self._running, seconds), daemon=True).start()

        try:
            self._running.result(seconds)
        except TimeoutError:
            if time.monotonic() - self._began > STUCK_SECONDS:
                raise KafkaException(
                    KafkaError(KafkaError._FAIL, "no answer, nor a time-out")
                ) from None

            raise BufferError("no answer") from None
        except BaseException:
            self._running = None
            raise

    def _run(self, running: Future[None], seconds: float) -> None:
        try:
            running.set_result(self._call(seconds))
        except BaseException as error:  # raised where the call is waited for
            running.set_exception(error)
