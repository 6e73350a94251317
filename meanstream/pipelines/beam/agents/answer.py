"""Private: each agent's answer under the population of its window. What single events are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.validation import require
from meanstream.pipelines.beam.agents.coders import FittedReleasesCoder, OwnBatchCoder
from meanstream.pipelines.beam.agents.records import (
    AgentReleases,
    EstimateBatch,
    FittedReleases,
    OwnBatch,
    record_agent_hash,
    records_of_agents,
)
from meanstream.pipelines.beam.metrics import metric_counter
from meanstream.pipelines.beam.steps import Step
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.engine.options import EngineOptions
from meanstream.streaming.events.wire import PersonalEstimate, Population, Release

_OWN, _POPULATION = b"o", b"p"


class OwnByShard(Step):
    """Private: agents' own sums to the shard that answers them."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def setup(self) -> None:
        """Begin."""
        self._coder = OwnBatchCoder()

    def process(self, element: OwnBatch) -> Iterator[tuple[int, bytes]]:
        """Key a batch; all of its agents are of one shard of `ReleaseMeans`."""
        if len(element.words):
            yield int(element.words[0, 1] % np.uint64(self._shards)), _OWN + self._coder.encode(element)


class PopulationToAll(Step):
    """Public: the population to every shard."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def setup(self) -> None:
        """Begin."""
        self._coder = FittedReleasesCoder()

    def process(self, element: FittedReleases) -> Iterator[tuple[int, bytes]]:
        """Copy it."""
        encoded = _POPULATION + self._coder.encode(element)
        for shard in range(self._shards):
            yield shard, encoded


class AnswerAgents(Step):
    """Private: each agent's estimate, of its own mean and the population of its window; for that agent only."""

    def __init__(self, settings: AgentsSettings, options: EngineOptions) -> None:
        self._settings = settings
        self._options = options

    def setup(self) -> None:
        """Begin to count."""
        self._estimates = metric_counter("estimates")
        self._own, self._population = OwnBatchCoder(), FittedReleasesCoder()

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[EstimateBatch]:
        """Answer a shard in a window."""
        either = list(element[1])
        batches = [self._own.decode(one[1:]) for one in either if one[:1] == _OWN]
        if not batches:
            return
        known = [one for one in either if one[:1] == _POPULATION]
        require(len(known) == 1, "population", "be given once for every window with samples", len(known))
        population = self._population.decode(known[0][1:])
        for batch in sorted(batches, key=lambda batch: batch.words[0].tolist()):
            lines = self._answer(batch, population)
            self._estimates.inc(len(lines))
            if lines:
                yield EstimateBatch(lines)

    def _answer(self, batch: OwnBatch, population: FittedReleases) -> list[bytes]:
        host, agent = PersonalEstimates(self._settings, self._options), record_agent_hash(batch.words)
        lines: list[bytes] = []
        rest = np.arange(len(agent))
        while len(rest):  # once, unless somebody has made two names of one number: each is to have its own answer
            first = np.unique(agent[rest], return_index=True)[1]
            now, rest = rest[np.sort(first)], np.delete(rest, first)
            names = dict(zip(agent[now].tolist(), batch.names.take(pa.array(now)).to_pylist(), strict=True))
            own = records_of_agents(batch.own, now, agent[now])
            lines += host.answer(names, own, population.pool, population.fitted, population.newest).lines
        return lines


class FormatPopulation(Step):
    """Public: a fitted population as the event that the engine writes."""

    def __init__(self, settings: AgentsSettings, options: EngineOptions) -> None:
        self._settings = settings
        self._options = options

    def process(self, element: FittedReleases) -> Iterator[Population]:
        """Describe it."""
        host = PersonalEstimates(self._settings, self._options)
        (line,) = host.describe(element.fitted.describe(), element.agents, element.newest).lines
        yield Population.model_validate_json(line)


class FormatReleases(Step):
    """Public: releases as the events that the engine writes."""

    def __init__(self, settings: AgentsSettings) -> None:
        self._settings = settings

    def process(self, element: AgentReleases) -> Iterator[Release]:
        """Write them."""
        yield from map(Release.model_validate_json, element.lines(self._settings).lines)


class FormatEstimates(Step):
    """Private: estimates as the events that the engine writes, one by one."""

    def process(self, element: EstimateBatch) -> Iterator[PersonalEstimate]:
        """Write them."""
        yield from map(PersonalEstimate.model_validate_json, element.lines)
