"""Private: samples to users' sums per window, a batch at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.windowed_value import PaneInfoTiming

from meanstream.operators.agents.admission import TOO_MANY, admission_names
from meanstream.operators.records import Floats, Ints, Words
from meanstream.pipelines.beam.element_types.beam_samples import (
    RememberedWords,
    repeated_samples,
    samples_by_shard,
)
from meanstream.pipelines.beam.input.beam_intake import (
    SampleIntake,
    SampleReader,
    intake_in_global_window,
    intake_rejected,
)
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.rounds.rounds_elements import (
    ForRound,
    UserBatch,
    UserSamples,
    join_user_records,
    record_user_words,
)
from meanstream.pipelines.beam.rounds.rounds_windows import carried_in_window
from meanstream.pipelines.beam.worker.beam_metrics import metric_counter
from meanstream.pipelines.beam.worker.beam_steps import Step
from meanstream.streaming.events.event_columns import SampleColumns
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.summarize_users import (
    UserSums,
    summarize,
    summarize_numbered_windows,
    summarize_windows,
)
from meanstream.streaming.rounds.user_places import slot_key, slot_name_hashes
from meanstream.streaming.rounds.window_widths import (
    Window,
    merge_session_windows,
    windows_in_micros,
)


class SumBatches(Step):
    """Samples, one by one or in batches, to sums of users keyed by shard, stamped with the time of their round.

    Samples that have ids go on as they are: only who sees all of a round can tell which of them are
    repeats. What is no sample goes, with its reason, to `REJECTED`.
    """

    def __init__(self, settings: RoundsSettings, shards: int, intake: SampleIntake) -> None:
        self._settings = settings
        self._shards = shards
        self._intake = intake

    def setup(self) -> None:
        """Begin without users."""
        self._words = RememberedWords()
        self._reader = SampleReader(self._intake)

    def start_bundle(self) -> None:
        """Begin without samples."""
        self._reader.start()

    def process(self, element: Any, time: Any = beam.DoFn.TimestampParam) -> Iterable[Any]:
        """Take a sample, or a batch of them."""
        if self._reader.add(element, time):
            return self._sum()
        return ()

    def finish_bundle(self) -> Iterator[Any]:
        """Sum up the rest."""
        return map(intake_in_global_window, self._sum())

    # The rest of a bundle has the time of its first element.
    def _sum(self) -> Iterator[Any]:
        first = self._reader.first
        parts, rejects = self._reader.read()

        if first is None:
            return
        yield from intake_rejected(rejects, first, "user")

        if not parts:
            return
        samples = _together(parts)
        keyed = None

        # Ids need the samples themselves until the window ends; without ids sums suffice.
        if samples.key is not None:
            samples, keyed = split_distinct(samples)

        # Users are numbered in the batch, as a directory may be much longer.
        if len(samples):
            user_number, names = _used(samples)
            grid = self._settings.grid
            sums = summarize_windows(
                self._settings.windows, user_number, samples.value, samples.time, grid
            )
            yield from summarize_by_shard(
                self._settings, sums, names, self._words.of(names), self._shards
            )

        if keyed is not None and len(keyed):
            yield from distinct_by_shard(self._settings, keyed, self._words.of, self._shards)


def summarize_by_shard(
    settings: RoundsSettings,
    parts: Mapping[Window, UserSums],
    names: list[str],
    words: Words,
    shards: int,
) -> Iterator[TimestampedValue]:
    """Give sums per window to the shards of their users, stamped with the time of their round.

    A session's shard is 0: only all users together know where it ends.
    """
    text = pa.array(names, pa.large_string())

    # Sessions meet in one place, where their windows are joined.
    parts_of = 1 if settings.windows.kind == "session" else shards
    for window, sums in parts.items():
        whole = UserBatch(
            window=window, names=text.take(pa.array(sums.user)), words=words[sums.user], sums=sums
        )
        for shard, batch in whole.by_shard(parts_of):
            yield carried_in_window(settings, (shard, batch), window)


class JoinBatches(Step):
    """Sums of one shard and one round joined, once.

    What comes after the release is counted, and so are repeats.

    Keys are those of `MarkKeys`; what something else has made ends the pipeline in one line, before
    it is read.
    """

    def __init__(
        self, settings: RoundsSettings, shards: int, owner: StateOwner, *, most: int | None = None
    ) -> None:
        self._owner = owner
        self._most = most  # users of a shard in a window
        self._settings = settings
        self._shards = shards

    def setup(self) -> None:
        """Begin to count."""
        self._mark = self._owner.mark()
        self._places = slot_key(self._owner.load())
        self._late, self._again = (
            metric_counter("rejected_", why, private=True) for why in ("late", "duplicate")
        )
        self._beyond = metric_counter("rejected_", TOO_MANY, private=True)

    def process(
        self,
        element: tuple[tuple[int, int], Iterable[ForRound]],
        pane: Any = beam.DoFn.PaneInfoParam,
    ) -> Iterator[Any]:
        """Join what is on time."""
        shard = self._mark.shard(element[0][0])

        # A pane that is early, late or second is none of the round.
        batches = list(element[1])
        if pane.timing in (PaneInfoTiming.EARLY, PaneInfoTiming.LATE) or pane.index > 0:
            self._late.inc(sum(batch.n_samples for batch in batches))
            return

        if (
            not batches
        ):  # a second pane of Flink, where event time passes a window and all its lateness at once
            return

        for window, parts in _rounds(self._settings, batches):
            joined = self._joined(window, parts)
            if self._settings.windows.kind != "session":
                yield shard, self._with_room(joined)

                # Users of a session are spread over shards again.
                continue

            for part_shard, places in samples_by_shard(joined.words, self._shards):
                yield carried_in_window(
                    self._settings, (part_shard, self._with_room(joined.take(places))), window
                )

    def _with_room(self, batch: UserBatch) -> UserBatch:
        """Leave out users beyond the greatest number."""
        # Names decide who has room, under a key: nobody can place themselves first.
        if self._most is None or len(batch) <= self._most:
            return batch
        kept = batch.take(
            admission_names(slot_name_hashes(batch.names.to_pylist(), self._places), self._most)
        )
        self._beyond.inc(batch.n_samples - kept.n_samples)

        return kept

    # Sums are joined as they are; samples with ids are summed up once repeats are out.
    def _joined(self, window: Window, parts: list[ForRound]) -> UserBatch:
        sums = [_of(window, part) for part in parts if isinstance(part, UserBatch)]
        samples = [part for part in parts if isinstance(part, UserSamples)]
        if samples:
            summed, again = sum_distinct(self._settings, window, samples)
            self._again.inc(again)
            sums.append(summed)

        return join_user_records(sums)


def _rounds(
    settings: RoundsSettings, batches: list[ForRound]
) -> Iterator[tuple[Window, list[ForRound]]]:
    """Group batches by round.

    There is one, except where Beam's milliseconds have joined two sessions.
    """
    # Sessions that touch are one window.
    if settings.windows.kind != "session":
        yield batches[0].window, batches
        return

    ends: Ints = np.array([batch.window for batch in batches], np.int64)
    number, found = merge_session_windows(ends[:, 0], ends[:, 1])
    groups = defaultdict(list)
    for place, batch in zip(number.tolist(), batches, strict=True):
        groups[place].append(batch)

    for place, window in enumerate(found):
        yield window, groups[place]


def _of(window: Window, batch: UserBatch) -> UserBatch:
    return UserBatch(window=window, names=batch.names, words=batch.words, sums=batch.sums)


def _together(parts: list[SampleColumns]) -> SampleColumns:
    """Join batches, of one directory of users or of several.

    A user of two directories has two numbers.
    """
    starts: dict[int, int] = {}
    names: list[str] = []

    # Directories are joined once each.
    for part in parts:
        if id(part.names) not in starts:
            starts[id(part.names)] = len(names)
            names = names + part.names if names else part.names

    agent = np.concatenate([part.agent + starts[id(part.names)] for part in parts])
    value = np.concatenate([part.value for part in parts])
    time = np.concatenate([part.time for part in parts])
    key = None

    if any(part.key is not None for part in parts):
        key = np.concatenate([distinct_keys(part) for part in parts])

    return SampleColumns(
        names, agent, value, time, key, np.concatenate([part.position for part in parts])
    )


def _used(samples: SampleColumns) -> tuple[Ints, list[str]]:
    """Give the users that occur, and their numbers; a source's directory may be much longer."""
    there = np.zeros(len(samples.names), np.bool_)
    there[samples.agent] = True

    if there.all():
        return samples.agent, samples.names
    used = np.flatnonzero(there)
    return (np.cumsum(there) - 1)[samples.agent], [samples.names[place] for place in used.tolist()]


def distinct_by_shard(
    settings: RoundsSettings,
    samples: SampleColumns,
    words: Callable[[list[str]], Words],
    shards: int,
) -> Iterator[TimestampedValue]:
    """Give samples that have ids to the shards of their users, per window, at the time of their round.

    As with sums, a session's shard is 0.
    """
    # Samples of each user, window and shard together.
    used, user = np.unique(samples.agent, return_inverse=True)
    names = [samples.names[place] for place in used.tolist()]
    hashes = words(names)
    text = pa.array(names, pa.large_string())
    keys = distinct_keys(samples)
    at = settings.windows.assign(samples.time)
    number, windows = summarize_numbered_windows(settings.windows, at.start, at.end)
    order = np.argsort(number, kind="stable")
    edges = np.searchsorted(number[order], np.arange(len(windows) + 1)).tolist()

    for place, window in enumerate(windows):
        inside = at.sample[order[edges[place] : edges[place + 1]]]
        for shard, mine in samples_by_shard(
            hashes[user[inside]], 1 if settings.windows.kind == "session" else shards
        ):
            rows = inside[mine]
            there, code = np.unique(user[rows], return_inverse=True)
            part = UserSamples(
                window=window, names=text.take(pa.array(there)), words=hashes[there], user=code.astype(np.int64),
                value=samples.value[rows], time=samples.time[rows], key=keys[rows],
                position=samples.position[rows],
            )  # fmt: skip
            yield carried_in_window(settings, (shard, part), window)


def split_distinct(samples: SampleColumns) -> tuple[SampleColumns, SampleColumns]:
    """Tell samples without an id from those that have one."""
    has = distinct_keys(samples) != 0
    return samples.take(~has), samples.take(has)


def sum_distinct(
    settings: RoundsSettings, window: Window, parts: Sequence[UserSamples]
) -> tuple[UserBatch, int]:
    """Sum up the samples of a round, in whatever parts they came; tell how many were repeats.

    Of several samples of a user with one id the first in event time counts. A repeat that is in
    several windows is told in the one that is released first.
    """
    # A repeated id counts once, whatever parts the samples came in.
    known, code = record_user_words(np.concatenate([part.words for part in parts]))
    starts = np.cumsum([0, *(len(part.words) for part in parts[:-1])])
    user: Ints = code[
        np.concatenate(
            [part.user + start for part, start in zip(parts, starts.tolist(), strict=True)]
        )
    ]

    value = np.concatenate([part.value for part in parts])
    time: Floats = np.concatenate([part.time for part in parts])
    key = np.concatenate([part.key for part in parts])
    order = np.lexsort((np.concatenate([part.position for part in parts]), key, time))
    again = np.zeros(len(key), np.bool_)
    again[order] = repeated_samples(user[order], key[order])

    sums = summarize(user[~again], value[~again], time[~again], settings.grid)
    names = pa.concat_arrays([part.names for part in parts]).take(pa.array(known[sums.user]))
    words = np.concatenate([part.words for part in parts])[known[sums.user]]
    columns = {**sums.columns(), "user": np.arange(len(sums))}
    told = again

    # In overlapping windows a repeat is told once, in the newest.
    if settings.windows.overlap > 1:
        told = again & (windows_in_micros(time) >= window.end - settings.windows.period)

    batch = UserBatch(window=window, names=names, words=words, sums=type(sums)(**columns))
    return batch, int(np.count_nonzero(told))


def distinct_keys(samples: SampleColumns) -> Words:
    """Give the hash of each sample's id; 0 for none."""
    if samples.key is None:
        return np.zeros(len(samples), np.uint64)
    return samples.key
