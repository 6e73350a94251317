"""Pipelines of agents and of rounds from options: from files or topics to files or topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apache_beam as beam

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.pipelines.beam.agents.agent_transforms import CollaborateAgents
from meanstream.pipelines.beam.agents.agents_from_files import AnswerAgentsSource, write_agents_file
from meanstream.pipelines.beam.beam_sinks import write_to_topic_sink
from meanstream.pipelines.beam.commands import dataflow_locations
from meanstream.pipelines.beam.element_types.beam_samples import AGENT_SHARDS, SHARDS
from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
from meanstream.pipelines.beam.kafka.beam_kafka_source import ReadKafka
from meanstream.pipelines.beam.rounds.round_transforms import RunRounds
from meanstream.pipelines.beam.rounds.rounds_from_files import AnswerRoundsSource, write_rounds_file
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.pipelines.options.base import option_location
from meanstream.streaming.kafka.connection.kafka_location import is_kafka_location
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.sinks.sink_protocol import Trust

if TYPE_CHECKING:
    from meanstream.pipelines.options.agents_options import AgentsOptions
    from meanstream.pipelines.options.rounds_options import RoundsOptions


def add_to_pipeline(
    pipeline: beam.Pipeline, options: AgentsOptions | RoundsOptions, secret: SecretLocation
) -> None:
    """Add all steps of a run.

    A file is read by one worker as the engine reads it; of a topic each partition is read by one
    worker, and of a subscription any message by any.
    """
    settings = options.settings()
    if isinstance(settings, AgentsSettings):
        _add_agents(pipeline, options, settings, secret)
    else:
        _add_rounds(pipeline, options, settings, secret)


def _add_agents(
    pipeline: beam.Pipeline, options: Any, settings: AgentsSettings, secret: SecretLocation
) -> None:
    """Agents are answered at the end of a file, or at each `refresh` of a topic."""
    engine_options = options.engine_options()

    if dataflow_locations.is_file(options.source):
        source = SourceLocation(location=options.source, mapping=options.column_mapping())
        answers = pipeline | "Agents" >> AnswerAgentsSource(
            settings, source, engine_options, secret, shards=AGENT_SHARDS
        )
    else:
        samples = pipeline | "Read" >> ReadTopic(options, secret)
        answers = samples | "Agents" >> CollaborateAgents(
            settings,
            engine_options,
            secret=secret,
            refresh=engine_options.refresh,
            shards=AGENT_SHARDS,
        )

    sinks = {role: place for role, place in options.sinks.items() if role != "dead_letters"}
    write_agents_file(answers, settings, sinks)


def _add_rounds(
    pipeline: beam.Pipeline, options: Any, settings: RoundsSettings, secret: SecretLocation
) -> None:
    """Each window is answered once it is closed."""
    settings.require_user_privacy()
    engine_options = options.engine_options()

    if dataflow_locations.is_file(options.source):
        source = SourceLocation(location=options.source, mapping=options.column_mapping())
        estimates = pipeline | "Rounds" >> AnswerRoundsSource(
            settings, source, engine_options, secret, shards=SHARDS
        )
    else:
        samples = pipeline | "Read" >> ReadTopic(options, secret)
        rounds = RunRounds(settings, engine_options, secret=secret, shards=SHARDS)
        estimates = (samples | "Rounds" >> rounds).estimates

    write_rounds_file(estimates, options.sink)


class ReadTopic(beam.PTransform):  # type: ignore[misc]
    """Private: records to batches of samples; rejected ones go to a topic, if one is given.

    A Kafka topic is read to its present end or for ever, a subscription for ever.
    """

    def __init__(self, options: AgentsOptions | RoundsOptions, secret: SecretLocation) -> None:
        super().__init__()
        source = option_location(str(options.source))
        mapping = options.column_mapping()
        privacy_unit: Any = "sample" if options.WHO == "agent" else "user"
        self._read: beam.PTransform

        if is_kafka_location(source):
            self._read = ReadKafka(
                source,
                mapping,
                until_end=options.until_end,
                secret=secret,
                privacy_unit=privacy_unit,
            )
        else:
            from meanstream.pipelines.beam.pubsub.read_pubsub import ReadPubSub

            self._read = ReadPubSub(source, mapping, secret=secret, privacy_unit=privacy_unit)

        self._letters = None
        if options.dead_letters is not None:
            trust = Trust.PRIVATE if privacy_unit == "user" else Trust.PUBLIC
            self._letters = write_to_topic_sink(options.dead_letters, "dead_letters", trust)

    def expand(self, pbegin: Any) -> beam.PCollection:
        """Read; write the rejected."""
        read = pbegin | "Samples" >> self._read
        if self._letters is not None:
            _ = read.dead_letters | "Dead letters" >> self._letters

        return read.samples
