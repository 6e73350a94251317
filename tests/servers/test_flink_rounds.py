"""Rounds on a stream without end, on a real Flink cluster: checkpoints are made, and the answers are the engine's."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsSingleton
from confluent_kafka import Producer

from pipelines.beam.kafka.source import ReadKafka
from pipelines.beam.rounds import parts
from pipelines.beam.rounds.file import write_means
from pipelines.beam.rounds.known import WithFindings
from pipelines.beam.secret import SecretPlace
from pipelines.rounds import RunRounds
from streaming.mapping import ColumnMapping
from streaming.rounds.settings import RoundsSettings
from streaming.testing import ScriptedSource
from tests.servers.flink_cluster import STREAMING, FlinkCluster
from tests.servers.flink_jobs import Attempts
from tests.streaming.rounds_world import DAY, SECRET, RoundsWorld, rounds_settings, samples

pytestmark = pytest.mark.slow

PATIENCE = 120.0
DAYS = 4
USERS = 12
SHARDS = 2
STAGES = 2
"""One more than the default estimator has for so few users: there, the second finds nothing."""

SETTINGS = {
    "default": rounds_settings(estimator="plan"),
    "two stages": rounds_settings(estimator="kent.univariate", sizes="point:20"),
    "curator": rounds_settings(estimator="cummings.ideal"),
}
"""The number of users is counted in all of them, so that every stage needs findings."""


def send(address: str, topic: str, stream: list[tuple[str, float, float]]) -> None:
    """Write samples in the order of time."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for agent, value, at in stream:
        producer.produce(topic, json.dumps({"agent": agent, "value": value, "time": at}), partition=0)
    assert producer.flush(30) == 0


def submit(
    cluster: FlinkCluster,
    address: str,
    topics: tuple[str, str],
    secret: Path,
    name: str,
    *,
    settings: RoundsSettings,
) -> str:
    """Start rounds on a topic without end; give the job's id."""
    options = PipelineOptions(cluster.arguments(*STREAMING, f"--job_name={name}"))
    pipeline = beam.Pipeline(runner="FlinkRunner", options=options)
    read = pipeline | ReadKafka(f"kafka://{address}/{topics[0]}", ColumnMapping(), until_end=False)
    place = SecretPlace(file=str(secret))
    answers = read.samples | RunRounds(settings, secret=place, shards=SHARDS, max_stages=STAGES)
    write_means(answers, f"kafka://{address}/{topics[1]}")
    pipeline.run()
    return cluster.job_id(name)


def wait(done: Callable[[], Any], why: Callable[[], str], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, why()
        time.sleep(0.2)


@pytest.mark.parametrize("case", SETTINGS)
def test_rounds_without_end_make_checkpoints_and_give_the_bytes_of_the_engine(
    case: str, flink: FlinkCluster, broker_address: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    stream = samples(240, USERS, float(DAYS))
    half = [sample for sample in stream if sample[2] < DAYS / 2 * DAY]
    topics = (new_topic(), new_topic())
    send(broker_address, topics[0], half)
    job = submit(
        flink, broker_address, topics, secret, f"rounds-{case[:3]}-{flink.ports['rest']}", settings=SETTINGS[case]
    )
    answers = Attempts(broker_address, topics[1])

    def told() -> str:
        return f"{len(answers.lines)} answers; {flink.status(job)}: {flink.get(f'/jobs/{job}/exceptions')}"[:2000]

    try:
        wait(lambda: len(ended(answers)) >= DAYS // 2 - 1, told)
        flink.wait_for_checkpoint(job)
        assert flink.status(job) == "RUNNING"
        send(broker_address, topics[0], stream[len(half) :])
        wait(lambda: len(ended(answers)) >= DAYS - 1, told)
        flink.wait_for_checkpoint(job)
        assert flink.status(job) == "RUNNING"
        assert failures(flink, job) == []
    finally:
        flink.cancel(job)
        answers.close()
    world = RoundsWorld(tmp_path / "engine", SETTINGS[case])
    world.run(ScriptedSource(stream))
    wanted = sorted(world.lines("means"), key=end_of)[: DAYS - 1]  # the last window has not ended
    assert sorted(set(answers.lines), key=end_of) == wanted


def failures(cluster: FlinkCluster, job: str) -> list[dict[str, Any]]:
    """Why a job has begun again, each time."""
    return cluster.get(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]  # type: ignore[no-any-return]


def ended(answers: Attempts) -> set[bytes]:
    """Answers so far."""
    return set(answers.look())


def end_of(line: bytes) -> float:
    """When the window of an answer ends."""
    return datetime.fromisoformat(json.loads(line)["end"]).timestamp()


class AsSideInput(WithFindings):
    """Findings as a side input, as they must not be."""

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        known = () if self._findings is None else (AsSingleton(self._findings, default_value=None),)
        return pcoll | beam.ParDo(self._dofn, *self._others, *known).with_output_types(self._out)


def test_with_findings_as_a_side_input_the_job_fails(
    flink: FlinkCluster,
    broker_address: str,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the test above would see if the steps were not grouped with what they need."""
    monkeypatch.setattr(parts, "WithFindings", AsSideInput)
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    topics = (new_topic(), new_topic())
    send(broker_address, topics[0], samples(240, USERS, float(DAYS)))
    job = submit(flink, broker_address, topics, secret, f"side-{flink.ports['rest']}", settings=SETTINGS["default"])
    try:
        wait(lambda: "ClassCastException" in json.dumps(failures(flink, job)), lambda: flink.status(job))
    finally:
        flink.cancel(job)
