"""A file or a topic of samples of agents that query each other to their estimates, on a runner of Beam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import apache_beam as beam

from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.pipelines.beam.agents.agents_elements import EstimateBatch
from meanstream.pipelines.beam.agents.agents_from_files import WINDOWS, ReadAgents
from meanstream.pipelines.beam.agents.agents_parts import agents_part_outputs, agents_part_split
from meanstream.pipelines.beam.agents.pairs.pairwise_turns import (
    StepFederation,
    pairwise_capacity,
    step_pairs,
)
from meanstream.pipelines.beam.beam_runners import run_on_runner
from meanstream.pipelines.beam.beam_sinks import WriteEvents
from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import PersonalEstimate
from meanstream.streaming.sinks.sink_protocol import Trust


def run_pairs_file(
    settings: PairwiseStreamSettings,
    source: SourceLocation,
    sinks: Mapping[str, Path | str],
    *,
    secret: SecretLocation,
    engine_options: EngineOptions,
    runner: str = "FnApiRunner",
    arguments: Sequence[str] = (),
) -> dict[str, int]:
    """Read a file or a topic, let agents query each other, answer everyone once.

    Return the pipeline's counters.

    **Privacy.** Only estimates leave, each for its agent: what one agent releases to another stays in the pipeline.
    """
    capacity = pairwise_capacity(settings, engine_options.max_agents)

    def build(pipeline: beam.Pipeline) -> None:
        read = agents_part_outputs(ReadAgents(settings.release, engine_options, secret, 1))
        split = agents_part_split(
            pipeline | "Source" >> beam.Create([source], reshuffle=False) | "Read" >> read
        )
        step = StepFederation(settings, WINDOWS, secret, engine_options, capacity)
        estimates = step_pairs(split, step, WINDOWS).estimates

        for place in sinks.values():
            write = WriteEvents(place, _lines, role="sink", trust=Trust.PRIVATE)
            _ = estimates | "Write estimates" >> write

    counters = run_on_runner(runner, arguments, build)
    for place in sinks.values():
        if isinstance(place, Path):
            place.touch()

    return counters


def _lines(batch: EstimateBatch) -> EventLines:
    return EventLines(PersonalEstimate, batch.lines)
