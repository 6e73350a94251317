"""How agents' data become bytes.

A version, plain values, arrays, names; what is kept as state has a checksum.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meanstream.operators.records import AnyInts, Ints, ReleaseColumns
from meanstream.pipelines.beam.element_types.events import DamagedBytesError
from meanstream.streaming.store.state_snapshot import (
    Columns,
    decode_snapshot_columns,
    encode_snapshot_columns,
    read_snapshot_columns,
    view_snapshot_columns,
    write_snapshot_columns,
)

VERSION = 2
SHARD = "shard 2"
LATEST = "latest shard 2"
"""Kinds of the whole of a shard's state."""
KEPT = frozenset({SHARD, LATEST, "charged", "federation", "partial", "own", "fitted"})
VIEWED = frozenset({"samples"})
NARROW = ((2**8, np.uint8), (2**16, np.uint16), (2**32, np.uint32))


def packed(kind: str, head: Any, columns: Columns, names: pa.Array | None = None) -> bytes:
    """Write plain values, arrays and names; what is kept as state with a checksum.

    Tables are cut after the last column that is not zero: of most agents little has happened.
    """
    # Tables lose columns that are zero at their end.
    cut = {name: _cut(column) for name, column in columns.items() if column.ndim == 2}
    width = {
        name: columns[name].shape[1]
        for name, some in cut.items()
        if some.shape[1] < columns[name].shape[1]
    }
    text = json.dumps([VERSION, kind, head, width], separators=(",", ":")).encode()
    write = encode_snapshot_columns if kind in KEPT else write_snapshot_columns

    return write(
        {"": _bytes(text), **columns, **cut, **({} if names is None else name_columns(names))}
    )


def unpacked(encoded: bytes, kind: str) -> tuple[Any, Columns]:
    """Read what `packed` wrote."""
    # State is verified by a checksum; what workers hand on is not.
    if kind in KEPT:
        columns = decode_snapshot_columns(encoded)
    else:
        columns = (view_snapshot_columns if kind in VIEWED else read_snapshot_columns)(encoded)

    head, width = _head(columns, kind)

    # And get them back.
    for name, whole in width.items():
        some = columns[name]
        columns[name] = np.zeros((len(some), whole), some.dtype)
        columns[name][:, : some.shape[1]] = some

    return head, columns


def packed_head(encoded: bytes, kind: str) -> Any:
    """Read the plain values alone; no checksum is looked at."""
    return _head(view_snapshot_columns(encoded), kind)[0]


def _head(columns: Columns, kind: str) -> tuple[Any, dict[str, int]]:
    """Take the plain values out, and the widths of tables that were cut."""
    # Bytes of another version or kind are refused.
    version, found, *rest = json.loads(columns.pop("").tobytes())
    if version != VERSION or found != kind:
        raise DamagedBytesError(
            f"data of agents must be of version {VERSION} and their kind, got {version}"
        )

    head, width = rest
    return head, width


def _cut(table: np.ndarray) -> np.ndarray:
    """Leave out the last columns as far as all of their bits are zero."""
    bits = table.view(np.int64) if table.dtype == np.float64 else table
    return table[
        :, : int(np.max(np.flatnonzero(np.bitwise_or.reduce(bits, axis=0)), initial=-1)) + 1
    ]


def packed_columns_of(releases: ReleaseColumns) -> Columns:
    """Give releases as arrays.

    Votes only where there are some, histograms where they have columns; no attributes, no law of
    the noise.
    """
    columns: Columns = {field.name: getattr(releases, field.name) for field in fields(releases)}
    del columns["covariates"]
    del columns["noise_terms"]  # settings and index say it

    # Empty parts are left out.
    if not columns["votes"].any():
        del columns["votes"]

    if not columns["histogram"].shape[1]:
        del columns["histogram"]

    return columns


def pack_narrow(column: AnyInts) -> AnyInts:
    """Take the least unsigned type that holds all of a column.

    What holds negative or huge numbers stays as it is.
    """
    return _in_least(column, _greatest(column))


def packed_narrow(columns: Columns) -> Columns:
    """Write whole numbers of 64 bits in the least type that holds all of their column.

    The rest as it is.
    """
    return {
        name: pack_signed(column) if column.dtype == np.int64 else column
        for name, column in columns.items()
    }


def packed_shrunk(name: str, column: AnyInts) -> Columns:
    """Write whole numbers in as few bytes as they need: 1, 2, 3, 4 or 8."""
    if column.dtype in {np.dtype(np.uint8), np.dtype(np.uint16)}:
        return {name: column}

    # Three bytes: the low two and the high one apart.
    greatest = _greatest(column)
    if 2**16 <= greatest < 2**24:
        return {name: column.astype(np.uint16), f"{name} high": (column >> 16).astype(np.uint8)}

    return {name: _in_least(column, greatest)}


def packed_grown(name: str, columns: Columns) -> AnyInts:
    """Read what `packed_shrunk` wrote; of the least type that holds it."""
    high = columns.get(f"{name} high")
    if high is None:
        return columns[name]
    whole = high.astype(np.uint32)
    whole <<= 16
    whole |= columns[name]

    return whole


def packed_steps(name: str, numbers: Ints) -> Columns:
    """Write numbers as the steps between them, unsigned, where none falls and all are small.

    Otherwise as they are.
    """
    steps = np.zeros(len(numbers), np.int64)

    # Steps between neighbors are small where numbers rise.
    np.subtract(numbers[1:], numbers[:-1], out=steps[1:])
    greatest = _greatest(steps)

    if greatest >= 2**32:
        return {name: numbers}
    return packed_shrunk(name, _in_least(steps, greatest))


def numbers_of_packed(name: str, columns: Columns, first: int) -> Ints:
    """Read what `packed_steps` wrote."""
    column = packed_grown(name, columns)

    # Unsigned columns are steps from the first number on, signed ones the numbers themselves.
    numbers = column.astype(np.int64)
    if column.dtype.kind == "u" and len(numbers):
        numbers[0] += first
        np.cumsum(numbers, out=numbers)

    return numbers


def _greatest(column: AnyInts) -> int:
    """Give the greatest number; a negative one is huge."""
    if not column.size:
        return 0

    # In one pass: as an unsigned number a negative one is huge.
    if column.dtype == np.int64:
        return int(column.view(np.uint64).max())

    if column.dtype.kind == "u" or column.min() >= 0:
        return int(column.max())
    return 2**64 - 1


def pack_signed(column: Ints) -> AnyInts:
    """Take the least type that holds all of a column, one with a sign where a number is negative."""
    least = int(column.min(initial=0))
    greatest = int(column.max(initial=0))

    if least >= 0:
        return _in_least(column, greatest)
    if least >= -(2**31) and greatest < 2**31:
        return column.astype(np.int32)
    return column


def _in_least(column: AnyInts, greatest: int) -> AnyInts:
    kind = next((kind for limit, kind in NARROW if greatest < limit), None)

    if kind is None:
        return column
    return column.astype(kind, copy=False)


def names_of_packed(columns: Columns) -> pa.Array:
    """Take the names out."""
    # Lengths and text make the names, without a copy of each.
    lengths = columns.pop("name_length")
    text = columns.pop("name_text")
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text.tobytes())]

    return pa.Array.from_buffers(pa.large_string(), len(lengths), buffers)


def name_columns(names: pa.Array) -> Columns:
    """Write names as their lengths and their text."""
    if not len(names):
        return {"name_length": np.zeros(0, np.int32), "name_text": _bytes(b"")}

    # A cast of an array that has the type already takes longer than the rest.
    if names.type != pa.large_string():
        names = names.cast(pa.large_string())

    _, places, data = names.buffers()
    offsets = np.frombuffer(places, np.int64)[names.offset : names.offset + len(names) + 1]
    text = b"" if data is None else data[int(offsets[0]) : int(offsets[-1])].to_pybytes()

    return {"name_length": np.diff(offsets).astype(np.int32), "name_text": _bytes(text)}


def _bytes(text: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text, np.uint8)
