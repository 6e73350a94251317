"""Samples from a real broker: each committed record once, from exactly where a store stands,
whatever happens."""

from __future__ import annotations

import json
import time
from contextlib import closing

import pytest
from confluent_kafka import Producer

from meanstream.streaming.events.event_columns import Position
from tests.servers.support.kafka_reading import (
    SECONDS,
    NewTopicOf,
    Read,
    read_count,
    read_to_end,
    read_until,
    record,
    send,
    source,
    transaction,
    value,
)
from tests.servers.support.wait_until import NotInTimeError


def test_every_record_of_every_partition_once(broker_address: str, new_topic: NewTopicOf) -> None:
    topic = new_topic(3)
    for partition in range(3):
        send(broker_address, topic, [value(100 * partition + i) for i in range(50)], partition)
    with closing(source(broker_address, topic)) as opened:
        found, batch = read_count(opened, 150, size=40)
    assert found == {(p, i): 100.0 * p + i for p in range(3) for i in range(50)}
    assert batch.position["partitions"] == {"0": 50, "1": 50, "2": 50}
    assert batch.position == json.loads(json.dumps(batch.position))


def test_resumed_anywhere_it_goes_on_exactly_there(
    broker_address: str, new_topic: NewTopicOf
) -> None:
    topic = new_topic(2)
    for partition in range(2):
        send(broker_address, topic, [value(100 * partition + i) for i in range(30)], partition)
    expected = {(p, i): 100.0 * p + i for p in range(2) for i in range(30)}
    found: Read = {}
    position: Position | None = None
    restarts = 0
    while len(found) < 60:
        with closing(source(broker_address, topic)) as opened:
            if position is not None:
                opened.restore(position)
            _, batch = read_until(opened, lambda some, _: bool(some), size=11)
            record(batch, found)
            opened.next_batch(5)  # read, but never committed by the store
            position = json.loads(json.dumps(batch.position))
        restarts += 1
    assert found == expected
    assert restarts >= 6


def test_a_batch_has_as_many_records_as_asked_for_at_most(
    broker_address: str, new_topic: NewTopicOf
) -> None:
    topic = new_topic()
    send(broker_address, topic, [value(i) for i in range(1500)])
    with closing(source(broker_address, topic)) as opened:
        sizes = []
        while sum(sizes) < 1500:
            sizes.append(len(opened.next_batch(700).samples))
    assert max(sizes) <= 700


def test_records_of_aborted_transactions_are_never_seen(
    broker_address: str, new_topic: NewTopicOf
) -> None:
    topic = new_topic()
    transaction(broker_address, topic, [value(1), value(2)], commit=True)
    transaction(broker_address, topic, [value(66), value(77)], commit=False)
    writer = transaction(broker_address, topic, [value(3)], commit=True)
    writer.begin_transaction()
    writer.produce(topic, value(4))
    assert writer.flush(SECONDS) == 0
    with closing(source(broker_address, topic)) as opened:
        found, _ = read_count(opened, 3)
        assert not len(opened.next_batch(10).samples)  # the open transaction
        writer.commit_transaction(SECONDS)
        more, _ = read_count(opened, 1)
    assert list(found.values()) == [1.0, 2.0, 3.0]
    assert list(more.values()) == [4.0]


@pytest.mark.parametrize("last", [True, False])
def test_a_bounded_reading_ends_behind_the_last_transaction(
    last: bool, broker_address: str, new_topic: NewTopicOf
) -> None:
    topic = new_topic(2)  # the second partition may be empty
    transaction(broker_address, topic, [value(1), value(2)], commit=True)
    writer = transaction(broker_address, topic, [value(3)], commit=last)
    with closing(source(broker_address, topic, until_end=True)) as opened:
        first = opened.next_batch(1)
        writer.begin_transaction()
        for i in range(20):
            writer.produce(topic, value(50 + i))  # behind the end
        writer.commit_transaction(SECONDS)
        found, batch = read_to_end(opened)
        record(first, found)
    assert set(found.values()) == ({1.0, 2.0, 3.0} if last else {1.0, 2.0})
    assert batch.active == ()
    assert batch.lag == 0
    with closing(source(broker_address, topic, until_end=True)) as opened:
        opened.restore(batch.position)
        found, _ = read_to_end(opened)
    assert set(found.values()) == {50.0 + i for i in range(20)}


def test_an_empty_topic_ends_at_once(broker_address: str, new_topic: NewTopicOf) -> None:
    with closing(source(broker_address, new_topic(2), until_end=True)) as opened:
        assert opened.bounded
        assert opened.next_batch(10).exhausted


def test_a_bounded_reading_passes_the_holes_of_compaction(
    broker_address: str, new_topic: NewTopicOf
) -> None:
    fast = {
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100",
    }
    topic = new_topic(1, config={"cleanup.policy": "compact", **fast})
    producer = Producer({"bootstrap.servers": broker_address})

    def write(key: str, number: float) -> None:
        producer.produce(topic, value(number), key=key)
        assert producer.flush(SECONDS) == 0

    for i in range(60):
        write(f"k{i % 2}", i)
    end = time.monotonic() + SECONDS
    found: Read = {}
    while not found or len(found) == max(offset for _, offset in found) + 1:
        if time.monotonic() > end:
            raise NotInTimeError("no compaction")
        write("roll", time.monotonic() % 100)
        with closing(source(broker_address, topic, until_end=True)) as opened:
            found, batch = read_to_end(opened)
        time.sleep(0.2)
    assert batch.position["partitions"]["0"] > len(found)


def test_reading_begins_where_the_address_says(broker_address: str, new_topic: NewTopicOf) -> None:
    topic = new_topic()
    send(broker_address, topic, [value(1)])
    with closing(source(broker_address, topic, "&start=latest")) as opened:
        assert opened.next_batch(10).position["partitions"] == {"0": 1}
        send(broker_address, topic, [value(2)])
        found, _ = read_count(opened, 1)
    assert found == {(0, 1): 2.0}


def test_bad_values_are_rejected_with_partition_and_offset(
    broker_address: str, new_topic: NewTopicOf
) -> None:
    topic = new_topic(2)
    pretty = json.dumps(json.loads(value(5)), indent=2).encode()
    bad = [
        b"",
        None,
        b"x" * 300,
        b"not JSON",
        b'{"agent":"a","value":"5","time":5}',
        b"  ",
        pretty + b"," + pretty,
    ]
    send(broker_address, topic, [value(1), *bad, pretty], 1)
    with closing(source(broker_address, topic, max_record_bytes=200)) as opened:
        rejected: dict[tuple[int, int], tuple[str, int | None]] = {}
        found: Read = {}
        end = time.monotonic() + SECONDS
        while len(found) + len(rejected) < 9:
            if time.monotonic() > end:
                raise NotInTimeError(f"{len(found)} samples, {len(rejected)} rejects")
            batch = opened.next_batch(100)
            record(batch, found)
            for position, reason, size in zip(
                batch.rejects.position, batch.rejects.reason, batch.rejects.size, strict=True
            ):
                rejected[position >> 44, position & ((1 << 44) - 1)] = (reason, size)
    assert found == {(1, 0): 1.0, (1, 8): 5.0}
    assert rejected == {
        (1, 1): ("malformed", 1),
        (1, 2): ("malformed", 1),
        (1, 3): ("oversized", 512),
        (1, 4): ("malformed", 8),
        (1, 5): ("bad_value", None),
        (1, 6): ("malformed", 2),
        (1, 7): ("malformed", 128),
    }


def test_event_time_waits_for_a_partition_until_it_is_idle(
    broker_address: str, new_topic: NewTopicOf
) -> None:
    topic = new_topic(2)
    send(broker_address, topic, [value(1)], 0)
    with closing(source(broker_address, topic, idle_seconds=0.6)) as opened:
        assert opened.next_batch(1).active  # nothing is known yet, or too little to give one up
        _, batch = read_until(opened, lambda _, batch: batch.active == ())
        send(broker_address, topic, [value(2)], 1)
        found, batch = read_count(opened, 1)
    assert found == {(1, 0): 2.0}
    assert batch.active == (1,)


def test_held_at_its_end_a_topic_gives_what_was_there_and_goes_on_later(
    broker_address: str, new_topic: NewTopicOf
) -> None:
    """Records behind the moment are not lost, wherever they were fetched; an empty partition is at
    its end at once."""
    topic = new_topic(2)
    send(broker_address, topic, [value(i) for i in range(5)], 0)
    with closing(source(broker_address, topic)) as opened:
        read_count(opened, 2, size=2)
        assert opened.hold()
        send(broker_address, topic, [value(i) for i in range(5, 9)], 0)
        send(broker_address, topic, [value(9)], 1)
        found, _ = read_count(opened, 3)
        assert opened.reached_hold()
        assert sorted(found.values()) == [2.0, 3.0, 4.0]
        assert not len(opened.next_batch(9).samples)
        opened.go_on()
        found, _ = read_count(opened, 5)
    assert sorted(found.values()) == [5.0, 6.0, 7.0, 8.0, 9.0]
