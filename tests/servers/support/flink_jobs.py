"""Agents from topic to topic on Flink, whose every attempt to release is seen; and what was wrong
with it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import apache_beam as beam
import msgspec
from apache_beam.options.pipeline_options import PipelineOptions
from confluent_kafka import Consumer, TopicPartition

from meanstream.pipelines.beam.agents import agents_parts as parts
from meanstream.pipelines.beam.agents.agent_transforms import (
    AgentsSettings,
    CollaborateAgents,
    ReleaseMeans,
)
from meanstream.pipelines.beam.agents.agents_elements import AgentReleases, EstimateBatch
from meanstream.pipelines.beam.kafka.beam_kafka_source import ReadKafka
from meanstream.pipelines.beam.kafka.write_kafka import WriteKafka
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.events.encode import EventLines, encode_lines
from meanstream.streaming.events.wire import PersonalEstimate, Refusal
from meanstream.streaming.sinks.sink_protocol import Trust
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.pipelines.beam.support.fresh_noise import FreshReleaseShard
from tests.servers.support.flink_cluster import STREAMING, FlinkCluster
from tests.servers.support.flink_stream import SETTINGS, WINDOW

SHARDS = 2
READ_SECONDS = 30.0
READ = {"turn": 1}
"""Short turns: a test waits for what the next one brings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Of one job; every line of every attempt stays on them."""

    samples: str
    releases: str
    estimates: str
    refusals: str


def submit(
    cluster: FlinkCluster,
    address: str,
    topics: Topics,
    secret: Path,
    name: str,
    *more: str,
    fresh: bool = False,
    settings: AgentsSettings = SETTINGS,
    shards: int = SHARDS,
    read: Mapping[str, Any] = READ,
    mapping: ColumnMapping = ColumnMapping(),  # noqa: B008 - it is frozen
) -> str:
    """Start agents on a topic without end; give the job's id.

    Parameters
    ----------
    more : str
        Options of Beam.
    fresh : bool
        Draw noise anew at each execution, as must not be; and only release.
    settings : AgentsSettings
        How agents release.
    shards : int
        Of agents.
    read : mapping
        Options of `ReadKafka`.
    mapping : ColumnMapping
        Which field of a record means what.
    """
    options = PipelineOptions(cluster.arguments(*STREAMING, f"--job_name={name}", *more))
    pipeline = beam.Pipeline(runner="FlinkRunner", options=options)
    made = Made(settings, shards, SecretLocation(file=str(secret)), read, mapping)
    _build(pipeline, f"kafka://{address}", topics, made, fresh=fresh)
    pipeline.run()
    return cluster.job_id(name)


class Made(NamedTuple):
    """What a job's state begins with."""

    settings: AgentsSettings
    shards: int
    secret: SecretLocation
    read: Mapping[str, Any]
    mapping: ColumnMapping


def _build(
    pipeline: beam.Pipeline, address: str, topics: Topics, made: Made, *, fresh: bool
) -> None:
    settings, shards, secret, how, mapping = made
    how = {"until_end": False, "privacy_unit": "sample", "secret": secret, **how}
    read = pipeline | ReadKafka(f"{address}/{topics.samples}", mapping, **how)
    if fresh:
        with mock.patch.object(parts, "ReleaseShard", FreshReleaseShard):
            answers: Any = read.samples | ReleaseMeans(
                settings, secret=secret, refresh=WINDOW, shards=shards
            )
    else:
        answers = read.samples | CollaborateAgents(
            settings, secret=secret, refresh=WINDOW, shards=shards
        )
        estimates = answers.estimates | "Estimate lines" >> beam.Map(
            _estimate_lines
        ).with_output_types(EventLines)
        private = WriteKafka(f"{address}/{topics.estimates}", role="estimates", trust=Trust.PRIVATE)
        _ = estimates | "Estimates" >> private
    releases = answers.releases | "Lines" >> beam.Map(_release_lines, settings).with_output_types(
        EventLines
    )
    refusals = answers.refusals | "Refusal lines" >> beam.Map(_refusal_lines).with_output_types(
        EventLines
    )
    _ = releases | "Releases" >> WriteKafka(f"{address}/{topics.releases}", role="releases")
    _ = refusals | "Refusals" >> WriteKafka(f"{address}/{topics.refusals}")


def _release_lines(batch: AgentReleases, settings: AgentsSettings) -> EventLines:
    return batch.lines(settings)


def _estimate_lines(batch: EstimateBatch) -> EventLines:
    return EventLines(PersonalEstimate, batch.lines)


def _refusal_lines(refusal: Refusal) -> EventLines:
    return encode_lines(Refusal, [refusal])


class Attempts:
    """Follows a topic that has one partition: every line that was ever written to it."""

    def __init__(self, address: str, topic: str) -> None:
        self.lines: list[bytes] = []
        self._known, self._newest, self._next = 0, 0.0, 0
        self._partition = TopicPartition(topic, 0, 0)
        settings = {
            "bootstrap.servers": address,
            "group.id": "attempts",
            "enable.auto.commit": False,
            "log_level": 2,
        }
        self._consumer = Consumer(settings)
        self._consumer.assign([self._partition])

    def look(self) -> list[bytes]:
        """Read up to where the topic ends now, and give all of it."""
        end = self._consumer.get_watermark_offsets(self._partition, timeout=READ_SECONDS)[1]
        while self._next < end:
            message = self._consumer.poll(READ_SECONDS)
            assert message is not None, (
                f"nothing came from offset {self._next}, and there are {end}"
            )
            assert message.error() is None, message.error()
            self.lines.append(message.value())
            self._next = message.offset() + 1
        return self.lines

    def newest(self) -> float:
        """Event time of the newest line."""
        self.look()
        self._newest = max([self._newest, *map(time_of, self.lines[self._known :])])
        self._known = len(self.lines)
        return self._newest

    def ids(self) -> list[str]:
        """Release ids of all lines."""
        return [release_id(line) for line in self.look()]

    def close(self) -> None:
        self._consumer.close()


def time_of(line: bytes) -> float:
    """Event time of a release or an estimate."""
    return datetime.fromisoformat(msgspec.json.decode(line)["time"]).timestamp()


@dataclass(frozen=True, slots=True)
class Found:
    """What was wrong with the attempts to release.

    Attributes
    ----------
    noised_twice : list of str
        Release ids that were seen with more than one value.
    lost : list of str
        Release ids that should be there and are not.
    strange : list of bytes
        Lines that the engine does not release.
    again : int
        Release ids that were let out more than once: executed again, by a fault that has met
        something.
    values : int
        The most values that one release id was seen with.
    """

    noised_twice: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    strange: list[bytes] = field(default_factory=list)
    again: int = 0
    values: int = 0


def examine(attempts: Iterable[bytes], expected: Sequence[bytes]) -> Found:
    """Compare every attempt to release with what the engine releases, to the byte."""
    seen: dict[str, list[bytes]] = defaultdict(list)
    for line in attempts:
        seen[release_id(line)].append(line)
    wanted = {release_id(line): line for line in expected}
    return Found(
        noised_twice=sorted(name for name, lines in seen.items() if len(set(lines)) > 1),
        lost=sorted(wanted.keys() - seen.keys()),
        strange=sorted(
            {line for name, lines in seen.items() for line in lines if wanted.get(name) != line}
        ),
        again=again(name for name, lines in seen.items() for _ in lines),
        values=max((len(set(lines)) for lines in seen.values()), default=0),
    )


def again(ids: Iterable[str]) -> int:
    """Count the release ids that are there more than once."""
    return sum(count > 1 for count in Counter(ids).values())


def release_id(line: bytes) -> str:
    return str(msgspec.json.decode(line)["release_id"])


def contradictions(estimates: Iterable[bytes]) -> list[str]:
    """Find agents that were told two different things of one time under one population.

    What is executed again may be answered under the population of a later window, and says so.
    """
    seen: dict[tuple[str, str, str], set[bytes]] = defaultdict(set)
    for line in estimates:
        event = msgspec.json.decode(line)
        seen[event["agent"], event["time"], event.get("population_time") or event["time"]].add(line)
    return sorted(
        b" but ".join(sorted(lines)).decode() for lines in seen.values() if len(lines) > 1
    )


def answered_anew(estimates: Iterable[bytes]) -> int:
    """Count the agents' windows that were answered under several populations."""
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)
    for line in estimates:
        event = msgspec.json.decode(line)
        seen[event["agent"], event["time"]].add(event.get("population_time") or event["time"])
    return sum(len(populations) > 1 for populations in seen.values())
