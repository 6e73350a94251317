"""Private: samples to users' sums per window, a batch at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow, TimestampedValue
from apache_beam.utils.windowed_value import PaneInfoTiming, WindowedValue

from operators.records import Ints, Words
from pipelines.beam.metrics import DistributionOf, counter
from pipelines.beam.rounds.distinct import keys_of, samples_by_shard, split_keyed, sum_once
from pipelines.beam.rounds.records import ForRound, UserBatch, UserSamples, join_users
from pipelines.beam.rounds.windows import carried
from pipelines.beam.samples import BATCH, RememberedWords, by_shard, sample_batch
from streaming.columns import SampleColumns
from streaming.rounds.settings import RoundsSettings
from streaming.rounds.summarize import UserSums, summarize_windows
from streaming.rounds.windows import Window, merge_sessions


class SumBatches(beam.DoFn):  # type: ignore[misc]
    """Samples, one by one or in batches, to sums of users keyed by shard, stamped with the time of their round.

    Samples that have ids go on as they are: only who sees all of a round can tell which of them are repeats.
    """

    def __init__(self, settings: RoundsSettings, shards: int) -> None:
        self._settings = settings
        self._shards = shards

    def setup(self) -> None:
        """Begin without users."""
        self._words = RememberedWords()
        self._samples, self._together = counter("samples"), DistributionOf("batch_samples")

    def start_bundle(self) -> None:
        """Begin without samples."""
        self._rows: list[Any] = []
        self._parts: list[SampleColumns] = []
        self._waiting = 0

    def process(self, element: Any) -> Iterable[TimestampedValue] | None:
        """Take a sample, or a batch of them."""
        if isinstance(element, SampleColumns):
            self._parts.append(element)
            self._waiting += len(element)
            return self._sum() if self._waiting >= BATCH else None
        self._rows.append(element)
        return self._sum() if len(self._rows) >= BATCH else None

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Sum up the rest."""
        for out in self._sum():
            yield WindowedValue(out.value, out.timestamp, (GlobalWindow(),))

    def _sum(self) -> Iterator[TimestampedValue]:
        parts = self._parts
        if self._rows:
            user, value, time = zip(*self._rows, strict=True)
            parts = [*parts, sample_batch(user, value, time)]
        self.start_bundle()
        if not parts:
            return
        samples = _together(parts)
        self._samples.inc(len(samples))
        self._together.update(len(samples))
        keyed = None
        if samples.key is not None:
            samples, keyed = split_keyed(samples)
        if len(samples):
            user_number, names = _used(samples)
            grid = self._settings.grid
            sums = summarize_windows(self._settings.windows, user_number, samples.value, samples.time, grid)
            yield from keyed_by_shard(self._settings, sums, names, self._words.of(names), self._shards)
        if keyed is not None and len(keyed):
            yield from samples_by_shard(self._settings, keyed, self._words.of, self._shards)


def keyed_by_shard(
    settings: RoundsSettings, parts: Mapping[Window, UserSums], names: list[str], words: Words, shards: int
) -> Iterator[TimestampedValue]:
    """Give sums per window to the shards of their users, stamped with the time of their round.

    A session's shard is 0: only all users together know where it ends.
    """
    text = pa.array(names, pa.large_string())
    for window, sums in parts.items():
        hashes = words[sums.user]
        whole = [(0, np.arange(len(sums)))] if settings.windows.kind == "session" else by_shard(hashes, shards)
        for shard, places in whole:
            mine = sums.take(places)
            batch = UserBatch(
                window=window,
                names=text.take(pa.array(mine.user)),
                words=hashes[places],
                sums=UserSums(**{**mine.columns(), "user": np.arange(len(mine))}),
            )
            yield carried(settings, (shard, batch), window)


class JoinBatches(beam.DoFn):  # type: ignore[misc]
    """Sums of one shard and one round joined, once; what comes after the release is counted, and so are repeats."""

    def __init__(self, settings: RoundsSettings, shards: int) -> None:
        self._settings = settings
        self._shards = shards

    def setup(self) -> None:
        """Begin to count."""
        self._late, self._again = counter("rejected_", "late"), counter("rejected_", "duplicate")

    def process(self, element: tuple[int, Iterable[ForRound]], pane: Any = beam.DoFn.PaneInfoParam) -> Iterator[Any]:
        """Join what is on time."""
        shard, batches = element[0], list(element[1])
        if pane.timing in (PaneInfoTiming.EARLY, PaneInfoTiming.LATE) or pane.index > 0:
            self._late.inc(sum(batch.n_samples for batch in batches))
            return
        for window, parts in _rounds(self._settings, batches):
            joined = self._joined(window, parts)
            if self._settings.windows.kind != "session":
                yield shard, joined
                continue
            for part_shard, places in by_shard(joined.words, self._shards):
                yield carried(self._settings, (part_shard, joined.take(places)), window)

    def _joined(self, window: Window, parts: list[ForRound]) -> UserBatch:
        sums = [_of(window, part) for part in parts if isinstance(part, UserBatch)]
        samples = [part for part in parts if isinstance(part, UserSamples)]
        if samples:
            summed, again = sum_once(self._settings, window, samples)
            self._again.inc(again)
            sums.append(summed)
        return join_users(sums)


def _rounds(settings: RoundsSettings, batches: list[ForRound]) -> Iterator[tuple[Window, list[ForRound]]]:
    """Group batches by round: there is one, except where Beam's milliseconds have joined two sessions."""
    if settings.windows.kind != "session":
        yield batches[0].window, batches
        return
    ends: Ints = np.array([batch.window for batch in batches], np.int64)
    number, found = merge_sessions(ends[:, 0], ends[:, 1])
    groups = defaultdict(list)
    for place, batch in zip(number.tolist(), batches, strict=True):
        groups[place].append(batch)
    for place, window in enumerate(found):
        yield window, groups[place]


def _of(window: Window, batch: UserBatch) -> UserBatch:
    return UserBatch(window=window, names=batch.names, words=batch.words, sums=batch.sums)


def _together(parts: list[SampleColumns]) -> SampleColumns:
    """Join batches, of one directory of users or of several; a user of two directories has two numbers."""
    starts: dict[int, int] = {}
    names: list[str] = []
    for part in parts:
        if id(part.names) not in starts:
            starts[id(part.names)] = len(names)
            names = names + part.names if names else part.names
    agent = np.concatenate([part.agent + starts[id(part.names)] for part in parts])
    value = np.concatenate([part.value for part in parts])
    time, key = np.concatenate([part.time for part in parts]), None
    if any(part.key is not None for part in parts):
        key = np.concatenate([keys_of(part) for part in parts])
    return SampleColumns(names, agent, value, time, key, np.concatenate([part.position for part in parts]))


def _used(samples: SampleColumns) -> tuple[Ints, list[str]]:
    """Give the users that occur, and their numbers; a source's directory may be much longer."""
    there = np.zeros(len(samples.names), np.bool_)
    there[samples.agent] = True
    if there.all():
        return samples.agent, samples.names
    used = np.flatnonzero(there)
    return (np.cumsum(there) - 1)[samples.agent], [samples.names[place] for place in used.tolist()]
