"""Columns of plain rows of CSV, by a reader in C, where the installation has it.

It reads a part of CSV: fields with quotes around them or none in them, numbers and times as
programs write them, and nothing that is missing. For anything else in any of the rows it gives
nothing, and they are read as they are where there was no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

import pyarrow as pa

from meanstream.streaming.sources.decode import RawColumns
from meanstream.streaming.sources.formats.flat_records import MAX_FIELDS, FieldKind
from meanstream.streaming.sources.mapping import mapping_kind
from meanstream.streaming.sources.source_records import is_utf8_record

try:
    from meanstream.streaming.sources.compiled_records import read_rows
except ImportError:  # installed without a compiler
    COMPILED = False
else:
    COMPILED = True

_KINDS = {"value": FieldKind.NUMBER, "time": FieldKind.TIME}
_TYPES = {"value": pa.float64(), "time": pa.timestamp("us", "UTC")}


class PlainRows(NamedTuple):
    """What is wanted of each field of a row, in order, and the field of each part of a sample."""

    kinds: bytes
    field_of: dict[str, int]
    delimiter: str

    @classmethod
    def of_header(cls, field_of: Mapping[str, int], n_fields: int, delimiter: str) -> Self | None:
        """Find how rows are read.

        None if a field is two parts of a sample, or there is no reader.
        """
        if not COMPILED or n_fields > MAX_FIELDS or len(set(field_of.values())) < len(field_of):
            return None

        kinds = [FieldKind.SKIP] * n_fields
        for part, number in field_of.items():
            kinds[number] = _KINDS.get(mapping_kind(part), FieldKind.TEXT)

        return cls(bytes(kinds), dict(field_of), delimiter)

    def read(self, text: bytes | memoryview, count: int) -> RawColumns | None:
        """Read rows that are a line each; None if some row has a field that is not plain."""
        columns = read_rows(text, count, ord(self.delimiter), self.kinds)
        if columns is None or not is_utf8_record(memoryview(text)):
            return None
        return {
            part: _column(mapping_kind(part), columns[field], count)
            for part, field in self.field_of.items()
        }


def _column(kind: str, read: bytes | tuple[bytes, bytes] | None, count: int) -> pa.Array:
    """Make a column of texts, numbers or times, without a copy."""
    if isinstance(read, tuple):
        ends, texts = read
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(texts)]
        return pa.Array.from_buffers(pa.binary(), count, buffers)
    return pa.Array.from_buffers(_TYPES[kind], count, [None, pa.py_buffer(read)])
