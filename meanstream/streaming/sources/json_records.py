"""Records that are one JSON object each: lines of a file, or values of messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from meanstream.operators.records import Bools
from meanstream.streaming.events.columns import Rejects
from meanstream.streaming.events.numbers import nearest_float, whole_number
from meanstream.streaming.sources.lines import LineBlock
from meanstream.streaming.sources.mapping import ColumnMapping, mapping_kind
from meanstream.streaming.sources.records import Parsed, Texts, is_utf8_record

_TYPES: dict[str, tuple[type, ...]] = {
    "agent": (str, int),
    "value": (int, float),
    "time": (str, int, float),
    "id": (str, int),
    "person": (str, int),
    "schema_version": (int,),
}
_SPACE = np.frombuffer(b" \t\r\n", np.uint8)


class JsonFormat:
    """One JSON object per record. Agent and id are strings or integers, the value a number, the time either.

    Fields that mean nothing here may hold anything.
    """

    def __init__(self, mapping: ColumnMapping) -> None:
        fields = mapping.required | mapping.optional
        self._fields = {**fields, "schema_version": mapping.schema_version}
        self._unique = _unique(frozenset(self._fields.values()))

    def stands_out(self, block: LineBlock) -> Bools | None:
        """Say which records do not begin with a brace and end with one, but for space after it.

        Of all others no object can begin in one record and end in another, nor can two records make up for one
        another: after a brace, inside an object, another brace is an error, and a text has no line end in it.
        """
        data = np.frombuffer(block.data, np.uint8)
        start, last = np.concatenate([[0], block.end[:-1]]), block.end - 2
        odd: Bools = data[start] != ord("{")
        left = np.flatnonzero(~odd)
        while len(left):
            ending = data[last[left]]
            odd[left[~((ending == ord("}")) | np.isin(ending, _SPACE))]] = True
            left = left[np.isin(ending, _SPACE)]
            last[left] -= 1
        return odd if odd.any() else None

    def parse_block(self, block: LineBlock, rejects: Rejects) -> Parsed:  # noqa: ARG002 - all records are good here
        """Read all records with pyarrow, with the types of the first one."""
        first = self.parse_object(block.part(0, 1).lines()[0])
        if isinstance(first, str) or not is_utf8_record(block.data):
            raise pa.ArrowInvalid("some record is bad")
        schema = pa.schema([(name, _arrow_type(part, first.get(name))) for part, name in self._fields.items()])
        try:
            table = arrow_json.read_json(
                pa.BufferReader(block.data),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
                parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            )
        except pa.ArrowNotImplementedError:
            raise pa.ArrowInvalid("nested") from None
        if table.num_rows != len(block):
            raise pa.ArrowInvalid("objects are not records")
        raw = {part: table.column(name).combine_chunks() for part, name in self._fields.items()}
        for part, column in raw.items():
            column.validate(full=True)
            if mapping_kind(part) == "value" and not np.isfinite(column.drop_null()).all():
                raise pa.ArrowInvalid("a number beyond all floats, or none")
        return raw, block.number

    def parse_record(self, record: bytes) -> Texts | str:
        """Read one record with the standard library; the types must be right."""
        found = self.parse_object(record)
        if isinstance(found, str):
            return found
        texts: Texts = {}
        for part, name in self._fields.items():
            value, kind = found.get(name), mapping_kind(part)
            if value is not None and (isinstance(value, bool) or not isinstance(value, _TYPES[kind])):
                return "unknown_schema_version" if part == "schema_version" else f"bad_{kind}"
            try:
                texts[part] = None if value is None else str(value).encode()
            except ValueError:  # a lone surrogate
                return f"bad_{kind}"
        return texts

    def parse_object(self, record: bytes) -> dict[str, Any] | str:
        """Read one object, or say why not."""
        try:
            found = json.loads(
                record.decode("utf-8-sig"),
                object_pairs_hook=self._unique,
                parse_float=nearest_float,
                parse_int=whole_number,
            )
        except (ValueError, RecursionError):
            return "malformed"
        if isinstance(found, _Ambiguous):
            return "duplicate_columns"
        return found if isinstance(found, dict) else "malformed"


class _Ambiguous(dict[str, Any]):
    """A JSON object that names a field of a sample twice: which one is meant is unknown."""


def _unique(fields: frozenset[str]) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        names = [name for name, _ in pairs if name in fields]
        return _Ambiguous(found) if len(set(names)) < len(names) else found

    return hook


def _arrow_type(part: str, value: Any) -> pa.DataType:
    if mapping_kind(part) == "value":
        return pa.float64()
    if part == "schema_version":
        return pa.int64()
    if part == "time":
        return pa.string() if isinstance(value, str) else pa.float64()
    return pa.int64() if isinstance(value, int) else pa.string()
