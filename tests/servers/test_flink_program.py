"""A program of one's own beside ours: windows, a side branch, outputs of its own; restarted,
updated, drained."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import FixedWindows
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from meanstream.pipelines.beam.agents.agent_transforms import (
    CollaborateAgents,
    ColumnMapping,
    ParseMessages,
    SampleRow,
    SampleRows,
    SecretLocation,
    SingleEvents,
)
from meanstream.pipelines.beam.kafka.beam_kafka_source import ReadKafka
from meanstream.pipelines.beam.kafka.write_kafka import WriteKafka
from tests.servers.support.flink_cluster import STREAMING, FlinkCluster
from tests.servers.support.flink_jobs import Attempts, examine
from tests.servers.support.flink_stream import (
    AGENTS,
    PARTITIONS,
    SECRET,
    SETTINGS,
    WINDOW,
    PacedProducer,
    expected_releases,
    samples_of,
)
from tests.servers.support.wait_until import wait_until

STEP = 10
"""Windows that are written before each stop."""
HIGH = 8.0
"""Values above it go to a branch of their own."""


class SendText(beam.DoFn):
    """An output of one's own: text to a topic."""

    def __init__(self, address: str, topic: str) -> None:
        self._address, self._topic = address, topic

    def setup(self) -> None:
        self._producer = Producer({"bootstrap.servers": self._address})

    def process(self, element: str) -> None:
        self._producer.produce(self._topic, element.encode())

    def finish_bundle(self) -> None:
        assert self._producer.flush(30) == 0


def counted(pair: tuple[str, int], window: Any = beam.DoFn.WindowParam) -> str:
    return json.dumps([pair[0], window.start.micros / 1e6, pair[1]])


def own_branches(rows: beam.PCollection) -> beam.PCollection:
    """Windows of one's own, and a side branch, on samples that agents have too."""
    windowed = rows | "Own windows" >> beam.WindowInto(FixedWindows(WINDOW))
    every = windowed | "Agent" >> beam.Map(lambda row: (row.agent, 1)).with_output_types(
        tuple[str, int]
    )
    high = windowed | "High" >> beam.Filter(lambda row: row.value > HIGH)
    named = high | "Named" >> beam.Map(lambda row: (f"high {row.agent}", 1)).with_output_types(
        tuple[str, int]
    )
    both = (every, named) | "Both" >> beam.Flatten()
    return (
        both | "Sum" >> beam.CombinePerKey(sum) | "Text" >> beam.Map(counted).with_output_types(str)
    )


def expected_counts(windows: Iterable[int]) -> dict[tuple[str, float], int]:
    found: Counter[tuple[str, float]] = Counter()
    for window in windows:
        for agent, value, _ in samples_of(window):
            found[agent, window * WINDOW] += 1
            if value > HIGH:
                found[f"high {agent}", window * WINDOW] += 1
    return dict(found)


def counts(lines: Iterable[str | bytes]) -> dict[tuple[str, float], set[int]]:
    """Give every value that was told of each agent and window."""
    found: dict[tuple[str, float], set[int]] = {}
    for agent, start, count in map(json.loads, lines):
        found.setdefault((agent, start), set()).add(count)
    return found


def test_the_program_on_bounded_messages(tmp_path: Path) -> None:
    """From messages that no reader of ours has read, on Beam's own runner."""
    messages = [
        json.dumps({"agent": agent, "value": value, "time": time}).encode()
        for window in range(4)
        for agent, value, time in samples_of(window)
    ]
    (tmp_path / "secret").write_text(SECRET)
    secret = SecretLocation(file=str(tmp_path / "secret"))
    with beam.Pipeline(FnApiRunner()) as pipeline:
        parsed = (
            pipeline
            | beam.Create([*messages, b"{"])
            | ParseMessages(ColumnMapping(), privacy_unit="sample")
        )
        rows = parsed.samples | SampleRows()
        assert rows.element_type is SampleRow
        answers = parsed.samples | CollaborateAgents(SETTINGS, secret=secret, shards=2)
        releases = answers.releases | SingleEvents(SETTINGS)
        letters = parsed.rejected | "Reason" >> beam.Map(
            lambda letter: letter.reason
        ).with_output_types(str)
        outputs = {
            "counts": own_branches(rows),
            "letters": letters,
            "releases": releases
            | beam.Map(lambda event: event.model_dump_json()).with_output_types(str),
        }
        for name, made in outputs.items():
            _ = made | f"To {name}" >> beam.io.WriteToText(
                str(tmp_path / name), num_shards=1, shard_name_template=""
            )
    found = {name: (tmp_path / name).read_text().splitlines() for name in outputs}
    assert counts(found["counts"]) == {
        key: {count} for key, count in expected_counts(range(4)).items()
    }
    assert found["letters"] == ["malformed"]
    assert (
        len(found["releases"]) >= len(expected_releases(tmp_path / "engine", 4)) > 0
    )  # and those of the end


class Program:
    """The program on Flink, whose outputs are topics."""

    def __init__(self, cluster: FlinkCluster, address: str, folder: Path) -> None:
        self._cluster, self._address = cluster, address
        self._name = f"program-{uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": address})
        roles = ("samples", "releases", "told", "counts")
        self.topics = {role: f"{self._name}-{role}" for role in roles}
        for role, topic in self.topics.items():
            admin.create_topics([NewTopic(topic, PARTITIONS if role == "samples" else 1, 1)])[
                topic
            ].result(30)
        (folder / "secret").write_text(SECRET)
        self._secret = SecretLocation(file=str(folder / "secret"))

    def start(self, number: int, *more: str, drain: bool = False) -> str:
        """Submit it; give the job's id. From the second time on it reads in longer turns, and has
        one more output."""
        name = f"{self._name}-{number}"
        options = PipelineOptions(self._cluster.arguments(*STREAMING, f"--job_name={name}", *more))
        pipeline = beam.Pipeline(runner="FlinkRunner", options=options)
        place = f"kafka://{self._address}/{{}}".format
        how: dict[str, Any] = {
            "turn": min(number, 2),
            "drain": drain,
            "until_end": False,
            "privacy_unit": "sample",
        }
        read = pipeline | ReadKafka(place(self.topics["samples"]), ColumnMapping(), **how)
        answers = read.samples | CollaborateAgents(
            SETTINGS, secret=self._secret, refresh=WINDOW, shards=2
        )
        releases = answers.releases | "Each release" >> SingleEvents(SETTINGS)
        _ = releases | "Releases" >> WriteKafka(place(self.topics["releases"]), role="releases")
        _ = own_branches(read.samples | SampleRows()) | "Send" >> beam.ParDo(
            SendText(self._address, self.topics["counts"])
        )
        if (
            number > 1
        ):  # after all others: Beam numbers steps in the order in which they are applied
            told = answers.population | "Told" >> beam.Map(
                lambda event: str(event.agents)
            ).with_output_types(str)
            _ = told | "Send what is told" >> beam.ParDo(
                SendText(self._address, self.topics["told"])
            )
        pipeline.run()
        return self._cluster.job_id(name)

    def following(self, role: str) -> Attempts:
        """Follow a topic."""
        return Attempts(self._address, self.topics[role])


def test_the_program_on_flink_is_restarted_updated_and_drained(
    flink: FlinkCluster, broker_address: str, tmp_path: Path
) -> None:
    """Nothing of either is lost, told twice or told otherwise; the drain ends windows that have not
    ended."""
    program = Program(flink, broker_address, tmp_path)
    producer = PacedProducer(broker_address, program.topics["samples"], pace=0)
    releases, own, told = (program.following(role) for role in ("releases", "counts", "told"))
    producer.write(STEP)
    first = program.start(1)
    wait_until(
        lambda: releases.newest() >= (STEP - 2) * WINDOW,
        180,
        why=lambda: f"no release: {flink.jobs()}",
    )
    state = flink.stop_with_savepoint(first)
    producer.write(STEP)
    second = program.start(2, f"--savepoint_path={state}")
    until = (2 * STEP - 2) * WINDOW
    wait_until(
        lambda: releases.newest() >= until,
        180,
        why=lambda: f"nothing after the restore: {flink.jobs()}",
    )
    assert max(start for _, start in counts(own.look())) < (2 * STEP - 1) * WINDOW, (
        "the last window has not ended"
    )
    state = flink.stop_with_savepoint(second)
    third = program.start(3, f"--savepoint_path={state}", drain=True)
    wanted = {key: {count} for key, count in expected_counts(range(2 * STEP)).items()}
    wait_until(
        lambda: counts(own.look()) == wanted,
        120,
        why=lambda: f"windows have not ended: {flink.jobs()}",
    )
    expected = expected_releases(tmp_path / "engine", 2 * STEP)
    wait_until(
        lambda: len(set(releases.ids())) >= len(expected), 60, why=lambda: "releases are missing"
    )
    flink.cancel(third)
    found = examine(releases.look(), expected)
    assert (found.noised_twice, found.lost) == ([], [])
    known = {int(line) for line in told.look()}
    assert known, "the new output is there"
    assert min(known) > AGENTS / 2, "and tells of the state of before"
