"""Samples from a file of one JSON object per line."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyarrow import json as arrow_json

from streaming.columns import Rejects
from streaming.sources.lines import LineBlock
from streaming.sources.text import Parsed, TextSource


class JsonlSource(TextSource):
    """A JSONL file. Agent and id are strings or integers, the value a number, the time a string or a number."""

    def parse_block(self, block: LineBlock, rejects: Rejects) -> Parsed:  # noqa: ARG002 - all lines are good here
        """Read all lines with pyarrow, with the types of the first one."""
        fields = self._fields
        first = self.parse_object(block.part(0, 1).lines()[0])
        if isinstance(first, str):
            raise pa.ArrowInvalid("the first line is bad")
        schema = pa.schema([(name, _arrow_type(part, first.get(name))) for part, name in fields.items()])
        try:
            table = arrow_json.read_json(
                pa.BufferReader(block.data),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
                parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            )
        except pa.ArrowNotImplementedError:
            raise pa.ArrowInvalid("nested") from None
        if table.num_rows != len(block):
            raise pa.ArrowInvalid("objects are not lines")
        raw = {part: table.column(name).combine_chunks() for part, name in fields.items()}
        for column in raw.values():
            column.validate(full=True)
        return raw, block.number

    def parse_line(self, line: bytes) -> dict[str, bytes | None] | str:
        """Read one line with the standard library; the types must be right."""
        found = self.parse_object(line)
        if isinstance(found, str):
            return found
        texts: dict[str, bytes | None] = {}
        for part, name in self._fields.items():
            value = found.get(name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, _TYPES[part])):
                return "unknown_schema_version" if part == "schema_version" else f"bad_{part}"
            try:
                texts[part] = None if value is None else str(value).encode()
            except ValueError:  # a lone surrogate
                return f"bad_{part}"
        return texts

    def parse_object(self, line: bytes) -> dict[str, Any] | str:
        """Read one object, or say why not."""
        try:
            found = json.loads(line, object_pairs_hook=_unique)
        except _DuplicateFieldError:
            return "duplicate_columns"
        except (ValueError, RecursionError):
            return "malformed"
        return found if isinstance(found, dict) else "malformed"

    @property
    def _fields(self) -> dict[str, str]:
        mapping = self._mapping
        fields = {"agent": mapping.agent, "value": mapping.value, "time": mapping.time}
        if mapping.id is not None:
            fields["id"] = mapping.id
        return {**fields, "schema_version": mapping.schema_version}


_TYPES: dict[str, tuple[type, ...]] = {
    "agent": (str, int),
    "value": (int, float),
    "time": (str, int, float),
    "id": (str, int),
    "schema_version": (int,),
}


class _DuplicateFieldError(Exception):
    """A JSON object names a field twice: which one is meant is unknown."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _DuplicateFieldError
    return found


def _arrow_type(part: str, value: Any) -> pa.DataType:
    if part == "value":
        return pa.float64()
    if part == "schema_version":
        return pa.int64()
    if part == "time":
        return pa.string() if isinstance(value, str) else pa.float64()
    return pa.int64() if isinstance(value, int) else pa.string()
