"""Brokers that are away, idle or killed while a source reads: event time waits, nothing is lost or
doubled."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from meanstream.streaming.kafka.connection import kafka_client as client
from meanstream.streaming.kafka.reading import kafka_reader as reader
from tests.servers.support.broker import Broker
from tests.servers.support.kafka_reading import (
    SECONDS,
    NewTopicOf,
    eventually,
    read_count,
    read_until,
    record,
    send,
    source,
    value,
)


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
    """What a client has to say piles up in memory while nobody asks, and ends that were reached may
    be ends no more."""
    heard: list[str] = []
    monkeypatch.setattr(client, "_STATISTICS_MS", 10)
    monkeypatch.setattr(
        reader, "progress_unreachable_partitions", lambda _, topic: heard.append(topic) or set()
    )
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
        read_until(
            opened,
            lambda *_: "reached again" in caplog.text and opened.connection_problem() is None,
        )
    assert steady_writer.wait(SECONDS)
    assert not found.keys() & more.keys()
    assert {**found, **more} == {(i % 2, i // 2): float(i) for i in range(3000)}
    assert batch.position["partitions"] == {"0": 1500, "1": 1500}
    lines = [
        record.getMessage().partition(":")[0]
        for record in caplog.records
        if "brokers" in record.getMessage()
    ]
    assert lines[:2] == ["brokers cannot be reached", "brokers can be reached again"]
    assert all(
        line == lines[i % 2] for i, line in enumerate(lines)
    )  # a broker that starts may go and come once more


def test_closing_does_not_wait_for_a_broker_that_is_away(
    own_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
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
