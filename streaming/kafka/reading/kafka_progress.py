"""How far each partition was read, which of them event time waits for, and where reading begins."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meanstream.streaming.events.event_columns import Position
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.kafka_topics import Topic, check_same_topic

logger = logging.getLogger("meanstream.kafka")

Watermarks = Mapping[int, tuple[int, int]]
"""Partition to the first offset that is still there and the one after the last committed record."""


@dataclass(slots=True)
class ReadProgress:
    """State of the partitions that are read.

    Attributes
    ----------
    next : dict
        Offset that follows what was given out, by partition.
    end : dict
        Offset at which a partition is done, or held, by partition; empty if reading never ends.
    skipped : int
        Offsets that retention had taken away before they were read.
    unreachable : set of int
        Partitions whose broker does not answer: what they hold is not known.
    high : dict
        Offset after the last record that a partition is known to hold, by partition.
    """

    next: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)
    skipped: int = 0
    unreachable: set[int] = field(default_factory=set)
    high: dict[int, int] = field(default_factory=dict)
    _idle_since: dict[int, float] = field(default_factory=dict)

    def read(self, partition: int, following: int) -> None:
        """Note records that were given out, or that lie behind the end of a bounded reading."""
        self.next[partition] = max(
            self.next[partition], min(following, self.end.get(partition, following))
        )
        self._idle_since.pop(partition, None)

    def reached(self, partition: int, following: int, now: float) -> None:
        """Note the end of a partition, unless records behind it were read already.

        The offset may lie behind the last record by control records and others that do not count.
        """
        following = min(following, self.end.get(partition, following))
        if following >= self.next[partition]:
            self.next[partition] = following
            self._idle_since[partition] = now

    def look_again(self) -> None:
        """Forget which ends were reached: no one has looked since, and will be told again."""
        self._idle_since.clear()

    def lags(self) -> dict[int, int]:
        """Count the offsets of each partition that are not given out yet, to the ends of a bounded reading."""
        high = self.high
        return {
            p: max(self.end.get(p, high.get(p, 0)) - following, 0)
            for p, following in self.next.items()
        }

    def done(self, partition: int) -> bool:
        """Say whether a bounded reading of a partition is complete."""
        return partition in self.end and self.next[partition] >= self.end[partition]

    @property
    def reached_hold(self) -> bool:
        """Whether a reading that is held at an end has come there.

        Partitions that were added since have none.
        """
        return all(self.next[partition] >= end for partition, end in self.end.items())

    @property
    def all_done(self) -> bool:
        """Whether a bounded reading is complete."""
        return bool(self.end) and all(map(self.done, self.next))

    def active(self, now: float, idle_seconds: float) -> tuple[int, ...]:
        """List the partitions that more is expected of soon."""
        return tuple(
            partition
            for partition in sorted(self.next)
            if not self.done(partition) and not self._idle(partition, now - idle_seconds)
        )

    def _idle(self, partition: int, since: float) -> bool:
        """Say whether the end of a partition was reached by then, and nothing came after it, read or not."""
        reached = self._idle_since.get(partition)
        known = (
            partition not in self.unreachable
            and self.high.get(partition, 0) <= self.next[partition]
        )

        return reached is not None and reached <= since and known


def progress_unreachable_partitions(statistics: Mapping[str, Any], topic: str) -> set[int]:
    """Find the partitions of a topic whose broker does not answer in the statistics of a client."""
    brokers = statistics["brokers"].values()
    up = {broker["nodeid"] for broker in brokers if broker["state"] in ("UP", "UPDATE")} - {
        -1
    }  # no leader
    partitions = statistics["topics"].get(topic, {}).get("partitions", {})

    return {
        int(number) for number, partition in partitions.items() if partition["leader"] not in up
    }


def progress_first_offsets(
    location: KafkaLocation,
    topic: Topic,
    position: Position | None,
    marks: Watermarks,
    *,
    shared: bool = False,
) -> tuple[dict[int, int], int]:
    """Find where each partition begins, and how many offsets are skipped because retention took them away.

    A partition that was added to the topic after the store had begun is read from its first record,
    one that the store simply did not own before from where `start=` says. Where it is `shared` by
    stores that know whose agents are whose, a store that owns some of the partitions goes on next
    to added ones.
    """
    if position is None:
        return {
            p: low if location.start == "earliest" else high for p, (low, high) in marks.items()
        }, 0

    _check_partitions(location, topic, position, marks, shared=shared)
    known = {int(p): int(offset) for p, offset in position["partitions"].items()}
    offsets: dict[int, int] = {}
    skipped = 0

    for partition, (low, high) in marks.items():
        if partition in known:
            offsets[partition] = progress_after_gap(
                location, partition, known[partition], low, high
            )
            skipped += offsets[partition] - known[partition]
        else:
            added = partition >= int(position["count"])
            offsets[partition] = low if added or location.start == "earliest" else high

    return offsets, skipped


def progress_after_gap(
    location: KafkaLocation, partition: int, wanted: int, low: int, high: int
) -> int:
    """Give the offset to go on from, which is the wanted one unless retention took it away and gap=skip."""
    where = f"partition {partition} of {location.topic!r}"
    if wanted > high:
        raise ValueError(
            f"{location.role} must hold what this store has read of it, got {where} that ends at offset {high}, "
            f"before {wanted}"
        )

    if wanted >= low:
        return wanted
    gap = low - wanted
    if location.gap == "refuse":
        raise ValueError(
            f"{location.role} must hold what this store has not read yet, got {gap} offsets of {where} that retention "
            "deleted: gap=skip continues without them"
        )

    logger.warning(
        "skipped %d offsets of %s that retention deleted before they were read", gap, where
    )
    return low


def _check_partitions(
    location: KafkaLocation, topic: Topic, position: Position, marks: Watermarks, *, shared: bool
) -> None:
    check_same_topic(location, position["topic_id"], topic)
    count = position["count"]
    if shared and topic.partitions > count and location.is_part:
        logger.warning(
            "topic %r had %d partitions and has %d now: agents whose keys moved to a partition of another store are "
            "rejected there (other_store)",
            topic.name,
            count,
            topic.partitions,
        )
    elif location.is_part and topic.partitions != count:
        raise ValueError(
            f"{location.role} must have the {position['count']} partitions that it had when the store was begun, or "
            f"agents would move between stores, got {topic.partitions} in {topic.name!r}"
        )

    left = sorted(int(p) for p in position["partitions"] if int(p) not in marks)
    if left:
        raise ValueError(
            f"partitions must have those that the store owns, which hold its agents, got none of "
            f"{', '.join(map(str, left))}"
        )
