"""The hash chain over the rows of a ledger."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from meanstream.streaming.store.state_snapshot import (
    CorruptedSnapshotError,
    seal_snapshot,
    unseal_snapshot,
)

START = bytes(32)
"""What stands before the first row."""

SEGMENT = 4096
"""Rows after which the chain takes a step."""

_NUMBERS = [(name, ">i8") for name in ("seq", "release_index", "input_version", "charge")] + [
    ("time", ">f8")
]
_LENGTHS = [("name", ">i8"), ("output", ">i8")]
_ROW = np.dtype(_NUMBERS + _LENGTHS)


@dataclass(frozen=True, slots=True)
class LedgerColumns:
    """Rows of a ledger, a sequence per column.

    Attributes
    ----------
    seq : sequence of int
        Number of the row, from 1.
    agent, release_index : sequence of int
        Number of the agent, and which release of it this is, from 1.
    input_version : sequence of int
        Keyed digest of the exact input.
    charge : sequence of int
        Releases charged: 1.
    time : sequence of float
        Event time, seconds.
    output : sequence of bytes
        What left the process.
    """

    seq: Sequence[int]
    agent: Sequence[int]
    release_index: Sequence[int]
    input_version: Sequence[int]
    charge: Sequence[int]
    time: Sequence[float]
    output: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.seq)

    def columns(self) -> tuple[Sequence[Any], ...]:
        """Give the columns, in the order in which they are saved."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def part(self, rows: slice) -> LedgerColumns:
        """Select rows that follow each other."""
        return LedgerColumns(*(column[rows] for column in self.columns()))


class LedgerChain:
    """The chain's value, as rows are added.

    A segment is 4096 rows, counted from the first. A value is the SHA-256 of the value at the
    segment's begin and of three SHA-256 digests of its rows so far: of their numbers, of their
    agents' names, and of their outputs. A row's numbers are row number, release index, input
    version and charge as signed 64-bit integers, the time as a 64-bit float, and the lengths of
    name and output in bytes as integers, all big-endian. So the last value stands for everything
    that was ever charged, however many rows were added at a time.

    Parameters
    ----------
    rows : int
        Number of rows so far; no segment has begun that is not complete.
    value : bytes
        The chain's value there.

    Notes
    -----
    **Privacy.** Agents are numbered in the order in which they are first seen. In rounds that order is private, and the
    chain's value is not: their names alone are in it. The same holds for the number of rows in a commit.

    Examples
    --------
    >>> rows = LedgerColumns([1, 2], [0, 0], [1, 2], [7, 8], [1, 1], [0.0, 1.0], [b"one", b"two"])
    >>> chain, other, apart = LedgerChain(), LedgerChain(), LedgerChain()
    >>> chain.extend(rows, [b"ann"])
    >>> other.extend(rows, [b"bob"])
    >>> for part in (slice(0, 1), slice(1, 2)):
    ...     apart.extend(rows.part(part), [b"ann"])
    >>> chain.value == other.value, chain.value == apart.value
    (False, True)
    """

    def __init__(self, rows: int = 0, value: bytes = START) -> None:
        self.rows = rows
        self.value = value
        self._begin()

    @property
    def room(self) -> int:
        """Rows up to the segment's end."""
        return SEGMENT - self.rows % SEGMENT

    def extend(self, rows: LedgerColumns, names: Sequence[bytes]) -> None:
        """Add rows, at most those that there is room for.

        `names` are those of all agents, by number.
        """
        for digest, chained in zip(self._digests, chained_bytes(rows, names), strict=True):
            digest.update(chained)

        self.rows += len(rows)
        self.value = chain_value(self._start, [digest.digest() for digest in self._digests])

        if self.room == SEGMENT:
            self._begin()

    def _begin(self) -> None:
        self._start = self.value
        self._digests = (sha256(), sha256(), sha256())


def chained_bytes(rows: LedgerColumns, names: Sequence[bytes]) -> tuple[bytes, bytes, bytes]:
    """Give what the chain takes of rows: their numbers, their agents' names, their outputs."""
    owners = [names[a] for a in np.asarray(rows.agent).tolist()]
    numbers = np.empty(len(rows), _ROW)
    for field, _ in _NUMBERS:
        numbers[field] = getattr(rows, field)

    for field, texts in (("name", owners), ("output", rows.output)):
        numbers[field] = np.fromiter(map(len, texts), np.int64, len(rows))

    return numbers.tobytes(), b"".join(owners), b"".join(rows.output)


def chain_value(start: bytes, digests: Sequence[bytes]) -> bytes:
    """Give the chain's value, from the one at the segment's begin and three digests of rows."""
    return sha256(start + b"".join(digests)).digest()


_SIZES = struct.Struct("<qq")  # rows, bytes before compression
_CODEC = "zstd"
_COLUMNS = {
    "agent": "<i8",
    "release_index": "<i8",
    "input_version": "<i8",
    "charge": "<i8",
    "time": "<f8",
}
_LENGTH = "<i8"


def pack_ledger_rows(rows: LedgerColumns) -> bytes:
    """Write rows that follow each other; their sequence numbers are not among what is written.

    Examples
    --------
    >>> rows = LedgerColumns([8, 9], [0, 1], [1, 1], [7, 8], [1, 1], [0.0, 1.0], [b"one", b"two"])
    >>> unpack_ledger_rows(pack_ledger_rows(rows), last=9) == rows
    True
    """
    columns = [np.asarray(getattr(rows, name), kind).tobytes() for name, kind in _COLUMNS.items()]
    lengths = np.fromiter(map(len, rows.output), _LENGTH, len(rows)).tobytes()
    together = b"".join([*columns, lengths, *rows.output])
    packed = pa.compress(together, codec=_CODEC, asbytes=True)

    return seal_snapshot(_SIZES.pack(len(rows), len(together)) + packed)


def unpack_ledger_rows(data: bytes, *, last: int) -> LedgerColumns:
    """Read rows, of which the last one has this number.

    `CorruptedSnapshotError` if any byte was changed.
    """
    body = unseal_snapshot(data)
    if len(body) < _SIZES.size:
        raise CorruptedSnapshotError("block must have a header, got fewer bytes")
    n, size = _SIZES.unpack_from(body)
    together = pa.decompress(
        body[_SIZES.size :], decompressed_size=size, codec=_CODEC, asbytes=True
    )
    width = n * np.dtype(_LENGTH).itemsize
    columns = {
        name: np.frombuffer(together, kind, n, i * width).tolist()
        for i, (name, kind) in enumerate(_COLUMNS.items())
    }

    begin = len(_COLUMNS) * width
    lengths = np.frombuffer(together, _LENGTH, n, begin).tolist()
    outputs = [
        together[start:end] for start, end in pairwise(accumulate(lengths, initial=begin + width))
    ]

    return LedgerColumns(seq=list(range(last - n + 1, last + 1)), **columns, output=outputs)


def joined_ledger_rows(parts: list[LedgerColumns]) -> LedgerColumns:
    """Put rows one after the other."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*(rows.columns() for rows in parts), strict=True)
    return LedgerColumns(*([value for rows in column for value in rows] for column in columns))
