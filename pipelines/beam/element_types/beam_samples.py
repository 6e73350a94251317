"""Samples in batches, and the shards of those who gave them: what agents and rounds share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.coders import typecoders
from pyarrow import compute as pc

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.records import AnyInts, Bools, Floats, Ints, Words
from meanstream.operators.validation import require
from meanstream.pipelines.beam.element_types.columns_coder import record_bytes, record_of_bytes
from meanstream.pipelines.beam.element_types.events import OwnCoder
from meanstream.streaming.events.base import MAX_NAME, NAME_PATTERN
from meanstream.streaming.events.event_columns import SampleColumns
from meanstream.streaming.sources.source_directory import names_in_one_spelling

SHARDS = 8
"""Of users of rounds, by default."""
AGENT_SHARDS = 16
"""Of agents: one for each 62,500 of those that are taken by default, so that the state of each
stays small.

Each costs a turn's overhead in every window that it has samples in.
"""


BATCH = 1 << 18
"""Samples are collected, that many at a time, one by one or in batches; a user then has one sum for
many samples."""


MAX_REMEMBERED = 1 << 20
"""Users whose hash a worker remembers."""

FEW = 1 << 14
"""Names of a batch whose hashes are remembered."""

NOBODY = ""
"""Stands in a batch for every name that is none: such samples are rejected where the batch is
read."""


def sample_batch(
    user: Sequence[str] | np.ndarray | pa.Array, value: Any, time: Any
) -> SampleColumns:
    """Make one element of many samples.

    Parameters
    ----------
    user : sequence of str (n,)
        Who.
    value : float array (n,), or (n, coordinates) for estimators of vectors
        In the unit of the declared bounds, or numbers of declared categories from 0. A sample that
        is not finite is rejected where the batch is read, and so is one without a name or with an
        implausible time.
    time : float array (n,)
        Event time, seconds since the epoch.

    Raises
    ------
    ValueError
        If a column holds something else, or they are not of one length. No datum is shown.

    Examples
    --------
    >>> batch = sample_batch(["a", "b", "a"], [1.0, 2.0, 3.0], [0.0, 1.0, 2.0])
    >>> batch.names, batch.agent.tolist()
    (['a', 'b'], [0, 1, 0])
    """
    coded = _column("user", user).dictionary_encode()
    values = _numbers("value", value)
    times = _numbers("time", time)
    require(
        len(values) == len(times) == len(coded),
        "columns",
        "be of one length",
        [len(coded), len(values), len(times)],
    )

    names = coded.dictionary
    shaped = pc.and_(
        pc.match_substring_regex(names, NAME_PATTERN), pc.invert(pc.utf8_is_space(names))
    )
    # An agent has one spelling, and one budget.
    shaped = pc.and_(shaped, pa.array(names_in_one_spelling(names)))
    good = pc.and_(shaped, pc.less_equal(pc.utf8_length(names), MAX_NAME)).to_pylist()
    agent: Ints = coded.indices.fill_null(len(good)).to_numpy(zero_copy_only=False).astype(np.int64)
    known = names.to_pylist()

    if not all(good) or coded.null_count:
        kept = np.flatnonzero(good)
        places = np.full(len(good) + 1, len(kept))
        places[kept] = np.arange(len(kept))
        agent, known = places[agent], [*(known[place] for place in kept.tolist()), NOBODY]

    return SampleColumns(known, agent, values, times, None, np.zeros(len(agent), np.int64))


def _column(name: str, given: Any) -> pa.Array:
    try:
        return pa.array(given, pa.string())
    except (pa.ArrowException, TypeError, ValueError):  # whose text shows what it found
        raise ValueError(f"{name} must be strings, got something else") from None


def _numbers(name: str, given: Any) -> Floats:
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be numbers, got something else") from None


def samples_by_shard(words: Words, shards: int) -> Iterator[tuple[int, Ints]]:
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


def repeated_samples(owner: AnyInts, key: Words) -> Bools:
    """Say which samples repeat an id of their own agent or user, as they stand; 0 is no id.

    Examples
    --------
    >>> repeated_samples(np.array([0, 1, 0, 1]), np.array([7, 7, 7, 0], np.uint64)).tolist()
    [False, False, True, False]
    """
    again = np.zeros(len(key), np.bool_)
    order = np.argsort(key, kind="stable")
    if not np.any(key[order[1:]] == key[order[:-1]]):  # the usual case
        return again

    order = np.lexsort((owner, key))
    again[order[1:]] = (key[order[1:]] == key[order[:-1]]) & (owner[order[1:]] == owner[order[:-1]])
    return np.asarray(again & (key != 0))


class RememberedWords:
    """Hashes of users, each made once as long as they are not too many."""

    def __init__(self) -> None:
        self._forget()

    def of(self, names: list[str]) -> Words:
        """Give the hash of each name.

        To remember more than a few at once costs more than to hash them again.
        """
        if len(names) > FEW:
            return keyed_owner_words(names)

        if len(self._place) + len(names) > MAX_REMEMBERED:
            self._forget()

        place = self._place
        unknown = [name for name in names if name not in place]
        if len(unknown) == len(names):
            words = keyed_owner_words(names)
            self._remember(unknown, words)
            return words

        if unknown:
            self._remember(unknown, keyed_owner_words(unknown))

        return self._words[np.fromiter(map(place.__getitem__, names), np.int64, len(names))]

    def _forget(self) -> None:
        self._place: dict[str, int] = {}
        self._words: Words = np.zeros((0, 2), np.uint64)  # with room at the end
        self._many = 0

    def _remember(self, names: list[str], words: Words) -> None:
        many = self._many + len(names)
        if many > len(self._words):
            grown = np.zeros((max(many, 2 * len(self._words)), 2), np.uint64)
            grown[: self._many] = self._words[: self._many]
            self._words = grown

        self._words[self._many : many] = words
        self._place.update(zip(names, range(self._many, many), strict=True))
        self._many = many


class AgentBatch(SampleColumns):
    """Private: samples as a pipeline's element, with their ids.

    Made by `agent_transforms.agent_batch`.
    """

    __slots__ = ()

    def take(self, which: Ints | Bools | slice) -> AgentBatch:
        """Select entries; the list of names stays."""
        some = SampleColumns.take(self, which)
        return AgentBatch(
            some.names, some.agent, some.value, some.time, some.key, some.position, some.person
        )


class SampleColumnsCoder(OwnCoder):
    """Private: samples as arrays, and of their directory the names that occur.

    Columns that do not belong together come out as they went in: whoever reads the batch rejects
    and counts it.
    """

    def __init__(self, kind: type[SampleColumns] = SampleColumns) -> None:
        self._kind = kind

    @classmethod
    def from_type_hint(cls, typehint: Any, _registry: Any) -> SampleColumnsCoder:
        """Give the coder of a type, as Beam asks for it."""
        return cls(typehint)

    def encode(self, value: SampleColumns) -> bytes:
        """Write columns and names."""
        used, agent = np.unique(value.agent, return_inverse=True)
        if len(used) and not (used[0] >= 0 and used[-1] < len(value.names)):
            used = np.arange(len(value.names))
            agent = value.agent

        names = pa.array([value.names[place] for place in used.tolist()], pa.large_string())
        return record_bytes("batch", (names, agent, *_columns(value)))

    def decode(self, encoded: bytes) -> SampleColumns:
        """Read them."""
        names, *columns = record_of_bytes("batch", encoded)
        return self._kind(names.to_pylist(), *columns)

    def estimate_size(self, value: SampleColumns) -> int:
        """Runners ask often; names are not counted, as batches share them."""
        columns = (value.agent, *_columns(value))
        return sum(column.nbytes for column in columns if column is not None)


def _columns(samples: SampleColumns) -> tuple[np.ndarray | None, ...]:
    return samples.value, samples.time, samples.key, samples.position, samples.person


typecoders.registry.register_coder(AgentBatch, SampleColumnsCoder)
typecoders.registry.register_coder(SampleColumns, SampleColumnsCoder)
