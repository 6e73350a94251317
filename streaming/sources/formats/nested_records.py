"""Nested JSON by pyarrow.

The schema that asks for some paths, their columns, and how deep a record may be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from meanstream.operators.records import Bools
from meanstream.streaming.sources.lines import LineBlock
from meanstream.streaming.sources.record_paths import Path, Places

MAX_NESTING = 256
"""Objects and arrays within each other in one record: by the bytes alone, not by how deep a parser
happens to stand."""

_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_STEP = np.zeros(256, np.int64)
_STEP[[ord("["), ord("{")]] = 1
_STEP[[ord("]"), ord("}")]] = -1


def nesting(record: bytes) -> int:
    """Count how many objects and arrays are open at once, at most.

    Examples
    --------
    >>> nesting(b'{"a":[1,{"b":2}],"c":"[[[["}')
    3
    """
    data = np.frombuffer(_TEXT.sub(b"", record), np.uint8)

    if len(data):
        return int(np.cumsum(_STEP[data]).max())
    return 0


def may_be_deep(record: bytes) -> bool:
    """Say whether a record has so many brackets that it might be nested too deep."""
    return len(record) > MAX_NESTING and record.count(b"[") + record.count(b"{") > MAX_NESTING


def deep_records(block: LineBlock) -> Bools:
    """Say which records may be nested too deep: only those that are long enough are looked at."""
    start = np.concatenate([[0], block.end[:-1]])
    deep: Bools = block.end - start > MAX_NESTING
    for i in np.flatnonzero(deep).tolist():
        deep[i] = may_be_deep(bytes(block.data[start[i] : block.end[i]]))

    return deep


def arrow_schema(types: Mapping[Path, pa.DataType]) -> pa.Schema:
    """Ask for some paths and for nothing else."""
    tree: dict[str, Any] = {}
    for path, kind in types.items():
        inner = tree
        for name in path[:-1]:
            inner = inner.setdefault(name, {})

        inner[path[-1]] = kind

    return pa.schema([(name, _kind(part)) for name, part in tree.items()])


def _kind(part: Any) -> pa.DataType:
    if isinstance(part, dict):
        return pa.struct([(name, _kind(inner)) for name, inner in part.items()])
    return part


def arrow_part(table: pa.Table, places: Places) -> pa.Array:
    """Give the column of a part: row by row the first place that holds something."""
    columns = [_at(table, path) for path in places]

    if len(columns) == 1:
        return columns[0]
    return pc.coalesce(*columns)


def _at(table: pa.Table, path: Path) -> pa.Array:
    column = table.column(path[0]).combine_chunks()
    for name in path[1:]:
        column = pc.struct_field(column, name)  # null where the object around it is

    return column
