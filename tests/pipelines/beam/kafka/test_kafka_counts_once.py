"""A topic that two readers bring, as after a restore that dropped the reader's state: each record
counts once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.pipelines.beam.agents.agent_transforms import CollaboratePairwise, ReleaseMeans
from meanstream.pipelines.beam.element_types.partition import Marks, Taken
from meanstream.pipelines.beam.kafka import read_kafka as read
from meanstream.pipelines.beam.kafka.beam_kafka_source import ReadKafka
from meanstream.pipelines.beam.rounds.round_transforms import SummarizeUsers
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.values import PartitionRecords
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.pipelines.beam.agents.test_agents_pairwise import SETTINGS as PAIRWISE
from tests.pipelines.beam.support.agents_world import engine_on, release_lines
from tests.pipelines.beam.support.collecting import run_pipeline
from tests.streaming.support.rounds_world import rounds_settings

SETTINGS = AgentsSettings(
    name="test", lower=0, upper=10, epsilon=1, delta=1e-6, schedule="geometric:2,1.5", horizon=9
)
PLACE = "kafka://nobody:1/{}"
AGENTS = ("ann", "bob", "cem")
Sample = tuple[str, float, float]


def stream() -> list[Sample]:
    """Some samples of an agent share a time: there the order of places decides."""
    rng = np.random.default_rng(8)
    time = np.sort(np.round(rng.uniform(0, 60, 150)))
    who, value = rng.integers(0, len(AGENTS), 150).tolist(), rng.normal(5, 2, 150).tolist()
    return [(AGENTS[a], v, t) for a, v, t in zip(who, value, time.tolist(), strict=True)]


class MemoryTopic:
    """In the place of a `PartitionReader`: topics of one partition and the same records, each with
    an id of its own."""

    partitions = (0,)

    def __init__(self, location: KafkaLocation, *, beside: Sequence[str] = ()) -> None:
        del beside
        self.log = f"id of {location.topic}"
        texts = (
            json.dumps({"agent": a, "value": v, "time": t, "id": i})
            for i, (a, v, t) in enumerate(stream())
        )
        self._values = [text.encode() for text in texts]

    def marks(self, partitions: Iterable[int]) -> dict[int, Marks]:
        return {partition: Marks(0, len(self._values)) for partition in partitions}

    def take(self, partition: int, offset: int, count: int, wait: float) -> Taken:
        del wait
        values: list[bytes | None] = [*self._values[offset : offset + count]]
        offsets = np.arange(offset, offset + len(values))
        return Taken(
            PartitionRecords(np.full(len(values), partition), offsets, values),
            offset + len(values),
            ended=True,
        )

    def close(self) -> None:
        """Hold nothing."""


@pytest.fixture(autouse=True)
def topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "PartitionReader", MemoryTopic)
    monkeypatch.setenv("MEANSTREAM_SECRET", "7c1e94b05fa3d2681be60c9d37f25a84")


def reading(
    topics: Sequence[str], transform: Any, *, column: str | None = None
) -> tuple[list[Any], dict[str, int]]:
    """What a transform makes of topics, each read by a reader of its own in batches of its own."""

    def build(pipeline: beam.Pipeline) -> Any:
        read_by = (
            pipeline
            | f"Reader {number}"
            >> ReadKafka(PLACE.format(topic), ColumnMapping(id=column), batch_size=40 + 9 * number)
            for number, topic in enumerate(topics)
        )
        return (tuple(one.samples for one in read_by) | beam.Flatten() | transform)[0]

    return run_pipeline(build)


def releases(topics: Sequence[str], **how: Any) -> tuple[list[bytes], dict[str, int]]:
    found, counters = reading(topics, ReleaseMeans(SETTINGS, shards=2), **how)
    return release_lines(found, SETTINGS), counters


def test_agents_release_what_the_engine_releases(tmp_path: Path) -> None:
    lines, counters = releases(["samples", "samples", "samples"])
    assert (counters["events"], counters["rejected_duplicate"]) == (450, 300)
    assert lines == sorted(
        engine_on(tmp_path, stream(), SETTINGS, final_release=True).lines("releases")
    )
    assert len(lines) > 10


def test_ids_tell_records_apart_where_there_are_some() -> None:
    assert releases(["samples", "samples"], column="id")[0] == releases(["samples"], column="id")[0]


def test_the_same_records_of_another_topic_are_other_samples() -> None:
    found, counters = reading(["samples", "others"], SummarizeUsers(rounds_settings(), shards=2))
    assert sum(batch.n_samples for _, batch in found) == 300
    assert counters.get("rejected_duplicate", 0) == 0


def test_a_federation_takes_each_record_once() -> None:
    told, counters = [], []
    for topics in (["samples"], ["samples", "samples"]):
        found, counted = reading(topics, CollaboratePairwise(PAIRWISE))
        told.append(sorted(line for batch in found for line in batch.lines))
        counters.append(counted.get("rejected_duplicate", 0))
    assert told[0] == told[1]
    assert counters == [0, 150]


def test_users_of_rounds_have_each_record_once() -> None:
    found, counters = reading(["samples", "samples"], SummarizeUsers(rounds_settings(), shards=2))
    assert sum(batch.n_samples for _, batch in found) == counters["rejected_duplicate"] == 150
