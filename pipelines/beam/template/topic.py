"""Samples of a topic or a subscription, and where its rejected records go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apache_beam as beam

from pipelines.beam.kafka.source import ReadKafka
from pipelines.beam.secret import SecretPlace
from pipelines.beam.sinks import write_topic
from streaming.kafka.location import is_kafka
from streaming.mapping import ColumnMapping
from streaming.sinks.sink import Trust

if TYPE_CHECKING:
    from pipelines.commands.agents_options import AgentsOptions
    from pipelines.commands.rounds_options import RoundsOptions


class ReadTopic(beam.PTransform):  # type: ignore[misc]
    """Private: records to batches of samples; rejected ones go to a topic, if one is given.

    A Kafka topic is read to its present end or for ever, a subscription for ever.
    """

    def __init__(
        self,
        options: AgentsOptions | RoundsOptions,
        mapping: ColumnMapping,
        secret: SecretPlace,
        idle_seconds: float | None,
    ) -> None:
        super().__init__()
        assert options.source is not None  # noqa: S101 - it is required
        self._read: beam.PTransform
        if is_kafka(options.source):
            self._read = ReadKafka(
                options.source, mapping, until_end=options.until_end, secret=secret, idle_seconds=idle_seconds
            )
        else:
            from pipelines.beam.pubsub.source import ReadPubSub

            self._read = ReadPubSub(options.source, mapping, secret=secret)
        letters = options.dead_letters
        self._letters = None if letters is None else write_topic(letters, "dead_letters", Trust.PUBLIC)

    def expand(self, pbegin: Any) -> beam.PCollection:
        """Read; write the rejected."""
        read = pbegin | "Samples" >> self._read
        if self._letters is not None:
            _ = read.dead_letters | "Dead letters" >> self._letters
        return read.samples
