"""Columns as bytes: a version, the arrays' raw bytes, a checksum.

Nothing that can run when it is read.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import msgspec
import numpy as np

MAGIC = b"MSCOLS"
VERSION = 1
DTYPES = ("|b1", "|u1", "<u2", "<i4", "<u4", "<i8", "<u8", "<f8")
CHECKSUM_BYTES = 16


class CorruptedSnapshotError(ValueError):
    """Bytes that are not what was written."""


def seal_snapshot(body: bytes) -> bytes:
    """Append a checksum."""
    return body + _checksum(body)


def unseal_snapshot(data: bytes) -> bytes:
    """Check and remove the checksum; `CorruptedSnapshotError` if any byte was changed."""
    body = data[:-CHECKSUM_BYTES]
    if _checksum(body) != data[-CHECKSUM_BYTES:]:
        raise CorruptedSnapshotError("snapshot must match its checksum, got other bytes")
    return body


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:CHECKSUM_BYTES]  # processors have instructions for it


Columns = dict[str, "np.ndarray[Any, Any]"]


def encode_snapshot_columns(columns: Columns) -> bytes:
    """Write arrays one after the other, behind a header of their names, types and shapes.

    Examples
    --------
    >>> data = encode_snapshot_columns({"count": np.array([3, 4])})
    >>> decode_snapshot_columns(data)["count"].tolist()
    [3, 4]
    >>> decode_snapshot_columns(data[:-1] + bytes([data[-1] ^ 1]))
    Traceback (most recent call last):
    meanstream.streaming.store.state_snapshot.CorruptedSnapshotError: snapshot must match its checksum, got other bytes
    """
    return seal_snapshot(write_snapshot_columns(columns))


def write_snapshot_columns(columns: Columns) -> bytes:
    """Write arrays without a checksum: for what is carried, not kept."""
    header = []
    parts = []
    for name, column in columns.items():
        array = np.asarray(column)
        kind = array.dtype.newbyteorder("<").str
        if kind not in DTYPES:
            raise TypeError(f"snapshot column must be of type {', '.join(DTYPES)}, got {kind}")

        header.append((name, kind, array.shape))
        parts.append(np.ascontiguousarray(array, dtype=kind).reshape(-1).view(np.uint8).data)

    head = msgspec.json.encode(header)
    return b"".join(
        [MAGIC, VERSION.to_bytes(2, "little"), len(head).to_bytes(4, "little"), head, *parts]
    )


def decode_snapshot_columns(data: bytes) -> Columns:
    """Read what `encode_snapshot_columns` wrote; every version ever written can be read."""
    return read_snapshot_columns(unseal_snapshot(data))


def read_snapshot_columns(body: bytes) -> Columns:
    """Read what `write_snapshot_columns` wrote."""
    return {name: column.copy() for name, column in view_snapshot_columns(body).items()}


def view_snapshot_columns(body: bytes) -> Columns:
    """Read what `write_snapshot_columns` wrote without a copy, as read-only arrays that keep `body` alive."""
    start = len(MAGIC)
    if body[:start] != MAGIC:
        raise CorruptedSnapshotError("snapshot must start with its mark, got other bytes")
    version = int.from_bytes(body[start : start + 2], "little")

    if version != VERSION:
        raise CorruptedSnapshotError(f"snapshot must have version {VERSION}, got {version}")
    length = int.from_bytes(body[start + 2 : start + 6], "little")
    start += 6
    header = msgspec.json.decode(
        body[start : start + length], type=list[tuple[str, str, tuple[int, ...]]]
    )
    start += length
    columns: Columns = {}

    for name, kind, shape in header:
        count = math.prod(shape)
        columns[name] = np.frombuffer(body, np.dtype(kind), count, start).reshape(shape)
        start += count * np.dtype(kind).itemsize

    return columns
