"""A source of several topics: read whole by one store, each record once, whatever happens in
between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.events.event_columns import (
    column_partitions,
    joined_topics,
    topic_partition,
)
from meanstream.streaming.kafka.reading.kafka_source import KafkaSource
from meanstream.streaming.sources.source_protocol import SourceLostError
from tests.pipelines.command_line import SECRET, arguments, meanstream, options
from tests.servers.support.engine_input import EngineInput
from tests.servers.support.engine_process import KILLED, Fate
from tests.servers.support.engine_worlds import EngineWorlds, finish_all, start_all
from tests.servers.support.kafka_reading import (
    SECONDS,
    NewTopicOf,
    Read,
    eventually,
    read_count,
    read_to_end,
    read_until,
    send,
    source,
    value,
)


@pytest.fixture
def topics(broker_address: str, new_topic: NewTopicOf) -> tuple[str, str]:
    """Ten records in two partitions of one topic, five in the only one of the other."""
    first, second = new_topic(2), new_topic(1)
    for partition in (0, 1):
        send(broker_address, first, [value(10 * partition + i) for i in range(5)], partition)
    send(broker_address, second, [value(20 + i) for i in range(5)])
    return first, second


def by_topic(opened: KafkaSource, found: Read) -> dict[tuple[str, int, int], float]:
    return {
        (*topic_partition(opened.name, partition), offset): read
        for (partition, offset), read in found.items()
    }


def everything(topics: tuple[str, str]) -> dict[tuple[str, int, int], float]:
    first = {
        (topics[0], partition, i): 10.0 * partition + i for partition in (0, 1) for i in range(5)
    }
    return {**first, **{(topics[1], 0, i): 20.0 + i for i in range(5)}}


def test_all_topics_are_read_to_their_ends(broker_address: str, topics: tuple[str, str]) -> None:
    with closing(source(broker_address, ",".join(reversed(topics)), until_end=True)) as opened:
        assert opened.name == joined_topics(topics)
        batch = opened.next_batch(1)
        assert {topic_partition(opened.name, number) for number in batch.active} == {
            *((topics[0], 0), (topics[0], 1)),
            (topics[1], 0),
        }
        assert batch.lag == 15 - len(batch.samples)
        rest, last = read_to_end(opened)
        assert len(rest) == 15 - len(batch.samples)
        assert last.lags == {(topics[0], 0): 0, (topics[0], 1): 0, (topics[1], 0): 0}
        assert opened.next_batch(10).exhausted


def test_reading_goes_on_where_the_store_stands_and_lag_tools_are_told(
    broker_address: str, topics: tuple[str, str]
) -> None:
    whole = ",".join(topics)
    with closing(source(broker_address, whole)) as opened:
        first, batch = read_until(opened, lambda found, _: len(found) >= 6, size=2)
        found = by_topic(opened, first)
        opened.commit(batch.position)
    asked = [
        TopicPartition(topics[0], 0),
        TopicPartition(topics[0], 1),
        TopicPartition(topics[1], 0),
    ]
    with closing(
        Consumer({"bootstrap.servers": broker_address, "group.id": f"of-{whole}"})
    ) as consumer:
        noted = {(p.topic, p.partition): p.offset for p in consumer.committed(asked, SECONDS)}
    assert noted == {
        (t, int(p)): at
        for t in topics
        for p, at in batch.position["topics"][t]["partitions"].items()
    }
    with closing(source(broker_address, whole)) as opened:
        opened.restore(batch.position)
        rest, _ = read_count(opened, 15 - len(found))
        rest_found = by_topic(opened, rest)
    assert not found.keys() & rest_found.keys()
    assert {**found, **rest_found} == everything(topics)


def test_a_topic_that_has_more_is_waited_for_and_one_that_is_idle_is_not(
    broker_address: str, topics: tuple[str, str], new_topic: NewTopicOf
) -> None:
    empty = new_topic()
    with closing(source(broker_address, f"{topics[1]},{empty}", idle_seconds=0.2)) as opened:
        read_until(opened, lambda found, batch: len(found) == 5 and not batch.active)
        send(broker_address, empty, [value(1)])
        _, batch = read_count(opened, 1)
        assert [topic_partition(opened.name, number) for number in batch.active] == [(empty, 0)]


def test_partitions_that_are_added_to_one_of_them_are_read(
    broker_address: str, topics: tuple[str, str]
) -> None:
    with closing(source(broker_address, ",".join(topics), watch_seconds=0.1)) as opened:
        read_count(opened, 15)
        admin = AdminClient({"bootstrap.servers": broker_address})
        admin.create_partitions([NewPartitions(topics[1], 2)])[topics[1]].result(SECONDS)
        eventually(lambda: opened.next_batch(1).position["topics"][topics[1]]["count"] == 2)
        send(broker_address, topics[1], [value(3)], 1)
        _, batch = read_count(opened, 1)
        (number,) = column_partitions(batch.samples.position).tolist()
        assert topic_partition(opened.name, number) == (topics[1], 1)


def test_no_topic_is_claimed_where_another_store_has_one(
    broker_address: str, topics: tuple[str, str]
) -> None:
    first, second = sorted(topics)
    with closing(source(broker_address, second, name=f"of {second}")) as opened:
        opened.begin()
    whole = source(broker_address, f"{first},{second}", owner="store-2", name=f"of {second}")
    with (
        closing(whole),
        pytest.raises(
            SourceLostError, match=f"partition 0 of '{second}', which store store-1 reads"
        ),
    ):
        whole.next_batch(1)
    with closing(source(broker_address, first, owner="store-3", name=f"of {second}")) as opened:
        # What the second store was refused together with the other topic is still free.
        opened.begin()


def test_a_topic_that_is_unknown_is_refused_in_one_line(
    broker_address: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    named = options(
        tmp_path, source=f"kafka://{broker_address}/{topics[0]},no-such-topic?group=g", sort=None
    )
    ran = meanstream(
        "run", "agents", *arguments(named), "--until-end", environment={"MEANSTREAM_SECRET": SECRET}
    )
    assert ran.message.startswith("source must be a topic that exists, got 'no-such-topic'")
    assert not Path(named["store"]).exists()


@pytest.fixture(scope="module")
def worlds(broker_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineWorlds]:
    worlds = EngineWorlds(broker_address, tmp_path_factory.mktemp("several"), EngineInput(topics=2))
    yield worlds
    worlds.close()


def test_killed_and_continued_every_record_of_every_topic_counts_once(worlds: EngineWorlds) -> None:
    fates = [
        Fate(point=CrashPoint.COMMIT, moment=Moment.AFTER, visit=3),
        Fate(point=CrashPoint.COMMIT_TRANSACTION, moment=Moment.BEFORE, visit=2),
    ]
    letters = worlds.expected.topics["dead_letters"]
    assert all(
        any(f'"source":"samples{topic}"'.encode() in line for line in letters) for topic in (0, 1)
    )
    cases = worlds.new(len(fates))
    for life in start_all(cases, fates):
        assert life.wait() == KILLED, life.log
    assert [worlds.uncharged(world) for world in cases] == [[]] * len(cases)
    finish_all(cases)
    assert [worlds.faults(world) for world in cases] == [[]] * len(cases)
