"""What is delivered to Kafka is there once, whenever the process dies; keys, headers and topics are
as documented."""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from meanstream.streaming.events.encode import EventLines, encode_lines
from meanstream.streaming.events.wire import (
    BudgetEvent,
    DeadLetter,
    PersonalEstimate,
    Population,
    Refusal,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.writing.kafka_sink import KafkaSinks, open_output_topic
from meanstream.streaming.open_sink import canonical_sink_location, check_sink_location, open_sink
from meanstream.streaming.sinks.sink_protocol import DeliveryFailedError, SinkLostError, Trust
from tests.servers.support.kafka_sinks import (
    Died,
    Patient,
    World,
    closing,
    deliver,
    die,
    estimates,
    indexes,
    numbers,
    once,
    read,
    releases,
    watch,
)

_stores = itertools.count()


@pytest.fixture
def store_id() -> str:
    return f"store-{os.getpid()}-{next(_stores)}"


@pytest.fixture
def world(broker_address: str, new_topic: Callable[..., str], store_id: str) -> World:
    compacted = {"cleanup.policy": "compact"}
    roles = {"releases": new_topic(config=compacted), "estimates": new_topic(config=compacted)}
    with closing(World(broker_address, roles, store_id)) as world:
        yield world


DEATHS = {
    "before the flush": None,
    "before the records are acknowledged": ("flush", {"before": die}),
    "between records and marker": ("send_offsets_to_transaction", {"before": die}),
    "between marker and commit": ("send_offsets_to_transaction", {"after": die}),
    "between commit and note": ("commit_transaction", {"after": die}),
}


@pytest.mark.parametrize("place", DEATHS)
def test_each_event_is_there_once_wherever_the_process_dies(place: str, world: World) -> None:
    second = (("releases", releases(2, 3)), ("estimates", estimates(2, 3)))
    sinks = world.open()
    sinks.positions()
    deliver(sinks, ("releases", releases(1)), ("estimates", estimates(1)))
    note = sinks.positions()
    if DEATHS[place] is None:
        sinks.write(*second[0])
    else:
        call, hooks = DEATHS[place]
        watch(sinks, call, **hooks)
        with pytest.raises(Died):
            deliver(sinks, *second)

    sinks = world.open()
    sinks.restore(note)
    assert sinks.positions() == note
    deliver(sinks, *second)
    deliver(sinks, ("releases", releases(4)))
    assert {position["delivery"] for position in sinks.positions().values()} == {3}
    assert indexes(world.address, world.roles["releases"]) == [1, 2, 3, 4]
    assert numbers(world.address, world.roles["estimates"]) == [1, 2, 3]
    if place not in (
        "before the flush",
        "before the records are acknowledged",
    ):  # then they may still be in memory
        taken_back = place != "between commit and note"
        everything = indexes(world.address, world.roles["releases"], uncommitted=True)
        assert everything == ([1, 2, 3, 2, 3, 4] if taken_back else [1, 2, 3, 4])


def test_what_was_not_flushed_is_taken_back_with_the_files_beside_it(
    world: World, tmp_path: Path
) -> None:
    world.more = {"notices": str(tmp_path / "notices.jsonl")}
    budget = EventLines(BudgetEvent, [b'{"agent":"ann"}'])
    sinks = world.open()
    note = sinks.positions()
    sinks.write("releases", releases(1))
    sinks.write("notices", budget)
    sinks.restore(note)
    sinks.write("releases", releases(1))
    sinks.write("notices", budget)
    sinks.flush()
    sinks.restore(note)  # another sink failed after this one had committed
    sinks.write("releases", releases(1))
    sinks.write("notices", budget)
    sinks.flush()
    sinks.flush()
    assert sinks.positions()["releases"]["delivery"] == 1
    assert indexes(world.address, world.roles["releases"]) == [1]
    assert (tmp_path / "notices.jsonl").read_bytes().splitlines() == [b'{"agent":"ann"}']


def test_an_older_copy_of_the_store_is_refused_and_disturbs_nobody(world: World) -> None:
    sinks = world.open()
    old = sinks.positions()
    for index in range(1, 4):
        deliver(sinks, ("releases", releases(index)))
    copy = world.open()
    with pytest.raises(
        SinkLostError, match=r"\(delivery 0\), got delivery 3 on .* is the store an older copy "
    ):
        copy.restore(old)
    deliver(sinks, ("releases", releases(4)))  # the rightful one goes on
    assert indexes(world.address, world.roles["releases"]) == [1, 2, 3, 4]


def test_a_copy_that_is_one_delivery_behind_must_repeat_that_one(world: World) -> None:
    sinks = world.open()
    old = sinks.positions()
    deliver(sinks, ("releases", releases(1)), ("estimates", estimates(1)))
    for other in (releases(1, mean=0.25), releases(1, 2)):
        copy = world.open()
        copy.restore(old)
        with pytest.raises(
            SinkLostError, match=r"got another delivery 1 in topic-.*is the store an older copy "
        ) as error:
            deliver(copy, ("releases", other), ("estimates", estimates(1)))
        assert "\n" not in str(error.value)
    assert indexes(world.address, world.roles["releases"], uncommitted=True) == [1]


def test_a_repeated_delivery_reaches_what_it_had_not_reached(
    world: World, new_topic: Callable[..., str]
) -> None:
    """Between two runs a sink was added, another one dropped, and estimates became others by their
    options."""
    sinks = world.open()
    old = sinks.positions()
    deliver(sinks, ("releases", releases(1)), ("estimates", estimates(1)))
    added = new_topic()
    letters = EventLines(DeadLetter, [b'{"reason":"late"}'])
    world.roles = {"estimates": world.roles["estimates"], "dead_letters": added}
    for _ in range(2):  # and this run dies too, before it notes what it delivered
        again = world.open()
        again.restore(old)
        deliver(again, ("estimates", estimates(7, 8)), ("dead_letters", letters))
        assert again.positions()["estimates"]["delivery"] == 1
    assert numbers(world.address, world.roles["estimates"]) == [1, 7, 8]
    assert [record.value for record in read(world.address, added)] == [b'{"reason":"late"}']


def test_a_repeated_delivery_whose_new_part_fails_is_repeated_once_more(world: World) -> None:
    sinks = world.open()
    note = sinks.positions()
    deliver(sinks, ("releases", releases(1)), ("estimates", estimates(1)))
    again = world.open()
    again.restore(note)

    def fail() -> None:
        raise KafkaException(KafkaError(KafkaError._FAIL))

    watch(again, "commit_transaction", before=once(fail))
    for _ in range(2):
        again.write("releases", releases(1))
        again.write("estimates", estimates(7, 8))
        try:
            again.flush()
        except DeliveryFailedError:
            again.restore(note)
    assert again.positions()["releases"]["delivery"] == 1
    assert indexes(world.address, world.roles["releases"], uncommitted=True) == [1]
    assert numbers(world.address, world.roles["estimates"]) == [1, 7, 8]


def test_a_store_that_comes_back_to_a_cluster_goes_on_where_it_was(world: World) -> None:
    sinks = world.open()
    sinks.restore({"releases": {"cluster": "another one", "delivery": 99}})
    deliver(sinks, ("releases", releases(1)))
    again = world.open()  # the run between them wrote elsewhere, so that no position is left
    assert again.positions()["releases"]["delivery"] == 1
    deliver(again, ("releases", releases(2)))
    assert indexes(world.address, world.roles["releases"]) == [1, 2]


def test_a_number_that_expired_is_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    sinks = world.open()
    sinks.positions()
    deliver(sinks, ("releases", releases(1)))
    note = sinks.positions()
    group = f"meanstream-{world.store_id}-deliveries"
    admin = AdminClient({"bootstrap.servers": world.address})
    admin.delete_consumer_groups([group])[group].result(30)
    again = world.open()
    with caplog.at_level(logging.WARNING, "meanstream.kafka"):
        again.restore(note)
    assert "delivery 2 may be there twice, with the same release ids" in caplog.text
    deliver(again, ("releases", releases(2)))
    assert again.positions()["releases"]["delivery"] == 2


def test_offsets_of_somebody_else_are_refused(world: World) -> None:
    group = f"meanstream-{world.store_id}-deliveries"
    place = TopicPartition(world.roles["releases"], 0, 5)
    admin = AdminClient({"bootstrap.servers": world.address})
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [place])])[
        group
    ].result(30)
    with pytest.raises(
        SinkLostError, match="must be written by meanstream only, got offsets of another client"
    ):
        world.open().positions()


def test_keys_headers_and_values(
    broker_address: str, new_topic: Callable[..., str], store_id: str
) -> None:
    roles = {
        role: new_topic()
        for role in ("releases", "estimates", "population", "dead_letters", "notices")
    }
    letter = encode_lines(DeadLetter, [DeadLetter(reason="late", source="s", position=3)])
    refusal = EventLines(Refusal, ['{"release_id":"b%C3%B6b:2","agent":"böb"}'.encode()])
    written = {
        "releases": releases(1, 2),
        "estimates": estimates(1),
        "population": EventLines(Population, [b'{"agents":1}']),
        "dead_letters": letter,
        "notices": EventLines(BudgetEvent, ['{"agent":"böb"}'.encode()]),
    }
    began = time.time()
    with closing(World(broker_address, roles, store_id)) as world:
        deliver(world.open(), *written.items(), ("notices", refusal))
    found = {role: read(broker_address, topic) for role, topic in roles.items()}
    assert {role: [record.value for record in records] for role, records in found.items()} == {
        **{role: list(events.lines) for role, events in written.items()},
        "notices": [*written["notices"].lines, *refusal.lines],
    }
    assert {role: {record.key for record in records} for role, records in found.items()} == {
        "releases": {b"ann"},
        "estimates": {b"ann"},
        "population": {b"population"},
        "dead_letters": {None},
        "notices": {"böb".encode()},
    }
    headers = {role: [record.headers for record in records] for role, records in found.items()}
    assert headers["releases"][1] == {
        "schema_version": b"1",
        "event": b"release",
        "release_id": b"ann:2",
    }
    assert headers["notices"][1] == {
        "schema_version": b"1",
        "event": b"refusal",
        "release_id": b"b%C3%B6b:2",
    }
    assert headers["estimates"] == [{"schema_version": b"1", "event": b"estimate"}]
    assert headers["population"] == [{"schema_version": b"1", "event": b"population"}]
    assert headers["dead_letters"] == [{"schema_version": b"1", "event": b"dead_letter"}]
    assert all(record.timestamp >= began - 1 for records in found.values() for record in records)


def test_agents_are_spread_over_partitions_each_in_one(
    broker_address: str, new_topic: Callable[..., str], store_id: str
) -> None:
    roles = {"releases": new_topic(partitions=3)}
    with closing(World(broker_address, roles, store_id)) as world:
        sinks = world.open()
        for agent in "abcdefghij":
            sinks.write("releases", releases(1, 2, 3, agent=agent))
        sinks.flush()
    places: dict[bytes, set[int]] = {}
    for record in read(broker_address, roles["releases"]):
        places.setdefault(record.key, set()).add(record.partition)
    assert all(len(partitions) == 1 for partitions in places.values())
    assert set.union(*places.values()) == {0, 1, 2}


def test_a_public_topic_takes_public_events_only(world: World) -> None:
    sinks = world.open()
    with pytest.raises(
        TypeError, match="public sink must be given public events, got PersonalEstimate"
    ):
        sinks.write("releases", EventLines(PersonalEstimate, [b'{"agent":"ann"}']))


def test_topics_are_there_or_made_as_their_role_needs_them(
    broker_address: str,
    store_id: str,
    new_topic: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("meanstream.streaming.kafka.writing.kafka_sink.APPEAR_SECONDS", 0.1)
    admin = AdminClient({"bootstrap.servers": broker_address})
    for role, policy in {
        "releases": "compact",
        "sink": "compact",
        "dead_letters": "delete",
    }.items():
        name = f"made-{store_id}-{role}"
        place = f"kafka://{broker_address}/{name}"
        with pytest.raises(
            ValueError, match=rf"{role} must be a topic that exists, got '{name}' .* \?create="
        ) as error:
            check_sink_location(role, place)
        assert "\n" not in str(error.value)
        with pytest.raises(ValueError, match="must be a topic that exists"):
            open_sink(
                place, trust=Trust.PRIVATE, role=role, kafka=KafkaSinks(store_id, stop=Patient())
            )
        check_sink_location(role, f"{place}?create=2")
        assert name not in admin.list_topics(timeout=30).topics  # only looked
        open_sink(
            f"{place}?create=2",
            trust=Trust.PRIVATE,
            role=role,
            kafka=KafkaSinks(store_id, stop=Patient()),
        ).close()
        assert len(admin.list_topics(timeout=30).topics[name].partitions) == 2
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        assert (
            admin.describe_configs([resource])[resource].result(30)["cleanup.policy"].value
            == policy
        )
    assert not caplog.records
    open_output_topic(
        KafkaLocation.parse(f"kafka://{broker_address}/{new_topic()}", role="releases")
    )
    assert "of the releases is not compacted" in caplog.text


def test_one_topic_has_one_role_and_one_cluster_one_way_to_it(
    broker_address: str, new_topic: Callable[..., str], store_id: str
) -> None:
    topic, other = new_topic(), new_topic()
    kafka = KafkaSinks(store_id, stop=Patient())
    place = f"kafka://{broker_address}/{topic}"
    with pytest.raises(ValueError, match=r"sink must be a file or '-' here, got 'kafka:"):
        open_sink(place, trust=Trust.PUBLIC)
    open_sink(place, trust=Trust.PUBLIC, role="releases", kafka=kafka)
    with pytest.raises(ValueError, match="notices must be another topic than releases"):
        open_sink(place, trust=Trust.PUBLIC, role="notices", kafka=kafka)
    localhost = broker_address.replace("127.0.0.1", "localhost")
    with pytest.raises(
        ValueError,
        match="notices must name brokers and config as releases does for the same cluster",
    ):
        open_sink(f"kafka://{localhost}/{other}", trust=Trust.PUBLIC, role="notices", kafka=kafka)
    assert (
        canonical_sink_location(f"{place}?create=1")
        == canonical_sink_location(place.replace("kafka:", "KAFKA:"))
        != canonical_sink_location(f"{place}2")
    )
