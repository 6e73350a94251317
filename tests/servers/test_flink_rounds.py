"""Rounds on a stream without end, on a real Flink cluster: checkpoints are made, and the answers
are the engine's."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from confluent_kafka import Producer

from meanstream.pipelines.beam.kafka.beam_kafka_source import ReadKafka
from meanstream.pipelines.beam.kafka.write_kafka import WriteKafka
from meanstream.pipelines.beam.rounds.round_transforms import (
    ReportBatch,
    ReportLines,
    ReportRounds,
    RunRounds,
)
from meanstream.pipelines.beam.rounds.rounds_from_files import write_rounds_file
from meanstream.pipelines.beam.rounds.two_sides import FormatReports
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.round_events import Report, StageResult
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.pipelines.beam.rounds.test_split import answer, report
from tests.servers.support.flink_cluster import STREAMING, FlinkCluster
from tests.servers.support.flink_jobs import Attempts
from tests.servers.support.wait_until import wait_until
from tests.streaming.support.rounds_world import SECRET, RoundsWorld, rounds_settings, samples
from tests.streaming.support.scripted_source import ScriptedSource

PATIENCE = 300.0
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
USERS_SIDE = "users' side"


def send(address: str, topic: str, stream: list[tuple[str, float, float]]) -> None:
    """Write samples in the order of time."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for agent, value, at in stream:
        producer.produce(
            topic, json.dumps({"agent": agent, "value": value, "time": at}), partition=0
        )
    assert producer.flush(30) == 0


Then = Callable[[beam.PCollection, str], None]
"""What is done with samples, and the topic that its lines go to."""


class Branch(beam.PTransform):  # type: ignore[misc]
    """What is done with the samples, under a label of its own."""

    def __init__(self, then: Then, sink: str) -> None:
        super().__init__()
        self._then, self._sink = then, sink

    def expand(self, samples: beam.PCollection) -> beam.PCollection:
        self._then(samples, self._sink)
        return samples


def submit(
    cluster: FlinkCluster,
    address: str,
    topic: str,
    name: str,
    branches: dict[str, tuple[Then, str]],
) -> str:
    """Start a pipeline that reads a topic without end into all branches, and return the job's id.

    A job takes long to start, so one has many branches; each writes to its own topic.
    """
    options = PipelineOptions(cluster.arguments(*STREAMING, f"--job_name={name}"))
    pipeline = beam.Pipeline(runner="FlinkRunner", options=options)
    source = f"kafka://{address}/{topic}"
    read = pipeline | ReadKafka(
        source, ColumnMapping(), until_end=False, turn=1, privacy_unit="user"
    )
    for label, (then, sink) in branches.items():
        _ = read.samples | label >> Branch(then, f"kafka://{address}/{sink}")
    pipeline.run()
    return cluster.job_id(name)


def rounds(settings: RoundsSettings, secret: SecretLocation) -> Then:
    """Both sides of rounds, and their answers to a topic."""
    run = RunRounds(settings, secret=secret, shards=SHARDS)
    return lambda samples, sink: write_rounds_file((samples | run).estimates, sink)


def wait(done: Callable[[], Any], why: Callable[[], str], seconds: float = PATIENCE) -> None:
    wait_until(done, seconds, why=why, every=0.2)


def test_rounds_and_the_users_side_without_end_make_checkpoints_and_give_the_bytes_of_the_engine(
    flink: FlinkCluster,
    broker_address: str,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One job: rounds of every kind, and the users' side alone with the results of a
    statistician."""
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)
    place, stream = secret_in(tmp_path), samples(240, USERS, float(DAYS))
    branches = {case: rounds(settings, place) for case, settings in SETTINGS.items()}
    wanted = {
        case: means_of_the_engine(tmp_path / case, settings, stream)
        for case, settings in SETTINGS.items()
    }
    branches[USERS_SIDE], wanted[USERS_SIDE] = users_side_with_results(
        SETTINGS["two stages"], place, tmp_path
    )
    source, sinks = new_topic(), {label: new_topic() for label in branches}
    send(
        broker_address, source, stream
    )  # a backlog: by the clock all days have ended, and it counts as a whole
    name = f"rounds-{flink.ports['rest']}"
    job = submit(
        flink,
        broker_address,
        source,
        name,
        {label: (branches[label], sinks[label]) for label in branches},
    )
    answers = {label: Attempts(broker_address, topic) for label, topic in sinks.items()}

    def seen() -> str:
        counts = {
            label: f"{len(set(one.lines))} of {len(wanted[label])}"
            for label, one in answers.items()
        }
        return f"{counts}; {flink.status(job)}: {flink.exceptions(job)}"[:2000]

    try:
        wait(lambda: all(wanted[label] <= ended(one) for label, one in answers.items()), seen)
        flink.wait_for_checkpoint(job)
        assert flink.status(job) == "RUNNING"
        send(broker_address, source, stream[:USERS])  # late, all of them
        flink.wait_for_checkpoint(job)
        assert flink.status(job) == "RUNNING"
        assert flink.exceptions(job) == []
        assert {label: ended(one) for label, one in answers.items()} == wanted
    finally:
        flink.cancel(job)
        for one in answers.values():
            one.close()


def means_of_the_engine(
    folder: Path, settings: RoundsSettings, stream: list[tuple[str, float, float]]
) -> set[bytes]:
    """What the engine answers."""
    world = RoundsWorld(folder, settings)
    world.run(ScriptedSource(stream))
    return set(world.lines("means"))


def secret_in(folder: Path) -> SecretLocation:
    """A file that workers read."""
    (folder / "secret").write_text(SECRET)
    return SecretLocation(file=str(folder / "secret"))


def users_side(
    settings: RoundsSettings, secret: SecretLocation, results: list[StageResult], pins: Path
) -> Then:
    """The users' side alone, which goes on from what the statistician has published, and its
    reports to a topic."""

    def then(samples: beam.PCollection, sink: str) -> None:
        told = samples.pipeline | "Results" >> beam.Create(results, reshuffle=False)
        report = ReportRounds(settings, secret=secret, results=told, pins=pins, shards=SHARDS)
        reports = (samples | report).reports
        lines = (
            reports
            | ReportLines(settings)
            | "Lines" >> beam.Map(_report_lines).with_output_types(EventLines)
        )
        _ = lines | "Reports" >> WriteKafka(sink, role="reports")

    return then


def _report_lines(line: bytes) -> EventLines:
    return EventLines(Report, [line])


def users_side_with_results(
    settings: RoundsSettings, secret: SecretLocation, pins: Path
) -> tuple[Then, set[bytes]]:
    """The users' side with a result of every first stage, and the reports that it makes in time: of
    the second."""
    first = report(settings, [])
    results, _ = answer(settings, first)
    assert len(results) == DAYS
    wanted, before = (
        report_lines_of(settings, batches) for batches in (report(settings, results), first)
    )
    assert wanted
    assert not wanted & before  # without the results it would report in the first stage again
    return users_side(settings, secret, results, pins), wanted


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
