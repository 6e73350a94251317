"""Results as frames of the library that the input came from, with the types of its grouping columns."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def frame_like(table: pa.Table, frame: Any, keys: Sequence[str] = ()) -> Any:
    """Give a table as a frame of the same kind as another; pyarrow where the kind is not known.

    Examples
    --------
    >>> asked = pa.table({"ward": pa.array(["a", "b"]).dictionary_encode()})
    >>> frame_like(pa.table({"ward": ["b"], "mean": [1.0]}), asked, ["ward"]).schema.field("ward").type
    DictionaryType(dictionary<values=string, indices=int32, ordered=0>)
    """
    kind = type(frame).__module__.partition(".")[0]
    if kind == "pandas":
        found = table.to_pandas()
        return found.astype({name: frame[name].dtype for name in keys})
    if kind == "polars":
        import polars as pl

        schema = frame.schema
        return pl.from_arrow(table).cast({name: schema[name] for name in keys})  # type: ignore[arg-type]
    if kind in ("duckdb", "_duckdb"):
        import duckdb

        return duckdb.from_arrow(table)
    schema = getattr(frame, "schema", None)
    if not isinstance(schema, pa.Schema):
        return table
    for name in keys:
        with contextlib.suppress(pa.ArrowException):  # a type that Arrow does not cast to keeps the plain one
            cast = table.column(name).cast(schema.field(name).type)
            table = table.set_column(table.column_names.index(name), name, cast)
    return table
