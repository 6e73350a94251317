"""Partitions without end on a real Flink cluster: event time waits for the slowest, nothing is lost
or read twice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from confluent_kafka import Producer

from meanstream.pipelines.beam.beam_runners import runner_arguments
from meanstream.pipelines.beam.kafka.beam_kafka_source import ReadKafka
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.pipelines.beam.kafka.test_read_kafka import (
    MAPPING,
    PARTITIONS,
    consumed,
    fill,
    flawed,
    positions,
)
from tests.pipelines.command_line import arguments, meanstream
from tests.servers.conftest import broker_address, new_topic  # noqa: F401 - fixtures
from tests.servers.support.flink_cluster import STREAMING, FlinkCluster
from tests.streaming.support.rounds_world import SECRET

PATIENCE = 150.0


class Append(beam.DoFn):
    """Notes the window and the number of samples of each pane, at once."""

    def __init__(self, path: str) -> None:
        self._path = path

    def process(self, element: int, window: Any = beam.DoFn.WindowParam) -> Iterable[None]:
        with Path(self._path).open("a") as file:
            file.write(json.dumps([float(window.start), element]) + "\n")
        return ()


def one_by_one(batch: Any) -> Iterator[Any]:
    for at in batch.time.tolist():
        yield TimestampedValue(1, at)


def panes(path: Path) -> list[list[float]]:
    return (
        sorted(json.loads(line) for line in path.read_text().splitlines()) if path.exists() else []
    )


def wait_for(path: Path, windows: int) -> None:
    end = time.monotonic() + PATIENCE
    while len(panes(path)) < windows and time.monotonic() < end:
        time.sleep(0.2)


def test_event_time_waits_for_the_slowest_partition(
    flink: FlinkCluster,
    broker_address: str,  # noqa: F811
    new_topic: Callable[..., str],  # noqa: F811
    tmp_path: Path,
) -> None:
    topic, out = new_topic(2), tmp_path / "panes"

    def send(partition: int, start: int, stop: int) -> None:
        producer = Producer({"bootstrap.servers": broker_address})
        for at in range(start, stop, 10):
            producer.produce(
                topic, json.dumps({"agent": "a", "value": 1.0, "time": at}), partition=partition
            )
        assert producer.flush(10) == 0

    send(0, 0, 1000)
    send(1, 0, 110)
    name = f"slowest-{topic}"
    options = PipelineOptions(flink.arguments(*STREAMING, f"--job_name={name}"))
    pipeline = beam.Pipeline(runner="FlinkRunner", options=options)
    place = f"kafka://{broker_address}/{topic}"
    read = pipeline | ReadKafka(
        place, ColumnMapping(), until_end=False, batch_size=5, turn=1, privacy_unit="sample"
    )
    windows = read.samples | beam.FlatMap(one_by_one) | beam.WindowInto(FixedWindows(50))
    _ = windows | beam.CombineGlobally(sum).without_defaults() | beam.ParDo(Append(str(out)))
    _ = pipeline.run()
    try:
        wait_for(out, 2)
        time.sleep(3)
        assert panes(out) == [
            [0.0, 10],
            [50.0, 10],
        ]  # the first partition is at 990, the second at 100
        send(1, 110, 520)
        wait_for(out, 10)
        assert panes(out) == [[50.0 * number, 10] for number in range(10)]
    finally:
        # Beam's own `cancel` leaves the job on the cluster.
        flink.cancel(flink.job_id(name))


def test_ranges_and_rounds_of_a_topic(
    cluster: list[str],
    broker_address: str,  # noqa: F811
    new_topic: Callable[..., str],  # noqa: F811
    tmp_path: Path,
) -> None:
    topic, sink, out = new_topic(PARTITIONS), new_topic(), str(tmp_path / "positions")
    fill(broker_address, topic, flawed())
    source = f"kafka://{broker_address}/{topic}"
    pipeline = beam.Pipeline(runner="FlinkRunner", options=PipelineOptions(cluster))
    read = pipeline | ReadKafka(source, MAPPING, ranges={0: (10, 80), 1: (0, 3)}, batch_size=7)
    told = read.samples | beam.Map(lambda batch: json.dumps(positions([batch])))
    _ = told | beam.io.WriteToText(out, num_shards=1, shard_name_template="")
    pipeline.run().wait_until_finish()
    found = sorted(
        tuple(one) for line in Path(out).read_text().splitlines() for one in json.loads(line)
    )
    assert found == [(0, at) for at in range(10, 80)] + [(1, at) for at in range(3)]

    (tmp_path / "secret").write_text(SECRET)
    options = {
        "source": source, "until_end": True, "lower": 0, "upper": 10, "epsilon": 2, "window": "1d",
        "estimator": "one_shot", "user_budget": 6, "secret_file": tmp_path / "secret",
        "name": "test",
    }  # fmt: skip
    engine = {**options, "store": tmp_path / "rounds.db", "sink": tmp_path / "engine.jsonl"}
    assert meanstream("run", "rounds", *arguments(engine), "--quiet").code == 0
    flink = {
        **options,
        "store": tmp_path / "b.db",
        "sink": f"kafka://{broker_address}/{sink}",
        "runner": "FlinkRunner",
    }
    given = [f"--runner-arg={argument}" for argument in runner_arguments("FlinkRunner", cluster)]
    ran = meanstream("run", "rounds", *arguments(flink), *given, "--json")
    assert ran.code == 0, ran.err.decode()
    written = sorted(message.value() for message in consumed(broker_address, sink))
    assert written == sorted((tmp_path / "engine.jsonl").read_bytes().splitlines())
    assert len(written) > 3
