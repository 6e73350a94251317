"""Columns of JSON records that are alike and flat, by a reader in C, where the installation has it.

It reads a part of JSON: the fields in their order, texts without escapes, numbers that floats can
hold. For anything else in any of the records it gives nothing, and they are read as they are where
there was no compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

import msgspec
import pyarrow as pa

from meanstream.streaming.events.base import SCHEMA_VERSION
from meanstream.streaming.sources.decode import RawColumns
from meanstream.streaming.sources.record_paths import Path
from meanstream.streaming.sources.source_records import is_utf8_record

try:
    from meanstream.streaming.sources import compiled_records
except ImportError:  # installed without a compiler
    COMPILED = False
else:
    COMPILED = True


class FieldKind(IntEnum):
    """What is wanted of a field; as in `compiled_records.c`."""

    SKIP = 0
    TEXT = 1
    NUMBER = 2
    FIXED = 3
    TIME = 4


MAX_FIELDS = 64
"""Fields of a row that the reader knows, at most; as in `compiled_records.c`."""


class FlatLayout(NamedTuple):
    """Fields of a flat record in order, as the reader wants them, and the field of each part."""

    shape: tuple[tuple[int, bytes, bytes | None], ...]
    field_of: dict[str, int]

    def read(self, text: bytes | memoryview, count: int) -> RawColumns | None:
        """Read records that are a line each; None if they are not as expected."""
        columns = compiled_records.read_lines(text, count, self.shape)
        if columns is None or not is_utf8_record(memoryview(text)):
            return None
        return {part: _column(columns[field], count) for part, field in self.field_of.items()}


def flat_layout(
    fields: Iterable[Path],
    texts: Mapping[str, Path],
    numbers: Mapping[str, Path],
    version: Path | None = None,
) -> FlatLayout | None:
    """Find how records with these fields are read.

    None if they are not flat, or there is no reader.
    """
    if not COMPILED:
        return None

    wanted = dict.fromkeys(texts.values(), FieldKind.TEXT)
    wanted |= dict.fromkeys(numbers.values(), FieldKind.NUMBER)
    number_of: dict[Path, int] = {}
    shape: list[tuple[int, bytes, bytes | None]] = []

    for path in fields:
        if len(path) != 1:
            return None
        kind = wanted.get(path, FieldKind.SKIP)
        fixed = None

        # The version may be one number only, and is no column then.
        if path == version:
            kind = FieldKind.FIXED
            fixed = str(SCHEMA_VERSION).encode()

        number_of[path] = len(shape)
        shape.append((int(kind), msgspec.json.encode(path[0]), fixed))

    parts = {**texts, **numbers}
    return FlatLayout(tuple(shape), {part: number_of[path] for part, path in parts.items()})


def _column(read: bytes | tuple[bytes, bytes] | None, count: int) -> pa.Array:
    """Make a column of texts or numbers, without a copy."""
    if isinstance(read, tuple):
        ends, texts = read
        return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(texts))
    return pa.Array.from_buffers(pa.float64(), count, [None, pa.py_buffer(read)])
