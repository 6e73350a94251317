"""Dead letters of a topic, in a topic: read to where it ends now, their records found by offset,
and replayed."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.events.event_columns import (
    column_partitions,
    column_position,
    column_positions,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.kafka_topics import find_topic
from meanstream.streaming.kafka.reading import scan
from meanstream.streaming.kafka.reading.kafka_source import KafkaSource
from meanstream.streaming.kafka.reading.scan import TopicScan, scan_records, scan_values
from meanstream.streaming.replay.dead_letters import (
    DeadLetters,
    dead_letters_still_unused,
    read_dead_letters,
)
from meanstream.streaming.replay.raw_records import write_raw_records
from meanstream.streaming.replay.reopen import reopened_source_name, reopening
from meanstream.streaming.replay.replay_letters import Replay, prepare_replay
from meanstream.streaming.sinks.jsonl_sink import JsonlSink
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.store.deployment_store import open_deployment
from meanstream.streaming.store.state_store import Store
from tests.pipelines.command_line import SECRET, arguments, asks, meanstream, options
from tests.servers.support.wait_until import wait_until

Record = tuple[int, bytes | None]
"""Partition and value."""


def produce(address: str, topic: str, records: Iterable[Record]) -> None:
    """Write records that can be read at once."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for partition, value in records:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(20) == 0
    producer.close()


def produce_in_vain(address: str, topic: str, records: Iterable[Record]) -> None:
    """Write records in a transaction that is aborted."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": topic})
    producer.init_transactions(20)
    producer.begin_transaction()
    for partition, value in records:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(20) == 0
    producer.abort_transaction(20)
    producer.close()


def wait_for_end(address: str, topic: str, partition: int, offset: int) -> None:
    """The markers of a transaction are written a moment after it ended; until then nothing behind
    it can be read."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "wait", "isolation.level": "read_committed"}
    )
    place = TopicPartition(topic, partition)
    wait_until(lambda: consumer.get_watermark_offsets(place, timeout=10)[1] >= offset)
    consumer.close()


def delete_before(address: str, topic: str, partition: int, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    place = TopicPartition(topic, partition, offset)
    admin.delete_records([place])[place].result(20)


@pytest.fixture
def topic(broker_address: str, new_topic: Callable[..., str]) -> str:
    """Three partitions; in the first two are committed, aborted and again committed records."""
    name = new_topic(3)
    for i, write in enumerate((produce, produce_in_vain, produce)):
        write(broker_address, name, [(p, b"%d %d" % (i, n)) for n in range(50) for p in (0, 1)])
    for partition in (0, 1):
        wait_for_end(broker_address, name, partition, 151)
    return name


def location(address: str, topic: str, more: str = "") -> str:
    return f"kafka://{address}/{topic}{more}"


def test_committed_records_are_read_once_up_to_the_end_of_now(
    broker_address: str, topic: str
) -> None:
    place = KafkaLocation.parse(location(broker_address, topic))
    with closing(TopicScan(place)) as opened:
        produce(broker_address, topic, [(0, b"later"), (2, b"later")])
        values: list[bytes | None] = []
        while (records := opened.read(7)) is not None:
            assert len(records.values) <= 7
            values += records.values
    assert sorted(values, key=str) == sorted(
        (b"%d %d" % (i, n) for n in range(50) for i in (0, 2) for _ in (0, 1)), key=str
    )
    assert b"later" in list(scan_values(place))
    assert list(
        scan_values(KafkaLocation.parse(location(broker_address, topic, "?partitions=2")))
    ) == [b"later"]


def test_records_are_found_by_partition_and_offset(
    broker_address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets 50 to 100 are aborted records and the marker of that: nothing is there to find."""
    monkeypatch.setattr(scan, "READ_RECORDS", 5)
    monkeypatch.setattr(scan, "FAR", 10)
    delete_before(broker_address, topic, 1, 4)
    asked = np.concatenate(
        [column_position(p, np.array([0, 3, 4, 49, 50, 60, 100, 101, 150, 999])) for p in (1, 0)]
    )
    found = dict(scan_records(KafkaLocation.parse(location(broker_address, topic)), asked))
    told = {
        (int(column_partitions(np.array([at]))[0]), int(column_positions(np.array([at]))[0])): v
        for at, v in found.items()
    }
    expected = {
        (0, 0): b"0 0",
        (0, 3): b"0 3",
        (0, 4): b"0 4",
        (0, 49): b"0 49",
        (0, 101): b"2 0",
        (0, 150): b"2 49",
    }
    assert told == {
        k: v
        for k, v in {**expected, **{(1, o): v for (_, o), v in expected.items()}}.items()
        if k[0] == 0 or k[1] > 3
    }


def test_letters_in_a_topic(
    broker_address: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    name = new_topic(2)
    letter = b'{"reason":"late","source":"samples","partition":%d,"position":%d,"size":null,"schema_version":1}'
    good = [(p, letter % (p, n)) for n in range(10) for p in (0, 1)]
    produce(broker_address, name, [*good, (0, b"7031415926535"), (1, None), (0, letter % (0, 3))])
    produce_in_vain(broker_address, name, [(0, letter % (0, 77))])
    wait_for_end(broker_address, name, 0, 14)
    place = location(broker_address, name, "?create=2")
    letters = read_dead_letters(place)
    assert (len(letters), letters.unreadable) == (20, 2)
    ran = meanstream("dlq", "list", "--dead-letters", place, "--json")
    assert [(g["partition"], g["records"], g["first"], g["last"]) for g in ran.json["groups"]] == [
        (0, 10, 0, 9),
        (1, 10, 0, 9),
    ]
    assert b"7031415926535" not in ran.out + ran.err
    missing = meanstream(
        "dlq", "list", "--dead-letters", location(broker_address, f"{name}x")
    ).message
    assert missing.startswith(
        f"dead_letters must be a topic that exists, got '{name}x'; did you mean '{name}'?"
    )


def test_raw_records_of_a_topic_are_lines(
    broker_address: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    name = new_topic(2)
    values: list[bytes | None] = [
        b'{"agent":"a","value":"x"}',
        b'{\n"agent":"b"}',
        None,
        b"\xff\xfe",
        b"",
    ]
    produce(broker_address, name, [(1, value) for value in values])
    positions = column_position(1, np.arange(5))
    place = location(broker_address, name)
    assert write_raw_records(tmp_path / "raw.jsonl", place, positions) == 5
    lines = (tmp_path / "raw.jsonl").read_bytes().split(b"\n")
    assert [lines[0], lines[3], lines[5:]] == [values[0], values[3], [b""]]
    assert [json.loads(lines[n])["base64"] for n in (1, 2, 4)] == [
        base64.b64encode(b'{\n"agent":"b"}').decode(),
        None,
        "",
    ]
    assert (tmp_path / "raw.jsonl").stat().st_mode & 0o777 == 0o600


FIRST = ColumnMapping(id="id")
MENDED = ColumnMapping(time="when", id="id")


def sample(i: int, *, time: object = None, copy_of: int | None = None) -> bytes:
    number = i if copy_of is None else copy_of
    fields = {
        "agent": f"agent {i % 4}",
        "value": i % 7,
        "time": 1000 + i if time is None else time,
        "id": f"id {number}",
    }
    return json.dumps({**fields, "when": 1000 + i}).encode()


@dataclass
class World:
    """An engine on a topic, its store and its files; `replay` reads the topic beside whoever owns
    it."""

    folder: Path
    place: str

    settings = AgentsSettings(
        name="test",
        lower=0,
        upper=10,
        epsilon=1,
        delta=1e-6,
        schedule="geometric:2,1.5",
        horizon=12,
    )
    options = EngineOptions(batch_size=16, refresh=None, allowed_lateness=3.0, quorum=1, poll=0.01)

    def run(self, *, stop_after: int | None = None) -> EngineStats:
        """Read what is there, up to the end or so many records."""

        def make(found: Any) -> tuple[Any, EngineOptions, dict[str, Any], Callable[[], bool]]:
            source = KafkaSource(
                KafkaLocation.parse(self.place, several=True),
                FIRST,
                owner="store",
                until_end=True,
                id_key=found.id_key,
            )
            return (
                source,
                self.options,
                {},
                lambda: self.engine.stats.events >= (stop_after or 10**9),
            )

        return self._run(make)

    def replay(
        self, letters: DeadLetters, mapping: ColumnMapping = MENDED
    ) -> tuple[EngineStats, Replay]:
        prepared: list[Replay] = []

        def make(found: Any) -> tuple[Any, EngineOptions, dict[str, Any], Callable[[], bool]]:
            name = reopened_source_name(self.place)
            reopen = reopening(self.place, mapping, id_key=found.id_key)
            prepared.append(prepare_replay(found.store, name, reopen, letters))
            done = prepared[0].done
            return (
                prepared[0].source,
                replace(self.options, late="accept"),
                {"unused": prepared[0].records},
                done,
            )

        return self._run(make), prepared[0]

    def _run(
        self, make: Callable[[Any], tuple[Any, EngineOptions, dict[str, Any], Callable[[], bool]]]
    ) -> EngineStats:
        found = open_deployment(
            self.folder / "s.db",
            self.settings,
            environment={"MEANSTREAM_SECRET": "7c1e94b05fa3d2681be60c9d37f25a84"},
        )
        roles = {"releases": Trust.PUBLIC, "dead_letters": Trust.PUBLIC, "estimates": Trust.PRIVATE}
        sinks = Sinks(
            **{
                role: JsonlSink(self.folder / f"{role}.jsonl", trust=trust)
                for role, trust in roles.items()
            }
        )
        try:
            source, options, more, stop = make(found)
            self.engine = Engine(
                source=source,
                settings=self.settings,
                noise=found.noise,
                store=found.store,
                sinks=sinks,
                options=options,
                **more,
            )
            stats = self.engine.run(stop)
            source.close()
            return stats
        finally:
            sinks.close()
            found.store.close()

    def letters(self, *reasons: str) -> DeadLetters:
        return read_dead_letters(str(self.folder / "dead_letters.jsonl")).of(reasons=reasons)

    def samples(self) -> dict[str, int]:
        lines = (self.folder / "estimates.jsonl").read_bytes().splitlines()
        return {e["agent"]: e["n"] for e in map(json.loads, lines)}


@pytest.fixture
def world(broker_address: str, new_topic: Callable[..., str], tmp_path: Path) -> World:
    """Two partitions of samples; every fifth has no time that can be read, and some come late."""
    name = new_topic(2)
    records: list[Record] = [
        (i % 2, sample(i, time="soon" if i % 5 == 0 else None)) for i in range(100)
    ]
    produce(broker_address, name, records)
    (tmp_path / "world").mkdir()
    world = World(tmp_path / "world", location(broker_address, name))
    assert world.run().rejected == Counter(bad_time=20)
    late: list[Record] = [
        (0, sample(100, time=1001)),
        (1, sample(103, time=1003, copy_of=11)),
        (1, None),
    ]
    produce(broker_address, name, late)
    assert world.run().rejected == Counter(late=2, malformed=1)
    return world


def test_records_of_several_topics_count_when_they_are_good(
    broker_address: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Each is named by its own topic and partition, found there again, and counts once."""
    topics = [new_topic(2), new_topic(2)]
    for number, name in enumerate(topics):
        records = [
            (i % 2, sample(i, time="soon" if i % 5 == number else None))
            for i in range(number, 60, 2)
        ]
        produce(broker_address, name, list(records))
    world = World(tmp_path, location(broker_address, ",".join(reversed(topics))))
    assert world.run().rejected == Counter(bad_time=12)
    letters = world.letters()
    assert {(group["source"], group["partition"]) for group in letters.groups()} == {
        (topics[0], 0),
        (topics[1], 1),
    }
    stats, replayed = world.replay(letters.of(source=topics[1]))
    assert (replayed.letters, replayed.chosen, stats.accepted, stats.rejected) == (
        6,
        6,
        6,
        Counter(),
    )
    with closing(Store.read(tmp_path / "s.db")) as store:
        assert {row["source"] for row in dead_letters_still_unused(letters, store).rows()} == {
            topics[0]
        }
    stats, replayed = world.replay(letters)
    assert (replayed.letters, replayed.chosen, stats.accepted) == (12, 6, 6)
    assert sum(world.samples().values()) == 60


def committed(address: str, world: World) -> Sequence[TopicPartition]:
    """What the group of the engine has noted."""
    name = KafkaLocation.parse(world.place).topic
    consumer = Consumer({"bootstrap.servers": address, "group.id": "meanstream"})
    found = consumer.committed([TopicPartition(name, p) for p in (0, 1)], timeout=10)
    consumer.close()
    return found


def test_records_of_a_topic_count_when_they_are_good(broker_address: str, world: World) -> None:
    before = [(p.offset, p.metadata) for p in committed(broker_address, world)]
    stats, replayed = world.replay(world.letters())
    assert (replayed.letters, replayed.chosen) == (23, 23)
    assert stats.accepted == 21
    assert stats.rejected == Counter(
        malformed=1, duplicate=1
    )  # the copy is of a sample whose id was long forgotten
    assert sum(world.samples().values()) == 80 + 21
    assert [(p.offset, p.metadata) for p in committed(broker_address, world)] == before
    stats, replayed = world.replay(world.letters())
    assert (replayed.chosen, stats.accepted) == (1, 0)
    assert sum(world.samples().values()) == 101


def test_a_topic_that_goes_on_is_not_ended(broker_address: str, world: World) -> None:
    """An engine that was stopped, not ended: a replay leaves its partitions where they are, and it
    goes on."""
    name = KafkaLocation.parse(world.place).topic
    produce(broker_address, name, [(i % 2, sample(i)) for i in range(200, 240)])
    assert world.run(stop_after=10).accepted < 40
    stats, replayed = world.replay(world.letters("bad_time"))
    assert (replayed.ends, stats.accepted, stats.estimates) == (False, 20, 0)
    rest = world.run()
    assert rest.rejected == Counter()
    assert sum(world.samples().values()) == 80 + 20 + 40


def test_a_late_record_is_not_counted_if_the_one_that_it_may_repeat_is_gone(
    broker_address: str, world: World
) -> None:
    name = KafkaLocation.parse(world.place).topic
    delete_before(broker_address, name, 1, 20)
    stats, replayed = world.replay(world.letters("late"), FIRST)
    assert (replayed.chosen, replayed.source.uncertain, stats.accepted) == (2, 2, 0)
    stats, replayed = world.replay(
        world.letters("late"), ColumnMapping()
    )  # who has no ids cannot ask
    assert (replayed.chosen, replayed.source.uncertain, stats.accepted) == (2, 0, 2)


def test_what_retention_took_is_told_and_another_topic_is_refused(
    broker_address: str, world: World
) -> None:
    name = KafkaLocation.parse(world.place).topic
    delete_before(broker_address, name, 0, 20)
    _, replayed = world.replay(world.letters("bad_time"), ColumnMapping(time="when"))
    assert (replayed.chosen, replayed.source.missing) == (20, 4)
    admin = AdminClient({"bootstrap.servers": broker_address})
    admin.delete_topics([name])[name].result(20)
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
    wait_until(lambda: find_topic(admin, KafkaLocation.parse(world.place)) is not None)
    with pytest.raises(
        ValueError, match="source must be the topic that this store was filled from, got a new one"
    ):
        world.replay(world.letters())


def test_by_the_command_line(
    broker_address: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Samples, dead letters and releases are topics; estimates stay in a private file."""
    samples, letters, releases = (location(broker_address, new_topic(n)) for n in (2, 1, 1))
    records: list[Record] = [
        (i % 2, sample(i, time=f"soon {i}.7031415" if i % 5 == 0 else None)) for i in range(60)
    ]
    produce(broker_address, samples.rpartition("/")[2], records)
    named: dict[str, Any] = {
        **options(tmp_path, source=samples, agent=None, value=None, time=None, lower=0, upper=10),
        "id": "id",
        "releases": releases,
        "dead_letters": letters,
        "until_end": True,
        "lateness": "3s",
    }
    environment = {"MEANSTREAM_SECRET": SECRET}
    ran = meanstream("run", "agents", *arguments(named), "--json", environment=environment)
    assert ran.json["rejected"] == {"bad_time": 12}
    place = ("--dead-letters", letters)
    assert [
        (g["partition"], g["records"])
        for g in meanstream("dlq", "list", *place, "--json").json["groups"]
    ] == [
        (0, 6),
        (1, 6),
    ]
    raw = tmp_path / "raw.jsonl"
    ran = meanstream("dlq", "show", *place, "--source", samples, "--raw-to", str(raw), "--json")
    shown = [(row["partition"], row["position"]) for row in ran.json["dead_letters"]]
    assert shown == [(p, o) for p in (0, 1) for o in range(30) if (2 * o + p) % 5 == 0]
    assert [json.loads(line)["time"] for line in raw.read_bytes().splitlines()] == [
        f"soon {2 * o + p}.7031415" for p, o in shown
    ]
    assert b"7031415" not in ran.out + ran.err
    replay = ["dlq", "replay", *arguments({**named, "time": "when"}), "--json"]
    told = asks(*replay, environment=environment).json
    assert (told["dead_letters"], told["replayed"], told["accepted"], told["agents"]) == (
        12,
        12,
        12,
        4,
    )
    told = asks(*replay, environment=environment).json
    assert (told["settled"], told["accepted"]) == (12, 0)
    assert (
        meanstream("dlq", "list", *place, "--store", str(named["store"]), "--json").json["records"]
        == 0
    )
    ids = [json.loads(v or b"")["release_id"] for v in scan_values(KafkaLocation.parse(releases))]
    assert len(set(ids)) == len(ids) > 0
    assert sum(n for n in World(tmp_path, samples).samples().values()) == 60
