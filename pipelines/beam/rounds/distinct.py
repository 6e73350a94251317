"""Private: samples that have ids, each to be counted once however often it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import TimestampedValue

from operators.records import Bools, Floats, Ints, Words
from pipelines.beam.rounds.records import UserBatch, UserSamples, distinct_words
from pipelines.beam.rounds.windows import carried
from pipelines.beam.samples import by_shard
from streaming.columns import SampleColumns
from streaming.rounds.settings import RoundsSettings
from streaming.rounds.summarize import numbered, summarize
from streaming.rounds.windows import Window, in_micros


def samples_by_shard(
    settings: RoundsSettings, samples: SampleColumns, words: Callable[[list[str]], Words], shards: int
) -> Iterator[TimestampedValue]:
    """Give samples that have ids to the shards of their users, per window, at the time of their round.

    As with sums, a session's shard is 0.
    """
    used, user = np.unique(samples.agent, return_inverse=True)
    names = [samples.names[place] for place in used.tolist()]
    hashes, text, keys = words(names), pa.array(names, pa.large_string()), keys_of(samples)
    at = settings.windows.assign(samples.time)
    number, windows = numbered(settings.windows, at.start, at.end)
    order = np.argsort(number, kind="stable")
    edges = np.searchsorted(number[order], np.arange(len(windows) + 1)).tolist()
    for place, window in enumerate(windows):
        inside = at.sample[order[edges[place] : edges[place + 1]]]
        for shard, mine in by_shard(hashes[user[inside]], 1 if settings.windows.kind == "session" else shards):
            rows = inside[mine]
            there, code = np.unique(user[rows], return_inverse=True)
            part = UserSamples(
                window=window, names=text.take(pa.array(there)), words=hashes[there], user=code.astype(np.int64),
                value=samples.value[rows], time=samples.time[rows], key=keys[rows],
                position=samples.position[rows],
            )  # fmt: skip
            yield carried(settings, (shard, part), window)


def split_keyed(samples: SampleColumns) -> tuple[SampleColumns, SampleColumns]:
    """Tell samples without an id from those that have one."""
    has = keys_of(samples) != 0
    return samples.take(~has), samples.take(has)


def sum_once(settings: RoundsSettings, window: Window, parts: Sequence[UserSamples]) -> tuple[UserBatch, int]:
    """Sum up the samples of a round, in whatever parts they came; tell how many were repeats.

    Of several samples with one id the first in event time counts. A repeat that is in several windows is told in the
    one that is released first.
    """
    known, code = distinct_words(np.concatenate([part.words for part in parts]))
    starts = np.cumsum([0, *(len(part.words) for part in parts[:-1])])
    user: Ints = code[np.concatenate([part.user + start for part, start in zip(parts, starts.tolist(), strict=True)])]
    value = np.concatenate([part.value for part in parts])
    time: Floats = np.concatenate([part.time for part in parts])
    key = np.concatenate([part.key for part in parts])
    again = _repeats(key, time, np.concatenate([part.position for part in parts]))
    sums = summarize(user[~again], value[~again], time[~again], settings.grid)
    names = pa.concat_arrays([part.names for part in parts]).take(pa.array(known[sums.user]))
    words = np.concatenate([part.words for part in parts])[known[sums.user]]
    columns = {**sums.columns(), "user": np.arange(len(sums))}
    told = again
    if settings.windows.overlap > 1:
        told = again & (in_micros(time) >= window.end - settings.windows.period)
    batch = UserBatch(window=window, names=names, words=words, sums=type(sums)(**columns))
    return batch, int(np.count_nonzero(told))


def _repeats(key: Words, time: Floats, position: Ints) -> Bools:
    """Say which samples repeat the id of one before them; the order is that of event time, id and position."""
    order = np.lexsort((position, time, key))
    again = np.zeros(len(key), np.bool_)
    again[order[1:]] = key[order[1:]] == key[order[:-1]]
    return again


def keys_of(samples: SampleColumns) -> Words:
    """Give the hash of each sample's id; 0 for none."""
    return np.zeros(len(samples), np.uint64) if samples.key is None else samples.key
