"""Rows of a ledger, many in one piece.

Columns and outputs, compressed together, with a checksum.
"""

from __future__ import annotations

import struct
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa

from meanstream.streaming.store.ledger_chain import LedgerColumns
from meanstream.streaming.store.state_snapshot import (
    CorruptedSnapshotError,
    seal_snapshot,
    unseal_snapshot,
)

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
    columns = zip(*(part.columns() for part in parts), strict=True)
    return LedgerColumns(*([value for part in column for value in part] for column in columns))
