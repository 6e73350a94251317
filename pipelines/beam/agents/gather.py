"""Public: releases to the shards of their agents, everybody's newest one kept there, and what all of them show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam import typehints
from apache_beam.coders import BytesCoder, Coder
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import GlobalWindow, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from operators.agents import AgentsSettings
from operators.records import Ints, ReleaseColumns
from pipelines.beam.agents.coders import AgentReleasesCoder, ForShardCoder, PartialReleasesCoder
from pipelines.beam.agents.latest import LatestOfShard
from pipelines.beam.agents.records import AgentReleases, FittedReleases, Packed, PartialReleases, Tick
from pipelines.beam.agents.split import NOTES, notes_of
from pipelines.beam.agents.waiting import keep, take_due
from pipelines.beam.agents.windows import AgentWindows, at
from pipelines.beam.samples import BATCH, RememberedWords, by_shard
from streaming.events import Release
from streaming.options import EngineOptions
from streaming.personal import PersonalEstimates
from streaming.received import release_columns


class ReleasesByShard(beam.DoFn):  # type: ignore[misc]
    """Public: releases of our own windows to the shards of their agents; `TypeError` for anything else."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def setup(self) -> None:
        """Begin without agents."""
        self._words, self._coder = RememberedWords(), AgentReleasesCoder()

    def process(self, element: AgentReleases) -> Iterator[tuple[int, Packed]]:
        """Split a batch."""
        if not isinstance(element, AgentReleases):
            raise TypeError(f"collaboration takes releases only, got {type(element).__name__}")
        yield from to_shards(element, self._words, self._coder, self._shards)


class ReceiveReleases(beam.DoFn):  # type: ignore[misc]
    """Public: releases from anywhere, single or in batches, to the shards of their agents, by their event time.

    A note of each window that occurs, with the newest event time in it, goes to `NOTES`.
    """

    def __init__(self, settings: AgentsSettings, windows: AgentWindows, shards: int) -> None:
        self._settings = settings
        self._windows = windows
        self._shards = shards

    def setup(self) -> None:
        """Begin without agents."""
        self._words, self._coder = RememberedWords(), AgentReleasesCoder()

    def start_bundle(self) -> None:
        """Begin without releases."""
        self._events: list[Release] = []
        self._first: Timestamp | None = None

    def process(self, element: Release | AgentReleases, time: Any = beam.DoFn.TimestampParam) -> Iterable[Any] | None:
        """Take a release, or a batch of them."""
        self._first = time if self._first is None or time < self._first else self._first
        if isinstance(element, AgentReleases):
            return self._received(element, time)
        if not isinstance(element, Release):
            raise TypeError(f"collaboration takes releases only, got {type(element).__name__}")
        self._events.append(element)
        return self._flush() if len(self._events) >= BATCH else None

    def finish_bundle(self) -> Iterator[Any]:
        """Split the rest."""
        for out in self._flush():
            tagged = isinstance(out, TaggedOutput)
            stamped = out.value if tagged else out
            value = WindowedValue(stamped.value, stamped.timestamp, (GlobalWindow(),))
            yield TaggedOutput(out.tag, value) if tagged else value

    def _flush(self) -> Iterator[Any]:
        events, first = self._events, self._first
        self.start_bundle()
        for batch in release_batches(events, self._settings):
            assert first is not None  # noqa: S101 - there are events
            yield from self._received(batch, first)

    def _received(self, batch: AgentReleases, first: Timestamp) -> Iterator[Any]:
        number = self._windows.number(batch.time)
        for window in np.unique(number).tolist():
            inside = taken(batch, number == window, number=window)
            for part in to_shards(inside, self._words, self._coder, self._shards):
                yield at(first, part)
        for note in notes_of(batch.time, self._windows):
            yield TaggedOutput(NOTES, at(self._windows.noted(note.number) or first, (note.number, note.newest)))


class GatherShard(beam.DoFn):  # type: ignore[misc]
    """Public: keeps the newest release of every agent of a shard; gives their summary at the end of each window."""

    WAITING = BagStateSpec("waiting", BytesCoder())
    TICKS = BagStateSpec("ticks", BytesCoder())
    LATEST = ReadModifyWriteStateSpec("latest", BytesCoder())
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def __init__(self, settings: AgentsSettings, options: EngineOptions, windows: AgentWindows) -> None:
        self._settings = settings
        self._options = options
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
        keep(element[1], waiting, ticks, timer, self._coder, self._windows.gathered)

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def due(
        self,
        key: int = beam.DoFn.KeyParam,
        time: Any = beam.DoFn.TimestampParam,
        waiting: Any = beam.DoFn.StateParam(WAITING),
        ticks: Any = beam.DoFn.StateParam(TICKS),
        state: Any = beam.DoFn.StateParam(LATEST),
    ) -> Iterator[TimestampedValue]:
        """Take the releases of the windows that have ended in, and tell."""
        newest = self._newest(ticks)
        due = take_due(ticks, self._coder, time, self._windows.gathered)
        if not due:
            return
        batches = [self._releases.decode(encoded) for encoded in waiting.read()]
        waiting.clear()
        shard = LatestOfShard(self._settings, state.read() or b"")
        host = PersonalEstimates(self._settings, self._options)
        for tick in due:
            shard.observe([batch for batch in batches if batch.number <= tick.number], self._words.of)
            batches = [batch for batch in batches if batch.number > tick.number]
            summary, pools = host.summarize(shard.latest()), {key: shard.pool}
            partial = PartialReleases(newest=newest[tick.number], summary=summary, pools=pools)
            yield at(self._windows.gathered(tick.number), partial)
        for batch in batches:
            waiting.add(self._releases.encode(batch))
        state.write(shard.to_bytes())

    def _newest(self, ticks: Any) -> dict[int, float]:
        """Give the newest event time of each window; ticks of it may come from releases and from samples."""
        newest: dict[int, float] = {}
        for tick in map(self._coder.decode, ticks.read()):
            assert isinstance(tick, Tick)  # noqa: S101 - nothing else is put there
            newest[tick.number] = max(tick.newest, newest.get(tick.number, tick.newest))
        return newest


@typehints.with_input_types(PartialReleases)
@typehints.with_output_types(PartialReleases)
class JoinReleases(beam.CombineFn):  # type: ignore[misc]
    """Public: partial summaries of shards to one of all; in any order, to the last bit."""

    def __init__(self, settings: AgentsSettings, options: EngineOptions) -> None:
        self._settings = settings
        self._options = options

    def create_accumulator(self) -> PartialReleases:
        """Begin with nobody's."""
        none, nothing = np.zeros(0, np.int64), np.zeros(0)
        nobody = ReleaseColumns(agent=none, index=none, count=none, total=none, mean=nothing, noise_variance=nothing)
        summary = PersonalEstimates(self._settings, self._options).summarize(nobody)
        return PartialReleases(newest=-np.inf, summary=summary, pools={})

    def add_input(self, accumulator: PartialReleases, element: PartialReleases) -> PartialReleases:
        """Add a shard's."""
        accumulator.merge(element)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[PartialReleases]) -> PartialReleases:
        """Add up."""
        whole = self.create_accumulator()
        for part in accumulators:
            whole.merge(part)
        return whole

    def extract_output(self, accumulator: PartialReleases) -> PartialReleases:
        """Give all of it."""
        return accumulator

    def get_accumulator_coder(self) -> Coder:
        """Plain bytes."""
        return PartialReleasesCoder()


class FitReleases(beam.DoFn):  # type: ignore[misc]
    """Public: the summary of everybody's newest release to the population that it shows; once per window."""

    def __init__(self, settings: AgentsSettings, options: EngineOptions) -> None:
        self._settings = settings
        self._options = options

    def process(self, element: tuple[int, PartialReleases]) -> Iterator[FittedReleases]:
        """Fit."""
        everybody = element[1]
        variance = everybody.pool().variance
        fitted = PersonalEstimates(self._settings, self._options).fit_summary(everybody.summary, variance)
        yield FittedReleases(newest=everybody.newest, agents=everybody.summary.n, variance=variance, fitted=fitted)


def release_batches(events: list[Release], settings: AgentsSettings) -> Iterator[AgentReleases]:
    """Single releases as batches: those that were made as the settings say, and others."""
    if not events:
        return
    columns = release_columns(events)
    alike = (columns["epsilon"] == settings.epsilon) & (columns["delta"] == settings.delta)
    alike &= columns["tuned"] == (settings.mode == "tuned")
    coded = pa.array([event.agent for event in events], pa.string()).dictionary_encode()
    agent = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    kept = {name: columns[name] for name in ("index", "count", "total", "mean", "noise_variance")}
    batch = AgentReleases(
        names=coded.dictionary.cast(pa.large_string()),
        number=0,
        releases=ReleaseColumns(agent=agent, **kept),
        time=columns["time"],
    )
    for flag in (True, False):
        if np.any(alike == flag):
            yield taken(batch, alike == flag, alike=flag)


def to_shards(
    batch: AgentReleases, words: RememberedWords, coder: AgentReleasesCoder, shards: int
) -> Iterator[tuple[int, Packed]]:
    """Split a batch by the shards of its agents."""
    shard_of = np.zeros(len(batch.names), np.int64)
    for shard, places in by_shard(words.of(batch.names.to_pylist()), shards):
        shard_of[places] = shard
    of_release = shard_of[batch.releases.agent]
    for shard in np.unique(of_release).tolist():
        yield shard, Packed(coder.encode(taken(batch, of_release == shard)))


def taken(batch: AgentReleases, which: np.ndarray, **changes: Any) -> AgentReleases:
    """Select releases, and the names that they have."""
    releases = batch.releases.take(which)
    used, place = np.unique(releases.agent, return_inverse=True)
    agent: Ints = place.astype(np.int64)
    return replace(
        batch,
        names=batch.names.take(pa.array(used)),
        releases=replace(releases, agent=agent),
        time=batch.time[which],
        **changes,
    )
