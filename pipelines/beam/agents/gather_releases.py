"""Public: releases to the shards of their agents, where everyone's newest one is kept.

What has changed in many shards is joined by groups of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.agents.own_histogram import HistogramColumns
from meanstream.operators.agents.release_checks import PossibleReleases
from meanstream.operators.agents.released_rows import with_noise_terms
from meanstream.operators.records import Ints, ReleaseColumns, records_without_votes
from meanstream.pipelines.beam.agents.agents_elements import (
    AgentReleases,
    Packed,
    PartialReleases,
    Tick,
    changes_in_turn,
    changes_joined,
    numbered_anew,
)
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows, tick_note, ticks_noted
from meanstream.pipelines.beam.agents.latest_by_agent import LatestOfShard
from meanstream.pipelines.beam.agents.newest_histograms import newest_histograms
from meanstream.pipelines.beam.agents.split_agents import NOTES
from meanstream.pipelines.beam.agents.waiting_samples import ShardTurns, take_waiting_elements
from meanstream.pipelines.beam.element_types.beam_samples import BATCH, RememberedWords
from meanstream.pipelines.beam.element_types.columns_coder import (
    ColumnsCoder,
    record_bytes,
    record_of_bytes,
)
from meanstream.pipelines.beam.input.beam_intake import intake_in_global_window
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.keyed_state.journal import StateJournal
from meanstream.pipelines.beam.keyed_state.keyed_steps import Cells
from meanstream.pipelines.beam.worker.beam_metrics import metric_counter
from meanstream.pipelines.beam.worker.beam_steps import Step, with_window_time
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.wire import Release
from meanstream.streaming.sources.received_releases import (
    is_received_counted,
    received_release_columns,
)

TWO_LEVELS = 256
"""Shards from which on groups of them join what has changed, and one key joins the groups. With
fewer, one key takes less than a tenth of a second to join them."""


class ReleasesByShard(Step):
    """Public: releases of our own windows to the shards of their agents.

    `TypeError` for anything else.
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def setup(self) -> None:
        """Begin without agents."""
        self._words = RememberedWords()
        self._coder = ColumnsCoder(AgentReleases)

    def process(self, element: AgentReleases) -> Iterator[tuple[int, Packed]]:
        # Releases only: anything else here would be private.
        """Split a batch."""
        if not isinstance(element, AgentReleases):
            raise TypeError(f"collaboration takes releases only, got {type(element).__name__}")
        yield from releases_to_shards(element, self._words, self._coder, self._shards)


class ReceiveReleases(Step):
    """Public: releases from anywhere, single or in batches, to the shards of their agents.

    A note of each window that occurs, with the newest event time in it, goes to `NOTES`. What
    cannot have been made is left out and counted by reason (`rejected_too_precise`...).
    """

    def __init__(
        self,
        settings: AgentsSettings,
        windows: AgentWindows,
        shards: int,
        *,
        max_samples: int | None = None,
    ) -> None:
        self._settings = settings
        self._windows = windows
        self._shards = shards
        self._max_samples = max_samples

    def setup(self) -> None:
        """Begin without agents."""
        self._words = RememberedWords()
        self._coder = ColumnsCoder(AgentReleases)
        self._possible = PossibleReleases(self._settings, max_samples=self._max_samples)

    def start_bundle(self) -> None:
        """Begin without releases."""
        self._events: list[Release] = []
        self._first: Timestamp | None = None

    def process(
        self, element: Release | AgentReleases, time: Any = beam.DoFn.TimestampParam
    ) -> Iterable[Any]:
        """Take a release, or a batch of them."""
        # The earliest time of a bundle is that of what it puts out.
        self._first = time if self._first is None or time < self._first else self._first
        if isinstance(element, AgentReleases):
            return self._received(element, time)
        if not isinstance(element, Release):
            raise TypeError(f"collaboration takes releases only, got {type(element).__name__}")

        self._events.append(element)

        if len(self._events) >= BATCH:
            return self._flush()
        return ()

    def finish_bundle(self) -> Iterator[Any]:
        """Split the rest."""
        return map(intake_in_global_window, self._flush())

    def _flush(self) -> Iterator[Any]:
        events = self._events
        first = self._first
        self.start_bundle()

        # Several releases together are checked and split in one go.
        if first is None:  # nothing came
            return

        for batch in gather_releases(events, self._settings):
            yield from self._received(batch, first)

    def _received(self, batch: AgentReleases, first: Timestamp) -> Iterator[Any]:
        # Releases of strangers are checked against what the settings make possible.
        reasons = self._possible.reasons(batch.releases)
        for reason, count in zip(
            *np.unique(reasons[reasons != ""], return_counts=True), strict=True
        ):
            metric_counter("rejected_", str(reason)).inc(int(count))

        releases = _with_own_bins(batch.releases, self._settings)
        batch = replace(batch, words=self._words.of(batch.names.to_pylist()), releases=releases)

        # What cannot be is counted by reason and goes no further.
        batch = releases_taken(batch, reasons == "")
        number = self._windows.number(batch.time)
        shards = releases_shards(batch, self._words, self._shards)

        # Each window's releases go to the shards of their agents.
        for window in np.unique(number).tolist():
            inside = releases_taken(batch, number == window, number=window)
            for part in releases_to_shards(inside, self._words, self._coder, self._shards):
                yield with_window_time(first, part)

        for note in ticks_noted(batch.time, shards[batch.releases.agent], self._windows):
            yield TaggedOutput(
                NOTES, with_window_time(self._windows.noted(note.number) or first, tick_note(note))
            )


class GatherShard(ShardTurns):
    """Public: keeps the newest release of every agent of a shard.

    Tells at the end of a window what has changed.
    """

    VALUES = ("latest", "head")
    BAGS = ("changes",)
    TIMER = "gather"
    TICKS = "releases"

    def __init__(
        self,
        settings: AgentsSettings,
        options: EngineOptions,
        windows: AgentWindows,
        owner: StateOwner,
        *,
        shards: int = 1,
    ) -> None:
        super().__init__(owner, windows)
        self._settings = settings
        self._options = options
        self._shards = shards

    def setup(self) -> None:
        """Begin without agents."""
        super().setup()
        self._releases = ColumnsCoder(AgentReleases)
        self._partial = ColumnsCoder(PartialReleases)
        self._words = RememberedWords()
        self._told: set[int] = set()  # shards whose state has been told

    def when(self, number: int) -> Timestamp:
        """Give the time of a window's turn."""
        return self._windows.gathered(number)

    def turn(self, due: list[Tick], cells: Cells) -> Iterator[TimestampedValue]:
        """Take the releases of the windows that have ended in, and tell."""
        number = due[-1].number
        batches = take_waiting_elements(cells.waiting, self._releases, number)
        if not batches and cells.key in self._told:
            return

        journal = StateJournal(cells.latest, cells.changes, cells.head)
        shard = self._remembered(
            cells.key, journal.mark, lambda: LatestOfShard(self._settings, *journal.read())
        )
        changed = shard.changed(batches, self._words.of)
        self._told.add(cells.key)

        if changed is None:
            return
        old, new = map(PersonalEstimates(self._settings, self._options).summarize, changed)
        told = PartialReleases(
            summary=new,
            before=old if old.n else None,
            pools={cells.key: shard.pool},
            turns={cells.key: shard.turns},
            number=number,
            histograms=self._histograms(shard, changed[1]),
        )

        shard.save(journal)
        self._remember(cells.key, journal.mark, shard)
        group = cells.key % shard_groups(self._shards)
        yield with_window_time(
            self._windows.gathered(number), (group, Packed(self._partial.encode(told)))
        )

    def _histograms(self, shard: LatestOfShard, now: ReleaseColumns) -> HistogramColumns | None:
        if self._settings.histogram is None:
            return None
        return newest_histograms(now, shard.agents, self._shards)


def shard_groups(shards: int) -> int:
    """Give how many groups of shards there are, by the public number of shards.

    Examples
    --------
    >>> shard_groups(16), shard_groups(1600)
    (1, 40)
    """
    return 1 if shards < TWO_LEVELS else math.isqrt(shards)


class JoinShards(ShardTurns):
    """Public: joins what has changed in the shards of a group, once per window.

    It keeps how many changes each shard has told, so that each is joined once.
    """

    VALUES = ("told",)
    TIMER = "join"
    TICKS = "partial"

    def setup(self) -> None:
        """Begin without changes."""
        super().setup()
        self._partial = ColumnsCoder(PartialReleases)

    def when(self, number: int) -> Timestamp:
        """Give the time of a window's turn."""
        return self._windows.joined(number)

    def turn(self, due: list[Tick], cells: Cells) -> Iterator[TimestampedValue]:
        """Join the changes of the windows that have ended."""
        number = due[-1].number
        changes = take_waiting_elements(cells.waiting, self._partial, number)
        known = cells.told.read()
        turns = record_of_bytes("turns", known) if known else {}
        taken, early = changes_in_turn(changes, turns)
        for change in early:
            cells.waiting.add(self._partial.encode(change))

        cells.told.write(record_bytes("turns", turns))
        for change in changes_joined(taken):
            told = 0, Packed(self._partial.encode(change))
            yield with_window_time(self._windows.joined(number), told)


def gather_releases(events: list[Release], settings: AgentsSettings) -> Iterator[AgentReleases]:
    """Single releases as batches: those that were made as the settings say, and others."""
    if not events:
        return
    held = [event for event in events if is_received_counted(event)]
    if len(held) < len(events):
        metric_counter("rejected_", "malformed").inc(len(events) - len(held))

    events = held
    columns = received_release_columns(
        events, 0 if settings.histogram is None else settings.histogram.bins
    )
    alike = (columns["epsilon"] == settings.epsilon) & (columns["delta"] == settings.delta)
    alike &= columns["tuned"] == (settings.mode == "tuned")

    coded = pa.array([event.agent for event in events], pa.string()).dictionary_encode()
    agent = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    names = ("index", "count", "total", "mean", "noise_variance", "votes", "histogram")
    releases = with_noise_terms(
        settings, ReleaseColumns(agent=agent, **{name: columns[name] for name in names})
    )

    if settings.vote is None:
        releases = replace(releases, votes=records_without_votes())
    else:
        releases = releases.with_votes(
            alike & settings.vote.possible(releases, columns["vote_variance"])
        )

    if settings.histogram is not None:
        possible = settings.histogram.possible_of(releases, columns["histogram_variance"])
        releases = releases.with_histograms(alike & possible)

    batch = AgentReleases(
        names=coded.dictionary.cast(pa.large_string()),
        number=0,
        releases=releases,
        time=columns["time"],
    )

    for flag in (True, False):
        if np.any(alike == flag):
            yield releases_taken(batch, alike == flag, alike=flag)


def _with_own_bins(releases: ReleaseColumns, settings: AgentsSettings) -> ReleaseColumns:
    """Leave out histograms that have other bins than ours."""
    width = 0 if settings.histogram is None else 2 + settings.histogram.bins
    if releases.histogram.shape[1] == width:
        return releases
    return replace(releases, histogram=np.zeros((len(releases), width), np.int64))


def releases_to_shards(
    batch: AgentReleases, words: RememberedWords, coder: ColumnsCoder, shards: int
) -> Iterator[tuple[int, Packed]]:
    """Split a batch by the shards of its agents."""
    of_name = releases_shards(batch, words, shards)
    if len(of_name) and np.all(of_name == of_name[0]):  # as a shard has made them
        yield int(of_name[0]), Packed(coder.encode(batch))
        return

    of_release = of_name[batch.releases.agent]
    for shard in np.unique(of_release).tolist():
        yield shard, Packed(coder.encode(releases_taken(batch, of_release == shard)))


def releases_shards(batch: AgentReleases, words: RememberedWords, shards: int) -> Ints:
    """Give the shard of each name."""
    return (batch.hashes(words.of)[:, 1] % np.uint64(shards)).astype(np.int64)


def releases_taken(batch: AgentReleases, which: np.ndarray, **changes: Any) -> AgentReleases:
    """Select releases, and the names that they have."""
    releases = batch.releases.take(which)
    used, agent = numbered_anew(releases.agent, len(batch.names))
    return replace(
        batch,
        names=batch.names.take(pa.array(used)),
        words=batch.words[used] if len(batch.words) else batch.words,
        releases=replace(releases, agent=agent),
        time=batch.time[which],
        **changes,
    )
