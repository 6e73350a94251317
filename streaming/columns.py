"""Samples as columns: the unit of work between a source and the agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from operators.records import Bools, Floats, Ints, Words

Position = dict[str, Any]
"""Where to resume a source: plain JSON values, opaque to everybody but the source."""

PARTITION_SHIFT = 44
"""The position of a record holds the source's partition in the bits above these; a file is partition 0."""


def partition_of(position: Ints) -> Ints:
    """Partition of each record of a source.

    Examples
    --------
    >>> at = record_position(3, np.array([7, 8]))
    >>> partition_of(at).tolist(), place_in_partition(at).tolist()
    ([3, 3], [7, 8])
    """
    return position >> PARTITION_SHIFT


def place_in_partition(position: Ints) -> Ints:
    """Line, row or offset of each record within its partition."""
    return position & ((1 << PARTITION_SHIFT) - 1)


def record_position(partition: int | Ints, place: Ints) -> Ints:
    """Position of records of a partition."""
    return (partition << PARTITION_SHIFT) | place


@dataclass(frozen=True, slots=True)
class SampleColumns:
    """Private: samples of one batch, one entry per sample.

    Attributes
    ----------
    names : list of str
        The source's directory of agents so far; it only grows, and its batches share it.
    agent : int array
        Index into `names`.
    value : float array (n,) or (n, v)
        Finite values, in the unit of the declared bounds; rows of coordinates, where a sample is a vector.
    time : float array
        Event time, seconds since the epoch.
    key : uint64 array or None
        Keyed hash of each sample's id; None where the source has no ids.
    position : int array
        Line or row in the source, from 1; with several partitions, see `record_position`.
    """

    names: list[str]
    agent: Ints
    value: Floats
    time: Floats
    key: Words | None
    position: Ints

    def __len__(self) -> int:
        return len(self.agent)

    def take(self, which: Ints | Bools | slice) -> SampleColumns:
        """Select entries; the list of names stays."""
        key = None if self.key is None else self.key[which]
        return SampleColumns(
            self.names, self.agent[which], self.value[which], self.time[which], key, self.position[which]
        )


def no_samples(*, keyed: bool = False) -> SampleColumns:
    """Columns without an entry."""
    none, nothing = np.zeros(0, np.int64), np.zeros(0)
    return SampleColumns([], none, nothing, nothing, np.zeros(0, np.uint64) if keyed else None, none)


def concatenate(parts: Sequence[SampleColumns]) -> SampleColumns:
    """Join batches of one source."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return no_samples()
    if len(parts) == 1:
        return parts[0]
    keys = [part.key for part in parts if part.key is not None]
    return SampleColumns(
        parts[0].names,
        np.concatenate([part.agent for part in parts]),
        np.concatenate([part.value for part in parts]),
        np.concatenate([part.time for part in parts]),
        np.concatenate(keys) if len(keys) == len(parts) else None,
        np.concatenate([part.position for part in parts]),
    )


@dataclass(slots=True)
class Rejects:
    """Records that were not used: reason, position and, for unreadable ones, a rounded size; never their content."""

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

    def extend(self, other: Rejects) -> None:
        """Append another list."""
        self.reason += other.reason
        self.position += other.position
        self.size += other.size


@dataclass(frozen=True, slots=True)
class Batch:
    """What a source gave: samples, rejected records, and the position after them.

    `exhausted` says that a bounded source has ended; an empty batch that is not exhausted means: nothing yet.
    `active` names the partitions that more is expected of soon: event time waits for each of them, and for no other.
    `lag` is the number of records that the source holds beyond this batch, where it can tell.
    """

    samples: SampleColumns
    rejects: Rejects
    position: Position
    exhausted: bool = False
    active: tuple[int, ...] = (0,)
    lag: int | None = None
