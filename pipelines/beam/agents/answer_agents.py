"""Private: each agent's answer under the population of its window.

What single events are made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from time import time as now_seconds
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.records import Ints, OwnSamples
from meanstream.pipelines.beam.agents.agents_elements import (
    AgentReleases,
    EstimateBatch,
    FittedReleases,
    OwnBatch,
    record_agent_hash,
    records_of_agents,
)
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows, tick_shards
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.element_types.events import LineText, text_of_lines
from meanstream.pipelines.beam.input.beam_intake import intake_in_global_window
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.keyed_state.keyed_steps import Cells, KeyedStep
from meanstream.pipelines.beam.worker.beam_metrics import DistributionOf, metric_counter
from meanstream.pipelines.beam.worker.beam_steps import Step, with_window_time
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.wire import PersonalEstimate, Population, Release

_OWN = b"o"
_POPULATION = b"p"
TOGETHER = 1 << 15
"""Answers that are computed at a time, or a few shards more: of all of a large bundle memory would
not be bounded."""


@dataclass(slots=True)
class _Ready:
    """Private: what is to be answered under a population, and the time that the answers have."""

    population: FittedReleases
    time: Timestamp
    batches: list[OwnBatch] = field(default_factory=list)


class OwnByShard(Step):
    """Private: agents' own sums to the shard that answers them."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def setup(self) -> None:
        """Begin."""
        self._coder = ColumnsCoder(OwnBatch)

    def process(self, element: OwnBatch) -> Iterator[tuple[int, bytes]]:
        """Key a batch; all of its agents are of one shard of `ReleaseMeans`."""
        if len(element.words):
            yield (
                int(element.words[0, 1] % np.uint64(self._shards)),
                _OWN + self._coder.encode(element),
            )


class PopulationToShards(Step):
    """Public: the population to every shard that has agents to answer."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def setup(self) -> None:
        """Begin."""
        self._coder = ColumnsCoder(FittedReleases)

    def process(self, element: FittedReleases) -> Iterator[tuple[int, bytes]]:
        """Copy it."""
        encoded = _POPULATION + self._coder.encode(element)
        for shard in tick_shards(element.shards) if element.shards else range(self._shards):
            yield shard, encoded


class AnswerAgents(KeyedStep):
    """Private: each agent's estimate, of its own mean and the population of its window.

    For that agent only.

    Agents wait for the population of their window, or of a later one: whichever comes first. So it
    does not matter which of the two comes earlier, nor how late.

    Shards that are ready in one bundle are answered together at its end: an answer is the same
    bytes among whatever others, and each evaluation costs as much as some thousand agents.
    """

    VALUES = ("population",)
    BAGS = ("own",)

    def __init__(
        self,
        settings: AgentsSettings,
        options: EngineOptions,
        windows: AgentWindows,
        owner: StateOwner,
    ) -> None:
        super().__init__(owner)
        self._settings = settings
        self._options = options
        self._windows = windows

    def setup(self) -> None:
        """Begin to count."""
        super().setup()
        self._estimates = metric_counter("estimates")
        self._lag = DistributionOf("answer_lag_milliseconds")
        self._own = ColumnsCoder(OwnBatch)
        self._population = ColumnsCoder(FittedReleases)
        self._known: tuple[bytes, FittedReleases] | None = None

    def start_bundle(self) -> None:
        """Begin without shards."""
        self._ready: dict[int, _Ready] = {}

    def take(self, element: bytes, cells: Cells) -> Iterator[TimestampedValue]:
        """Take a shard, once both are there; answer those that there are, if they are many."""
        own = cells.own
        population = cells.population

        # Own samples and the population meet by window: whoever comes first waits.
        kept = population.read()

        # Samples of a window that the population does not cover yet wait for it.
        if element[:1] == _OWN:
            batch = self._own.decode(element[1:])
            fitted = None if kept is None else self._read(kept)
            if fitted is None or fitted.number < batch.number:
                own.add(element[1:])
                return

            batches = [batch]
        else:
            # A population that is not newer brings nothing.
            fitted = self._read(element[1:])
            if kept is not None and self._read(kept).number >= fitted.number:
                return
            population.write(element[1:])
            batches = [self._own.decode(encoded) for encoded in own.read()]
            own.clear()

            # Batches of later windows wait on.
            for early in (batch for batch in batches if batch.number > fitted.number):
                own.add(self._own.encode(early))

            batches = [batch for batch in batches if batch.number <= fitted.number]

        ready = self._ready.setdefault(fitted.number, _Ready(fitted, cells.time))
        ready.batches += sorted(batches, key=lambda batch: batch.number)

        # Many agents are answered together, as each call costs.
        if sum(len(batch) for batch in ready.batches) >= TOGETHER:
            yield from self._flush()

    def finish_bundle(self) -> Iterator[Any]:
        """Answer the rest."""
        return map(intake_in_global_window, self._flush())

    def _flush(self) -> Iterator[TimestampedValue]:
        ready, self._ready = self._ready, {}
        for _, one in sorted(ready.items()):
            for batch in one.batches:
                self._record_lag(batch, one.population)

            lines = self._answer(one.batches, one.population)
            self._estimates.inc(len(lines))

            if lines:
                yield with_window_time(one.time, EstimateBatch(lines))

    def _read(self, encoded: bytes) -> FittedReleases:
        """Decode a population; the shards of a worker have the same one."""
        if self._known is None or self._known[0] != encoded:
            self._known = encoded, self._population.decode(encoded)

        return self._known[1]

    def _answer(self, batches: list[OwnBatch], population: FittedReleases) -> Sequence[bytes]:
        batch = _together(batches)
        if batch is None:
            return []

        # Rows of windows that were overtaken say so.
        now = (batch.part == population.number) | np.isnan(batch.newest)
        rows: Ints = np.argsort(now, kind="stable")  # windows that were overtaken first
        overtaken = len(now) - int(np.count_nonzero(now))
        place = batch.own.agent[rows]
        own = records_of_agents(batch.own, rows, record_agent_hash(batch.words)[place])
        names = batch.names.take(pa.array(place)).to_pylist()

        times = np.where(now, population.newest, batch.newest)[rows]

        # The host that answers in the engine answers here, too.
        host = PersonalEstimates(self._settings, self._options)
        told = host.answer_rows(
            names, own, population.pool, population.fitted, times,
            overtaken=overtaken, population_time=population.newest, shares=population.shares,
        )  # fmt: skip

        return LineText(b"".join(map(text_of_lines, told)))

    def _record_lag(self, batch: OwnBatch, population: FittedReleases) -> None:
        """Tell how long the oldest window of a batch has waited."""
        end = self._windows.end(int(batch.part.min()))
        self._lag.update(
            round(1000 * (now_seconds() - (population.newest if end is None else end)))
        )


def _together(batches: list[OwnBatch]) -> OwnBatch | None:
    """Join batches; None where no one is in them."""
    # Batches are joined; names keep their places.
    batches = [batch for batch in batches if len(batch)]
    if len(batches) <= 1:
        if batches:
            return batches[0]
        return None

    starts = np.cumsum([0, *(len(batch.names) for batch in batches[:-1])])
    rows = {
        of.name: np.concatenate([getattr(batch.own, of.name) for batch in batches])
        for of in fields(OwnSamples)
    }
    rows["agent"] = np.concatenate(
        [batch.own.agent + start for batch, start in zip(batches, starts, strict=True)]
    )

    return OwnBatch(
        names=pa.concat_arrays([batch.names for batch in batches]),
        words=np.concatenate([batch.words for batch in batches]),
        number=max(batch.number for batch in batches),
        own=OwnSamples(**rows),
        part=np.concatenate([batch.part for batch in batches]),
        newest=np.concatenate([batch.newest for batch in batches]),
    )


class FormatPopulation(Step):
    """Public: a fitted population as the event that the engine writes."""

    def __init__(self, settings: AgentsSettings, options: EngineOptions) -> None:
        self._settings = settings
        self._options = options

    def process(self, element: FittedReleases) -> Iterator[Population]:
        """Describe it."""
        host = PersonalEstimates(self._settings, self._options)
        described = host.description(element.fitted, element.pool)
        (line,) = host.describe(
            described, element.agents, element.newest, overtaken=element.overtaken
        ).lines
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
