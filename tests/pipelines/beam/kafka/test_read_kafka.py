"""Kafka in and out of Beam without a JVM, on a real broker: exactly the offsets asked for, the
engine's answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from meanstream.pipelines.beam.agents.agent_transforms import CollaborateAgents
from meanstream.pipelines.beam.beam_runners import runner_arguments
from meanstream.pipelines.beam.kafka.beam_kafka_source import ReadKafka
from meanstream.pipelines.beam.kafka.write_kafka import WriteKafka
from meanstream.pipelines.beam.rounds.round_transforms import RunRounds
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import PersonalEstimate, Release
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.pipelines.beam.support import agents_world
from tests.pipelines.beam.support.collecting import collector, lines, run_pipeline
from tests.pipelines.beam.support.prism import RUNNERS
from tests.pipelines.command_line import SECRET, arguments, meanstream
from tests.servers.conftest import broker_address, new_topic  # noqa: F401 - fixtures
from tests.streaming.support.rounds_world import RoundsWorld, rounds_settings, samples
from tests.streaming.support.scripted_source import ScriptedSource

MAPPING = ColumnMapping(agent="user", owner="user")
"""As `run rounds` has it: a record without a valid value makes its user take part."""
PARTITIONS = 3


def fill(
    address: str, topic: str, values: Mapping[int, Sequence[bytes | None]], **settings: Any
) -> None:
    producer = Producer({"bootstrap.servers": address, **settings})
    for partition, some in values.items():
        for value in some:
            producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def encoded(user: str, value: float, at: float) -> bytes:
    return json.dumps({"user": user, "value": value, "time": at, "id": f"at {at!r}"}).encode()


def flawed() -> dict[int, list[bytes | None]]:
    """Samples in the order of time in each partition, some records bad."""
    values: dict[int, list[bytes | None]] = {p: [] for p in range(PARTITIONS)}
    for number, sample in enumerate(samples()):
        values[number % PARTITIONS].append(encoded(*sample))
    values[0][5:5] = [b"{", None, b""]
    values[1][7:7] = [b'{"user":"user 1","time":9}', b'{"user":"user 1","value":NaN,"time":9}']
    values[2].append(encoded("user 1", 3.0, 4e9))  # in the future
    return values


def on_runner(name: str, build: Callable[[beam.Pipeline], Any]) -> None:
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    runner = FnApiRunner() if name == "FnApiRunner" else name
    pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(runner_arguments(name, ())))
    build(pipeline)
    pipeline.run().wait_until_finish()


def consumed(address: str, topic: str, partitions: int = 1) -> list[Any]:
    """All messages of a topic."""
    settings = {"bootstrap.servers": address, "group.id": "test", "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    messages, ended, end = [], 0, time.monotonic() + 30
    while ended < partitions and time.monotonic() < end:
        message = consumer.poll(1.0)
        if message is not None and message.error():
            ended += 1
        elif message is not None:
            messages.append(message)
    consumer.close()
    return messages


@pytest.fixture
def source(broker_address: str, new_topic: Callable[..., str]) -> str:  # noqa: F811
    topic = new_topic(PARTITIONS)
    fill(broker_address, topic, flawed())
    return f"kafka://{broker_address}/{topic}"


def test_rounds_have_the_bytes_and_dead_letters_of_the_engine(source: str, tmp_path: Path) -> None:
    world = RoundsWorld(tmp_path, rounds_settings(user_budget=4.0))
    world.run(open_source(source, MAPPING, owner="a" * 32, until_end=True))
    keep, letters = collector()

    def build(pipeline: beam.Pipeline) -> Any:
        read = pipeline | ReadKafka(source, MAPPING)
        _ = read.dead_letters | "Letters" >> keep
        return read.samples | RunRounds(world.settings)

    estimates, counters = run_pipeline(build)
    assert lines(estimates) == world.lines("means")
    assert len(estimates) > 3
    assert sorted(letter.model_dump_json().encode() for letter in letters) == sorted(
        world.lines("dead_letters")
    )
    assert sorted({letter.reason for letter in letters}) == [
        "in_future",
        "malformed",
        "missing_value",
        "not_finite",
    ]
    assert counters["events"] == 246
    assert counters["rejected_malformed"] == 3


def positions(batches: Sequence[Any]) -> list[tuple[int, int]]:
    found = np.concatenate([batch.position for batch in batches])
    return sorted((int(at >> 44), int(at & ((1 << 44) - 1))) for at in found)


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_range_is_read_once_and_nothing_else(
    runner: str,
    source: str,
    broker_address: str,  # noqa: F811
    tmp_path: Path,  # noqa: F811, RUF100
) -> None:
    """Of aborted transactions nothing is read, and their marks are passed, at the end of a range
    too."""
    topic = source.rpartition("/")[2]
    writer = Producer({"bootstrap.servers": broker_address, "transactional.id": topic})
    writer.init_transactions(30)
    for commit in (False, True):
        writer.begin_transaction()
        writer.produce(topic, encoded("user 9", 1.0, 1.0), partition=0)
        writer.flush(30)
        writer.commit_transaction(30) if commit else writer.abort_transaction(30)
    end = 80 + 3 + 4  # three bad records, two records, two marks
    ranges = {0: (10, end), 1: (0, 3), 2: (40, 40)}
    out = str(tmp_path / "positions")

    def build(pipeline: beam.Pipeline) -> None:
        read = pipeline | ReadKafka(source, MAPPING, ranges=ranges, batch_size=7)
        told = read.samples | beam.Map(lambda batch: json.dumps(positions([batch])))
        _ = told | beam.io.WriteToText(out, num_shards=1, shard_name_template="")

    on_runner(runner, build)
    found = [tuple(one) for line in Path(out).read_text().splitlines() for one in json.loads(line)]
    expected = [(0, at) for at in (*range(10, 83), 85)] + [(1, at) for at in range(3)]
    assert sorted(found) == expected


def test_offsets_that_are_not_there_are_refused(source: str) -> None:
    with pytest.raises(
        Exception, match=r"ranges must be held by partition 1 \(\[0, 82\)\), got \(5, 83\)"
    ):
        run_pipeline(
            lambda pipeline: (pipeline | ReadKafka(source, MAPPING, ranges={1: (5, 83)})).samples
        )


def test_events_have_the_bytes_keys_and_headers_of_the_engine(
    broker_address: str,  # noqa: F811
    new_topic: Callable[..., str],  # noqa: F811
    tmp_path: Path,
) -> None:
    world = RoundsWorld(tmp_path, rounds_settings())
    world.run(ScriptedSource(samples()))
    topic = f"{new_topic()}-made"
    place = f"kafka://{broker_address}/{topic}?create=1"
    for _ in range(2):  # a bundle that is executed again
        pipeline = beam.Pipeline(runner="FnApiRunner")
        answers = pipeline | beam.Create(samples(), reshuffle=False) | RunRounds(world.settings)
        _ = answers.estimates | WriteKafka(place)
        pipeline.run().wait_until_finish()
    messages = consumed(broker_address, topic)
    assert len(messages) == 2 * len(world.lines("means")) > 6
    by_key = {message.key(): message for message in messages}
    assert sorted(message.value() for message in by_key.values()) == sorted(world.lines("means"))
    for key, message in by_key.items():
        assert json.loads(message.value())["round_id"].encode() == key
        assert message.headers() == [("schema_version", b"1"), ("event", b"window_estimate")]


@pytest.mark.parametrize("runner", RUNNERS)
def test_releases_are_told_apart_by_their_id(
    runner: str,
    broker_address: str,  # noqa: F811
    new_topic: Callable[..., str],  # noqa: F811
) -> None:
    topic = new_topic()
    line = b'{"release_id":"ann:3","agent":"ann","n":1e-07}'
    sink = WriteKafka(f"kafka://{broker_address}/{topic}", role="releases")
    on_runner(
        runner, lambda pipeline: pipeline | beam.Create([EventLines(Release, [line, line])]) | sink
    )
    one, again = consumed(broker_address, topic)
    assert (one.value(), one.key()) == (again.value(), again.key()) == (line, b"ann")
    assert one.headers()[-1] == ("release_id", b"ann:3")


def test_private_events_do_not_go_to_a_public_topic(
    broker_address: str,  # noqa: F811
    new_topic: Callable[..., str],  # noqa: F811
) -> None:
    topic = new_topic()
    pipeline = beam.Pipeline(runner="FnApiRunner")
    private = beam.Create([EventLines(PersonalEstimate, [b'{"agent":"ann"}'])], reshuffle=False)
    _ = pipeline | private | WriteKafka(f"kafka://{broker_address}/{topic}")
    with pytest.raises(
        Exception, match="public sink must be given public events, got PersonalEstimate"
    ):
        pipeline.run().wait_until_finish()
    assert consumed(broker_address, topic) == []


def test_the_command_reads_what_a_topic_holds_and_writes_a_topic(
    source: str,
    broker_address: str,  # noqa: F811
    new_topic: Callable[..., str],  # noqa: F811
    tmp_path: Path,
) -> None:
    """Late and repeated samples are those of the engine, the same id in two partitions too."""
    topic = source.rpartition("/")[2]
    more = [
        json.dumps({"user": "user 2", "value": 1, "time": at, "id": "a"}).encode()
        for at in (3e5, 3e5, 9e5)
    ]
    late = json.dumps({"user": "user 2", "value": 1, "time": 100, "id": "b"}).encode()
    fill(broker_address, topic, {0: [*more, late], 1: more[:1]})
    options = {
        "source": source, "until_end": True, "lower": 0, "upper": 10, "epsilon": 2, "window": "1d",
        "estimator": "kent", "sizes": "uniform:1,30", "user_budget": 8, "id": "id", "quiet": True,
        "allowed_lateness": "2d", "name": "test",
    }  # fmt: skip
    environment = {"MEANSTREAM_SECRET": SECRET}
    engine = tmp_path / "engine.jsonl"
    named = {
        **options,
        "store": tmp_path / "rounds.db",
        "sink": engine,
        "dead_letters": tmp_path / "dead.jsonl",
    }
    assert meanstream("run", "rounds", *arguments(named), environment=environment).code == 0
    sink = f"kafka://{broker_address}/{new_topic()}"
    beamed = {**options, "store": tmp_path / "b.db", "sink": sink, "runner": "FnApiRunner"}
    ran = meanstream("run", "rounds", *arguments(beamed), "--json", environment=environment)
    assert ran.code == 0, ran.err
    written = [message.value() for message in consumed(broker_address, sink.rpartition("/")[2])]
    assert sorted(written) == sorted(engine.read_bytes().splitlines())
    assert len(written) == ran.json["sent"] > 3
    assert not [
        name for name in ran.json if "rejected_" in name
    ]  # what was left out of a round is the operator's
    ran = meanstream(
        "run",
        "rounds",
        *arguments({n: v for n, v in beamed.items() if n != "until_end"}),
        environment=environment,
    )
    assert (
        ran.message
        == "until_end must be given with --runner and a topic, or else offsets, got False"
    )


def test_agents_release_what_the_engine_releases(
    broker_address: str,  # noqa: F811
    new_topic: Callable[..., str],  # noqa: F811
    tmp_path: Path,
) -> None:
    """Ids of samples come along: one that was sent twice, to two partitions, counts once."""
    topic, stream = new_topic(PARTITIONS), agents_world.samples(200)
    values: dict[int, list[bytes | None]] = {
        p: [encoded(*one) for one in stream[p::PARTITIONS]] for p in range(PARTITIONS)
    }
    fill(broker_address, topic, {**values, 1: [*values[1], values[0][9]]})
    world = agents_world.engine_on(tmp_path, stream)
    mapping = ColumnMapping(agent="user", id="id")

    def build(pipeline: beam.Pipeline) -> Any:
        read = pipeline | ReadKafka(f"kafka://{broker_address}/{topic}", mapping, batch_size=20)
        return (read.samples | CollaborateAgents(agents_world.SETTINGS)).releases

    released, counters = run_pipeline(build)
    assert agents_world.release_lines(released) == sorted(world.lines("releases"))
    assert counters["rejected_duplicate"] == 1
