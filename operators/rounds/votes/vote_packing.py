"""Rows of bits as a few integers, and their column sums."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from meanstream.operators.records import Bools, Ints

PER_COLUMN = 62
"""Bits of one integer: none of them makes it negative, nor as large as 2**62."""

_CHUNK = 16384

Bits = npt.NDArray[np.uint8]


def packed_columns(bits: int) -> int:
    """Tell how many integers hold that many bits."""
    return -(-bits // PER_COLUMN)


def pack_votes(rows: Bits | Bools) -> Ints:
    """Pack rows of bits (n, bits) into integers (n, columns), the first bit lowest.

    Examples
    --------
    >>> pack_votes(np.array([[True, False, True]]))
    array([[5]])
    """
    n, bits = rows.shape
    columns = packed_columns(bits)
    padded = np.zeros((n, columns, 64), np.uint8)
    for column in range(columns):
        part = rows[:, column * PER_COLUMN : (column + 1) * PER_COLUMN]
        padded[:, column, : part.shape[1]] = part

    return (
        np.packbits(padded, axis=2, bitorder="little")
        .view("<i8")
        .reshape(n, columns)
        .astype(np.int64)
    )


def unpack_votes(packed: Ints, bits: int) -> Bits:
    """Rows of bits (n, bits) from integers (n, columns): the inverse of `pack_votes`."""
    n, columns = packed.shape
    raw = (
        np.ascontiguousarray(packed).astype("<i8", copy=False).view(np.uint8).reshape(n, columns, 8)
    )
    wide = np.unpackbits(raw, axis=2, bitorder="little")

    return wide[:, :, :PER_COLUMN].reshape(n, columns * PER_COLUMN)[:, :bits]


def packing_fits(packed: Ints, bits: int) -> Bools:
    """Tell which rows of integers hold no bit beyond these, shape (n,)."""
    last = bits - PER_COLUMN * (packed.shape[1] - 1)
    limits = np.full(packed.shape[1], 1 << PER_COLUMN)
    limits[-1] = 1 << last
    return np.asarray(((packed >= 0) & (packed < limits)).all(axis=1))


def packed_column_sums(packed: Ints, bits: int) -> tuple[int, ...]:
    """Tell how many rows have each bit set."""
    found = np.zeros(bits, np.int64)
    for start in range(0, len(packed), _CHUNK):
        found += unpack_votes(packed[start : start + _CHUNK], bits).sum(axis=0, dtype=np.int64)

    return tuple(found.tolist())
