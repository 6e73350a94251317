"""Several topics as one source: how partitions are numbered, whose turn it is, and whose records
letters are of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.streaming.engine.letter_room import dead_letter_lines
from meanstream.streaming.engine.unused_records import UnusedRecords
from meanstream.streaming.events.event_columns import (
    MOST_PARTITIONS,
    MOST_TOPICS,
    Rejects,
    column_partitions,
    column_position,
    topic_partition,
    topics_index,
    topics_own_positions,
    topics_partition,
    topics_position,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.values import PartitionRecords
from meanstream.streaming.kafka.reading.several_topics import TopicReaders
from meanstream.streaming.replay.dead_letters import dead_letters_still_unused, read_dead_letters
from meanstream.streaming.store.source_identity import adopt_source_identity, keep_source_identity
from meanstream.streaming.store.state_store import Store, StoreError

NAME = "orders,returns"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(tmp_path / "s.db", settings={}, secret=b"s" * 16)) as opened:
        yield opened


def test_a_position_tells_topic_and_partition_however_many_there_are() -> None:
    last = column_position(MOST_PARTITIONS - 1, np.array([0, (1 << 44) - 1]))
    for topic in (0, 1, MOST_TOPICS - 1):
        found = topics_position(topic, last)
        assert (found > 0).all()
        assert set(column_partitions(found).tolist()) == {
            topics_partition(topic, MOST_PARTITIONS - 1, "t")
        }
        assert topics_own_positions(topic, found).tolist() == last.tolist()
        assert not len(topics_own_positions(topic + 1, found))


def test_a_topic_with_too_many_partitions_is_refused() -> None:
    with pytest.raises(
        ValueError, match="have below 8192 partitions in a source of several topics"
    ):
        topics_partition(0, MOST_PARTITIONS, "wide")


def test_what_is_no_several_topics_keeps_its_name_and_its_numbers() -> None:
    assert topic_partition("orders", 70_000) == ("orders", 70_000)
    assert topic_partition("a,b.csv", 0) == ("a,b.csv", 0)
    assert topics_index("orders", "orders") is None
    assert topics_index(NAME, "returns") == 1


def rejects() -> Rejects:
    found = Rejects()
    for topic, offset in ((0, 7), (1, 7), (1, 8)):
        found.add("late", int(topics_position(topic, column_position(2, np.array([offset])))[0]))
    return found


def test_dead_letters_name_the_topic_and_are_found_again(store: Store, tmp_path: Path) -> None:
    lines = dead_letter_lines(rejects(), NAME).lines
    (tmp_path / "letters.jsonl").write_bytes(b"\n".join([*lines, b""]))
    letters = read_dead_letters(str(tmp_path / "letters.jsonl"))
    assert [(row["source"], row["partition"], row["position"]) for row in letters.rows()] == [
        *(("orders", 2, 7), ("returns", 2, 7), ("returns", 2, 8))
    ]
    assert sorted(letters.positions_in(NAME).tolist()) == sorted(rejects().position)
    assert letters.positions_in("returns").tolist() == column_position(2, np.array([7, 8])).tolist()
    with store.transaction():
        store.put_state("engine", {"positions": {NAME: {}}})
        UnusedRecords(store, NAME).put(Rejects(["late"], rejects().position[1:2], [None]))
    left = dead_letters_still_unused(letters, store)
    assert [(row["source"], row["position"]) for row in left.rows()] == [("returns", 7)]


class Reader:
    """A topic with so many records, that reads them with an end if it is bounded."""

    cluster, begun, most_partition, skipped = "c", True, 2, 0

    def __init__(self, location: KafkaLocation, left: int, *, bounded: bool = False) -> None:
        self.name, self.left, self.bounded = location.topic, left, bounded
        self.waited: list[float] = []
        self.rested = 0
        self.claimed = False

    @property
    def done(self) -> bool:
        return self.bounded and not self.left

    def take(self, count: int, first: float, *, more: bool) -> PartitionRecords | None:
        assert not more
        self.waited.append(first)
        taken = min(count, self.left)
        self.left -= taken
        where = np.full(taken, 2), np.arange(taken)
        return (
            PartitionRecords(*where, [self.name.encode()] * taken, {"@key": [b"k"] * taken})
            if taken
            else None
        )

    def rest(self) -> None:
        self.rested += 1

    def require_unowned(self) -> None:
        if self.name == "b":
            raise ValueError("b belongs to another store")

    def _claim(self, *_: object) -> Any:
        """As each reader does that is asked how far it is."""
        self.claimed = True

    begin = position = active = hold = reached_hold = go_on = _claim
    partitions = property(_claim)

    def close(self) -> None:
        pass


def readers(*left: int, **named: Any) -> TopicReaders:
    location = KafkaLocation.parse("kafka://h/" + ",".join("abc"[: len(left)]), several=True)
    many = iter(left)
    return TopicReaders(location, lambda one: Reader(one, next(many), **named))  # type: ignore[arg-type, return-value]


def test_a_topic_that_has_much_leaves_room_for_the_others() -> None:
    opened = readers(1000, 1000, 3)
    taken = opened.take(30)
    assert taken is not None
    assert [taken.values.count(name) for name in (b"a", b"b", b"c")] == [10, 10, 3]
    assert set(zip(taken.partition.tolist(), taken.values, strict=True)) == {
        (topics_partition(i, 2, ""), name) for i, name in enumerate((b"a", b"b", b"c"))
    }
    assert len(taken.beside["@key"]) == 23
    assert [opened.take(1).values for _ in range(3)] == [[b"b"], [b"a"], [b"a"]]  # type: ignore[union-attr]


def test_a_record_is_waited_for_where_no_topic_has_one() -> None:
    opened = readers(0, 0)
    assert opened.take(5) is None
    assert opened.take(5) is None
    waited = [max(reader.waited) for reader in opened._readers]  # type: ignore[attr-defined]
    assert waited == [0.05, 0.05]  # each in its turn


@pytest.mark.parametrize(
    "ask",
    [
        lambda opened: opened.take(1),
        lambda opened: opened.position(),
        lambda opened: opened.partitions,
        lambda opened: opened.active(0.0, 1.0),
        lambda opened: opened.done,
        lambda opened: opened.hold(),
        lambda opened: opened.reached_hold(),
        lambda opened: opened.go_on(),
    ],
    ids=["take", "position", "partitions", "active", "done", "hold", "reached_hold", "go_on"],
)
def test_no_topic_begins_where_another_store_has_one(
    ask: Callable[[TopicReaders], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reader, "begun", False)
    opened = readers(1, 1)
    with pytest.raises(ValueError, match="b belongs to another store"):
        ask(opened)
    assert not any(reader.claimed for reader in opened._readers)  # type: ignore[attr-defined]


def test_a_topic_that_is_done_is_not_read_behind_its_end() -> None:
    opened = readers(0, 4, bounded=True)
    taken = opened.take(5)
    assert taken is not None
    assert taken.values == [b"b"] * 4
    assert opened._readers[0].rested == 1  # type: ignore[attr-defined]
    assert opened.done


def test_a_topic_that_a_store_reads_is_not_adopted_beside_others(store: Store) -> None:
    keep_source_identity(store, {"source": "orders", "cluster": "c"})
    with pytest.raises(
        StoreError, match="source must be topics that the store does not read already, got 'orders'"
    ):
        adopt_source_identity(store, {"source": NAME})
    adopt_source_identity(store, {"source": "refunds,returns"})
    with pytest.raises(StoreError, match="does not read already, got 'refunds'"):
        adopt_source_identity(store, {"source": "refunds"})
