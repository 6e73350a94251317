"""Parts of a pipeline that are applied alone, on streams without end on a real Flink cluster: as on
FnApiRunner."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from meanstream.pipelines.beam.agents import waiting_samples
from meanstream.pipelines.beam.agents.agent_transforms import (
    CollaboratePairwise,
    EstimateAgents,
    ReleaseMeans,
    SingleEvents,
    SnapshotReleases,
)
from meanstream.pipelines.beam.agents.agents_elements import EstimateBatch
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.agents.pairwise_shard import PairBatch, pairwise_release_ids
from meanstream.pipelines.beam.kafka.beam_kafka_source import ReadKafka
from meanstream.pipelines.beam.kafka.write_kafka import WriteKafka
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.times import iso_times
from meanstream.streaming.events.wire import PersonalEstimate
from meanstream.streaming.sinks.sink_protocol import Trust
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.pipelines.beam.agents import test_agents_pairwise
from tests.pipelines.beam.conftest import on_time  # noqa: F401 - a fixture
from tests.pipelines.beam.support import agents_world
from tests.pipelines.beam.support.agents_world import HOUR
from tests.pipelines.beam.support.collecting import collector
from tests.servers.support.flink_cluster import STREAMING, FlinkCluster
from tests.servers.support.flink_jobs import Attempts, time_of
from tests.servers.test_flink_rounds import send, wait
from tests.streaming.support.rounds_world import SECRET

pytestmark = pytest.mark.usefixtures("on_time")

SHARDS = 2
WINDOW = 28 * HOUR
Stream = list[tuple[str, float, float]]
Parts = Callable[[list[Any], SecretLocation], dict[str, beam.PCollection]]


def ask_each_other(given: list[Any], secret: SecretLocation) -> dict[str, beam.PCollection]:
    """The paper's pairwise form: estimates, and what each agent told each other."""
    collaborate = CollaboratePairwise(test_agents_pairwise.SETTINGS, refresh=10.0, secret=secret)
    answers = given[0] | "Pairwise" >> collaborate
    told = answers.releases | "Told lines" >> beam.Map(_told_lines).with_output_types(EventLines)
    estimates = answers.estimates | "Estimate lines" >> beam.Map(_estimate_lines).with_output_types(
        EventLines
    )
    return {"estimates": estimates, "told": told}


def read_each_other(
    given: list[Any], secret: SecretLocation, *, alone: bool = False
) -> dict[str, beam.PCollection]:
    """Two parties that release apart; each fits all releases, as single events, or, `alone`, its
    own, and answers."""
    settings, options, windows = (
        agents_world.SETTINGS,
        EngineOptions(),
        AgentWindows(refresh=WINDOW),
    )
    made = [
        samples
        | f"Release {i}"
        >> ReleaseMeans(settings, refresh=windows.refresh, secret=secret, shards=SHARDS)
        for i, samples in enumerate(given)
    ]
    events = [one.releases | f"Single {i}" >> SingleEvents(settings) for i, one in enumerate(made)]
    everybody = events | "Topic" >> beam.Flatten()
    answers = []
    for i, one in enumerate(made):
        snapshot = SnapshotReleases(settings, options, windows, ticks=one.ticks, shards=SHARDS)
        population = (events[i] if alone else everybody) | f"Snapshot {i}" >> snapshot
        estimate = EstimateAgents(settings, options, windows, population=population, shards=SHARDS)
        answers.append(one.own | f"Estimate {i}" >> estimate)
    batches = answers | "Answers" >> beam.Flatten()
    return {
        "estimates": batches
        | "Estimate lines" >> beam.Map(_estimate_lines).with_output_types(EventLines)
    }


def _estimate_lines(batch: EstimateBatch) -> EventLines:
    return EventLines(PersonalEstimate, batch.lines)


def _told_lines(batch: PairBatch) -> EventLines:
    """One line per release, for its reader; on a private topic."""
    releases = batch.releases
    ids = pairwise_release_ids(
        batch.agent.to_pylist(),
        batch.reader.to_pylist(),
        releases.index.tolist(),
        deployment=test_agents_pairwise.SETTINGS.name,
    )
    rows = zip(
        ids, releases.total.tolist(), batch.reader.to_pylist(), iso_times(batch.time), strict=True
    )
    return EventLines(PersonalEstimate, [
        json.dumps({"agent": reader, "release_id": name, "total": total, "time": at}).encode()
        for name, total, reader, at in rows
    ])  # fmt: skip


def party(sample: tuple[str, float, float]) -> int:
    return int(int(sample[0].split()[1]) % 3 == 0)


@dataclass(frozen=True)
class Case:
    """What runs, over which streams, with windows of which length; the last window of a stream does
    not end."""

    parts: Parts
    streams: tuple[Stream, ...]
    window: float

    @property
    def ended(self) -> float:
        """Event time up to which there are answers."""
        newest = min(stream[-1][2] for stream in self.streams)
        return newest // self.window * self.window

    def given_by(self, sample: tuple[str, float, float]) -> int:
        """The turn in which a sample is sent: the first comprises half of the second window, which
        ends the first."""
        return max(0, math.ceil(sample[2] / self.window - 1.5))

    @property
    def turns(self) -> int:
        """Into how many the streams are cut."""
        return 1 + max(self.given_by(stream[-1]) for stream in self.streams)


_AGENTS = agents_world.samples()
CASES = {
    "pairwise": Case(ask_each_other, (test_agents_pairwise.samples(),), 10.0),
    "federation": Case(
        read_each_other, tuple([s for s in _AGENTS if party(s) == i] for i in range(2)), WINDOW
    ),
}


class Applied(beam.PTransform):
    """The parts of a case under a label of their own: a job takes long to start, and all cases
    share one."""

    def __init__(self, parts: Parts, secret: Path) -> None:
        super().__init__()
        self._parts = parts
        self._secret = SecretLocation(file=str(secret))

    def expand(self, given: tuple[beam.PCollection, ...]) -> dict[str, beam.PCollection]:
        return self._parts(list(given), self._secret)


def on_flink(
    cluster: FlinkCluster,
    address: str,
    secret: Path,
    topics: dict[str, list[str]],
    *,
    new_topic: Callable[..., str],
) -> tuple[str, dict[str, dict[str, Attempts]]]:
    """Start the job, whose outputs go to topics; give its id and who follows each output of each
    case."""
    name = f"parts-{cluster.ports['rest']}"
    options = PipelineOptions(cluster.arguments(*STREAMING, f"--job_name={name}"))
    pipeline, followed = beam.Pipeline(runner="FlinkRunner", options=options), {}
    for label, case in CASES.items():
        given = []
        for topic in topics[label]:
            source = f"kafka://{address}/{topic}"  # whose event time is that of agents' samples
            read = ReadKafka(
                source, ColumnMapping(), until_end=False, turn=1, privacy_unit="sample"
            )
            given.append((pipeline | f"Read {topic}" >> read).samples)
        outputs = tuple(given) | label >> Applied(case.parts, secret)
        followed[label] = {role: new_topic() for role in outputs}
        for role, topic in followed[label].items():
            write = WriteKafka(f"kafka://{address}/{topic}", trust=Trust.PRIVATE)
            _ = outputs[role] | f"Write {label} {role}" >> write
    pipeline.run()
    return cluster.job_id(name), {
        label: {role: Attempts(address, topic) for role, topic in roles.items()}
        for label, roles in followed.items()
    }


def give(address: str, topics: dict[str, list[str]], turn: int) -> None:
    """Send a part of each stream: what ends one more window."""
    for label, case in CASES.items():
        for topic, stream in zip(topics[label], case.streams, strict=True):
            send(address, topic, [sample for sample in stream if case.given_by(sample) == turn])


def on_fn_api_runner(case: Case, secret: Path, parts: Parts | None = None) -> dict[str, set[bytes]]:
    """Lines of each output, of windows that have ended in time."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    given = [
        pipeline | f"Samples {i}" >> beam.Create(stream, reshuffle=False)
        for i, stream in enumerate(case.streams)
    ]
    found = {}
    for role, lines in (tuple(given) | Applied(parts or case.parts, secret)).items():
        keep, found[role] = collector()
        _ = lines | f"Keep {role}" >> keep
    pipeline.run().wait_until_finish()
    return {
        role: in_time((line for one in lines for line in one.lines), case)
        for role, lines in found.items()
    }


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, set[bytes]]]:
    """What each case gives on FnApiRunner, run once for all tests."""
    secret = tmp_path_factory.mktemp("reference") / "secret"
    secret.write_text(SECRET)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting_samples, "overtakes", lambda: False)  # as `on_time`
        return {label: on_fn_api_runner(case, secret) for label, case in CASES.items()}


def in_time(lines: Iterable[bytes], case: Case) -> set[bytes]:
    return {line for line in lines if time_of(line) < case.ended}


def test_parts_alone_make_checkpoints_and_give_what_they_give_elsewhere(
    flink: FlinkCluster,
    broker_address: str,
    new_topic: Callable[..., str],
    reference: dict[str, dict[str, set[bytes]]],
    tmp_path: Path,
) -> None:
    """Each window is answered before the next one ends, so that none is overtaken, wherever it
    runs."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    wanted = reference
    topics = {label: [new_topic() for _ in case.streams] for label, case in CASES.items()}

    def ended(turn: int) -> dict[str, dict[str, set[bytes]]]:
        """What must be there after a turn."""
        return {
            label: {
                role: {line for line in lines if time_of(line) < (turn + 1) * CASES[label].window}
                for role, lines in roles.items()
            }
            for label, roles in wanted.items()
        }

    first = ended(0)
    assert all(
        len(lines) > len(first[label][role]) > 0
        for label in CASES
        for role, lines in wanted[label].items()
    )
    give(broker_address, topics, 0)
    job, outputs = on_flink(flink, broker_address, secret, topics, new_topic=new_topic)

    def told() -> str:
        there = {
            label: {role: len(one.lines) for role, one in roles.items()}
            for label, roles in outputs.items()
        }
        return f"{there} lines; {flink.status(job)}: {flink.get(f'/jobs/{job}/exceptions')}"[:2000]

    def there(lines: dict[str, dict[str, set[bytes]]]) -> bool:
        return all(
            lines[label][role] <= set(one.look())
            for label in CASES
            for role, one in outputs[label].items()
        )

    try:
        wait(lambda: there(first), told)
        flink.wait_for_checkpoint(job)
        for turn in range(1, max(case.turns for case in CASES.values())):
            give(broker_address, topics, turn)
            wait(lambda turn=turn: there(ended(turn)), told)  # type: ignore[misc]
        wait(lambda: there(wanted), told)
        flink.wait_for_checkpoint(job)
        assert flink.status(job) == "RUNNING"
        assert flink.exceptions(job) == []
        found = {
            label: {role: in_time(one.look(), CASES[label]) for role, one in roles.items()}
            for label, roles in outputs.items()
        }
    finally:
        flink.cancel(job)
        for roles in outputs.values():
            for one in roles.values():
                one.close()
    assert found == wanted


def test_a_party_that_reads_only_its_own_releases_would_be_told_apart(
    reference: dict[str, dict[str, set[bytes]]], tmp_path: Path
) -> None:
    case, secret = CASES["federation"], tmp_path / "secret"
    secret.write_text(SECRET)
    assert on_fn_api_runner(case, secret) == reference["federation"]
    alone = on_fn_api_runner(
        case, secret, lambda given, place: read_each_other(given, place, alone=True)
    )
    assert alone != reference["federation"]


def test_another_key_would_be_told_apart(
    reference: dict[str, dict[str, set[bytes]]], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_text(SECRET[::-1])
    assert on_fn_api_runner(CASES["pairwise"], other) != reference["pairwise"]
