"""Whose partitions they are: stores that share a topic, claim it at once, or meet other
consumers."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from meanstream.streaming.kafka.claims import ownership
from meanstream.streaming.kafka.claims.ownership import OwnedElsewhereError, claim_ownership
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources.mapping import ColumnMapping
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


def test_two_stores_share_a_topic_by_fixed_sets(broker_address: str, new_topic: NewTopicOf) -> None:
    topic = new_topic(4)
    for partition in range(4):
        send(broker_address, topic, [value(partition)], partition)
    with (
        closing(source(broker_address, topic, "&partitions=0,2-3")) as one,
        closing(source(broker_address, topic, "&partitions=1", owner="store-2")) as two,
    ):
        ones, _ = read_count(one, 3)
        twos, _ = read_count(two, 1)
    assert sorted(ones) == [(0, 0), (2, 0), (3, 0)]
    assert sorted(twos) == [(1, 0)]


def test_a_partition_of_another_store_is_refused(
    broker_address: str, new_topic: NewTopicOf
) -> None:
    topic = new_topic(2)
    with closing(source(broker_address, topic, "&partitions=1")) as opened:
        opened.begin()
    for options in ("", "&partitions=1", "&partitions=0-1"):
        with closing(source(broker_address, topic, options, owner="store-2")) as opened:
            with pytest.raises(
                ValueError,
                match=f"got partition 1 of '{topic}', which store store-1 reads in group",
            ):
                opened.begin()
            with pytest.raises(SourceLostError, match="which store store-1 reads"):
                opened.next_batch(1)
    with closing(source(broker_address, topic, "&partitions=0", owner="store-2")) as opened:
        opened.begin()  # what it was refused together with partition 1 is still free


def test_a_set_may_grow_but_not_shrink(broker_address: str, new_topic: NewTopicOf) -> None:
    topic = new_topic(3)
    for partition in range(3):
        send(broker_address, topic, [value(partition)], partition)
    with closing(source(broker_address, topic, "&partitions=0-1")) as opened:
        _, batch = read_count(opened, 2)
    with (
        closing(source(broker_address, topic, "&partitions=1-2")) as opened,
        pytest.raises(
            ValueError, match=r"partitions must have those that the store owns, .* got none of 0"
        ),
    ):
        opened.restore(batch.position)
    with closing(source(broker_address, topic)) as opened:
        opened.restore(batch.position)
        found, _ = read_count(opened, 1)
    assert found == {(2, 0): 2.0}


def test_of_many_who_claim_at_once_one_wins(broker_address: str, new_topic: NewTopicOf) -> None:
    topic = new_topic(3)
    location = KafkaLocation.parse(f"kafka://{broker_address}/{topic}?group=of-{topic}")
    won: list[str] = []
    refused: list[str] = []
    together = threading.Barrier(4)

    def run(owner: str) -> None:
        settings = {"bootstrap.servers": broker_address, "group.id": location.group}
        consumer = Consumer(
            {**settings, "isolation.level": "read_committed", "enable.auto.commit": False}
        )
        together.wait(SECONDS)
        try:
            claim_ownership(location, consumer, {0: 0, 1: 0, 2: 0}, owner)
            won.append(owner)
        except OwnedElsewhereError as error:
            refused.append(str(error))
        consumer.close()

    threads = [threading.Thread(target=run, args=(f"store-{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SECONDS)
    assert len(won) == 1
    assert len(refused) == 3
    assert all(f"which store {won[0]} reads in group" in message for message in refused)


def test_a_group_with_other_consumers_is_refused(
    broker_address: str, new_topic: NewTopicOf
) -> None:
    topic = new_topic()
    with Consumer({"bootstrap.servers": broker_address, "group.id": f"of-{topic}"}) as other:
        other.subscribe([topic])

        def has_joined() -> bool:
            other.poll(0.05)
            return bool(other.assignment())

        eventually(has_joined)
        with (
            closing(source(broker_address, topic)) as opened,
            pytest.raises(
                ValueError, match=f"group must not be used by other consumers, got 'of-{topic}'"
            ),
        ):
            opened.begin()


def test_without_a_store_a_topic_is_checked_but_not_read(
    broker_address: str, new_topic: NewTopicOf
) -> None:
    with (
        closing(open_source(f"kafka://{broker_address}/{new_topic()}", ColumnMapping())) as opened,
        pytest.raises(SourceLostError, match="owner must be given to read, got None"),
    ):
        opened.next_batch(1)
    with pytest.raises(
        ValueError, match=r"partitions must be below 1, as topic 'topic-.*' has them, got \[3\]"
    ):
        source(broker_address, new_topic(), "&partitions=0,3")


def committed(address: str, topic: str, partition: int) -> tuple[int, str | None]:
    with Consumer({"bootstrap.servers": address, "group.id": f"of-{topic}"}) as consumer:
        found = consumer.committed([TopicPartition(topic, partition)], timeout=SECONDS)[0]
        return found.offset, found.metadata


def test_lag_tools_see_what_the_store_has_committed_and_who_it_is(
    broker_address: str, new_topic: NewTopicOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    send(broker_address, topic, [value(i) for i in range(9)])
    opened = source(broker_address, topic)
    _, batch = read_count(opened, 9)
    assert committed(broker_address, topic, 0) == (0, "meanstream-store=store-1")
    opened.commit(batch.position)
    eventually(lambda: committed(broker_address, topic, 0) == (9, "meanstream-store=store-1"))
    send(broker_address, topic, [value(10)])
    _, batch = read_count(opened, 1)
    opened.commit(batch.position)  # less than a second later: with the next one, or on closing
    opened.close()
    eventually(lambda: committed(broker_address, topic, 0) == (10, "meanstream-store=store-1"))


def test_owners_are_noted_again_before_kafka_forgets_them(
    broker_address: str, new_topic: NewTopicOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "RENEW_SECONDS", 0.1)
    topic = new_topic()
    with closing(source(broker_address, topic)) as opened:
        opened.commit(opened.next_batch(1).position)
        eventually(lambda: committed(broker_address, topic, 0)[0] == 0)
        with Consumer({"bootstrap.servers": broker_address, "group.id": f"of-{topic}"}) as consumer:
            consumer.commit(
                offsets=[TopicPartition(topic, 0, 0)], asynchronous=False
            )  # the note is lost
        assert committed(broker_address, topic, 0)[1] != "meanstream-store=store-1"
        read_until(
            opened, lambda *_: committed(broker_address, topic, 0)[1] == "meanstream-store=store-1"
        )
