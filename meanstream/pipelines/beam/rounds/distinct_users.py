"""Private: samples that have ids, each to be counted once however often it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import TimestampedValue

from meanstream.operators.records import Floats, Ints, Words
from meanstream.pipelines.beam.element_types.beam_samples import repeated_samples, samples_by_shard
from meanstream.pipelines.beam.rounds.rounds_elements import UserBatch, UserSamples, record_user_words
from meanstream.pipelines.beam.rounds.rounds_windows import carried_in_window
from meanstream.streaming.events.event_columns import SampleColumns
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.summarize_users import summarize, summarize_numbered_windows
from meanstream.streaming.rounds.window_widths import Window, windows_in_micros


def distinct_by_shard(
    settings: RoundsSettings, samples: SampleColumns, words: Callable[[list[str]], Words], shards: int
) -> Iterator[TimestampedValue]:
    """Give samples that have ids to the shards of their users, per window, at the time of their round.

    As with sums, a session's shard is 0.
    """
    used, user = np.unique(samples.agent, return_inverse=True)
    names = [samples.names[place] for place in used.tolist()]
    hashes, text, keys = words(names), pa.array(names, pa.large_string()), distinct_keys(samples)
    at = settings.windows.assign(samples.time)
    number, windows = summarize_numbered_windows(settings.windows, at.start, at.end)
    order = np.argsort(number, kind="stable")
    edges = np.searchsorted(number[order], np.arange(len(windows) + 1)).tolist()
    for place, window in enumerate(windows):
        inside = at.sample[order[edges[place] : edges[place + 1]]]
        for shard, mine in samples_by_shard(hashes[user[inside]], 1 if settings.windows.kind == "session" else shards):
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


def sum_distinct(settings: RoundsSettings, window: Window, parts: Sequence[UserSamples]) -> tuple[UserBatch, int]:
    """Sum up the samples of a round, in whatever parts they came; tell how many were repeats.

    Of several samples of a user with one id the first in event time counts. A repeat that is in several windows is
    told in the one that is released first.
    """
    known, code = record_user_words(np.concatenate([part.words for part in parts]))
    starts = np.cumsum([0, *(len(part.words) for part in parts[:-1])])
    user: Ints = code[np.concatenate([part.user + start for part, start in zip(parts, starts.tolist(), strict=True)])]
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
    if settings.windows.overlap > 1:
        told = again & (windows_in_micros(time) >= window.end - settings.windows.period)
    batch = UserBatch(window=window, names=names, words=words, sums=type(sums)(**columns))
    return batch, int(np.count_nonzero(told))


def distinct_keys(samples: SampleColumns) -> Words:
    """Give the hash of each sample's id; 0 for none."""
    return np.zeros(len(samples), np.uint64) if samples.key is None else samples.key
