"""Samples as columns: the unit of work between a source and the agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meanstream.operators.records import Bools, Floats, Ints, Words

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
    parts = [part for part in parts if len(part)]
    if not parts:
        return no_sample_columns()
    if len(parts) == 1:
        return parts[0]

    keys = [part.key for part in parts if part.key is not None]
    persons = [part.person for part in parts if part.person is not None]
    return SampleColumns(
        *numbered_columns_together(parts),
        np.concatenate([part.value for part in parts]),
        np.concatenate([part.time for part in parts]),
        np.concatenate(keys) if len(keys) == len(parts) else None,
        np.concatenate([part.position for part in parts]),
        np.concatenate(persons) if len(persons) == len(parts) else None,
    )


def numbered_columns_together(parts: Sequence[SampleColumns]) -> tuple[list[str], Ints]:
    """Give the agents of batches, of one directory or of several, numbers.

    The same name has the same number.
    """
    if all(part.names is parts[0].names for part in parts):
        return parts[-1].names, np.concatenate([part.agent for part in parts])
    place: dict[str, int] = {}
    agents: list[Ints] = []
    seen: dict[int, tuple[int, Ints]] = {}

    for part in parts:
        if id(part.names) not in seen or seen[id(part.names)][0] < len(part.names):
            table = np.fromiter(
                (place.setdefault(name, len(place)) for name in part.names),
                np.int64,
                len(part.names),
            )
            seen[id(part.names)] = len(part.names), table

        agents.append(seen[id(part.names)][1][part.agent])

    return list(place), np.concatenate(agents)


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
    batch, where it can tell; `lags` the same by topic and partition.
    """

    samples: SampleColumns
    rejects: Rejects
    position: Position
    exhausted: bool = False
    active: tuple[int, ...] = (0,)
    lag: int | None = None
    lags: dict[tuple[str, int], int] = field(default_factory=dict)
