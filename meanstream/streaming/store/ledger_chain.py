"""The hash chain over the rows of a ledger."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any

START = bytes(32)
"""What stands before the first row."""

_NUMBERS = struct.Struct(">qqqqdq").pack


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


def chain_links(before: bytes, rows: LedgerColumns, names: Sequence[bytes]) -> list[bytes]:
    """Give the chain's value at each row.

    It is the SHA-256 of the value before it; then of row number, release index, input version and charge as signed
    64-bit integers, the time as a 64-bit float and the length of the agent's name as an integer, all big-endian; then
    of the name and the output. So the last value stands for everything that was ever charged.

    **Privacy.** Agents are numbered in the order in which they are first seen. In rounds that order is private, and the
    chain's value is not: their names alone are in it.

    Examples
    --------
    >>> rows = LedgerColumns([1, 2], [0, 0], [1, 2], [7, 8], [1, 1], [0.0, 1.0], [b"one", b"two"])
    >>> first, second = chain_links(START, rows, [b"ann"])
    >>> len(second), chain_links(START, rows, [b"bob"])[0] == first
    (32, False)
    """
    name = [names[a] for a in rows.agent]
    columns: Any = (rows.release_index, rows.input_version, rows.charge, rows.time, map(len, name))
    chain, link = [], before
    for number, who, output in zip(map(_NUMBERS, rows.seq, *columns), name, rows.output, strict=True):
        link = sha256(link + number + who + output).digest()
        chain.append(link)
    return chain
