"""Samples as columns: the unit of work between a source and the agents; how their records and ids are numbered."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from meanstream.operators.records import Bools, Floats, Ints, Words
from meanstream.operators.validation import require

Position = dict[str, Any]
"""Where to resume a source: plain JSON values, opaque to everyone but the source."""

PARTITION_SHIFT = 44
"""The position of a record holds the source's partition in the bits above these; a file is
partition 0."""


def column_partitions(position: Ints) -> Ints:
    """Partition of each record of a source.

    Examples
    --------
    >>> at = column_position(3, np.array([7, 8]))
    >>> column_partitions(at).tolist(), column_positions(at).tolist()
    ([3, 3], [7, 8])
    """
    return position >> PARTITION_SHIFT


def column_positions(position: Ints) -> Ints:
    """Line, row or offset of each record within its partition."""
    return position & ((1 << PARTITION_SHIFT) - 1)


def column_position(partition: int | Ints, place: Ints) -> Ints:
    """Position of records of a partition."""
    return (partition << PARTITION_SHIFT) | place


@dataclass(frozen=True, slots=True)
class SampleColumns:
    """Private: samples of one batch, one entry per sample.

    Attributes
    ----------
    names : list of str
        The source's directory of agents so far. It only grows, and batches share it; a source that
        has given very many names begins a new list, which its later batches share.
    agent : int array
        Index into `names`.
    value : float array (n,) or (n, v)
        Finite values, in the unit of the declared bounds; rows of coordinates, where a sample is a
        vector. In rounds a NaN stands for a record without a valid value: its user takes part.
    time : float array
        Event time, seconds since the epoch.
    key : uint64 array or None
        Keyed hash of each sample's id; None where the source has no ids.
    position : int array
        Line or row in the source, from 1; with several partitions, see `column_position`.
    person : uint64 array or None
        Keyed hash of whose sample each is; None where persons are not distinguished.
    """

    names: list[str]
    agent: Ints
    value: Floats
    time: Floats
    key: Words | None
    position: Ints
    person: Words | None = None

    def __len__(self) -> int:
        return len(self.agent)

    def take(self, which: Ints | Bools | slice) -> SampleColumns:
        """Select entries; the list of names stays."""
        key = None if self.key is None else self.key[which]
        person = None if self.person is None else self.person[which]
        return SampleColumns(
            self.names,
            self.agent[which],
            self.value[which],
            self.time[which],
            key,
            self.position[which],
            person,
        )


def no_sample_columns(*, keyed: bool = False) -> SampleColumns:
    """Columns without an entry."""
    none = np.zeros(0, np.int64)
    nothing = np.zeros(0)
    return SampleColumns(
        [], none, nothing, nothing, np.zeros(0, np.uint64) if keyed else None, none
    )


def concatenate_columns(parts: Sequence[SampleColumns]) -> SampleColumns:
    """Join batches of one source, of one directory of agents or of several."""
    parts = [columns for columns in parts if len(columns)]
    if not parts:
        return no_sample_columns()
    if len(parts) == 1:
        return parts[0]

    keys = [columns.key for columns in parts if columns.key is not None]
    persons = [columns.person for columns in parts if columns.person is not None]
    return SampleColumns(
        *numbered_columns_together(parts),
        np.concatenate([columns.value for columns in parts]),
        np.concatenate([columns.time for columns in parts]),
        np.concatenate(keys) if len(keys) == len(parts) else None,
        np.concatenate([columns.position for columns in parts]),
        np.concatenate(persons) if len(persons) == len(parts) else None,
    )


def numbered_columns_together(parts: Sequence[SampleColumns]) -> tuple[list[str], Ints]:
    """Give the agents of batches, of one directory or of several, numbers.

    The same name has the same number.
    """
    if all(columns.names is parts[0].names for columns in parts):
        return parts[-1].names, np.concatenate([columns.agent for columns in parts])
    numbers: dict[str, int] = {}
    agents: list[Ints] = []
    seen: dict[int, tuple[int, Ints]] = {}

    for columns in parts:
        if id(columns.names) not in seen or seen[id(columns.names)][0] < len(columns.names):
            table = np.fromiter(
                (numbers.setdefault(name, len(numbers)) for name in columns.names),
                np.int64,
                len(columns.names),
            )
            seen[id(columns.names)] = len(columns.names), table

        agents.append(seen[id(columns.names)][1][columns.agent])

    return list(numbers), np.concatenate(agents)


@dataclass(slots=True)
class Rejects:
    """Records that were not used.

    Reason, position and, for unreadable ones, a rounded size; never their content.
    """

    reason: list[str] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    size: list[int | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.reason)

    def add(self, reason: str, position: int, size: int | None = None) -> None:
        """Note one record; its size is rounded up to a power of two."""
        self.reason.append(reason)
        self.position.append(int(position))
        self.size.append(None if size is None else 1 << max(size - 1, 0).bit_length())

    def add_many(self, reason: str, positions: Ints) -> None:
        """Note readable records that share a reason."""
        self.reason += [reason] * len(positions)
        self.position += positions.tolist()
        self.size += [None] * len(positions)

    def part(self, start: int, stop: int) -> Rejects:
        """Select some, in their order."""
        return Rejects(self.reason[start:stop], self.position[start:stop], self.size[start:stop])

    def extend(self, other: Rejects) -> None:
        """Append another list."""
        self.reason += other.reason
        self.position += other.position
        self.size += other.size


@dataclass(frozen=True, slots=True)
class Batch:
    """What a source gave: samples, rejected records, and the position after them.

    `exhausted` says that a bounded source has ended; an empty batch that is not exhausted means:
    nothing yet. `active` names the partitions that more is expected of soon: event time waits for
    each of them, and for no other. `lag` is the number of records that the source holds beyond this
    batch, where it can tell; `lags` the same by topic and partition. `commit_age` is the time since
    others were last told what is committed, in seconds, where there are such.
    """

    samples: SampleColumns
    rejects: Rejects
    position: Position
    exhausted: bool = False
    active: tuple[int, ...] = (0,)
    lag: int | None = None
    lags: dict[tuple[str, int], int] = field(default_factory=dict)
    commit_age: float | None = None


SEPARATOR = ","
"""Between the names of topics; none can have it."""
TOPIC_SHIFT = 13
"""A number holds the topic, counted from 1, in the bits above these; of a source that is no topics
they are 0."""
MOST_TOPICS = 32
MOST_PARTITIONS = 1 << TOPIC_SHIFT
"""Of one topic among several."""


def joined_topics(topics: Iterable[str]) -> str:
    """Give the name of a source, which is the same in whichever order its topics are written."""
    return SEPARATOR.join(sorted(topics))


def topics_joined(source: str) -> tuple[str, ...]:
    """Give the topics of a source; of another source than topics its own name."""
    return tuple(source.split(SEPARATOR))


def topics_partition(topic: int, partition: int, name: str) -> int:
    """Give the number of a partition of one topic among several."""
    require(
        partition < MOST_PARTITIONS,
        "source",
        f"have below {MOST_PARTITIONS} partitions in a source of several topics",
        name,
    )

    return (topic + 1) << TOPIC_SHIFT | partition


def topic_partition(source: str, partition: int) -> tuple[str, int]:
    """Give the name and the partition under which others know the partition of a source.

    Examples
    --------
    >>> topic_partition("orders,returns", topics_partition(1, 3, "returns"))
    ('returns', 3)
    >>> topic_partition("a,b.csv", 0)
    ('a,b.csv', 0)
    """
    names = topics_joined(source)
    topic = partition >> TOPIC_SHIFT
    if len(names) == 1 or not topic:
        return source, partition

    return names[topic - 1], partition & (MOST_PARTITIONS - 1)


def topics_position(topic: int, position: Ints) -> Ints:
    """Give positions of records of one topic as those of a source of several."""
    return position + ((topic + 1) << (TOPIC_SHIFT + PARTITION_SHIFT))


def topics_own_positions(topic: int, position: Ints) -> Ints:
    """Select the positions that are of one topic among several, and give them as those of that topic alone."""
    shift = TOPIC_SHIFT + PARTITION_SHIFT
    own: Ints = position[position >> shift == topic + 1]
    return own & ((1 << shift) - 1)


def topics_index(source: str, name: str) -> int | None:
    """Say which of the topics of a source has a name.

    None if it is no source of several, or none has.
    """
    names: Sequence[str] = topics_joined(source)

    if len(names) > 1 and name in names:
        return names.index(name)
    return None


MAX_ID_BYTES = 256

PERSONS = b" of persons"
"""Key of the hash of persons: no secret, so that anyone who reads a person's samples, and how,
counts them as one's."""


@lru_cache(maxsize=4)
def _table(key: bytes) -> Words:
    """Random words for every (position, byte), drawn from the key."""
    stream = hashlib.shake_256(b"meanstream sample ids" + key).digest(MAX_ID_BYTES * 256 * 8)
    return np.frombuffer(stream, "<u8").reshape(MAX_ID_BYTES, 256)


def hash_ids(data: np.ndarray, offsets: Ints, key: bytes = b"") -> Words:
    """Hash byte strings that lie one after the other.

    Simple tabulation hashing, a table look-up per byte.

    Two different ids collide with probability 2**-64 over the key, which anyone who writes the ids
    does not know.

    Examples
    --------
    >>> ids = np.frombuffer(b"aabab", np.uint8)
    >>> a, ab, again = hash_ids(ids, np.array([0, 1, 3, 5])).tolist()
    >>> a != ab, ab == again
    (True, True)
    """
    if len(offsets) < 2:
        return np.zeros(0, np.uint64)
    length, data = np.diff(offsets), data[offsets[0] : offsets[-1]]
    table = _table(key)

    if np.all(length == length[0]):  # as most are: then a position at a time is three times as fast
        words = np.zeros(len(length), np.uint64)
        for position, column in zip(table, data.reshape(len(length), -1).T, strict=False):
            words ^= position[column]

        return words

    start = offsets[:-1] - offsets[0]
    byte_index = np.arange(len(data)) - np.repeat(start, length)
    return np.bitwise_xor.reduceat(table[byte_index, data], start)
