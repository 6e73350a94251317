"""The only file that imports confluent_kafka.

Clients that are connected, and what their errors mean.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from meanstream.streaming.kafka.connection.kafka_configuration import secrets_of_configuration
from meanstream.streaming.kafka.connection.kafka_health import Health
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.sources.source_protocol import SourceLostError

DEFAULT_PORT = 9092

_SASL_HANDSHAKE = 17
_UNSUPPORTED_MECHANISM = 33
_NO_SASL_HERE = 34
_NO_MECHANISM = b"none"
_CORRELATION = 1
_MOST_BYTES = 4096


def protocols_of_listener(broker: str, seconds: float) -> tuple[str, ...]:
    """Ask a broker which values of `security.protocol` its listener takes.

    None where it does not say.

    Nothing is sent but the name of a mechanism that no broker has, and no certificate is looked at:
    anyone who answers is told nothing, and learns from the brokers' refusals that someone with
    wrong properties came.
    """
    address = _address(broker)
    try:
        with socket.create_connection(address, seconds) as plain:
            sasl = _wants_sasl(plain)

        if sasl is not None:
            if sasl:
                return ("SASL_PLAINTEXT",)
            return ("PLAINTEXT",)

        with socket.create_connection(address, seconds) as connection:
            return _protocols_with_tls(connection, address[0])
    except (OSError, UnicodeError):  # the name of no host, such as `a..b`, is the latter
        return ()


def _protocols_with_tls(connection: socket.socket, host: str) -> tuple[str, ...]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # it is queried whether, not who

    try:
        tls = context.wrap_socket(connection, server_hostname=host)
    except (
        ssl.SSLError
    ) as error:  # an alert is TLS, too: of a listener that wants a certificate, say
        if "ALERT" in (error.reason or ""):
            return ("SSL", "SASL_SSL")
        return ()

    with tls:
        sasl = _wants_sasl(tls)

    if sasl is None:
        return ("SSL", "SASL_SSL")

    if sasl:
        return ("SASL_SSL",)
    return ("SSL",)


def _wants_sasl(connection: socket.socket) -> bool | None:
    """Ask for a mechanism that there is not.

    A listener without SASL says so; None where it does not answer that.
    """
    header = struct.pack(">hhih", _SASL_HANDSHAKE, 1, _CORRELATION, -1)
    request = header + struct.pack(">h", len(_NO_MECHANISM)) + _NO_MECHANISM
    try:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = _read(connection, 10)
    except OSError:
        return None

    if len(answer) < 10:
        return None
    size, correlation, code = struct.unpack(">iih", answer)
    if correlation != _CORRELATION or not 6 <= size <= _MOST_BYTES:
        return None

    return {_UNSUPPORTED_MECHANISM: True, _NO_SASL_HERE: False}.get(code)


def _read(connection: socket.socket, count: int) -> bytes:
    """Read that many bytes, or fewer if it ends."""
    received = b""
    while len(received) < count and (more := connection.recv(count - len(received))):
        received += more

    return received


def _address(broker: str) -> tuple[str, int]:
    host, _, port = broker.rpartition(":")
    if not host or not port.isdecimal():
        return broker.strip("[]"), DEFAULT_PORT
    return host.strip("[]"), int(port)


try:
    from confluent_kafka import (
        OFFSET_BEGINNING,
        OFFSET_END,
        OFFSET_INVALID,
        Consumer,
        ConsumerGroupTopicPartitions,
        KafkaError,
        KafkaException,
        Message,
        Producer,
        TopicCollection,
        TopicPartition,
    )
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs forget NewTopic
        AdminClient,
        ConfigResource,
        NewTopic,
    )
except ImportError:
    raise ValueError("kafka must be installed: pip install 'meanstream[kafka]'") from None

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "AdminClient",
    "ConfigResource",
    "Consumer",
    "ConsumerGroupTopicPartitions",
    "KafkaError",
    "KafkaException",
    "KafkaLostError",
    "Message",
    "NewTopic",
    "Producer",
    "TopicCollection",
    "TopicPartition",
    "client_event_error",
    "client_health",
    "describe_client_error",
    "is_fatal_to_client",
    "is_retriable_by_client",
    "make_client_admin",
    "make_client_consumer",
    "make_client_producer",
    "message_position",
    "wait_for_client_answer",
]

CONNECT_SECONDS = 15.0
"""So long is waited for the first answer of a broker."""

BROKER_SECONDS = 0.5
"""So long may a listener take to say which security.protocol it speaks, while it does not answer us
in ours."""

_DEFAULTS = {
    "client.id": "meanstream",
    "reconnect.backoff.max.ms": "1000",
    "socket.keepalive.enable": "true",
}
_CONSUMER_DEFAULTS = {
    # Of a steady stream a fetch takes what comes in 50 ms, not each batch of each producer: a fetch
    # costs as much as some hundred records.
    "fetch.min.bytes": "65536",
    "fetch.wait.max.ms": "50",
    "fetch.queue.backoff.ms": "10",  # a second, as it is, stops reading for a second whenever the queue is full
    "queued.min.messages": "100000",
    "queued.max.messages.kbytes": "16384",
}
_STATISTICS_MS = 1000
"""Of clients that are looked at all the time. Others have none: what is not looked at stays in
memory."""
_CALLBACKS = ("on_commit", "on_delivery")
_FIXED_CONSUMER = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
}

_RETRIABLE = frozenset(
    getattr(KafkaError, name)
    for name in (
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_MSG_TIMED_OUT",
        "_WAIT_COORD",
        "_WAIT_CACHE",
        "_RETRY",
        "_DESTROY_BROKER",
        "BROKER_NOT_AVAILABLE",
        "CONCURRENT_TRANSACTIONS",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "LISTENER_NOT_FOUND",
        "NETWORK_EXCEPTION",
        "NOT_CONTROLLER",
        "NOT_COORDINATOR",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "NOT_LEADER_FOR_PARTITION",
        "OFFSET_NOT_AVAILABLE",
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "THROTTLING_QUOTA_EXCEEDED",
        "UNKNOWN_LEADER_EPOCH",
        "UNSTABLE_OFFSET_COMMIT",
    )
)


def message_position(message: Message) -> tuple[int, int]:
    """Give the partition and the offset of a message: what was consumed has both."""
    return cast("int", message.partition()), cast("int", message.offset())


Client = TypeVar("Client", Consumer, Producer, AdminClient)


class KafkaLostError(SourceLostError):
    """The client can never be used again by this process; the message is one line for the user."""


def make_client_consumer(
    location: KafkaLocation,
    *,
    wait: bool = True,
    health: Health | None = None,
    **settings: Any,
) -> Consumer:
    """Connect a consumer that commits nothing by itself and reads committed records only."""
    fixed = {**_FIXED_CONSUMER, "group.id": location.group}
    return _connect(Consumer, location, {**fixed, **_dotted(settings)}, wait=wait, health=health)


def client_health(
    location: KafkaLocation, on_statistics: Callable[[dict[str, Any]], None] | None = None
) -> Health:
    """Make what follows a client.

    `on_statistics` takes librdkafka's statistics each second, too.
    """
    return Health(location.brokers, secrets_of_configuration(location.settings), on_statistics)


def make_client_producer(
    location: KafkaLocation, *, wait: bool = True, health: Health | None = None, **settings: Any
) -> Producer:
    """Connect a producer, idempotent and acknowledged by all replicas; see `make_client_consumer`.

    Anyone who uses it calls `poll` now and then: callbacks and log lines come from there. One that
    is given a `health` has statistics and is polled each second.
    """
    fixed = {"enable.idempotence": True, "acks": "all"}
    return _connect(Producer, location, {**fixed, **_dotted(settings)}, wait=wait, health=health)


def make_client_admin(location: KafkaLocation) -> AdminClient:
    """Connect a client for topics and groups; see `make_client_consumer`.

    Keep it until its futures are done.
    """
    return _connect(AdminClient, location, {})


def wait_for_client_answer(
    location: KafkaLocation, seconds: float, each: Callable[[float, str], None]
) -> None:
    """Wait until a broker of a location answers.

    `each` is called about once a second with the seconds that have passed and why no one has
    answered; what it raises ends the wait.
    """
    health = client_health(location)
    client = _connect(AdminClient, location, {}, wait=False, health=health)
    _wait(client, location, health, seconds, each)


def client_event_error(error: KafkaError | KafkaException) -> KafkaError:
    """Unwrap what confluent_kafka raises."""
    if isinstance(error, KafkaException):
        inner = error.args[0] if error.args else None

        if isinstance(inner, KafkaError):
            return inner
        return KafkaError(KafkaError._FAIL, str(error))

    return error


def is_fatal_to_client(error: KafkaError | KafkaException) -> bool:
    """Whether the client can never be used again: fenced by another, or in an impossible state."""
    error = client_event_error(error)
    return error.fatal() or error.code() in (
        KafkaError._FENCED,
        KafkaError._FATAL,
        KafkaError.PRODUCER_FENCED,
    )


def _is_abortable(error: KafkaError | KafkaException) -> bool:
    """Whether the transaction must be aborted, after which the producer can go on."""
    return client_event_error(error).txn_requires_abort()


def is_retriable_by_client(error: KafkaError | KafkaException) -> bool:
    """Whether the same call may succeed later, with nothing else to be done."""
    error = client_event_error(error)
    return (
        not is_fatal_to_client(error)
        and not _is_abortable(error)
        and (error.retriable() or error.code() in _RETRIABLE)
    )


def describe_client_error(error: KafkaError | KafkaException) -> str:
    """Say in one line what happened: the code and librdkafka's or the broker's text."""
    error = client_event_error(error)
    return f"{error.name()}: {' '.join(error.str().split())}"


def _dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        name if name in _CALLBACKS else name.replace("_", "."): value
        for name, value in settings.items()
    }


def _connect(
    kind: Callable[[dict[str, Any]], Client],
    location: KafkaLocation,
    settings: dict[str, Any],
    *,
    wait: bool = True,
    health: Health | None = None,
) -> Client:
    """Make a client and, if asked to, wait for the first answer."""
    followed = kind is Consumer or (kind is Producer and health is not None)
    health = health or client_health(location)
    defaults = {**_DEFAULTS, **_CONSUMER_DEFAULTS} if kind is Consumer else _DEFAULTS
    configuration: dict[str, Any] = {**defaults, **dict(location.settings)}
    configuration["statistics.interval.ms"] = _STATISTICS_MS if followed else 0
    configuration.update(settings)
    configuration["bootstrap.servers"] = location.brokers
    callbacks = {"error_cb": health.on_error, "stats_cb": health.on_statistics, "logger": health}

    try:
        client = kind({**configuration, **callbacks})
    except KafkaException as error:
        text = health.redact(client_event_error(error).str())
        raise ValueError(
            f"{location.role} must have valid properties of librdkafka, got: {text}{location.seen_in}"
        ) from None

    try:
        if wait:
            _wait(client, location, health)
    except BaseException:
        close = getattr(client, "close", None)
        if close is not None:
            close()

        raise

    # From now on it is said when brokers are away. Of a client that is not read its calls say so.
    health.connected = kind is Consumer and configuration["statistics.interval.ms"] > 0
    return client


def _wait(
    client: Consumer | Producer | AdminClient,
    location: KafkaLocation,
    health: Health,
    seconds: float | None = None,
    each: Callable[[float, str], None] = lambda waited, why: None,  # noqa: ARG005
) -> None:
    """Wait until a broker answers, or says that we are not welcome."""
    began = time.monotonic()
    most = CONNECT_SECONDS if seconds is None else seconds
    while True:
        try:
            if isinstance(client, Consumer):
                client.list_topics(location.topic, timeout=min(1.0, most) or 1.0)
            else:
                client.cluster_id(timeout=min(1.0, most) or 1.0)  # to ask for a topic could make it

            return
        except KafkaException as error:
            if not is_retriable_by_client(error):
                raise ValueError(
                    f"{location.role} must be on brokers that answer, got {describe_client_error(error)}"
                ) from None

        client.poll(0.05)
        _require_protocol(location)

        if health.denied is not None:
            raise ValueError(
                f"{location.role} must be allowed in by {location.brokers}, got: {health.denied}"
            )

        each(time.monotonic() - began, health.last)
        if time.monotonic() - began > most:
            raise ValueError(
                f"{location.role} must be on brokers that can be reached, got {location.brokers} ({health.last})"
            )


def _require_protocol(location: KafkaLocation) -> None:
    """Refuse a security.protocol that a listener does not speak.

    Those that say nothing may only not be there yet.
    """
    protocol = str(dict(location.settings).get("security.protocol", "plaintext")).upper()
    for broker in location.brokers.split(","):
        spoken = protocols_of_listener(broker, BROKER_SECONDS)
        if spoken and protocol not in spoken:
            rule = f"have the security.protocol of the listener at {broker}, {' or '.join(spoken)}"
            raise ValueError(f"{location.role} must {rule}, got {protocol}{location.seen_in}")
