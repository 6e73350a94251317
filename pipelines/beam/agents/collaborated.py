"""From releases to the population and everyone's answers.

What the transform and the command share.
"""

from __future__ import annotations

from typing import NamedTuple

import apache_beam as beam

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.pipelines.beam.agents.agents_parts import Released
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.agents.answer_agents import (
    FormatPopulation,
)
from meanstream.pipelines.beam.agents.snapshot_releases import EstimateAgents, SnapshotReleases
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.wire import Population


class Collaborated(NamedTuple):
    """What `CollaborateAgents` gives: batches; `SingleEvents` takes them apart.

    Attributes
    ----------
    estimates : PCollection of EstimateBatch
        Private: each line is addressed to its agent and to no one else.
    releases, population, notices, refusals : PCollection
        Public: `AgentReleases`, `Population`, `BudgetEvent`, `Refusal`.
    rejected : PCollection of DeadLetter
        Public: elements that were no samples, with the reason and nothing of what they said.
    drifts : PCollection of DriftEvent
        Public: agents whose releases show that their mean has changed, or may have; with a memory
        only.
    """

    estimates: beam.PCollection
    releases: beam.PCollection
    population: beam.PCollection
    notices: beam.PCollection
    refusals: beam.PCollection
    rejected: beam.PCollection
    drifts: beam.PCollection


def collaborated(
    made: Released,
    settings: AgentsSettings,
    options: EngineOptions,
    windows: AgentWindows,
    *,
    shards: int,
) -> Collaborated:
    """Fit the population to releases, and answer the agents."""
    population = made | "Snapshot" >> SnapshotReleases(settings, options, windows, shards=shards)
    estimates = made.own | "Estimate" >> EstimateAgents(
        settings, options, windows, population=population, shards=shards
    )
    tell = beam.ParDo(FormatPopulation(settings, options)).with_output_types(Population)
    told = population | "Tell" >> tell

    return Collaborated(
        estimates, made.releases, told, made.notices, made.refusals, made.rejected, made.drifts
    )
