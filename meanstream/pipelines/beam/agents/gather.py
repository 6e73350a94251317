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
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.agents.possible import PossibleReleases
from meanstream.operators.records import Ints, ReleaseColumns, records_without_votes
from meanstream.pipelines.beam.agents.coders import AgentReleasesCoder, ForShardCoder, PartialReleasesCoder
from meanstream.pipelines.beam.agents.latest import LatestOfShard
from meanstream.pipelines.beam.agents.records import AgentReleases, FittedReleases, Packed, PartialReleases, Tick
from meanstream.pipelines.beam.agents.split import NOTES, split_notes
from meanstream.pipelines.beam.agents.waiting import keep_waiting, take_waiting_due
from meanstream.pipelines.beam.agents.windows import AgentWindows, at_agents_window_time
from meanstream.pipelines.beam.intake import intake_in_global_window
from meanstream.pipelines.beam.metrics import metric_counter
from meanstream.pipelines.beam.samples import BATCH, RememberedWords, samples_by_shard
from meanstream.pipelines.beam.state import MADE, StateOwner
from meanstream.pipelines.beam.steps import Combine, Step, discreet_step
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.engine.options import EngineOptions
from meanstream.streaming.events.wire import Release
from meanstream.streaming.sources.received_releases import is_received_counted, received_release_columns


class ReleasesByShard(Step):
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
        yield from _to_shards(element, self._words, self._coder, self._shards)


class ReceiveReleases(Step):
    """Public: releases from anywhere, single or in batches, to the shards of their agents, by their event time.

    A note of each window that occurs, with the newest event time in it, goes to `NOTES`. What cannot have been made is
    left out and counted by reason (`rejected_too_precise`...).
    """

    def __init__(
        self, settings: AgentsSettings, windows: AgentWindows, shards: int, *, max_samples: int | None = None
    ) -> None:
        self._settings = settings
        self._windows = windows
        self._shards = shards
        self._max_samples = max_samples

    def setup(self) -> None:
        """Begin without agents."""
        self._words, self._coder = RememberedWords(), AgentReleasesCoder()
        self._possible = PossibleReleases(self._settings, max_samples=self._max_samples)

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
        return map(intake_in_global_window, self._flush())

    def _flush(self) -> Iterator[Any]:
        events, first = self._events, self._first
        self.start_bundle()
        if first is None:  # nothing came
            return
        for batch in gather_releases(events, self._settings):
            yield from self._received(batch, first)

    def _received(self, batch: AgentReleases, first: Timestamp) -> Iterator[Any]:
        reasons = self._possible.reasons(batch.releases)
        for reason, count in zip(*np.unique(reasons[reasons != ""], return_counts=True), strict=True):
            metric_counter("rejected_", str(reason)).inc(int(count))
        batch = _taken(batch, reasons == "")
        number = self._windows.number(batch.time)
        for window in np.unique(number).tolist():
            inside = _taken(batch, number == window, number=window)
            for part in _to_shards(inside, self._words, self._coder, self._shards):
                yield at_agents_window_time(first, part)
        for note in split_notes(batch.time, self._windows):
            yield TaggedOutput(
                NOTES, at_agents_window_time(self._windows.noted(note.number) or first, (note.number, note.newest))
            )


class GatherShard(Step):
    """Public: keeps the newest release of every agent of a shard; gives their summary at the end of each window."""

    MADE = MADE
    WAITING = BagStateSpec("waiting", BytesCoder())
    TICKS = BagStateSpec("ticks", BytesCoder())
    LATEST = ReadModifyWriteStateSpec("latest", BytesCoder())
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def __init__(
        self, settings: AgentsSettings, options: EngineOptions, windows: AgentWindows, owner: StateOwner
    ) -> None:
        self._settings = settings
        self._options = options
        self._windows = windows
        self._owner = owner

    def setup(self) -> None:
        """Begin without agents."""
        self._coder, self._releases = ForShardCoder(), AgentReleasesCoder()
        self._mark = self._owner.mark()
        self._words = RememberedWords()

    def process(  # noqa: PLR0917 - all of the state that says whether it is another's
        self,
        element: tuple[int, Packed | Tick],
        waiting: Any = beam.DoFn.StateParam(WAITING),
        ticks: Any = beam.DoFn.StateParam(TICKS),
        timer: Any = beam.DoFn.TimerParam(DUE),
        state: Any = beam.DoFn.StateParam(LATEST),
        made: Any = beam.DoFn.StateParam(MADE),
    ) -> None:
        """Keep releases until their window has ended."""
        self._mark.claim(made, waiting, ticks, state)
        keep_waiting(element[1], waiting, ticks, timer, self._coder, self._windows.gathered)

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    @discreet_step
    def due(  # noqa: PLR0917 - all of the state
        self,
        key: int = beam.DoFn.KeyParam,
        time: Any = beam.DoFn.TimestampParam,
        waiting: Any = beam.DoFn.StateParam(WAITING),
        ticks: Any = beam.DoFn.StateParam(TICKS),
        state: Any = beam.DoFn.StateParam(LATEST),
        made: Any = beam.DoFn.StateParam(MADE),
    ) -> Iterator[TimestampedValue]:
        """Take the releases of the windows that have ended in, and tell."""
        self._mark.claim(made, waiting, ticks, state)
        newest = self._newest(ticks)
        due = take_waiting_due(ticks, self._coder, time, self._windows.gathered)
        if not due:
            return
        batches = [self._releases.decode(encoded) for encoded in waiting.read()]
        waiting.clear()
        shard = LatestOfShard(self._settings, state.read() or b"")
        host = PersonalEstimates(self._settings, self._options)
        for tick in due:
            shard.observe([batch for batch in batches if batch.number <= tick.number], self._words.of)
            batches = [batch for batch in batches if batch.number > tick.number]
            summary, pools = host.summarize(shard.combined()), {key: shard.pool}
            partial = PartialReleases(newest=newest[tick.number], summary=summary, pools=pools)
            yield at_agents_window_time(self._windows.gathered(tick.number), partial)
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
class JoinReleases(Combine):
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


class FitReleases(Step):
    """Public: the summary of everybody's newest release to the population that it shows; once per window."""

    def __init__(self, settings: AgentsSettings, options: EngineOptions) -> None:
        self._settings = settings
        self._options = options

    def process(self, element: tuple[int, PartialReleases]) -> Iterator[FittedReleases]:
        """Fit."""
        everybody = element[1]
        pool = everybody.pool().posterior()
        fitted = PersonalEstimates(self._settings, self._options).fit_summary(everybody.summary, pool)
        yield FittedReleases(newest=everybody.newest, agents=everybody.summary.n, pool=pool, fitted=fitted)


def gather_releases(events: list[Release], settings: AgentsSettings) -> Iterator[AgentReleases]:
    """Single releases as batches: those that were made as the settings say, and others."""
    if not events:
        return
    held = [event for event in events if is_received_counted(event)]
    if len(held) < len(events):
        metric_counter("rejected_", "malformed").inc(len(events) - len(held))
    events = held
    columns = received_release_columns(events)
    alike = (columns["epsilon"] == settings.epsilon) & (columns["delta"] == settings.delta)
    alike &= columns["tuned"] == (settings.mode == "tuned")
    coded = pa.array([event.agent for event in events], pa.string()).dictionary_encode()
    agent = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    kept = {name: columns[name] for name in ("index", "count", "total", "mean", "noise_variance", "votes")}
    releases = ReleaseColumns(agent=agent, **kept)
    if settings.vote is None:
        releases = replace(releases, votes=records_without_votes())
    else:
        releases = releases.with_votes(alike & settings.vote.possible(releases, columns["vote_variance"]))
    batch = AgentReleases(
        names=coded.dictionary.cast(pa.large_string()),
        number=0,
        releases=releases,
        time=columns["time"],
    )
    for flag in (True, False):
        if np.any(alike == flag):
            yield _taken(batch, alike == flag, alike=flag)


def _to_shards(
    batch: AgentReleases, words: RememberedWords, coder: AgentReleasesCoder, shards: int
) -> Iterator[tuple[int, Packed]]:
    """Split a batch by the shards of its agents."""
    shard_of = np.zeros(len(batch.names), np.int64)
    for shard, places in samples_by_shard(words.of(batch.names.to_pylist()), shards):
        shard_of[places] = shard
    of_release = shard_of[batch.releases.agent]
    for shard in np.unique(of_release).tolist():
        yield shard, Packed(coder.encode(_taken(batch, of_release == shard)))


def _taken(batch: AgentReleases, which: np.ndarray, **changes: Any) -> AgentReleases:
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
