"""Whatever the brokers do: nothing is lost, nothing is there twice, and what can never succeed is
one line."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from meanstream.streaming.kafka.connection import retry_policy
from meanstream.streaming.sinks.sink_protocol import DeliveryFailedError, SinkLostError, Sinks
from tests.servers.support.broker import Broker
from tests.servers.support.kafka_sinks import (
    World,
    closing,
    deliver,
    indexes,
    many,
    once,
    releases,
    silence,
    wait_for,
    watch,
)

SHORT_SECONDS = 1.5
"""Of some tests: how long a transaction may stand, or records wait."""

_numbers = itertools.count()


@pytest.fixture
def broker(own_broker: Broker) -> Broker:
    """The broker of these tests."""
    return own_broker


@pytest.fixture
def world(broker: Broker, tmp_path: Path) -> Iterator[World]:
    name = f"store-{os.getpid()}-{next(_numbers)}"
    topics = {"releases": f"releases-{name}", "notices": f"small-{name}"}
    small = NewTopic(topics["notices"], 1, 1, config={"max.message.bytes": "600"})
    admin = AdminClient({"bootstrap.servers": broker.address})
    for future in admin.create_topics([NewTopic(topics["releases"], 1, 1), small]).values():
        future.result(30)
    with closing(World(broker.address, topics, name, config=tmp_path / "client.yaml")) as world:
        configure(world)
        yield world
        broker.resume()


def configure(world: World, **properties: float) -> None:
    """Give the clients of a world these properties and no others."""
    assert world.config is not None
    text = "".join(f"{name.replace('_', '.')}: {value:g}\n" for name, value in properties.items())
    world.config.write_text(text or "{}")


def restart(broker: Broker) -> threading.Thread:
    """Kill it at once, and let it come back."""
    broker.kill()
    back = threading.Thread(target=broker.start)
    back.start()
    return back


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_policy, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr(retry_policy, "SILENT_SECONDS", 0.5)


def persist(sinks: Sinks, note: dict[str, dict[str, object]], *index: int) -> int:
    """What the engine does: write again until it is delivered; how often that was."""
    for attempt in range(1, 10):
        try:
            deliver(sinks, ("releases", releases(*index)))
            return attempt
        except DeliveryFailedError:
            sinks.restore(note)
            time.sleep(0.1)
    raise AssertionError("never delivered")


@pytest.mark.parametrize("place", ["write", "commit"])
def test_an_engine_that_was_replaced_ends_with_one_line(place: str, world: World) -> None:
    sinks = world.open()
    sinks.positions()

    def replace() -> None:
        deliver(world.open(), ("releases", releases(1)))

    if place == "write":
        replace()
    else:
        watch(sinks, "commit_transaction", before=replace)
    with pytest.raises(
        SinkLostError, match="must be used by one engine, got another engine"
    ) as error:
        deliver(sinks, ("releases", releases(1)))
    assert "\n" not in str(error.value)
    assert indexes(world.address, world.roles["releases"]) == [1]


def test_a_record_that_no_broker_takes_ends_with_one_line_and_commits_nothing(world: World) -> None:
    sinks = world.open()
    note = sinks.positions()
    for large, why in ((500, "MSG_SIZE_TOO_LARGE"), (2_000_000, "MSG_SIZE_TOO_LARGE")):
        again = world.open()
        again.restore(note)
        again.write("releases", releases(1))
        with pytest.raises(
            SinkLostError, match=rf"^releases, notices must accept records, got {why}"
        ) as error:
            deliver(again, ("notices", releases(2, agent="x" * large)))
        assert "\n" not in str(error.value)
        assert "xxx" not in str(error.value)
    assert indexes(world.address, world.roles["releases"]) == []


def test_a_broker_that_is_killed_in_a_delivery_and_comes_back(world: World, broker: Broker) -> None:
    sinks = world.open()
    note = sinks.positions()
    sinks.write("releases", releases(*many(500)))
    back = restart(broker)
    sinks.write("releases", releases(*many(500, first=501)))
    sinks.flush()
    back.join()
    assert sinks.positions()["releases"]["delivery"] == note["releases"]["delivery"] + 1
    assert indexes(world.address, world.roles["releases"]) == list(many(1000))


def test_a_broker_that_is_killed_while_it_commits(world: World, broker: Broker) -> None:
    sinks = world.open()
    note = sinks.positions()
    back = threading.Thread(target=lambda: (broker.kill(), broker.start()))
    watch(sinks, "commit_transaction", before=once(back.start))
    attempts = persist(sinks, note, 1, 2)
    back.join()
    deliver(sinks, ("releases", releases(3)))
    assert attempts == 1
    assert indexes(world.address, world.roles["releases"]) == [1, 2, 3]


def test_a_commit_that_is_not_answered_is_waited_for(
    world: World, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    sinks = world.open()
    sinks.positions()
    watch(sinks, "commit_transaction", before=once(lambda: silence(broker)))
    told = threading.Thread(
        target=lambda: (
            wait_for(lambda: "waiting for the brokers: the commit" in caplog.text),
            broker.resume(),
        )
    )
    with caplog.at_level(logging.WARNING, "meanstream.kafka"):
        told.start()
        deliver(sinks, ("releases", releases(1)))
    told.join()
    assert "waiting for the brokers: the commit" in caplog.text
    assert indexes(world.address, world.roles["releases"]) == [1]


@pytest.mark.full
def test_a_commit_in_doubt_is_decided_by_the_marker(world: World, broker: Broker) -> None:
    """The broker is silent for longer than a transaction may stand: it may have committed before it
    noticed, or not.

    A broker that wakes then may keep the id of the transaction for itself (see `Patient`).
    """
    configure(world, transaction_timeout_ms=1000 * SHORT_SECONDS)
    sinks = world.open()
    note = sinks.positions()
    watch(sinks, "commit_transaction", before=once(lambda: silence(broker, SHORT_SECONDS + 1)))
    persist(sinks, note, 1)
    persist(sinks, sinks.positions(), 2)
    assert indexes(world.address, world.roles["releases"]) == [1, 2]


@pytest.mark.parametrize("made", [True, False])
def test_a_commit_that_was_not_answered_counts_if_it_was_made(made: bool, world: World) -> None:
    """The answer, or the request, is lost: the producer cannot know which, the marker does."""
    sinks = world.open()
    note = sinks.positions()

    def lose_the_answer() -> None:
        raise KafkaException(KafkaError(KafkaError._STATE, "the answer is lost"))

    watch(sinks, "commit_transaction", **{"after" if made else "before": once(lose_the_answer)})
    assert persist(sinks, note, 1) == (1 if made else 2)
    assert sinks.positions()["releases"]["delivery"] == 1
    sinks.restore(note)  # because another sink failed
    deliver(sinks, ("releases", releases(1)))
    deliver(sinks, ("releases", releases(2)))
    assert indexes(world.address, world.roles["releases"], uncommitted=True) == (
        [1, 2] if made else [1, 1, 2]
    )


def test_a_transaction_that_stood_too_long_fails_and_is_written_again(world: World) -> None:
    configure(world, transaction_timeout_ms=1000 * SHORT_SECONDS)
    sinks = world.open()
    note = sinks.positions()
    sinks.write("releases", releases(1))
    wait_for(lambda: timed_out(world))
    with pytest.raises(DeliveryFailedError):
        sinks.flush()
    sinks.restore(note)
    persist(sinks, note, 1)
    assert indexes(world.address, world.roles["releases"]) == [1]
    assert indexes(world.address, world.roles["releases"], uncommitted=True)[:2] == [1, 1]


def test_records_that_time_out_while_the_broker_is_silent(world: World, broker: Broker) -> None:
    configure(
        world, transaction_timeout_ms=3000
    )  # records wait as long as it may stand: no file may say otherwise
    sinks = world.open()
    note = sinks.positions()
    sinks.write("releases", releases(1))
    silence(broker, 5.0)
    sinks.write("releases", releases(2))
    with pytest.raises(DeliveryFailedError):
        sinks.flush()
    sinks.restore(note)
    assert persist(sinks, note, 1, 2) >= 1
    assert indexes(world.address, world.roles["releases"]) == [1, 2]


def test_a_run_that_shall_stop_does_not_wait_for_brokers(world: World, broker: Broker) -> None:
    asked: list[bool] = []
    world.stop = lambda: bool(asked)
    sinks = world.open()
    note = sinks.positions()
    silence(broker)
    asked.append(True)
    sinks.write("releases", releases(1))
    with pytest.raises(DeliveryFailedError, match="stopped while"):
        sinks.flush()
    sinks.restore(note)  # does not wait either
    with pytest.raises(DeliveryFailedError, match="stopped while"):
        sinks.write("releases", releases(1))
    sinks.close()
    broker.resume()
    asked.clear()
    again = world.open()
    again.restore(note)
    deliver(again, ("releases", releases(1)))
    assert indexes(world.address, world.roles["releases"]) == [1]


def test_a_call_that_never_returns_is_left_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As librdkafka's may, when the coordinator of the marker's group was replaced."""
    monkeypatch.setattr(retry_policy, "STUCK_SECONDS", 1.0)
    sinks = world.open()
    note = sinks.positions()
    go_on = threading.Event()
    watch(sinks, "send_offsets_to_transaction", before=lambda: go_on.wait(30) and None)
    with pytest.raises(DeliveryFailedError, match="no answer, nor a time-out"):
        deliver(sinks, ("releases", releases(1)))
    sinks.restore(note)
    persist(sinks, note, 1)
    go_on.set()
    persist(sinks, sinks.positions(), 2)
    assert indexes(world.address, world.roles["releases"]) == [1, 2]


def test_a_full_queue_holds_the_writer_back(world: World, broker: Broker) -> None:
    configure(world, queue_buffering_max_messages=100)
    asked: list[bool] = []
    world.stop = lambda: bool(asked)
    sinks = world.open()
    deliver(sinks, ("releases", releases(*many(2000))))
    assert indexes(world.address, world.roles["releases"]) == list(many(2000))
    note = sinks.positions()
    silence(broker)
    asked.append(True)
    with pytest.raises(DeliveryFailedError, match=r"stopped while .* \(Local: Queue full\)"):
        sinks.write("releases", releases(*many(2000, first=2001)))
    broker.resume()
    asked.clear()
    sinks.restore(note)
    deliver(sinks, ("releases", releases(*many(2000, first=2001))))
    assert indexes(world.address, world.roles["releases"]) == list(many(4000))


def timed_out(world: World) -> bool:
    """Whether the broker has taken the open transaction back: then the end of the topic can be read
    past it."""
    admin = AdminClient({"bootstrap.servers": world.address})
    ends = []
    for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        place = TopicPartition(world.roles["releases"], 0)
        ends.append(
            admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=isolation)[place]
            .result(10)
            .offset
        )
    return ends[0] == ends[1] > 0
