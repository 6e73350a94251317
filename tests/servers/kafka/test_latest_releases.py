"""Everybody's latest release comes from the topic alone, also after it was compacted, and goes on
with what comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
import pytest
from confluent_kafka import Producer

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.collaboration.followed_releases import FollowedReleases, NewestReleases
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import Release
from meanstream.streaming.kafka.connection.kafka_client import KafkaLostError
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.reading.latest_releases import ReleasesTopic, read_latest_releases
from meanstream.streaming.sources.received_releases import Releases
from tests.servers.support.broker import Broker
from tests.servers.support.kafka_sinks import World, deliver, read, releases, silence
from tests.servers.support.kafka_sinks import closing as closing_world
from tests.servers.support.wait_until import NotInTimeError, wait_until

AGENTS = ("ann", "bob", "cleo", "dan", "eve")
SETTINGS = AgentsSettings(
    name="test",
    lower=0,
    upper=10,
    epsilon=1,
    delta=1e-6,
    counter="pm1",
    schedule="geometric:2,1.5",
    horizon=1000,
)


@pytest.fixture
def world(broker_address: str, new_topic: Callable[..., str], worker_id: str) -> Iterator[World]:
    topic = new_topic(partitions=3, config={"cleanup.policy": "compact"})
    with closing_world(
        World(broker_address, {"releases": topic}, f"latest-{worker_id}-{topic}")
    ) as world:
        yield world


def location(world: World) -> KafkaLocation:
    return KafkaLocation.parse(
        f"kafka://{world.address}/{world.roles['releases']}", role="releases"
    )


def snapshot(releases: Releases) -> dict[str, tuple[int, int, int, float, float]]:
    c = releases.columns
    names = [releases.names[a] for a in c.agent.tolist()]
    values = zip(
        c.index.tolist(),
        c.count.tolist(),
        c.total.tolist(),
        c.mean.tolist(),
        releases.time,
        strict=True,
    )
    return dict(zip(names, values, strict=True))


def test_the_latest_of_everybody_is_rebuilt(world: World) -> None:
    sinks = world.open()
    for index in range(1, 21):
        deliver(
            sinks, *(("releases", releases(index, agent=agent, mean=index / 4)) for agent in AGENTS)
        )
    sinks.write("releases", releases(21, agent="ann"))  # and dies: never committed
    sinks.releases._transaction._writer._producer.flush(30)  # type: ignore[union-attr]
    world.open().positions()
    latest = read_latest_releases(location(world))
    assert sorted(latest.names) == list(AGENTS)
    assert {agent: row[:4] for agent, row in snapshot(latest).items()} == dict.fromkeys(
        AGENTS, (20, 200, 12800, 5.0)
    )
    assert set(latest.time) == {1357034400.0}
    assert (set(latest.epsilon), set(latest.delta), latest.tuned.all()) == ({1.0}, {1e-6}, True)


def test_lines_that_are_no_releases_are_counted_and_skipped(world: World) -> None:
    deliver(world.open(), ("releases", releases(1, 2)))
    topic, producer = world.roles["releases"], Producer({"bootstrap.servers": world.address})
    good = releases(2).lines[0]
    for key, value in ((b"ann", good), (b"ann", b"\xff{"), (b"bob", good), (b"ann", None)):
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0
    with closing(ReleasesTopic(location(world))) as reader:
        assert snapshot(reader.read_to_end())["ann"][0] == 2
        # The copy is in another partition: what is read first decides whether release 1 comes in
        # its turn.
        superseded = reader.rejected.pop("superseded", 0)
        assert superseded <= 1
        assert reader.rejected == {"malformed": 1, "wrong_key": 1, "tombstone": 1, "duplicate": 1}


def test_what_comes_is_followed_in_order_and_a_restart_goes_on(world: World) -> None:
    sinks = world.open()
    whole, followed, kept = FollowedReleases(SETTINGS), FollowedReleases(SETTINGS), NewestReleases()
    with closing(ReleasesTopic(location(world))) as reader:
        for index in range(1, 6):
            deliver(sinks, ("releases", releases(2 * index - 1, 2 * index, mean=float(index % 3))))
            found = follow(reader, 2)
            assert found == [2 * index - 1, 2 * index]
        position, latest = reader.position(), reader.latest()
    with closing(ReleasesTopic(location(world))) as reader:
        reader.read_to_end(
            each=lambda releases: whole.observe(releases.columns, kept.replaced(releases.columns))
        )
    followed.restore(whole.snapshot(), latest.columns)
    deliver(sinks, ("releases", releases(11, 12, mean=2.5)))
    with closing(ReleasesTopic(location(world))) as reader:
        reader.restore(position, latest)
        reader.read_to_end(
            each=lambda releases: followed.observe(
                releases.columns, kept.replaced(releases.columns)
            )
        )
        assert reader.latest().columns.index.tolist() == [12]
        assert reader.rejected == {}
    everything, kept = FollowedReleases(SETTINGS), NewestReleases()
    with closing(ReleasesTopic(location(world))) as reader:
        reader.read_to_end(
            each=lambda releases: everything.observe(
                releases.columns, kept.replaced(releases.columns)
            )
        )
    assert followed.variance == everything.variance != whole.variance


def follow(reader: ReleasesTopic, count: int) -> list[int]:
    found: list[int] = []
    until = time.monotonic() + 30
    while len(found) < count:
        if time.monotonic() > until:
            raise NotInTimeError(f"{len(found)} of {count} releases")
        found += reader.poll(seconds=0.2).columns.index.tolist()
    return found


def test_a_compacted_topic_gives_the_same_snapshot(
    broker_address: str, new_topic: Callable[..., str], worker_id: str
) -> None:
    quickly = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100",
    }
    topic = new_topic(config=quickly)
    written = 0
    with closing_world(
        World(broker_address, {"releases": topic}, f"compacted-{worker_id}-{topic}")
    ) as world:
        sinks = world.open()
        for index in range(1, 101):
            for agent in AGENTS:
                sinks.write("releases", releases(index, agent=agent, mean=np.sin(index).item()))
            written += len(AGENTS)
        sinks.flush()
        before = snapshot(read_latest_releases(location(world)))

        def compacted() -> bool:
            nonlocal written
            written += 1
            deliver(
                sinks, ("releases", releases(written, agent="zoe"))
            )  # a segment is closed by a later record
            return len(read(broker_address, topic)) <= written / 2

        wait_until(
            compacted,
            90,
            every=0.2,
            why=lambda: f"{len(read(broker_address, topic))} records are left",
        )
        after = snapshot(read_latest_releases(location(world)))
    assert after.pop("zoe")[0] == written
    assert after == before
    assert set(before) == set(AGENTS)


def test_a_topic_that_is_not_there_or_gives_nothing(
    own_broker: Broker, broker_address: str, new_topic: Callable[..., str]
) -> None:
    with pytest.raises(ValueError, match="releases must be a topic that exists, got 'nowhere'"):
        ReleasesTopic(KafkaLocation.parse(f"kafka://{broker_address}/nowhere", role="releases"))
    empty = read_latest_releases(
        KafkaLocation.parse(f"kafka://{broker_address}/{new_topic()}", role="releases")
    )
    assert (len(empty), empty.names) == (0, [])
    with closing_world(World(own_broker.address, {"releases": "r?create=1"}, "silent")) as world:
        deliver(world.open(), ("releases", EventLines(Release, releases(1).lines)))
        there = KafkaLocation.parse(f"kafka://{own_broker.address}/r", role="releases")
        with closing(ReleasesTopic(there)) as reader:
            silence(own_broker)
            with pytest.raises(
                KafkaLostError, match="releases must be read to its end, got nothing for 1 s from"
            ):
                reader.read_to_end(seconds=1)
            own_broker.resume()
