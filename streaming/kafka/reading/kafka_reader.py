"""Reads a topic at offsets that the store decides.

Assignment, ends, gaps, new partitions, offsets for lag tools.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from meanstream.operators.validation import require
from meanstream.streaming.events.event_columns import Position
from meanstream.streaming.kafka.claims.name_owners import NameOwners, warn_of_other_readers
from meanstream.streaming.kafka.claims.ownership import (
    FormerOwners,
    GroupOffsets,
    claim_ownership,
    require_unowned_in_time,
)
from meanstream.streaming.kafka.connection.kafka_client import (
    KafkaError,
    KafkaException,
    KafkaLostError,
    Message,
    TopicPartition,
    client_event_error,
    client_health,
    describe_client_error,
    is_retriable_by_client,
    make_client_admin,
    make_client_consumer,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.kafka_topics import (
    Topic,
    TopicWatch,
    check_same_topic,
    find_topic,
    require_topic,
)
from meanstream.streaming.kafka.connection.values import PartitionRecords
from meanstream.streaming.kafka.reading.gathered import GatheredMessages, ReadAtOnce
from meanstream.streaming.kafka.reading.kafka_progress import (
    ReadProgress,
    progress_after_gap,
    progress_first_offsets,
    progress_unreachable_partitions,
)
from meanstream.streaming.sources.source_protocol import AgentsOfStore

logger = logging.getLogger("meanstream.kafka")

ASK_SECONDS = 10.0
"""Seconds to wait for an answer of a broker while nothing is read."""
CLOSE_SECONDS = 3.0
FIRST_SECONDS = 0.1
"""So long is waited for a record, where there is none."""
MORE_SECONDS = 0.005
"""So long records are gathered once there is one."""
BEHIND = 5000
BEHIND_SECONDS = 0.02
"""With that many at once it is no live stream that is read: then it is waited longer, for fewer and
larger batches."""
TAKE_SECONDS = 0.25
"""So long some are taken at once at most, however large they are."""
CHUNK = 500
"""So many messages are taken at once: with more Python looks for garbage among them, which doubles
their cost."""

_NO_END = np.iinfo(np.int64).max

_TOPIC_UNKNOWN = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.INCONSISTENT_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)


class TopicReader:
    """Reads partitions that one store owns; see `kafka_source.KafkaSource` for the parameters."""

    def __init__(
        self,
        location: KafkaLocation,
        *,
        owner: str | None,
        name: str | None,
        bounded: bool,
        watch_seconds: float,
        beside: Sequence[str] = (),
        joins: bool = False,
        read: ReadAtOnce | None = None,
        agents: AgentsOfStore | None = None,
    ) -> None:
        self._gathered = partial(GatheredMessages, beside, joins=joins, read=read)
        self.name = location.topic
        self.role = location.role
        self._location = location
        self._owner = owner
        self._bounded = bounded
        self._progress: ReadProgress | None = None
        self._gaps: set[int] = set()
        self._complaints: set[str] = set()

        # A partition may have been given away; names are owned apart from partitions.
        self._resting = False
        self._group = GroupOffsets(location, owner or "")
        self._shared = agents is not None
        self._given = frozenset[int]() if agents is None else agents.departed_partitions
        self._former: FormerOwners = {} if agents is None else agents.former_owners
        self._named = (
            None
            if name is None or owner is None
            else NameOwners(location, name, owner, self._former)
        )

        self._admin = make_client_admin(location)
        self._topic = require_topic(self._admin, location, "READ")

        # The cluster's id stays when brokers change their addresses, so it can tell topics apart.
        self.cluster = str(self._admin.list_topics(location.topic, timeout=ASK_SECONDS).cluster_id)
        location.require_partitions(self._topic.partitions)

        # A topic that is deleted, made anew or grown shows here, and not in what is fetched.
        self._watch = TopicWatch(self._admin, location, self._topic, watch_seconds)
        self.health = client_health(location, self._on_statistics)
        self._consumer = make_client_consumer(
            location,
            health=self.health,
            on_commit=self._group.on_commit,
            enable_partition_eof=True,
            auto_offset_reset="error",
        )

    @property
    def progress(self) -> ReadProgress:
        """How far each partition was read; reading begins here if it has not yet."""
        return self._progress or self.begin(None)

    def take(
        self, count: int, first: float = FIRST_SECONDS, *, more: bool = False
    ) -> PartitionRecords | None:
        """Give at most that many records, or wait a moment for the first; None if there was none.

        Some are given `more` at once, before anyone looks after the topic again.
        """
        # Look-ups and repairs are due once per batch, not for each part of it.
        progress = self.progress
        if not more:
            self._wake(progress)
            self._look_after(progress)

        # The first record is waited for; what came with it is taken without a further wait.
        gathered = self._gathered()
        events: list[Message] = []
        wanted = 1
        wait = first
        end = time.monotonic() + TAKE_SECONDS

        while wanted:
            messages = self._consume(wanted, wait)
            full = len(messages) == wanted and time.monotonic() < end

            # Errors come among the messages: ends of partitions, gaps, brokers that are away.
            if any(map(Message.error, messages)):
                events += [message for message in messages if message.error() is not None]
                messages = [message for message in messages if message.error() is None]

            gathered.add(messages)
            wanted = min(CHUNK, count - len(gathered)) if full else 0
            wait = BEHIND_SECONDS if len(gathered) >= BEHIND else MORE_SECONDS

        # Events are noted after records: an end that was reached is behind them.
        records = self._advance(gathered.records(), progress) if len(gathered) else None
        now = time.monotonic()
        for event in events:
            self._note(event, progress, now)

        self._note_ends(progress)
        return records

    def rest(self) -> None:
        """Take nothing for a while, but hear what the brokers say: it would pile up otherwise.

        What was fetched ahead is given up, and fetched again when it is wanted.
        """
        if self._progress is None:
            return

        # Partitions are let go, or the client would fetch into memory that nobody empties.
        if not self._resting:
            self._consumer.unassign()
            self._resting = True

        self._consumer.poll(0)

    def hold(self) -> bool:
        """Read a topic without end to where its partitions end now, and no further.

        False if no broker says where.
        """
        progress = self.progress

        # The ends are those of now; whoever holds a topic reads to them and no further.
        try:
            ends = {
                partition: self._consumer.get_watermark_offsets(
                    TopicPartition(self.name, partition), ASK_SECONDS / 2
                )
                for partition in progress.next
            }
        except KafkaException as error:
            self._complain(error)
            return False

        progress.end = {partition: int(high) for partition, (_, high) in ends.items()}
        return True

    def reached_hold(self) -> bool:
        """Say whether that was given."""
        return self.progress.reached_hold

    def go_on(self) -> None:
        """Read on; what was fetched behind the ends is fetched again."""
        self.progress.end = {}
        self.rest()

    def position(self) -> Position:
        """Tell the next offset of each partition."""
        return {
            "topic": self.name,
            "topic_id": self._topic.id,
            "count": self._topic.partitions,
            "partitions": {
                str(partition): offset for partition, offset in sorted(self.progress.next.items())
            },
        }

    def commit(self, position: Position) -> None:
        """Tell lag tools what the store has committed.

        Best effort, without waiting, once a second at most.
        """
        self._group.note(position["partitions"])
        self._group.send(self._consumer)

        if self._named is not None:
            self._named.renew(position["partitions"])

    def lags(self) -> dict[tuple[str, int], int]:
        """Count the offsets between what was given out and the end of each partition, as last heard of."""
        lags = {} if self._progress is None else self._progress.lags()
        return {(self.name, partition): lag for partition, lag in lags.items()}

    @property
    def commit_age(self) -> float | None:
        """Seconds since the broker took what the store has committed."""
        return self._group.age

    @property
    def begun(self) -> bool:
        """Whether it is known where reading begins."""
        return self._progress is not None

    @property
    def done(self) -> bool:
        """Whether a bounded reading is complete."""
        return self.progress.all_done

    def active(self, now: float, idle_seconds: float) -> tuple[int, ...]:
        """List the partitions that more is expected of soon."""
        return self.progress.active(now, idle_seconds)

    @property
    def partitions(self) -> tuple[int, ...]:
        """All partitions that are read."""
        return tuple(sorted(self.progress.next))

    @property
    def most_partition(self) -> int:
        """Number of the topic's last partition."""
        return self._topic.partitions - 1

    def problem(self) -> str | None:
        """Say why no broker answers, or None."""
        return self.health.problem()

    @property
    def skipped(self) -> int:
        """Offsets that retention took away before they were read."""
        if self._progress is None:
            return 0
        return self._progress.skipped

    def close(self) -> None:
        """Let go of the brokers.

        The last offsets for lag tools are committed if a broker answers.
        """
        self._group.send(self._consumer, after=0.0)
        if self._named is not None:
            self._named.close()

        # Closing may wait long for brokers that are away: a thread of its own does it.
        closing = threading.Thread(target=self._consumer.close, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)  # the client waits much longer for brokers that are away
        self.health.end()

    def require_unowned(self) -> None:
        """Refuse partitions that another store owns, without claiming any."""
        require(self._owner is not None, "owner", "be given to read", None)
        wanted = dict.fromkeys(self._location.own_partitions(self._topic.partitions), 0)
        try:
            require_unowned_in_time(
                self._location, self._consumer, wanted, self._owner or "", self._former
            )

            if self._named is not None:
                self._named.check(wanted)
        except KafkaException as error:
            raise ValueError(self._unreadable(describe_client_error(error))) from None

    def begin(self, position: Position | None) -> ReadProgress:
        """Find where to begin, own the partitions, and read them from there."""
        require(self._owner is not None, "owner", "be given to read", None)

        # Ownership is settled before the first record is read.
        try:
            wanted = self._location.own_partitions(self._topic.partitions)
            given = sorted(self._given.intersection(wanted))
            require(not given, "partitions", "be none that this store has given to another", given)

            # Without a stored position the location decides where to begin.
            marks = self._watermarks(wanted)
            offsets, skipped = progress_first_offsets(
                self._location, self._topic, position, marks, shared=self._shared
            )
            self._claim(offsets)
        except KafkaException as error:
            raise ValueError(self._unreadable(describe_client_error(error))) from None

        # Another name has a budget of its own, and what both release of a sample adds up.
        if self._named is not None:
            warn_of_other_readers(self._admin, self._location, self._named.group, list(offsets))

        high = {p: high for p, (_, high) in marks.items()}
        self._progress = ReadProgress(
            offsets, dict(high) if self._bounded else {}, skipped, high=high
        )
        self._resting = True
        self._wake(self._progress)

        return self._progress

    def _wake(self, progress: ReadProgress) -> None:
        """Read on from where the records were given out."""
        if self._resting:
            progress.look_again()
            self._consumer.assign(
                self._partition_positions(p for p in progress.next if not progress.done(p))
            )
            self._resting = False

    # -- what a consumer says --------------------------------------------------------------------------------

    def _consume(self, count: int, wait: float) -> list[Message]:
        try:
            return self._consumer.consume(count, wait)
        except KafkaException as error:
            self._complain(error)
            return []

    def _note_ends(self, progress: ReadProgress) -> None:
        """Note where the partitions end, as the last answers to fetches said."""
        for partition in progress.next:
            _, high = self._consumer.get_watermark_offsets(
                TopicPartition(self.name, partition), cached=True
            )
            progress.high[partition] = max(high, progress.high.get(partition, 0))

    def _advance(self, records: PartitionRecords, progress: ReadProgress) -> PartitionRecords:
        """Note how far records go, and leave out those behind the end of a bounded reading."""
        partition = records.partition

        # The highest offset of each partition in this batch, -1 where it has none.
        offset = records.offset
        self._complaints.clear()
        last = np.full(int(partition.max()) + 1, -1)
        np.maximum.at(last, partition, offset)

        for p in np.flatnonzero(last >= 0).tolist():
            progress.read(p, int(last[p]) + 1)

        # A bounded reading stops at the ends that it began with, though more was fetched.
        if not progress.end:
            return records
        return records.select(
            offset < np.array([progress.end.get(p, _NO_END) for p in range(len(last))])[partition]
        )

    def _note(self, event: Message, progress: ReadProgress, now: float) -> None:
        error = event.error()
        partition = event.partition()
        offset = event.offset()
        assert error is not None  # noqa: S101 - that is what an event is

        # The end of a partition is no error: it tells that nothing waits.
        if error.code() == KafkaError._PARTITION_EOF:
            assert partition is not None  # noqa: S101
            assert offset is not None  # noqa: S101
            progress.reached(partition, offset, now)

        # The offset is gone: retention has taken it away, or the topic was made anew.
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            assert partition is not None  # noqa: S101
            self._gaps.add(partition)

        # Metadata that brokers do not have yet pass by themselves; the topic is looked at soon.
        elif error.code() in _TOPIC_UNKNOWN:
            self._watch.soon()
        else:
            self._complain(error)

    def _complain(self, error: KafkaError | KafkaException) -> None:
        """Say once what passes by itself; end with what does not."""
        text = describe_client_error(error)
        if not is_retriable_by_client(error):
            raise KafkaLostError(self._unreadable(text))

        if text not in self._complaints:
            self._complaints.add(text)
            logger.warning("reading %r waits: %s", self.name, text)

    def _on_statistics(self, statistics: Mapping[str, Any]) -> None:
        if self._progress is not None:
            self._progress.unreachable = (
                progress_unreachable_partitions(statistics, self.name) & self._progress.next.keys()
            )

    # -- going on --------------------------------------------------------------------------------------------

    def _look_after(self, progress: ReadProgress) -> None:
        """Do what is due from time to time, or since something happened."""
        try:
            # Gaps are closed here and not where they are heard of, as that takes requests of its
            # own.
            for partition in sorted(self._gaps):
                self._close_gap(progress, partition)

            topic = self._watch.look()
            if topic is not None and topic.partitions > self._topic.partitions:
                self._grow(progress, topic)
        except KafkaException as error:
            self._complain(error)
        except ValueError as error:
            raise KafkaLostError(str(error)) from None

        self._group.send(self._consumer)

    def _close_gap(self, progress: ReadProgress, partition: int) -> None:
        """Go on after records that are gone, if that is allowed."""
        topic = find_topic(self._admin, self._location)
        if topic is None:
            self._watch.soon()
            return

        # Another topic of the same name has other records at these offsets.
        check_same_topic(self._location, self._topic.id, topic)
        place = TopicPartition(self.name, partition)
        low, high = self._consumer.get_watermark_offsets(place, timeout=ASK_SECONDS)
        wanted = progress.next[partition]
        offset = progress_after_gap(self._location, partition, wanted, low, high)
        progress.skipped += offset - wanted
        progress.next[partition] = offset

        # Only this partition stops: the others go on meanwhile.
        self._consumer.incremental_unassign([place])

        if not progress.done(partition):
            self._consumer.incremental_assign(self._partition_positions([partition]))

        self._gaps.discard(partition)

    def _grow(self, progress: ReadProgress, topic: Topic) -> None:
        """Read the partitions that were added to the topic."""
        if self._bounded:
            return

        if self._location.is_part:
            raise ValueError(
                f"{self._location.role} must keep its {self._topic.partitions} partitions while a store owns some of "
                f"them, got {topic.partitions} in {self.name!r}: start again to read them"
            )

        # Added partitions are read from their beginning: none of their records was seen.
        marks = self._watermarks(range(self._topic.partitions, topic.partitions))
        offsets = {partition: low for partition, (low, _) in marks.items()}
        self._claim(offsets)
        progress.next.update(offsets)
        self._topic = topic
        self._consumer.incremental_assign(self._partition_positions(offsets))
        logger.info("topic %r has %d partitions now", self.name, topic.partitions)

    def _claim(self, offsets: Mapping[int, int]) -> None:
        assert self._owner is not None  # noqa: S101 - checked where reading begins
        if self._named is None:
            claim_ownership(self._location, self._consumer, offsets, self._owner, self._former)
            return

        # A refusal must leave no trace that another store would see.
        self._named.check(offsets)  # before the group notes an owner that is refused
        claim_ownership(self._location, self._consumer, offsets, self._owner, self._former)
        self._named.claim(offsets)

    def _watermarks(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Ask for the first offsets and the ends.

        A topic that was just made may not have leaders yet.
        """
        end = time.monotonic() + ASK_SECONDS
        marks: dict[int, tuple[int, int]] = {}

        # A broker that restarts may not know a topic for a moment, so that is asked again.
        for partition in partitions:
            while partition not in marks:
                try:
                    place = TopicPartition(self.name, partition)
                    marks[partition] = self._consumer.get_watermark_offsets(
                        place, timeout=ASK_SECONDS / 2
                    )
                except KafkaException as error:
                    unknown = client_event_error(error).code() in _TOPIC_UNKNOWN
                    if time.monotonic() > end or not (unknown or is_retriable_by_client(error)):
                        raise
                    time.sleep(0.1)

                    if unknown:
                        self._consumer.list_topics(
                            self.name, timeout=ASK_SECONDS / 2
                        )  # the client learns of it

        return marks

    def _unreadable(self, text: str) -> str:
        return f"{self._location.role} must be a topic that can be read, got {self.name!r} ({text})"

    def _partition_positions(self, partitions: Iterable[int]) -> list[TopicPartition]:
        assert self._progress is not None  # noqa: S101 - reading has begun
        return [TopicPartition(self.name, p, self._progress.next[p]) for p in partitions]
