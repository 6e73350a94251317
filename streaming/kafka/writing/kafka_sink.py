"""Events to Kafka: each role to its topic, all topics of a cluster in one transaction."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import msgspec

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.validation import printable
from meanstream.streaming.crash import CrashHook, no_crash
from meanstream.streaming.events.base import Event
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.round_events import Report, StageResult, WindowEstimate
from meanstream.streaming.events.wire import Population, wire_event_schema
from meanstream.streaming.kafka.connection.kafka_client import (
    AdminClient,
    ConfigResource,
    KafkaException,
    describe_client_error,
    make_client_admin,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.kafka_topics import (
    ensure_topic,
    find_topic,
    require_topic,
)
from meanstream.streaming.kafka.connection.registered import wire_head
from meanstream.streaming.kafka.connection.schema_registry import RegistryAwayError, SchemaRegistry
from meanstream.streaming.kafka.reading.newest_messages import (
    DEPLOYMENT,
    newest_events,
    other_deployments,
)
from meanstream.streaming.kafka.writing.kafka_transaction import KafkaTransaction
from meanstream.streaming.kafka.writing.marker import Headers, Records
from meanstream.streaming.sinks.sink_protocol import (
    SinkOpening,
    SinkPosition,
    Trust,
    check_sink_trust,
)

COMPACTED = ("releases", "sink", "estimates", "population", "stages")
"""Roles of which the newest record of each key is what counts: their topics are made compacted."""

REQUEST_SECONDS = 10.0
APPEAR_SECONDS = 2.0
"""So long after it was made, or after a broker was started, a broker may not know a topic yet."""

logger = logging.getLogger("meanstream.kafka")


def require_releases(location: KafkaLocation) -> None:
    """Refuse a registry where it has no schema to keep."""
    if location.registry is not None and location.role != "releases":
        raise ValueError(
            f"registry must be given with releases, which others read, got it with {location.role}"
        )


def register_releases(location: KafkaLocation) -> int:
    """Register the schema of releases under the topic's name, readable for ever by its newest version; give its id."""
    require_releases(location)
    registry = SchemaRegistry.answering(str(location.registry), location.registry_settings)
    try:
        return registry.register(
            f"{location.topic}-value", json.dumps(wire_event_schema("release"))
        )
    except RegistryAwayError as error:
        raise ValueError(str(error)) from None


def check_output_topic(location: KafkaLocation) -> None:
    """Refuse a topic that may not be written to, or that is not there and shall not be made.

    Make nothing.
    """
    _check(make_client_admin(location), location)


def open_output_topic(location: KafkaLocation) -> str:
    """Make a topic if it is missing and shall be made; return the id of its cluster."""
    admin = make_client_admin(location)
    _check(admin, location)
    policy = "compact" if location.role in COMPACTED else "delete"
    ensure_topic(admin, location, config={"cleanup.policy": policy})

    if location.role == "releases" and not _is_compacted(admin, location.topic):
        logger.warning(
            "topic %r of the releases is not compacted (cleanup.policy): it keeps each agent's latest release only as "
            "long as its retention",
            location.topic,
        )

    return str(admin.list_topics(location.topic, timeout=REQUEST_SECONDS).cluster_id)


def _check(admin: AdminClient, location: KafkaLocation) -> None:
    until = time.monotonic() + APPEAR_SECONDS
    topic = find_topic(admin, location)
    while topic is None and location.create is None and time.monotonic() < until:
        time.sleep(0.1)
        topic = find_topic(admin, location)

    if topic is not None:
        require_topic(admin, location, "WRITE")
    elif location.create is None:
        raise ValueError(
            f"{location.role} must be a topic that exists, got {location.topic!r} on {location.brokers}: add "
            f"?create=PARTITIONS to have it made, or use kafka-topics --create --topic {location.topic}"
        )


def _is_compacted(admin: AdminClient, topic: str) -> bool:
    """Say whether a topic is compacted; yes where that may not be looked up."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        configuration = admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)[
            resource
        ].result()
    except KafkaException as error:
        logger.debug("configuration of topic %r: %s", topic, describe_client_error(error))
        return True

    return "compact" in configuration["cleanup.policy"].value


_log = logging.getLogger("meanstream.kafka")
KEYS: dict[type[Event], str] = {Population: "population"}
"""Keys of events that are of no agent and of which the newest is what counts."""


class KafkaSink:
    """Writes one record per event.

    The bytes of the JSON line, keyed by the agent or, a window estimate, by its round.

    A report is keyed by a hash of its user's name, what a stage found by its round and stage.

    Headers: `schema_version`, `event` (the name that `meanstream schema` takes), `deployment` where
    it has a name and, of releases and refusals, `release_id`. The timestamp of a record is when it
    was written, not the event time, which is in the event: brokers delete and compact by it, and
    refuse records from the future.

    Parameters
    ----------
    location : KafkaLocation
        The topic.
    trust : Trust
        Who can read it: for a private sink, its access list must say so.
    transaction : KafkaTransaction
        That of the cluster; other sinks may share it.
    name : str or None
        The deployment's name, None if it has none.
    watched : bool
        Whether everyone may know that its brokers do not answer.
    head : bytes
        What stands before each value: a registry's id of its schema.
    """

    @classmethod
    def check(cls, location: str, option: str) -> None:
        """Refuse a topic that could not be written to; it is looked for on its brokers."""
        topic = KafkaLocation.parse(location, role=option)
        require_releases(topic)
        check_output_topic(topic)

    @classmethod
    def canonical_location(cls, location: str) -> str:
        """Give brokers and topic, whatever the parameters and the order."""
        address, _, topic = location.partition("?")[0].rpartition("/")
        brokers = ",".join(sorted(address.partition("://")[2].lower().split(",")))
        return f"kafka://{brokers}/{topic}"

    @classmethod
    def open(cls, location: str, opening: SinkOpening) -> KafkaSink:
        """Open the topic in a transaction of the run; without one, no topic is written to."""
        if opening.topics is None:
            raise ValueError(f"{opening.option} must be a file or '-' here, got {location!r}")
        topics: KafkaSinks = opening.topics
        return topics.open(KafkaLocation.parse(location, role=opening.option), trust=opening.trust)

    def __init__(
        self,
        location: KafkaLocation,
        *,
        trust: Trust,
        transaction: KafkaTransaction,
        name: str | None = None,
        watched: bool = True,
        head: bytes = b"",
    ) -> None:
        self._head = head
        self.trust = trust
        self.watched = watched
        self._location = location
        self._name = name
        self._topic = location.topic
        self._transaction = transaction
        transaction.join(location)

    @property
    def place(self) -> str:
        """The topic."""
        return str(self._location)

    def later(self, position: SinkPosition | None) -> Iterator[bytes]:  # noqa: ARG002 - a marker says more
        """Give the newest events of the deployment, unless a marker says which of them this store has written.

        A new store has no marker on the topic, and an old one whose marker Kafka has forgotten has
        none. That of an older copy says nothing.
        Without a name its events are not told from those of others: then there are none.
        """
        is_marked = not self._transaction.older_copy and self._transaction.has_marked(self._topic)
        if self._name is None or is_marked:
            return iter(())
        return newest_events(self._location, self._name)

    def while_waiting(self, call: Callable[[], None]) -> None:
        """Have something done about once a second while brokers are waited for."""
        self._transaction.while_waiting(call)

    def hear(self) -> None:
        """Take what the client has to say."""
        self._transaction.hear()

    @property
    def client(self) -> str:
        """Name of the option that named the topic."""
        return self._location.role

    def connection_problem(self) -> str | None:
        """Say why no broker answers, or None."""
        return self._transaction.health.problem()

    def write(self, events: EventLines) -> None:
        """Send records; readers of committed records see them after the next flush."""
        check_sink_trust(self.trust, events.kind)
        records = sink_records(self._topic, events, deployment=self._name)
        self._transaction.write(replace(records, head=self._head))

    def flush(self) -> None:
        """Commit what all sinks of the cluster have written.

        The first of them to be flushed does it.
        """
        self._transaction.flush()

    def position(self) -> SinkPosition:
        """Tell the number of the last delivery to the cluster."""
        return self._transaction.position()

    def restore(self, position: SinkPosition) -> None:
        """Take back what was written after a delivery, or know that it is there and swallow it when it comes again."""
        self._transaction.restore(position)

    def close(self) -> None:
        """Take back what was not flushed and let go of the brokers, for all sinks of the cluster."""
        self._transaction.close()


class KafkaSinks:
    """Opens the Kafka sinks of one store.

    One transaction per cluster, or one of what is private next to it.

    Parameters
    ----------
    store_id : str
        Public id of the store: no one else may write under it.
    stop : callable
        Whether the run shall stop: then brokers that do not answer are not waited for.
    crash : callable
        Called on both sides of each step of a delivery.
    name : str or None
        The deployment's name: another store of this name must not have written charged events to
        the topic.
    private_apart : bool
        Deliver what is private in transactions of its own, numbered and noted in a group of its
        own.
    older_copy : bool
        Whether the store is, on record, an older copy.

    Notes
    -----
    **Privacy.** The number of a delivery and how many events it had can be seen by anyone who may
    describe the group. Of rounds that must not tell of rejected records: how many there are, and
    when, hangs on how many samples users send. For the same reason no probe tells that what is
    delivered apart waits for its brokers.
    """

    def __init__(
        self,
        store_id: str,
        *,
        stop: Callable[[], bool],
        crash: CrashHook = no_crash,
        name: str | None = None,
        private_apart: bool = False,
        older_copy: bool = False,
    ) -> None:
        self._store_id = store_id
        self._older_copy = older_copy
        self._name = name
        self._stop = stop
        self._crash = crash
        self._private_apart = private_apart
        self._transactions: dict[
            tuple[str, bool], KafkaTransaction
        ] = {}  # by cluster, and whether apart

    def open(self, location: KafkaLocation, *, trust: Trust) -> KafkaSink:
        """Open the sink of a role; make its topic where the location says so."""
        head = wire_head(register_releases(location)) if location.registry is not None else b""
        cluster = open_output_topic(location)
        for other in (
            opened
            for (known_cluster, _), opened in self._transactions.items()
            if known_cluster == cluster
        ):
            other.refuse_topic(location)
            if not other.location.same_cluster(location):
                raise ValueError(
                    f"{location.role} must name brokers and config as {other.location.role} does for the same "
                    f"cluster, got {str(location)!r}"
                )

        apart = self._private_apart and trust is Trust.PRIVATE
        if (cluster, apart) not in self._transactions:
            store_id = f"{self._store_id}-private" if apart else self._store_id
            self._transactions[cluster, apart] = KafkaTransaction(
                location,
                cluster=cluster,
                store_id=store_id,
                stop=self._stop,
                crash=self._crash,
                older_copy=self._older_copy,
            )

        transaction = self._transactions[cluster, apart]
        if self._name is not None:
            _require_own_keys(location, self._name, trust, transaction)

        return KafkaSink(
            location,
            trust=trust,
            transaction=transaction,
            name=self._name,
            watched=not apart,
            head=head,
        )


def _require_own_keys(
    location: KafkaLocation, name: str, trust: Trust, transaction: KafkaTransaction
) -> None:
    """Refuse to replace another deployment's estimates, the first time that a store writes to a topic.

    A store that has written there before goes on and says so: another may have come since, or at
    the same moment.

    An estimate is keyed by its agent and the population by its name, so that the newest one counts,
    whoever wrote it. Releases are told apart by their ids.
    """
    replaces = location.role == "population" or (location.role == "sink" and trust is Trust.PRIVATE)
    if not replaces:
        return

    try:
        others = other_deployments(location, name)
    except ValueError:
        _log.warning(
            "the topic cannot be read, so that nothing says whether another deployment writes to it",
            extra={"topic": location.topic},
        )

        return

    if not others:
        return

    shown = ", ".join(map(printable, others[:3]))
    if not location.shared and not transaction.has_marked(location.topic):
        raise ValueError(
            f"{location.role} must be a topic of deployment {printable(name)!r} alone, got events of {shown!r} in "
            f"{location.topic!r}: name another topic, or let the newest event of a key count with ?shared=1"
        )

    _log.warning(
        "topic %r has events of deployment %s, too: the newest event of a key counts, and if both "
        "read the same records, their privacy losses add up",
        location.topic,
        shown,
    )


def sink_records(topic: str, events: EventLines, *, deployment: str | None = None) -> Records:
    """Make records of events.

    Examples
    --------
    >>> from meanstream.streaming.events.wire import Release
    >>> records = sink_records("releases", EventLines(Release, [b'{"release_id":"ann:3","agent":"ann","n":1}']))
    >>> records.keys, records.headers
    (['ann'], [[('schema_version', '1'), ('event', 'release'), ('release_id', 'ann:3')]])
    """
    kind = events.kind
    count = len(events)
    lines = list(events.lines)
    common: Headers = [
        ("schema_version", str(kind.model_fields["schema_version"].default)),
        ("event", kind.topic),
    ]

    if deployment is not None:
        common.append((DEPLOYMENT, deployment))

    keys: Sequence[str | None] = [KEYS.get(kind)] * count
    headers: Sequence[Headers] = [common] * count

    if "agent" in kind.model_fields:
        named = _NAMES.decode_lines(b"\n".join(lines))
        keys = [names.agent for names in named]
        if "release_id" in kind.model_fields:
            headers = [[*common, ("release_id", names.release_id)] for names in named]
    elif kind is Report:  # all that a user has sent is in one partition, under a hash of its name
        users = [report.user for report in _USERS.decode_lines(b"\n".join(lines))]
        keys = [f"{a:016x}{b:016x}" for a, b in keyed_owner_words(users).tolist()]
    elif kind is StageResult:  # its topic may be compacted: each stage of a round is a key
        stages = _STAGES.decode_lines(b"\n".join(lines))
        keys = [f"{result.round_id}/{result.stage}" for result in stages]
    elif (
        kind is WindowEstimate
    ):  # its topic may be compacted: the newest of each window is what counts
        keys = [rounds.round_id for rounds in _ROUNDS.decode_lines(b"\n".join(lines))]

    return Records(topic=topic, kind=kind, values=lines, keys=keys, headers=headers)


class _Names(msgspec.Struct):
    agent: str
    release_id: str = ""


class _Rounds(msgspec.Struct):
    round_id: str


class _Users(msgspec.Struct):
    user: str


class _Stages(msgspec.Struct):
    round_id: str
    stage: int


_NAMES = msgspec.json.Decoder(_Names)
_ROUNDS = msgspec.json.Decoder(_Rounds)
_USERS = msgspec.json.Decoder(_Users)
_STAGES = msgspec.json.Decoder(_Stages)
