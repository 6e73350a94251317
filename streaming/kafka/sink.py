"""Events to Kafka: each role to its topic, all topics of a cluster in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from streaming.crash import CrashHook, no_crash
from streaming.encode import EventLines
from streaming.events import Event, Population, WindowEstimate
from streaming.kafka.location import KafkaLocation
from streaming.kafka.outputs import open_topic
from streaming.kafka.repeat import Headers, Records
from streaming.kafka.transaction import KafkaTransaction
from streaming.sinks.sink import SinkPosition, Trust, check_trust

KEYS: dict[type[Event], str] = {Population: "population"}
"""Keys of events that are of no agent and of which the newest is what counts."""


class KafkaSink:
    """Writes one record per event: the bytes of the JSON line, keyed by the agent or, a window estimate, by its round.

    Headers: `schema_version`, `event` (the name that `meanstream schema` takes) and, of releases and refusals,
    `release_id`. The timestamp of a record is when it was written, not the event time, which is in the event: brokers
    delete and compact by it, and refuse records from the future.

    Parameters
    ----------
    location : KafkaLocation
        The topic.
    trust : Trust
        Who can read it: for a private sink, its access list must say so.
    transaction : KafkaTransaction
        That of the cluster; other sinks may share it.
    """

    def __init__(self, location: KafkaLocation, *, trust: Trust, transaction: KafkaTransaction) -> None:
        self.trust = trust
        self._topic = location.topic
        self._transaction = transaction
        transaction.join(location)

    def while_waiting(self, call: Callable[[], None]) -> None:
        """Have something done about once a second while brokers are waited for."""
        self._transaction.while_waiting(call)

    def write(self, events: EventLines) -> None:
        """Send records; readers of committed records see them after the next flush."""
        check_trust(self.trust, events.kind)
        self._transaction.write(records_of(self._topic, events))

    def flush(self) -> None:
        """Commit what all sinks of the cluster have written; the first of them to be flushed does it."""
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
    """Opens the Kafka sinks of one store: one transaction per cluster.

    Parameters
    ----------
    store_id : str
        Public id of the store: nobody else may write under it.
    stop : callable
        Whether the run shall stop: then brokers that do not answer are not waited for.
    crash : callable
        Called on both sides of each step of a delivery.
    """

    def __init__(self, store_id: str, *, stop: Callable[[], bool], crash: CrashHook = no_crash) -> None:
        self._store_id = store_id
        self._stop = stop
        self._crash = crash
        self._transactions: dict[str, KafkaTransaction] = {}  # by cluster

    def open(self, location: KafkaLocation, *, trust: Trust) -> KafkaSink:
        """Open the sink of a role; make its topic where the location says so.

        Raises
        ------
        ValueError
            If the topic is missing or already that of another role, or the same cluster is reached in two ways.
        """
        cluster = open_topic(location)
        if cluster not in self._transactions:
            self._transactions[cluster] = KafkaTransaction(
                location, cluster=cluster, store_id=self._store_id, stop=self._stop, crash=self._crash
            )
        transaction = self._transactions[cluster]
        if not transaction.location.same_cluster(location):
            raise ValueError(
                f"{location.role} must name brokers and config as {transaction.location.role} does for the same "
                f"cluster, got {str(location)!r}"
            )
        return KafkaSink(location, trust=trust, transaction=transaction)


def records_of(topic: str, events: EventLines) -> Records:
    """Make records of events.

    Examples
    --------
    >>> from streaming.events import Release
    >>> records = records_of("releases", EventLines(Release, [b'{"release_id":"ann:3","agent":"ann","n":1}']))
    >>> records.keys, records.headers
    (['ann'], [[('schema_version', '1'), ('event', 'release'), ('release_id', 'ann:3')]])
    """
    kind, count = events.kind, len(events)
    common: Headers = [("schema_version", str(kind.model_fields["schema_version"].default)), ("event", kind.topic)]
    keys: Sequence[str | None] = [KEYS.get(kind)] * count
    headers: Sequence[Headers] = [common] * count
    if "agent" in kind.model_fields:
        named = _NAMES.decode_lines(b"\n".join(events.lines))
        keys = [names.agent for names in named]
        if "release_id" in kind.model_fields:
            headers = [[*common, ("release_id", names.release_id)] for names in named]
    elif kind is WindowEstimate:  # its topic may be compacted: the newest of each window is what counts
        keys = [rounds.round_id for rounds in _ROUNDS.decode_lines(b"\n".join(events.lines))]
    return Records(topic=topic, kind=kind, values=events.lines, keys=keys, headers=headers)


class _Names(msgspec.Struct):
    agent: str
    release_id: str = ""


class _Rounds(msgspec.Struct):
    round_id: str


_NAMES = msgspec.json.Decoder(_Names)
_ROUNDS = msgspec.json.Decoder(_Rounds)
