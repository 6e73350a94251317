"""Deliveries to one cluster, each in one transaction with its number.

All of its records are there once, or none.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from meanstream.streaming.crash import CrashHook, no_crash
from meanstream.streaming.kafka.connection.kafka_client import (
    KafkaException,
    client_health,
    describe_client_error,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.retry_policy import Patience, is_retry_refused
from meanstream.streaming.kafka.writing.kafka_writer import RecordsFailed, Writer
from meanstream.streaming.kafka.writing.marker import (
    Marker,
    MarkerGroup,
    Mismatch,
    Place,
    Records,
    Repeat,
    Written,
    WrittenTally,
)
from meanstream.streaming.sinks.sink_protocol import (
    DeliveryFailedError,
    SinkLostError,
    SinkPosition,
)

ATTEMPTS = 5
"""To become the only writer, while another process tries the same."""

logger = logging.getLogger("meanstream.kafka")


class KafkaTransaction:
    """The deliveries of one store to one cluster, shared by the sinks of all topics there.

    A delivery is a transaction, begun by its first record. It commits, together with the records,
    the number of the delivery as a marker. The store notes the number later: when it does not come
    to that, the marker says whether the delivery that is written again is on the topics already,
    and it is swallowed.

    Whatever goes wrong, a new writer with the same transactional id is made: the broker then ends
    the transaction that was open, one way or the other, and refuses the old writer from there on.

    Parameters
    ----------
    location : KafkaLocation
        One of the topics.
    cluster : str
        Id of the cluster.
    store_id : str
        Public id of the store; no one else may write under it.
    stop : callable
        Whether the run shall stop: then brokers that do not answer are not waited for.
    crash : callable
        Called on both sides of each step of a delivery.
    older_copy : bool
        Whether the store is, on record, an older copy: then it goes on from a later delivery.
    """

    def __init__(
        self,
        location: KafkaLocation,
        *,
        cluster: str,
        store_id: str,
        stop: Callable[[], bool],
        crash: CrashHook = no_crash,
        older_copy: bool = False,
    ) -> None:
        self.location = location
        self.cluster = cluster
        self._id = f"meanstream-{store_id}"
        self._owner = secrets.token_hex(8)
        self._crash = crash
        self.older_copy = older_copy
        self.health = client_health(location)
        self._patience = Patience(location.brokers, stop, self.health)
        self._group = MarkerGroup(location, f"{self._id}-deliveries", self._patience)

        self._roles: dict[str, str] = {}  # by topic
        self._writer: Writer | None = None
        self._owned = False  # the marker has named this process
        self._delivery: int | None = (
            None  # the last one that the store knows or will know; None: as the marker says
        )
        self._touched = False
        self._tally = WrittenTally()  # something was written or committed since the store's note
        self._repeat: Repeat | None = None

    def join(self, location: KafkaLocation) -> None:
        """Take a topic in."""
        self._roles[location.topic] = location.role

    def refuse_topic(self, location: KafkaLocation) -> None:
        """Refuse a topic that another role writes to."""
        other = self._roles.get(location.topic, location.role)
        if other != location.role:
            raise ValueError(
                f"{location.role} must be another topic than {other}, got {str(location)!r}"
            )

    def has_marked(self, topic: str) -> bool:
        """Say whether the cluster remembers deliveries of this store to a topic.

        Nothing is written.
        """
        try:
            return self._group.read([topic], pending=False) is not None
        except KafkaException as error:
            raise SinkLostError(
                f"{self._id} must be allowed to write, got {describe_client_error(error)}"
            ) from None

    def while_waiting(self, call: Callable[[], None]) -> None:
        """Have something done about once a second while brokers are waited for."""
        self._patience.meanwhile = call

    def hear(self) -> None:
        """Take what the client has to say, so that an outage is known while nothing is written."""
        if self._writer is not None:
            self._writer.hear()

    def write(self, records: Records) -> None:
        """Send records; they can be read after `flush`."""
        self._ready()
        self._touched = True

        if self._repeat is not None:
            self._repeat.take(records)
        else:
            self._send(records)

    def flush(self) -> None:
        """Commit what was written since the last time; nothing if nothing was."""
        if self._repeat is not None and self._touched:
            self._flush_repeat(self._repeat)
        elif self._writer is not None and self._writer.open:
            self._commit({})

    def position(self) -> SinkPosition:
        """Tell the number of the last delivery."""
        if self._delivery is None:
            self._ready()

        return {"cluster": self.cluster, "delivery": self._delivery}

    def restore(self, position: SinkPosition) -> None:
        """Go back to a delivery.

        At the start of a process this looks at the cluster; later it only takes back what was
        written, and the cluster is looked at with the next record: a run that shall stop need not
        wait for brokers.
        """
        if position.get("cluster") != self.cluster:
            return  # another cluster from now on

        if self._touched:
            self._discard()
            self._reset()

        self._delivery = int(position["delivery"])
        if not self._owned:
            self._ready()

    def close(self) -> None:
        """Take back what was not committed, so that readers need not wait until it times out."""
        if self._writer is not None:
            self._writer.abort()

        self._writer = None
        self._reset()

    # -- one delivery ----------------------------------------------------------------------------------------

    def _send(self, records: Records) -> None:
        assert self._writer is not None  # noqa: S101 - `_ready` came before
        self._tally.add(records.topic, records.kind, records.values)

        try:
            self._writer.send(records)
        except (KafkaException, RecordsFailed) as error:
            self._settle(error, None)

    def _commit(self, before: Mapping[Place, Written]) -> None:
        assert self._writer is not None  # noqa: S101 - a transaction is open
        delivery = self._last + 1
        marker = Marker(
            delivery=delivery, owner=self._owner, written={**before, **self._tally.written()}
        )

        try:
            self._writer.commit(
                self._group.offsets(marker, list(self._roles)), self._group.metadata
            )
        except (KafkaException, RecordsFailed) as error:
            self._settle(error, marker)

        self._delivery = delivery
        self._tally = WrittenTally()
        self._touched = True

    def _flush_repeat(self, repeat: Repeat) -> None:
        """Swallow what was committed before; commit the rest, if any, under the same number."""
        try:
            rest = repeat.rest(self._roles)
        except Mismatch as error:
            raise self._strangers(f"another delivery {self._last + 1} in {error}") from None

        logger.info("%s: delivery %d had been committed", self.location.brokers, self._last + 1)
        self._repeat = None

        for records in rest:
            self._send(records)

        if rest:
            self._commit(repeat.before)
        else:
            self._delivery = self._last + 1

    def _settle(self, error: KafkaException | RecordsFailed, marker: Marker | None) -> None:
        """After an error, return if the marker was committed after all.

        Only a commit of which no answer came is in doubt. A fatal error may mean that another
        process has taken over, but also that this transaction was open for too long: then the
        marker still names this process.
        """
        cause = error.error if isinstance(error, RecordsFailed) else error
        self._discard()

        if is_retry_refused(cause):
            roles = ", ".join(self._roles.values())
            raise SinkLostError(
                f"{roles} must accept records, got {describe_client_error(cause)}"
            ) from None

        committed = self._start()
        self._reset()

        if marker is None or committed != marker:
            self._expect(committed)
            raise DeliveryFailedError(describe_client_error(cause)) from None

    # -- becoming and staying the only writer ------------------------------------------------------------------

    def _ready(self) -> None:
        """Be the only writer, and know what is on the topics."""
        if self._writer is not None:
            return
        self._expect(self._start())

    def _expect(self, marker: Marker) -> None:
        """Know whether the next delivery is there already."""
        if self._delivery is None:
            self._delivery = marker.delivery

        # What a later life of the store has delivered is made again, and written once more.
        if self.older_copy and marker.delivery > self._delivery:
            logger.warning(
                "%s: the store is an older copy, and deliveries %d to %d of a later one are on "
                "the topics: events that it makes again are there twice, with the same ids",
                self.location.brokers,
                self._delivery + 1,
                marker.delivery,
            )
            self._delivery = marker.delivery

        self.older_copy = False
        self._repeat = Repeat(marker.written) if marker.delivery > self._delivery else None

    def _start(self) -> Marker:
        """Shut out every other writer of this store and name this process in the marker."""
        # Brokers that restart are asked again; a refusal is final.
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._try_start()
            except KafkaException as error:
                if is_retry_refused(error):
                    raise SinkLostError(
                        f"{self._id} must be allowed to write, got {describe_client_error(error)}"
                    ) from None

                reason = describe_client_error(error)
                time.sleep(0.1 * attempt)

        raise DeliveryFailedError(reason)

    def _try_start(self) -> Marker:
        # The marker is read before and after: who owns the topics may have changed in between.
        topics = list(self._roles)
        # It connects while the marker is read: asked to start before, librdkafka may wait half a
        # second to ask again.
        writer = Writer(self.location, self._id, self._patience, self._crash, health=self.health)
        self._check(self._group.read(topics, pending=False))  # before a rightful owner is shut out
        writer.start()
        marker = self._group.read(topics, pending=True)
        self._check(marker)

        # Offsets can expire: deliveries are told apart by release ids then.
        if marker is None and self._delivery:
            logger.warning(
                "%s: the number of the last delivery is gone (offsets expired, or topics were created again); "
                "delivery %d may be there twice, with the same release ids",
                self.location.brokers,
                self._delivery + 1,
            )

        if marker is None:
            marker = Marker(delivery=self._delivery or 0, owner="")

        # From here on every other process finds that it has been replaced.
        if marker.owner != self._owner:
            marker = replace(marker, owner=self._owner)
            writer.commit(self._group.offsets(marker, topics), self._group.metadata)

        self._owned = True
        self._writer = writer
        return marker

    def _check(self, marker: Marker | None) -> None:
        """Refuse to go on where another process has taken over, or the store is not the one that wrote here."""
        if marker is None:
            return

        # Another process of this store has written its name: one of both must end.
        if self._owned and marker.owner != self._owner:
            raise SinkLostError(
                f"store must be used by one engine, got another engine that writes with this store's id to "
                f"{self.location.brokers}"
            )

        if self._delivery is None:
            return

        # The marker may be one delivery ahead, where a kill came before the store's note.
        is_behind = marker.delivery < self._delivery
        is_far_ahead = marker.delivery > self._delivery + 1
        if is_behind or (is_far_ahead and not self.older_copy):
            raise self._strangers(f"delivery {marker.delivery}")

    def _strangers(self, found: str) -> SinkLostError:
        roles = ", ".join(self._roles.values())
        return SinkLostError(
            f"{roles} must be the topics of this store (delivery {self._last}), got {found} on "
            f"{self.location.brokers}: store and topics do not belong together; "
            "is the store an older copy (see `meanstream store adopt --older-copy`)?"
        )

    @property
    def _last(self) -> int:
        assert self._delivery is not None  # noqa: S101 - `_ready` came before
        return self._delivery

    def _discard(self) -> None:
        """Let go of the writer; the broker ends its transaction when the next one starts."""
        if self._writer is not None:
            self._writer.discard()

        self._writer = None

    def _reset(self) -> None:
        self._touched = False
        self._tally = WrittenTally()
        self._repeat = None
