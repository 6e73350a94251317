"""Private: each agent's answer under the population of its window. What single events are made of."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa

from operators.agents import AgentsSettings
from pipelines.beam.agents.records import AgentReleases, EstimateBatch, FittedReleases, OwnBatch, agent_hash, own_of
from pipelines.beam.metrics import counter
from streaming.events import PersonalEstimate, Population, Release
from streaming.options import EngineOptions
from streaming.personal import PersonalEstimates


class AnswerAgents(beam.DoFn):  # type: ignore[misc]
    """Private: each agent's estimate, of its own mean and the population of its window; for that agent only."""

    def __init__(self, settings: AgentsSettings, options: EngineOptions) -> None:
        self._settings = settings
        self._options = options

    def setup(self) -> None:
        """Begin to count."""
        self._estimates = counter("estimates")

    def process(self, element: OwnBatch, population: FittedReleases) -> Iterator[EstimateBatch]:
        """Answer."""
        host, agent = PersonalEstimates(self._settings, self._options), agent_hash(element.words)
        lines: list[bytes] = []
        rest = np.arange(len(agent))
        while len(rest):  # once, unless somebody has made two names of one number: each is to have its own answer
            first = np.unique(agent[rest], return_index=True)[1]
            now, rest = rest[np.sort(first)], np.delete(rest, first)
            names = dict(zip(agent[now].tolist(), element.names.take(pa.array(now)).to_pylist(), strict=True))
            own = own_of(element.own, now, agent[now])
            lines += host.answer(names, own, population.variance, population.fitted, population.newest).lines
        self._estimates.inc(len(lines))
        if lines:
            yield EstimateBatch(lines)


class TellPopulation(beam.DoFn):  # type: ignore[misc]
    """Public: a fitted population as the event that the engine writes."""

    def __init__(self, settings: AgentsSettings, options: EngineOptions) -> None:
        self._settings = settings
        self._options = options

    def process(self, element: FittedReleases) -> Iterator[Population]:
        """Describe it."""
        host = PersonalEstimates(self._settings, self._options)
        (line,) = host.describe(element.fitted.describe(), element.agents, element.newest).lines
        yield Population.model_validate_json(line)


class TellReleases(beam.DoFn):  # type: ignore[misc]
    """Public: releases as the events that the engine writes."""

    def __init__(self, settings: AgentsSettings) -> None:
        self._settings = settings

    def process(self, element: AgentReleases) -> Iterator[Release]:
        """Write them."""
        yield from map(Release.model_validate_json, element.lines(self._settings).lines)


class TellEstimates(beam.DoFn):  # type: ignore[misc]
    """Private: estimates as the events that the engine writes, one by one."""

    def process(self, element: EstimateBatch) -> Iterator[PersonalEstimate]:
        """Write them."""
        yield from map(PersonalEstimate.model_validate_json, element.lines)
