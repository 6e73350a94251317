"""The two sides on topics.

Each reads what the other one has published, to its end now, and again when it grew.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import closing

from meanstream.operators.validation import require
from meanstream.streaming.events.round_events import StageResult
from meanstream.streaming.kafka.connection.kafka_client import (
    KafkaException,
    KafkaLostError,
    describe_client_error,
    make_client_admin,
    make_client_consumer,
)
from meanstream.streaming.kafka.connection.kafka_client import TopicPartition as Place
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.kafka_topics import (
    ensure_topic,
    find_topic,
    require_topic,
)
from meanstream.streaming.kafka.reading.scan import READ_RECORDS, TopicScan
from meanstream.streaming.rounds.stage_results import StageResults, note_stage_result
from meanstream.streaming.sources.lines import MAX_LINE_BYTES

POLICIES = {"stages": "compact", "from_reports": "delete"}
"""Clean-up policy of a topic made by its first reader; of each stage the newest result is
enough."""

_SECONDS = 5.0
_log = logging.getLogger("meanstream.rounds")


def open_side_topic(text: str, role: str) -> KafkaLocation:
    """Find the topic that the other side writes to.

    Make it, if the address says so and that side was not there yet.
    """
    location = check_side_topic(text, role)
    ensure_topic(
        make_client_admin(location),
        location,
        operation="READ",
        config={"cleanup.policy": POLICIES[role]},
    )

    return location


def look_for_side_topic(text: str, role: str) -> None:
    """Refuse a topic that cannot be read, or is missing and shall not be made; make nothing."""
    location = check_side_topic(text, role)
    if location.create is None or find_topic(make_client_admin(location), location) is not None:
        require_topic(make_client_admin(location), location, "READ")


def check_side_topic(text: str, role: str) -> KafkaLocation:
    """Read the address of a topic that the other side writes to, without asking anyone."""
    location = KafkaLocation.parse(text, role=role)
    require(
        location.registry is None,
        "registry",
        f"be left out of {role}, which holds JSON",
        location.registry,
    )

    return location


class _GrowingTopic:
    """Committed records of a topic, each read once, as far as it goes at each reading.

    It is no member of a group and commits nothing: anyone who is begun again reads from the
    beginning. Where no broker answers, the topic has not grown; reading goes on when one does.
    """

    def __init__(self, location: KafkaLocation) -> None:
        self._location = location
        topic = require_topic(make_client_admin(location), location, "READ")
        self._next = dict.fromkeys(range(topic.partitions), 0)
        self._ends: dict[int, int] | None = None  # when it was read last
        self.problem: str | None = None
        """Why no broker told where the topic ends when one was queried last, or None."""
        self._consumer = make_client_consumer(location)

    def grew(self) -> bool:
        """Tell whether there is more than at the last reading."""
        ends = self._marks()
        return ends is not None and ends != self._ends

    def values(self) -> Iterator[bytes | None]:
        """Give the values of what has come since the last reading.

        Stop early where brokers are lost.
        """
        ends = self._marks()
        try:
            with closing(TopicScan(self._location, start=self._next)) as scan:
                while (records := scan.read(READ_RECORDS)) is not None:
                    yield from records.values
                    for partition, offset in zip(
                        records.partition.tolist(), records.offset.tolist(), strict=True
                    ):
                        self._next[partition] = max(self._next[partition], offset + 1)
        except (KafkaLostError, KafkaException, ValueError) as error:
            _log.warning(
                "a topic cannot be read now",
                extra={"topic": self._location.topic, "why": str(error)},
            )

            return

        self._ends = ends

    def begin_again(self) -> None:
        """Read from the beginning at the next reading."""
        self._next = dict.fromkeys(self._next, 0)
        self._ends = None

    def close(self) -> None:
        """Let go of the brokers."""
        self._consumer.close()

    def _marks(self) -> dict[int, int] | None:
        """Ask where partitions end; None if no one answers."""
        try:
            ends = {
                partition: int(
                    self._consumer.get_watermark_offsets(self._place(partition), timeout=_SECONDS)[
                        1
                    ]
                )
                for partition in self._next
            }
        except KafkaException as error:
            self.problem = describe_client_error(error)
            _log.debug("ends of topic %r: %s", self._location.topic, self.problem)
            return None

        self.problem = None
        return ends

    def _place(self, partition: int) -> Place:
        return Place(self._location.topic, partition)


class StageResultsTopic:
    """What a statistician has published in a topic.

    For the users' side alone, as `StageResultsFile` is of a file.

    **Privacy.** Whatever is there is checked before any user is queried upon it, and the first result that is accepted
    is kept in the store: what the topic says later, or what compaction leaves of it, changes nothing.
    """

    def __init__(self, location: KafkaLocation) -> None:
        self._topic = _GrowingTopic(location)
        self._rounds: frozenset[str] = frozenset()
        self._found: dict[tuple[str, int], list[StageResult]] = defaultdict(list)

    def grew(self) -> bool:
        """Tell whether there is more than at the last reading."""
        return self._topic.grew()

    def read(self, rounds: Collection[str]) -> StageResults:
        """Read the different results of these rounds that are there.

        Records that are none are skipped.
        """
        wanted = frozenset(rounds)
        if not wanted <= self._rounds:  # what was read may have held theirs
            self._rounds = wanted
            self._found.clear()
            self._topic.begin_again()
        elif not self._topic.grew():
            return self._found

        for value in self._topic.values():
            if value is not None and len(value) <= MAX_LINE_BYTES:
                note_stage_result(self._found, value, self._rounds)

        return self._found

    def close(self) -> None:
        """Let go of the brokers."""
        self._topic.close()


class ReportsTopic:
    """Reports that users' sides have written to a topic: for the statistician's side alone."""

    client = "from_reports"
    watched = True

    def __init__(self, location: KafkaLocation, *, follow: bool) -> None:
        self._topic = _GrowingTopic(location)
        self.follows = follow

    def lines(self) -> Iterator[bytes | None]:
        """Give what has come since the last reading; None for a record that is too large."""
        for value in self._topic.values():
            yield None if value is not None and len(value) > MAX_LINE_BYTES else value or b""

    def grew(self) -> bool:
        """Tell whether there is more than at the last reading."""
        return self._topic.grew()

    def close(self) -> None:
        """Let go of the brokers."""
        self._topic.close()

    def connection_problem(self) -> str | None:
        """Say why no broker answered when one was queried last, or None."""
        return self._topic.problem
