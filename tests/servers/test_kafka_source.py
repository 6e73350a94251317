"""Samples from a real broker: each committed record once, from exactly where a store stands, whatever happens."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from streaming.columns import Batch, Position, partition_of, place_in_partition
from streaming.kafka import client, group_offsets, reader
from streaming.kafka.location import KafkaLocation
from streaming.kafka.ownership import OwnedElsewhereError, claim
from streaming.kafka.source import KafkaSource
from streaming.mapping import ColumnMapping
from streaming.sources.open import open_source
from streaming.sources.source import SourceLostError
from tests.servers.broker import Broker

SECONDS = 30.0
"""Every wait ends after so long at most."""

NewTopicOf = Callable[..., str]
Read = dict[tuple[int, int], float]
"""Partition and offset to the value that was read there."""


def value(number: float) -> bytes:
    return json.dumps({"agent": f"a{number % 7}", "value": number, "time": 1_700_000_000 + number}).encode()


def send(address: str, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
    """Write values to a partition, and wait until they are there."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for one in values:
        producer.produce(topic, one, partition=partition)
    assert producer.flush(SECONDS) == 0


def transaction(address: str, topic: str, values: Sequence[bytes], *, commit: bool) -> Producer:
    """Write values in a transaction that is committed or aborted."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"writer of {topic}"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for one in values:
        producer.produce(topic, one)
    assert producer.flush(SECONDS) == 0
    (producer.commit_transaction if commit else producer.abort_transaction)(SECONDS)
    return producer


def source(address: str, topic: str, options: str = "", **more: Any) -> KafkaSource:
    location = KafkaLocation.parse(f"kafka://{address}/{topic}?group=of-{topic}{options}")
    return KafkaSource(location, ColumnMapping(), **{"owner": "store-1", **more})


def record(batch: Batch, found: Read) -> None:
    """Add the samples of a batch, none of which may have been there before."""
    position = batch.samples.position
    places = zip(partition_of(position).tolist(), place_in_partition(position).tolist(), strict=True)
    for place, number in zip(places, batch.samples.value.tolist(), strict=True):
        assert place not in found
        found[place] = number


def read_until(opened: KafkaSource, enough: Callable[[Read, Batch], bool], size: int = 100_000) -> tuple[Read, Batch]:
    """Read until it is enough; samples by partition and offset, and the last batch."""
    found: Read = {}
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        batch = opened.next_batch(size)
        record(batch, found)
        if batch.exhausted or enough(found, batch):
            return found, batch
    raise AssertionError(f"not enough in time: {len(found)} records")


def read_count(opened: KafkaSource, count: int, size: int = 100_000) -> tuple[Read, Batch]:
    found, batch = read_until(opened, lambda found, _: len(found) >= count, size)
    assert len(found) == count
    return found, batch


def read_to_end(opened: KafkaSource) -> tuple[Read, Batch]:
    found, batch = read_until(opened, lambda _, batch: batch.exhausted)
    assert batch.exhausted
    return found, batch


def eventually(check: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not check():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


@pytest.fixture
def admin(broker_address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker_address})


# -- each record once ----------------------------------------------------------------------------------------


def test_every_record_of_every_partition_once(broker_address: str, new_topic: NewTopicOf) -> None:
    topic = new_topic(3)
    for partition in range(3):
        send(broker_address, topic, [value(100 * partition + i) for i in range(50)], partition)
    with closing(source(broker_address, topic)) as opened:
        found, batch = read_count(opened, 150, size=40)
    assert found == {(p, i): 100.0 * p + i for p in range(3) for i in range(50)}
    assert batch.position["partitions"] == {"0": 50, "1": 50, "2": 50}
    assert batch.position == json.loads(json.dumps(batch.position))


def test_resumed_anywhere_it_goes_on_exactly_there(broker_address: str, new_topic: NewTopicOf) -> None:
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


def test_a_batch_has_as_many_records_as_asked_for_at_most(broker_address: str, new_topic: NewTopicOf) -> None:
    topic = new_topic()
    send(broker_address, topic, [value(i) for i in range(1500)])
    with closing(source(broker_address, topic)) as opened:
        sizes = []
        while sum(sizes) < 1500:
            sizes.append(len(opened.next_batch(700).samples))
    assert max(sizes) <= 700


# -- transactions, compaction, ends ---------------------------------------------------------------------------


def test_records_of_aborted_transactions_are_never_seen(broker_address: str, new_topic: NewTopicOf) -> None:
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


def test_a_bounded_reading_passes_the_holes_of_compaction(broker_address: str, new_topic: NewTopicOf) -> None:
    fast = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "100"}
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
        assert time.monotonic() < end, "no compaction"
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


# -- bad records ----------------------------------------------------------------------------------------------


def test_bad_values_are_rejected_with_partition_and_offset(broker_address: str, new_topic: NewTopicOf) -> None:
    topic = new_topic(2)
    pretty = json.dumps(json.loads(value(5)), indent=2).encode()
    bad = [b"", None, b"x" * 300, b"not JSON", b'{"agent":"a","value":"5","time":5}', b"  ", pretty + b"," + pretty]
    send(broker_address, topic, [value(1), *bad, pretty], 1)
    with closing(source(broker_address, topic, max_record_bytes=200)) as opened:
        rejected: dict[tuple[int, int], tuple[str, int | None]] = {}
        found: Read = {}
        end = time.monotonic() + SECONDS
        while len(found) + len(rejected) < 9:
            assert time.monotonic() < end
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


# -- records that are gone, topics that are others ------------------------------------------------------------


def delete_before(admin: AdminClient, topic: str, offset: int) -> None:
    admin.delete_records([TopicPartition(topic, 0, offset)])[TopicPartition(topic, 0, offset)].result(SECONDS)


@pytest.fixture
def with_gap(broker_address: str, new_topic: NewTopicOf, admin: AdminClient) -> tuple[str, Position]:
    """A topic whose store has read 10 records, and of which the first 25 are gone."""
    topic = new_topic()
    send(broker_address, topic, [value(i) for i in range(30)])
    with closing(source(broker_address, topic)) as opened:
        _, batch = read_count(opened, 10, size=1)
    delete_before(admin, topic, 25)
    return topic, batch.position


def test_records_that_retention_deleted_unread_are_missed(broker_address: str, with_gap: tuple[str, Position]) -> None:
    topic, position = with_gap
    with (
        closing(source(broker_address, topic)) as opened,
        pytest.raises(ValueError, match=rf"source must hold .* got 15 offsets of partition 0 of '{topic}' that reten"),
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


def test_a_topic_made_anew_is_another_one(broker_address: str, new_topic: NewTopicOf, admin: AdminClient) -> None:
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
    from streaming.kafka import topics

    monkeypatch.setattr(topics, "GONE_SECONDS", 0.5)
    topic = new_topic()
    with closing(source(broker_address, topic, watch_seconds=0.2)) as opened:
        opened.next_batch(1)
        admin.delete_topics([topic])[topic].result(SECONDS)
        with pytest.raises(SourceLostError, match=f"source must go on existing, got no topic '{topic}'"):
            read_until(opened, lambda *_: False)


def test_a_misspelled_topic_is_named_with_the_closest(broker_address: str, new_topic: NewTopicOf) -> None:
    topic = new_topic()
    with pytest.raises(ValueError, match=f"source must be a topic that exists, got '{topic}s'; did you mean 'topic-"):
        source(broker_address, f"{topic}s")


def test_a_store_of_another_topic_is_refused(broker_address: str, new_topic: NewTopicOf) -> None:
    with (
        closing(source(broker_address, new_topic())) as opened,
        pytest.raises(ValueError, match="source must be the topic that this store was filled from"),
    ):
        opened.restore({"topic": "other"})


# -- partitions and who owns them -----------------------------------------------------------------------------


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
        with pytest.raises(SourceLostError, match="source must keep its 2 partitions while a store owns some"):
            read_until(opened, lambda *_: False)
    with (
        closing(source(broker_address, topic, "&partitions=0")) as opened,
        pytest.raises(ValueError, match="source must have the 2 partitions that it had when the store was begun"),
    ):
        opened.restore(position)


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


def test_a_partition_of_another_store_is_refused(broker_address: str, new_topic: NewTopicOf) -> None:
    topic = new_topic(2)
    with closing(source(broker_address, topic, "&partitions=1")) as opened:
        opened.begin()
    for options in ("", "&partitions=1", "&partitions=0-1"):
        with closing(source(broker_address, topic, options, owner="store-2")) as opened:
            with pytest.raises(ValueError, match=f"got partition 1 of '{topic}', which store store-1 reads in group"):
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
        pytest.raises(ValueError, match=r"partitions must have those that the store owns, .* got none of 0"),
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
        consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
        together.wait(SECONDS)
        try:
            claim(location, consumer, {0: 0, 1: 0, 2: 0}, owner)
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


def test_a_group_with_other_consumers_is_refused(broker_address: str, new_topic: NewTopicOf) -> None:
    topic = new_topic()
    with Consumer({"bootstrap.servers": broker_address, "group.id": f"of-{topic}"}) as other:
        other.subscribe([topic])

        def has_joined() -> bool:
            other.poll(0.05)
            return bool(other.assignment())

        eventually(has_joined)
        with (
            closing(source(broker_address, topic)) as opened,
            pytest.raises(ValueError, match=f"group must not be used by other consumers, got 'of-{topic}'"),
        ):
            opened.begin()


def test_without_a_store_a_topic_is_checked_but_not_read(broker_address: str, new_topic: NewTopicOf) -> None:
    with (
        closing(open_source(f"kafka://{broker_address}/{new_topic()}", ColumnMapping())) as opened,
        pytest.raises(SourceLostError, match="owner must be given to read, got None"),
    ):
        opened.next_batch(1)
    with pytest.raises(ValueError, match=r"partitions must be below 1, as topic 'topic-.*' has them, got \[3\]"):
        source(broker_address, new_topic(), "&partitions=0,3")


# -- what the engine and its operators see --------------------------------------------------------------------


def test_event_time_waits_for_a_partition_until_it_is_idle(broker_address: str, new_topic: NewTopicOf) -> None:
    topic = new_topic(2)
    send(broker_address, topic, [value(1)], 0)
    with closing(source(broker_address, topic, idle_seconds=0.6)) as opened:
        assert opened.next_batch(1).active  # nothing is known yet, or too little to give one up
        _, batch = read_until(opened, lambda _, batch: batch.active == ())
        send(broker_address, topic, [value(2)], 1)
        found, batch = read_count(opened, 1)
    assert found == {(1, 0): 2.0}
    assert batch.active == (1,)


def test_a_partition_whose_broker_is_away_is_not_idle(own_broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": own_broker.address})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(SECONDS)
    with closing(source(own_broker.address, "t", idle_seconds=0.2)) as opened:
        read_until(opened, lambda _, batch: batch.active == ())
        own_broker.kill()
        _, batch = read_until(opened, lambda _, batch: batch.active == (0,))
        assert not batch.exhausted


def test_a_source_that_rests_hears_its_brokers_and_goes_on_where_it_was(
    broker_address: str, new_topic: NewTopicOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a client has to say piles up in memory while nobody asks, and ends that were reached may be ends no more."""
    heard: list[str] = []
    monkeypatch.setattr(client, "_STATISTICS_MS", 10)
    monkeypatch.setattr(reader, "unreachable_partitions", lambda _, topic: heard.append(topic) or set())
    topic = new_topic(2)
    send(broker_address, topic, [value(i) for i in range(60)], 0)
    with closing(source(broker_address, topic, idle_seconds=0.6)) as opened:
        opened.rest()  # before anything was read
        found, _ = read_until(opened, lambda found, _: bool(found), size=7)
        before = len(heard)
        eventually(lambda: opened.rest() or len(heard) > before + 50)
        found.update(read_count(opened, 60 - len(found))[0])
        read_until(opened, lambda _, batch: batch.active == ())
        send(broker_address, topic, [value(100 + i) for i in range(4)], 1)
        opened.rest()
        batch = opened.next_batch(100)
        assert batch.active == (0, 1)
        record(batch, found)
        found.update(read_count(opened, 64 - len(found))[0])
    assert found == {(0, i): float(i) for i in range(60)} | {(1, i): 100.0 + i for i in range(4)}


def test_lag_counts_what_is_not_read_yet(broker_address: str, new_topic: NewTopicOf) -> None:
    topic = new_topic(2)
    send(broker_address, topic, [value(i) for i in range(30)], 0)
    send(broker_address, topic, [value(i) for i in range(12)], 1)
    with closing(source(broker_address, topic)) as opened:
        found, batch = read_until(opened, lambda found, _: bool(found), size=5)
        assert batch.lag == 42 - len(found)
        _, batch = read_until(opened, lambda _, batch: batch.lag == 0)
        send(broker_address, topic, [value(i) for i in range(3)], 1)
        _, batch = read_count(opened, 3)
        assert batch.lag == 0


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
    broker_address: str, new_topic: NewTopicOf, monkeypatch: pytest.MonkeyPatch, admin: AdminClient
) -> None:
    monkeypatch.setattr(group_offsets, "RENEW_SECONDS", 0.1)
    topic = new_topic()
    with closing(source(broker_address, topic)) as opened:
        opened.commit(opened.next_batch(1).position)
        eventually(lambda: committed(broker_address, topic, 0)[0] == 0)
        with Consumer({"bootstrap.servers": broker_address, "group.id": f"of-{topic}"}) as consumer:
            consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)  # the note is lost
        assert committed(broker_address, topic, 0)[1] != "meanstream-store=store-1"
        read_until(opened, lambda *_: committed(broker_address, topic, 0)[1] == "meanstream-store=store-1")


# -- faults ---------------------------------------------------------------------------------------------------


@pytest.fixture
def steady_writer(own_broker: Broker) -> Iterator[threading.Event]:
    """Writes 3000 records to two partitions while the broker comes and goes."""
    done = threading.Event()

    def write() -> None:
        settings = {
            "bootstrap.servers": own_broker.address,
            "enable.idempotence": True,
            "reconnect.backoff.max.ms": 500,
        }
        producer = Producer({**settings, "linger.ms": 5, "log_level": 0})
        for i in range(3000):
            producer.produce("t", value(i), partition=i % 2)
            producer.poll(0.001)
        if producer.flush(2 * SECONDS) == 0:
            done.set()

    admin = AdminClient({"bootstrap.servers": own_broker.address})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(SECONDS)
    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    yield done
    thread.join(2 * SECONDS)


def test_a_broker_killed_while_it_is_read_loses_and_doubles_nothing(
    own_broker: Broker, steady_writer: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "meanstream.kafka")
    with closing(source(own_broker.address, "t")) as opened:
        found, _ = read_until(opened, lambda found, _: len(found) > 300)
        own_broker.kill()
        for _ in range(10):
            record(opened.next_batch(1000), found)
        own_broker.start()
        more, batch = read_until(opened, lambda more, _: len(found) + len(more) >= 3000)
        read_until(opened, lambda *_: "reached again" in caplog.text)
    assert steady_writer.wait(SECONDS)
    assert not found.keys() & more.keys()
    assert {**found, **more} == {(i % 2, i // 2): float(i) for i in range(3000)}
    assert batch.position["partitions"] == {"0": 1500, "1": 1500}
    lines = [record.getMessage() for record in caplog.records if "brokers" in record.getMessage()]
    assert [line.partition(":")[0] for line in lines] == ["brokers cannot be reached", "brokers can be reached again"]


def test_closing_does_not_wait_for_a_broker_that_is_away(own_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "CLOSE_SECONDS", 0.5)
    admin = AdminClient({"bootstrap.servers": own_broker.address, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(SECONDS)
    opened = source(own_broker.address, "t")
    opened.commit(opened.next_batch(1).position)
    own_broker.kill()
    closer = threading.Thread(target=opened.close, daemon=True)
    closer.start()
    closer.join(SECONDS)
    assert not closer.is_alive()
