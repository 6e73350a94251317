"""A topic that changes under a source: records deleted, made anew, partitions added; each is told,
none is silent."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from meanstream.streaming.events.event_columns import Position
from meanstream.streaming.sources.source_protocol import SourceLostError
from tests.servers.support.kafka_reading import (
    SECONDS,
    NewTopicOf,
    eventually,
    read_count,
    read_until,
    send,
    source,
    value,
)


@pytest.fixture
def admin(broker_address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker_address})


def delete_before(admin: AdminClient, topic: str, offset: int) -> None:
    admin.delete_records([TopicPartition(topic, 0, offset)])[
        TopicPartition(topic, 0, offset)
    ].result(SECONDS)


@pytest.fixture
def with_gap(
    broker_address: str, new_topic: NewTopicOf, admin: AdminClient
) -> tuple[str, Position]:
    """A topic whose store has read 10 records, and of which the first 25 are gone."""
    topic = new_topic()
    send(broker_address, topic, [value(i) for i in range(30)])
    with closing(source(broker_address, topic)) as opened:
        _, batch = read_count(opened, 10, size=1)
    delete_before(admin, topic, 25)
    return topic, batch.position


def test_records_that_retention_deleted_unread_are_missed(
    broker_address: str, with_gap: tuple[str, Position]
) -> None:
    topic, position = with_gap
    with (
        closing(source(broker_address, topic)) as opened,
        pytest.raises(
            ValueError,
            match=rf"source must hold .* got 15 offsets of partition 0 of '{topic}' that reten",
        ),
    ):
        opened.restore(position)


def test_a_gap_is_skipped_and_counted_if_that_is_allowed(
    broker_address: str, with_gap: tuple[str, Position], caplog: pytest.LogCaptureFixture
) -> None:
    topic, position = with_gap
    with closing(source(broker_address, topic, "&gap=skip")) as opened:
        opened.restore(position)
        found, _ = read_count(opened, 5)
        assert opened.skipped == 15
    assert sorted(found) == [(0, i) for i in range(25, 30)]
    assert f"skipped 15 offsets of partition 0 of '{topic}'" in caplog.text


@pytest.mark.parametrize("gap", ["refuse", "skip"])
def test_a_gap_that_comes_while_reading(
    gap: str, broker_address: str, new_topic: NewTopicOf, admin: AdminClient
) -> None:
    topic = new_topic()
    send(broker_address, topic, [value(i) for i in range(3)])
    with closing(source(broker_address, topic, f"&gap={gap}")) as opened:
        read_until(opened, lambda found, batch: batch.position["partitions"]["0"] == 3)
        opened._reader._consumer.unassign()  # it is slower than retention
        send(broker_address, topic, [value(i) for i in range(3, 10)])
        delete_before(admin, topic, 8)
        opened._reader._consumer.assign([TopicPartition(topic, 0, 3)])
        if gap == "refuse":
            with pytest.raises(SourceLostError, match="got 5 offsets of partition 0"):
                read_until(opened, lambda *_: False)
        else:
            found, _ = read_count(opened, 2)
            assert sorted(found) == [(0, 8), (0, 9)]
            assert opened.skipped == 5


def remake(admin: AdminClient, topic: str) -> None:
    """Delete a topic and make another one of its name."""
    admin.delete_topics([topic])[topic].result(SECONDS)

    def made() -> bool:
        try:
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)
        except Exception:  # it is not quite gone
            return False
        return True

    eventually(made)


def test_a_topic_made_anew_is_another_one(
    broker_address: str, new_topic: NewTopicOf, admin: AdminClient
) -> None:
    topic = new_topic()
    send(broker_address, topic, [value(1)])
    with closing(source(broker_address, topic)) as opened:
        _, batch = read_count(opened, 1)
    remake(admin, topic)
    send(broker_address, topic, [value(i) for i in range(5)])
    with (
        closing(source(broker_address, topic)) as opened,
        pytest.raises(ValueError, match=f"got a new one of the name '{topic}': begin a new store"),
    ):
        opened.restore(batch.position)


def test_a_topic_made_anew_while_it_is_read_ends_the_reading(
    broker_address: str, new_topic: NewTopicOf, admin: AdminClient
) -> None:
    topic = new_topic()
    send(broker_address, topic, [value(1)])
    with closing(source(broker_address, topic, watch_seconds=0.2)) as opened:
        read_count(opened, 1)
        remake(admin, topic)
        with pytest.raises(SourceLostError, match=f"got a new one of the name '{topic}'"):
            read_until(opened, lambda *_: False)


def test_a_deleted_topic_ends_the_reading(
    broker_address: str, new_topic: NewTopicOf, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from meanstream.streaming.kafka.connection import kafka_topics as topics

    monkeypatch.setattr(topics, "GONE_SECONDS", 0.5)
    topic = new_topic()
    with closing(source(broker_address, topic, watch_seconds=0.2)) as opened:
        opened.next_batch(1)
        admin.delete_topics([topic])[topic].result(SECONDS)
        with pytest.raises(
            SourceLostError, match=f"source must keep existing, got no topic '{topic}'"
        ):
            read_until(opened, lambda *_: False)


def test_a_misspelled_topic_is_named_with_the_closest(
    broker_address: str, new_topic: NewTopicOf
) -> None:
    topic = new_topic()
    with pytest.raises(
        ValueError,
        match=f"source must be a topic that exists, got '{topic}s'; did you mean 'topic-",
    ):
        source(broker_address, f"{topic}s")


def test_a_store_of_another_topic_is_refused(broker_address: str, new_topic: NewTopicOf) -> None:
    with (
        closing(source(broker_address, new_topic())) as opened,
        pytest.raises(ValueError, match="source must be the topic that this store was filled from"),
    ):
        opened.restore({"topic": "other"})


def grow(admin: AdminClient, topic: str, partitions: int) -> None:
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(SECONDS)


def test_new_partitions_are_read_from_their_beginning(
    broker_address: str, new_topic: NewTopicOf, admin: AdminClient
) -> None:
    topic = new_topic()
    send(broker_address, topic, [value(0)])
    with closing(source(broker_address, topic, "&start=latest", watch_seconds=0.2)) as opened:
        _, batch = read_until(opened, lambda _, batch: batch.position["count"] == 1)
        grow(admin, topic, 3)
        send(broker_address, topic, [value(7)], 2)
        found, batch = read_count(opened, 1)
    assert found == {(2, 0): 7.0}
    assert batch.position["count"] == 3
    grow(admin, topic, 4)  # while nobody reads
    send(broker_address, topic, [value(8)], 3)
    with closing(source(broker_address, topic, "&start=latest")) as opened:
        opened.restore(batch.position)
        found, _ = read_count(opened, 1)
    assert found == {(3, 0): 8.0}


def test_a_fixed_set_ends_when_agents_could_move(
    broker_address: str, new_topic: NewTopicOf, admin: AdminClient
) -> None:
    topic = new_topic(2)
    with closing(source(broker_address, topic, "&partitions=0", watch_seconds=0.2)) as opened:
        position = opened.next_batch(1).position
        grow(admin, topic, 3)
        with pytest.raises(
            SourceLostError, match="source must keep its 2 partitions while a store owns some"
        ):
            read_until(opened, lambda *_: False)
    with (
        closing(source(broker_address, topic, "&partitions=0")) as opened,
        pytest.raises(
            ValueError,
            match="source must have the 2 partitions that it had when the store was begun",
        ),
    ):
        opened.restore(position)
