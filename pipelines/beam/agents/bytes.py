"""How agents' data become bytes: a version, plain values, arrays, names; what is kept as state has a checksum."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.beam.events import DamagedBytesError
from streaming.store.snapshot import Columns, decode_columns, encode_columns, read_columns, write_columns

VERSION = 1
KEPT = frozenset({"shard", "charged", "latest shard"})


def packed(kind: str, head: dict[str, Any], columns: Columns, names: pa.Array | None = None) -> bytes:
    """Write plain values, arrays and names; what is kept as state with a checksum."""
    text = json.dumps([VERSION, kind, head], separators=(",", ":")).encode()
    write = encode_columns if kind in KEPT else write_columns
    return write({"": _bytes(text), **columns, **({} if names is None else _name_columns(names))})


def opened(encoded: bytes, *kinds: str) -> tuple[str, dict[str, Any], Columns]:
    """Read what `packed` wrote.

    Raises
    ------
    DamagedBytesError
        If the bytes are of another version or kind.
    CorruptedSnapshotError
        If they are none of ours; of what is kept, if a byte was changed.
    """
    columns = decode_columns(encoded) if kinds[0] in KEPT else read_columns(encoded)
    version, kind, head = json.loads(columns.pop("").tobytes())
    if version != VERSION or kind not in kinds:
        raise DamagedBytesError(f"data of agents must be of version {VERSION} and their kind, got {version}")
    return kind, head, columns


def names_of(columns: Columns) -> pa.Array:
    """Take the names out."""
    lengths, text = columns.pop("name_length"), columns.pop("name_text")
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text.tobytes())]
    return pa.Array.from_buffers(pa.large_string(), len(lengths), buffers)


def _name_columns(names: pa.Array) -> Columns:
    names = pa.concat_arrays([names.cast(pa.large_binary())])  # without an offset
    offsets = np.frombuffer(names.buffers()[1], np.int64)[names.offset : names.offset + len(names) + 1]
    data = names.buffers()[2]
    text = b"" if data is None or not len(names) else data[int(offsets[0]) : int(offsets[-1])].to_pybytes()
    return {"name_length": np.diff(offsets).astype(np.int32), "name_text": _bytes(text)}


def _bytes(text: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text, np.uint8)
