"""Columns as bytes: raw, or in as few bytes as their values need; a version, a checksum, nothing that can run."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any, TypeVar

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


Array = np.ndarray[Any, Any]
Columns = dict[str, Array]
Header = TypeVar("Header")

_RAW_HEADER = msgspec.json.Decoder(list[tuple[str, str, tuple[int, ...]]])


def _framed(magic: bytes, header: Any, parts: Iterable[bytes | memoryview]) -> bytes:
    """Write a mark, a version, and the header with its length before what it is about."""
    head = msgspec.json.encode(header)
    return b"".join(
        [magic, VERSION.to_bytes(2, "little"), len(head).to_bytes(4, "little"), head, *parts]
    )


def _header(body: bytes, magic: bytes, decoder: msgspec.json.Decoder[Header]) -> tuple[Header, int]:
    """Read the header, and tell where it ends."""
    start = len(magic)
    if body[:start] != magic:
        raise CorruptedSnapshotError("snapshot must start with its mark, got other bytes")

    version = int.from_bytes(body[start : start + 2], "little")
    if version != VERSION:
        raise CorruptedSnapshotError(f"snapshot must have version {VERSION}, got {version}")

    begin = start + 6
    end = begin + int.from_bytes(body[start + 2 : begin], "little")
    return decoder.decode(body[begin:end]), end


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

    return _framed(MAGIC, header, parts)


def decode_snapshot_columns(data: bytes) -> Columns:
    """Read what `encode_snapshot_columns` wrote; every version ever written can be read."""
    return read_snapshot_columns(unseal_snapshot(data))


def read_snapshot_columns(body: bytes) -> Columns:
    """Read what `write_snapshot_columns` wrote."""
    return {name: column.copy() for name, column in view_snapshot_columns(body).items()}


def view_snapshot_columns(body: bytes) -> Columns:
    """Read what `write_snapshot_columns` wrote without a copy, as read-only arrays that keep `body` alive."""
    header, start = _header(body, MAGIC, _RAW_HEADER)
    columns: Columns = {}

    for name, kind, shape in header:
        count = math.prod(shape)
        columns[name] = np.frombuffer(body, np.dtype(kind), count, start).reshape(shape)
        start += count * np.dtype(kind).itemsize

    return columns


PACKED_MAGIC = b"MSPACK"

_WIDTHS = {
    kind: [(width, int(np.iinfo(width).min), int(np.iinfo(width).max)) for width in widths]
    for kind, widths in {"i": ("|i1", "<i2", "<i4"), "u": ("|u1", "<u2", "<u4")}.items()
}
"""Widths of integers, with the least and the largest of each."""
_WORDS: dict[int, np.dtype[Any]] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
_SPARE_BYTES = 64
"""What a bitmap has to save at least."""


class _Column(msgspec.Struct, array_like=True):
    """How one column is stored.

    The columns `first` to `last` of its rows, and of these all entries or some.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    stored: str
    count: int
    first: int = 0
    last: int = 0
    bitmap: bool = False


_PACKED_HEADER = msgspec.json.Decoder(list[_Column])


def pack_columns(columns: Columns) -> bytes:
    """Write arrays one after the other, behind a header of their names, types and shapes.

    A column of one repeated value is that value. Integers are as wide as the largest needs. Of
    two-dimensional arrays zeros beyond the first and last column in use are left out, and where it
    saves bytes each other zero is one bit.

    Examples
    --------
    >>> wide = {"sums": np.zeros((1000, 40)), "count": np.arange(1000)}
    >>> data = pack_columns(wide)
    >>> len(data) < 2200, unpack_columns(data)["sums"].shape, int(unpack_columns(data)["count"][999])
    (True, (1000, 40), 999)
    """
    header: list[_Column] = []
    parts: list[bytes | memoryview] = []
    for name, column in columns.items():
        native = np.asarray(column)
        kind = native.dtype.str
        if kind not in DTYPES:
            kind = native.dtype.newbyteorder("<").str
        if kind not in DTYPES:
            raise TypeError(f"snapshot column must be of type {', '.join(DTYPES)}, got {kind}")

        array = native.astype(kind, copy=False)
        entry = _Column(name, kind, array.shape, kind, 0)
        values = _used(array, entry, parts) if array.ndim == 2 else array.reshape(-1)
        stored = _narrowed(values)
        entry.stored = stored.dtype.str
        entry.count = len(stored)
        parts.append(np.ascontiguousarray(stored).view(np.uint8).data)
        header.append(entry)

    return _framed(PACKED_MAGIC, header, parts)


def unpack_columns(body: bytes) -> Columns:
    """Read what `pack_columns` wrote."""
    header, start = _header(body, PACKED_MAGIC, _PACKED_HEADER)
    columns: Columns = {}

    for entry in header:
        columns[entry.name], start = _column(body, start, entry)

    return columns


def _used(array: Array, entry: _Column, parts: list[bytes | memoryview]) -> Array:
    """Give the entries of rows that are not zero, or all between the first and last column that has one."""
    words = np.ascontiguousarray(array).view(_WORDS[array.itemsize])
    used = np.flatnonzero(np.bitwise_or.reduce(words, axis=0))
    if not len(used):
        return array[:0].reshape(-1)

    is_set = words != 0

    entry.first = int(used[0])
    entry.last = int(used[-1]) + 1
    cut = is_set[:, entry.first : entry.last]
    if cut.size - int(np.count_nonzero(is_set)) < cut.size // 8 + _SPARE_BYTES:
        return array[:, entry.first : entry.last].reshape(-1)

    entry.bitmap = True
    parts.append(np.packbits(cut).tobytes())
    return np.asarray(
        array[is_set]
    )  # none is beyond the cut, and whole arrays are searched at a third of the time


def _narrowed(values: Array) -> Array:
    """Give one value for many that are the same, else integers in the least width that holds all of them."""
    if len(values) < 2:
        return values

    # Most columns are one value: the first and last ones tell of most others that they are not.
    words = values.view(_WORDS[values.dtype.itemsize])
    first = words[0]
    if first == words[-1] and bool(np.logical_and.reduce(words == first)):
        return values[:1]
    if values.dtype.kind not in _WIDTHS:
        return values

    least = int(np.minimum.reduce(values))
    most = int(np.maximum.reduce(values))
    for width, lowest, highest in _WIDTHS[values.dtype.kind]:
        if lowest <= least and most <= highest:
            return values.astype(width)

    return values


def _column(body: bytes, start: int, entry: _Column) -> tuple[Array, int]:
    """Read a column; give it and where the next one begins."""
    cut = (*entry.shape[:-1], entry.last - entry.first) if len(entry.shape) == 2 else entry.shape
    size = math.prod(cut)
    is_set = None
    if entry.bitmap:
        bits = np.frombuffer(body, np.uint8, -(-size // 8), start)
        start += len(bits)
        is_set = np.unpackbits(bits, count=size).view(np.bool_).reshape(cut)
        size = int(np.count_nonzero(is_set))

    stored = np.frombuffer(body, entry.stored, entry.count, start)
    start += stored.nbytes
    values = (
        np.full(size, stored[0], entry.kind) if entry.count < size else stored.astype(entry.kind)
    )

    if len(entry.shape) != 2:
        return values.reshape(entry.shape), start
    column = np.zeros(entry.shape, entry.kind)
    if is_set is None:
        column[:, entry.first : entry.last] = values.reshape(cut)
    else:
        column[:, entry.first : entry.last][is_set] = values

    return column, start
