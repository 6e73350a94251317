"""Samples of a topic or a subscription, and where its rejected records go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apache_beam as beam

from meanstream.pipelines.beam.beam_sinks import write_to_topic_sink
from meanstream.pipelines.beam.input.parse_lines import PrivacyUnit
from meanstream.pipelines.beam.kafka.beam_kafka_source import ReadKafka
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.pipelines.options.base import option_location
from meanstream.streaming.kafka.connection.kafka_location import is_kafka_location
from meanstream.streaming.sinks.sink_protocol import Trust
from meanstream.streaming.sources.mapping import ColumnMapping

if TYPE_CHECKING:
    from meanstream.pipelines.options.agents_options import AgentsOptions
    from meanstream.pipelines.options.rounds_options import RoundsOptions


class ReadTopic(beam.PTransform):  # type: ignore[misc]
    """Private: records to batches of samples; rejected ones go to a topic, if one is given.

    A Kafka topic is read to its present end or for ever, a subscription for ever.
    """

    def __init__(
        self,
        options: AgentsOptions | RoundsOptions,
        mapping: ColumnMapping,
        secret: SecretLocation,
        idle_seconds: float | None,
        privacy_unit: PrivacyUnit,
    ) -> None:
        super().__init__()
        source = option_location(options.source)
        self._read: beam.PTransform

        if is_kafka_location(source):
            self._read = ReadKafka(
                source,
                mapping,
                until_end=options.until_end,
                secret=secret,
                idle_seconds=idle_seconds,
                privacy_unit=privacy_unit,
            )
        else:
            from meanstream.pipelines.beam.pubsub.read_pubsub import ReadPubSub

            self._read = ReadPubSub(source, mapping, secret=secret, privacy_unit=privacy_unit)

        letters = options.dead_letters
        trust = Trust.PRIVATE if privacy_unit == "user" else Trust.PUBLIC
        self._letters = (
            None if letters is None else write_to_topic_sink(letters, "dead_letters", trust)
        )

    def expand(self, pbegin: Any) -> beam.PCollection:
        """Read; write the rejected."""
        read = pbegin | "Samples" >> self._read
        if self._letters is not None:
            _ = read.dead_letters | "Dead letters" >> self._letters

        return read.samples
