"""A topic of a real broker that falls silent: the clock lets the last samples go, but not past what
may still come."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer

from tests.servers.support.kafka_reading import SECONDS, NewTopicOf, send, source, value
from tests.streaming.conftest import World
from tests.streaming.support.scripted_source import SettableClock

LOOKS = 25
"""A clock moves on by a second with each; event time passes the lateness within."""


def silent_world(folder: Path) -> World:
    world = World(folder)
    how = {
        "allowed_lateness": 5.0,
        "refresh": 10.0,
        "idle_after": 6.0,
        "poll": 1.0,
        "collaboration": "none",
    }
    world.options, world.clock = replace(world.options, **how), SettableClock(2e9)
    return world


def run_until_quiet(world: World, address: str, topic: str) -> None:
    """Run until so many looks have found nothing, in all partitions, for long."""
    end = time.monotonic() + SECONDS
    opened = source(address, topic, idle_seconds=0.2)

    def stop() -> bool:
        return time.monotonic() > end or world.clock.now() >= 2e9 + LOOKS

    world.run(opened, stop=stop)


def test_the_last_samples_are_answered(
    broker_address: str, new_topic: NewTopicOf, tmp_path: Path
) -> None:
    topic, world = new_topic(2), silent_world(tmp_path / "world")
    for partition in range(2):
        send(broker_address, topic, [value(2 * i + partition) for i in range(20)], partition)
    run_until_quiet(world, broker_address, topic)
    assert (world.engine.stats.accepted, world.engine.stats.pending) == (40, 0)
    told = {str(event["agent"]): event["n"] for event in world.events("estimates")}
    assert sum(int(str(n)) for n in told.values()) == 40


def test_an_open_transaction_is_no_silence(
    broker_address: str, new_topic: NewTopicOf, tmp_path: Path
) -> None:
    topic, world = new_topic(), silent_world(tmp_path / "world")
    send(broker_address, topic, [value(i) for i in range(20)])
    writer = Producer(
        {"bootstrap.servers": broker_address, "transactional.id": f"writer of {topic}"}
    )
    writer.init_transactions(SECONDS)
    writer.begin_transaction()
    writer.produce(topic, value(21))
    assert writer.flush(SECONDS) == 0
    try:
        run_until_quiet(world, broker_address, topic)
    finally:
        with suppress(Exception):
            writer.abort_transaction(SECONDS)
    assert world.engine.stats.accepted == 20
    assert world.engine.stats.pending > 0
