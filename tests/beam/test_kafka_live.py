"""Partitions without end on a real Flink cluster: event time waits for the slowest, nothing is lost or read twice."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from confluent_kafka import Producer

from pipelines.beam_kafka_source import ReadKafka
from streaming.mapping import ColumnMapping
from tests.beam.test_flink import JOB_SERVER, cluster  # noqa: F401 - a fixture
from tests.servers.conftest import broker_address, new_topic  # noqa: F401 - fixtures

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not JOB_SERVER.is_file(), reason=f"Flink is not in {JOB_SERVER.parent}: make flink fetches it"),
]
PATIENCE = 45.0
STREAMING = [
    "--streaming",
    "--checkpointing_interval=1000",
    "--parallelism=1",
    "--finish_bundle_before_checkpointing",
    "--shutdown_sources_after_idle_ms=2000",
]


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
    return sorted(json.loads(line) for line in path.read_text().splitlines()) if path.exists() else []


def wait_for(path: Path, windows: int) -> None:
    end = time.monotonic() + PATIENCE
    while len(panes(path)) < windows and time.monotonic() < end:
        time.sleep(0.2)


def test_event_time_waits_for_the_slowest_partition(
    cluster: list[str],  # noqa: F811
    broker_address: str,  # noqa: F811
    new_topic: Callable[..., str],  # noqa: F811
    tmp_path: Path,
) -> None:
    topic, out = new_topic(2), tmp_path / "panes"

    def send(partition: int, start: int, stop: int) -> None:
        producer = Producer({"bootstrap.servers": broker_address})
        for at in range(start, stop, 10):
            producer.produce(topic, json.dumps({"agent": "a", "value": 1.0, "time": at}), partition=partition)
        assert producer.flush(10) == 0

    send(0, 0, 1000)
    send(1, 0, 110)
    arguments = [*cluster, *STREAMING]
    pipeline = beam.Pipeline(runner="FlinkRunner", options=PipelineOptions(arguments))
    place = f"kafka://{broker_address}/{topic}"
    read = pipeline | ReadKafka(place, ColumnMapping(), until_end=False, batch_size=5)
    windows = read.samples | beam.FlatMap(one_by_one) | beam.WindowInto(FixedWindows(50))
    _ = windows | beam.CombineGlobally(sum).without_defaults() | beam.ParDo(Append(str(out)))
    result = pipeline.run()
    try:
        wait_for(out, 2)
        time.sleep(3)
        assert panes(out) == [[0.0, 10], [50.0, 10]]  # the first partition is at 990, the second at 100
        send(1, 110, 520)
        wait_for(out, 10)
        assert panes(out) == [[50.0 * number, 10] for number in range(10)]
    finally:
        threading.Thread(target=result.cancel, daemon=True).start()
