"""Rounds on a stream without end, on a real Flink cluster: checkpoints are made, and the answers are the engine's."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsSingleton
from confluent_kafka import Producer

from meanstream.pipelines.beam.kafka.sink import WriteKafka
from meanstream.pipelines.beam.kafka.source import ReadKafka
from meanstream.pipelines.beam.rounds import parts
from meanstream.pipelines.beam.rounds.file import write_rounds_file
from meanstream.pipelines.beam.rounds.known import ESTIMATES, FINDINGS, WithFindings, known_findings_and_estimates
from meanstream.pipelines.beam.rounds.stages import FormatReports
from meanstream.pipelines.beam.secret import SecretPlace
from meanstream.pipelines.rounds import ReportBatch, ReportLines, ReportRounds, RunRounds
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.rounds import Report, StageResult
from meanstream.streaming.rounds.settings import RoundsSettings
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.testing import ScriptedSource
from tests.pipelines.beam.rounds.test_split import answer, report
from tests.servers.support.flink_cluster import STREAMING, FlinkCluster
from tests.servers.support.flink_jobs import Attempts
from tests.servers.support.waiting import wait_until
from tests.streaming.support.rounds_world import SECRET, RoundsWorld, rounds_settings, samples

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
    name: str,
    *,
    then: Callable[[beam.PCollection, str], None],
) -> str:
    """Start a pipeline that reads a topic without end, and then gives its samples to `then`; give the job's id."""
    options = PipelineOptions(cluster.arguments(*STREAMING, f"--job_name={name}"))
    pipeline = beam.Pipeline(runner="FlinkRunner", options=options)
    read = pipeline | ReadKafka(f"kafka://{address}/{topics[0]}", ColumnMapping(), until_end=False, turn=1)
    then(read.samples, f"kafka://{address}/{topics[1]}")
    pipeline.run()
    return cluster.job_id(name)


def rounds(settings: RoundsSettings, secret: SecretPlace) -> Callable[[beam.PCollection, str], None]:
    """Both sides of rounds, and their answers to a topic."""
    run = RunRounds(settings, secret=secret, shards=SHARDS, max_stages=STAGES)
    return lambda samples, sink: write_rounds_file((samples | run).estimates, sink)


def wait(done: Callable[[], Any], why: Callable[[], str], seconds: float = PATIENCE) -> None:
    wait_until(done, seconds, why=why, every=0.2)


@pytest.mark.parametrize("case", SETTINGS)
def test_rounds_without_end_make_checkpoints_and_give_the_bytes_of_the_engine(
    case: str, flink: FlinkCluster, broker_address: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    place = secret_in(tmp_path)
    stream = samples(240, USERS, float(DAYS))
    topics = (new_topic(), new_topic())
    send(broker_address, topics[0], stream)  # a backlog: by the clock all days have ended, and it counts as a whole
    name = f"rounds-{case[:3]}-{flink.ports['rest']}"
    job = submit(flink, broker_address, topics, name, then=rounds(SETTINGS[case], place))
    answers = Attempts(broker_address, topics[1])

    def told() -> str:
        return f"{len(answers.lines)} answers; {flink.status(job)}: {flink.get(f'/jobs/{job}/exceptions')}"[:2000]

    try:
        wait(lambda: len(ended(answers)) >= DAYS, told)
        flink.wait_for_checkpoint(job)
        assert flink.status(job) == "RUNNING"
        send(broker_address, topics[0], stream[:USERS])  # late, all of them
        flink.wait_for_checkpoint(job)
        assert flink.status(job) == "RUNNING"
        assert failures(flink, job) == []
    finally:
        flink.cancel(job)
        answers.close()
    world = RoundsWorld(tmp_path / "engine", SETTINGS[case])
    world.run(ScriptedSource(stream))
    assert sorted(set(answers.lines), key=end_of) == sorted(world.lines("means"), key=end_of)


def secret_in(folder: Path) -> SecretPlace:
    """A file that workers read."""
    (folder / "secret").write_text(SECRET)
    return SecretPlace(file=str(folder / "secret"))


def failures(cluster: FlinkCluster, job: str) -> list[dict[str, Any]]:
    """Why a job has begun again, each time."""
    return cluster.get(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]  # type: ignore[no-any-return]


def users_side(
    settings: RoundsSettings, secret: SecretPlace, results: list[StageResult], pins: Path
) -> Callable[[beam.PCollection, str], None]:
    """The users' side alone, which goes on from what the statistician has published, and its reports to a topic."""

    def then(samples: beam.PCollection, sink: str) -> None:
        told = samples.pipeline | "Results" >> beam.Create(results, reshuffle=False)
        report = ReportRounds(settings, secret=secret, results=told, pins=pins, shards=SHARDS)
        reports = (samples | report).reports
        lines = reports | ReportLines(settings) | "Lines" >> beam.Map(_report_lines).with_output_types(EventLines)
        _ = lines | "Reports" >> WriteKafka(sink, role="reports")

    return then


def _report_lines(line: bytes) -> EventLines:
    return EventLines(Report, [line])


def test_the_users_side_alone_makes_checkpoints_with_results_of_a_statistician(
    flink: FlinkCluster,
    broker_address: str,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)
    settings, place, stream = SETTINGS["two stages"], secret_in(tmp_path), samples(240, USERS, float(DAYS))
    first = report(settings, [])
    results, _ = answer(settings, first)
    assert len(results) == DAYS
    wanted, before = (report_lines_of(settings, batches) for batches in (report(settings, results), first))
    assert wanted
    assert not wanted & before  # without the results it would report in the first stage again
    topics = (new_topic(), new_topic())
    send(broker_address, topics[0], stream)
    then = users_side(settings, place, results, tmp_path)
    job = submit(flink, broker_address, topics, f"users-{flink.ports['rest']}", then=then)
    reports = Attempts(broker_address, topics[1])

    def told() -> str:
        return f"{len(reports.lines)} reports; {flink.status(job)}: {flink.get(f'/jobs/{job}/exceptions')}"[:2000]

    try:
        wait(lambda: wanted <= ended(reports), told)
        flink.wait_for_checkpoint(job)
        assert flink.status(job) == "RUNNING"
        assert failures(flink, job) == []
        assert ended(reports) == wanted
    finally:
        flink.cancel(job)
        reports.close()


def report_lines_of(settings: RoundsSettings, batches: list[ReportBatch]) -> set[bytes]:
    """Lines of the reports."""
    tell = FormatReports(settings)
    return {line for batch in batches for line in tell.process(batch)}


def ended(answers: Attempts) -> set[bytes]:
    """Answers so far."""
    return set(answers.look())


def end_of(line: bytes) -> float:
    """When the window of an answer ends."""
    return datetime.fromisoformat(json.loads(line)["end"]).timestamp()


class AsSideInput(WithFindings):
    """Findings as a side input, as they must not be."""

    def expand(self, pcoll: beam.PCollection) -> Any:
        known = () if self._findings is None else (AsSingleton(self._findings, default_value=None),)
        step = beam.ParDo(self._dofn, *known)
        if self._out is None:
            return known_findings_and_estimates(pcoll | step.with_outputs(FINDINGS, main=ESTIMATES))
        return pcoll | step.with_output_types(self._out)


def test_with_findings_as_a_side_input_the_job_fails(
    flink: FlinkCluster,
    broker_address: str,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the test above would see if the steps were not grouped with what they need."""
    monkeypatch.setattr(parts, "WithFindings", AsSideInput)
    topics = (new_topic(), new_topic())
    send(broker_address, topics[0], samples(240, USERS, float(DAYS)))
    then = rounds(SETTINGS["default"], secret_in(tmp_path))
    job = submit(flink, broker_address, topics, f"side-{flink.ports['rest']}", then=then)
    try:
        wait(lambda: "ClassCastException" in json.dumps(failures(flink, job)), lambda: flink.status(job))
    finally:
        flink.cancel(job)
