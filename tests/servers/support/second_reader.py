"""A source as it was: its steps have other ids at other parallelisms, so that dropped state begins
a second reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import TimestampedValue

from meanstream.pipelines.beam.element_types.beam_samples import AgentBatch
from meanstream.pipelines.beam.input.parse_lines import DEAD_LETTERS
from meanstream.pipelines.beam.kafka.beam_kafka_source import FromKafka, ReadKafka
from meanstream.pipelines.beam.kafka.offsets import PartitionRange
from meanstream.pipelines.beam.kafka.read_kafka import ReadPartition


class UnkeyedReadPartition(ReadPartition):
    """Gives samples without keys, as must not be: the control."""

    def _batch(self, *given: Any) -> Iterator[Any]:
        for out in super()._batch(*given):
            if isinstance(out, TaggedOutput):
                yield out
                continue
            batch = out.value
            bare = AgentBatch(
                batch.names, batch.agent, batch.value, batch.time, None, batch.position
            )
            yield TimestampedValue(bare, out.timestamp)


def expand_chained(source: ReadKafka, pbegin: Any) -> FromKafka:
    """Expand a source with an impulse that Flink joins with the plan where parallelism is 1."""
    plan = beam.ParDo(source._plan).with_output_types(PartitionRange)
    ranges = pbegin | "Begin" >> beam.Impulse() | "Plan" >> plan | "Once" >> beam.Reshuffle()
    read = (
        beam.ParDo(source._read)
        .with_outputs(DEAD_LETTERS, main="samples")
        .with_output_types(AgentBatch)
    )
    split = ranges | "Read" >> read
    split.samples.element_type, split[DEAD_LETTERS].element_type = AgentBatch, source._letter
    return FromKafka(split.samples, split[DEAD_LETTERS])


def expand_chained_unkeyed(source: ReadKafka, pbegin: Any) -> FromKafka:
    """Expand it so, and read without keys."""
    source._read.__class__ = UnkeyedReadPartition
    return expand_chained(source, pbegin)
