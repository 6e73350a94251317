"""Public: everybody's newest release, read and fitted once per window. Private: each agent's answer under that fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import TimestampedValue

from operators.agents import AgentsSettings
from pipelines.beam.agents.coders import AgentReleasesCoder, ForShardCoder
from pipelines.beam.agents.latest import LatestOfShard, join_latest
from pipelines.beam.agents.records import (
    AgentReleases,
    EstimateBatch,
    FittedReleases,
    LatestReleases,
    OwnBatch,
    Packed,
    Tick,
    agent_hash,
    own_of,
)
from pipelines.beam.agents.release import take_due
from pipelines.beam.agents.windows import AgentWindows, at
from pipelines.beam.metrics import counter
from pipelines.beam.samples import RememberedWords, by_shard
from streaming.events import PersonalEstimate, Population, Release
from streaming.options import EngineOptions
from streaming.personal import PersonalEstimates


class ReleasesByShard(beam.DoFn):  # type: ignore[misc]
    """Public: releases to the shards of their agents; `TypeError` for anything else."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def setup(self) -> None:
        """Begin without agents."""
        self._words, self._coder = RememberedWords(), AgentReleasesCoder()

    def process(self, element: AgentReleases) -> Iterator[tuple[int, Packed]]:
        """Split a batch."""
        if not isinstance(element, AgentReleases):
            raise TypeError(f"collaboration takes releases only, got {type(element).__name__}")
        words = self._words.of(element.names.to_pylist())
        shard_of = np.zeros(len(words), np.int64)
        for shard, places in by_shard(words, self._shards):
            shard_of[places] = shard
        of_release = shard_of[element.releases.agent]
        for shard in np.unique(of_release).tolist():
            mine = of_release == shard
            part = AgentReleases(
                names=element.names,
                number=element.number,
                releases=element.releases.take(mine),
                time=element.time[mine],
            )
            yield shard, Packed(self._coder.encode(part))


class GatherShard(beam.DoFn):  # type: ignore[misc]
    """Public: keeps the newest release of every agent of a shard; gives all of them at the end of each window."""

    WAITING = BagStateSpec("waiting", BytesCoder())
    TICKS = BagStateSpec("ticks", BytesCoder())
    LATEST = ReadModifyWriteStateSpec("latest", BytesCoder())
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def __init__(self, settings: AgentsSettings, windows: AgentWindows) -> None:
        self._settings = settings
        self._windows = windows

    def setup(self) -> None:
        """Begin without agents."""
        self._coder, self._releases = ForShardCoder(), AgentReleasesCoder()
        self._words = RememberedWords()

    def process(
        self,
        element: tuple[int, Packed | Tick],
        waiting: Any = beam.DoFn.StateParam(WAITING),
        ticks: Any = beam.DoFn.StateParam(TICKS),
        timer: Any = beam.DoFn.TimerParam(DUE),
    ) -> None:
        """Keep releases until their window has ended."""
        for_shard = element[1]
        if isinstance(for_shard, Tick):
            ticks.add(self._coder.encode(for_shard))
            timer.set(self._windows.gathered(for_shard.number), dynamic_timer_tag=str(for_shard.number))
        else:
            waiting.add(for_shard.encoded)

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def due(
        self,
        time: Any = beam.DoFn.TimestampParam,
        waiting: Any = beam.DoFn.StateParam(WAITING),
        ticks: Any = beam.DoFn.StateParam(TICKS),
        state: Any = beam.DoFn.StateParam(LATEST),
    ) -> Iterator[TimestampedValue]:
        """Take the releases of the windows that have ended in, and tell."""
        due = take_due(ticks, self._coder, time, self._windows.gathered)
        if not due:
            return
        batches = [self._releases.decode(encoded) for encoded in waiting.read()]
        waiting.clear()
        shard = LatestOfShard(self._settings, state.read() or b"")
        for tick in due:
            shard.observe([batch for batch in batches if batch.number <= tick.number], self._words.of)
            batches = [batch for batch in batches if batch.number > tick.number]
            yield at(self._windows.gathered(tick.number), shard.latest(tick.newest))
        for batch in batches:
            waiting.add(self._releases.encode(batch))
        state.write(shard.to_bytes())


class FitReleases(beam.DoFn):  # type: ignore[misc]
    """Public: the newest releases of all shards to the population that they show; once per window."""

    def __init__(self, settings: AgentsSettings, options: EngineOptions) -> None:
        self._settings = settings
        self._options = options

    def process(self, element: tuple[int, Iterable[LatestReleases]]) -> Iterator[FittedReleases]:
        """Join the shards and fit."""
        everybody = join_latest(list(element[1]))
        latest, variance = everybody.columns(), everybody.pool.variance
        fitted, _ = PersonalEstimates(self._settings, self._options).fit(latest, variance)
        yield FittedReleases(newest=everybody.newest, agents=len(latest), variance=variance, fitted=fitted)


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
