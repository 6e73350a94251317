"""Samples in batches, and the shards of those who gave them: what agents and rounds share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from operators.noise import owner_words
from operators.records import Ints, Words
from streaming.columns import SampleColumns

SHARDS = 8


BATCH = 1 << 18
"""Samples are collected, so many at a time, one by one or in batches; a user then has one sum for many samples."""


MAX_REMEMBERED = 1 << 20
"""Users whose hash a worker remembers."""


def sample_batch(user: Sequence[str] | np.ndarray | pa.Array, value: Any, time: Any) -> SampleColumns:
    """Make one element of many samples.

    Parameters
    ----------
    user : sequence of str (n,)
        Who.
    value : float array (n,), or (n, coordinates) for estimators of vectors
        Finite, in the unit of the declared bounds.
    time : float array (n,)
        Event time, seconds since the epoch.

    Examples
    --------
    >>> batch = sample_batch(["a", "b", "a"], [1.0, 2.0, 3.0], [0.0, 1.0, 2.0])
    >>> batch.names, batch.agent.tolist()
    (['a', 'b'], [0, 1, 0])
    """
    coded = pa.array(user, pa.string()).dictionary_encode()
    agent = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    values, times = np.asarray(value, np.float64), np.asarray(time, np.float64)
    return SampleColumns(coded.dictionary.to_pylist(), agent, values, times, None, np.zeros(len(agent), np.int64))


def by_shard(words: Words, shards: int) -> Iterator[tuple[int, Ints]]:
    """Split users by hash: the shard, and the places of its users."""
    if shards == 1:
        yield 0, np.arange(len(words))
        return
    shard = (words[:, 1] % np.uint64(shards)).astype(np.int64)
    order = np.argsort(shard, kind="stable")
    edges = np.searchsorted(shard[order], np.arange(shards + 1)).tolist()
    for number in range(shards):
        if edges[number] < edges[number + 1]:
            yield number, order[edges[number] : edges[number + 1]]


class RememberedWords:
    """Hashes of users, each made once as long as they are not too many."""

    def __init__(self) -> None:
        self._place: dict[str, int] = {}
        self._words: Words = np.zeros((0, 2), np.uint64)

    def of(self, names: list[str]) -> Words:
        """Give the hash of each name."""
        if len(self._place) + len(names) > MAX_REMEMBERED:
            self._place, self._words = {}, np.zeros((0, 2), np.uint64)
        place = self._place
        unknown = [name for name in names if name not in place]
        if len(unknown) == len(names):
            words = owner_words(names)
            self._remember(unknown, words)
            return words
        if unknown:
            self._remember(unknown, owner_words(unknown))
        return self._words[np.fromiter(map(place.__getitem__, names), np.int64, len(names))]

    def _remember(self, names: list[str], words: Words) -> None:
        self._place.update(zip(names, range(len(self._words), len(self._words) + len(names)), strict=True))
        self._words = np.concatenate([self._words, words])
