"""Columns of a data frame as a table of Arrow, whichever library it is of."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from meanstream.operators.validation import closest_valid, value_text
from meanstream.pipelines.frames.converting_calls import (
    frame_advice,
    numbers_advice,
    text_advice,
    times_advice,
)
from meanstream.pipelines.frames.dirty_columns import python_kinds_said, python_texts


def frame_column_names(frame: Any, option: str = "frame") -> list[str]:
    """Names of a frame's columns; `TypeError` naming the option if it is no frame."""
    if isinstance(frame, pa.Table | pa.RecordBatch):
        return list(frame.schema.names)

    # A lazy frame has columns only once it is collected.
    is_lazy = hasattr(type(frame), "collect")
    names = None if is_lazy else getattr(frame, "columns", None)
    if names is None and hasattr(frame, "__arrow_c_schema__"):
        names = pa.schema(frame).names

    if names is None:
        rule = "be a frame of pandas, polars (collected), DuckDB or Arrow"
        got = f"{type(frame).__module__}.{type(frame).__name__}"
        raise TypeError(f"{option} must {rule}, got {got}{frame_advice(frame)}")

    return [str(name) for name in names]


def frame_columns(
    frame: Any, names: Sequence[str], *, option: str, needed: Sequence[str]
) -> pa.Table:
    """Read columns of a frame; a refusal of `needed` ones names their option."""
    others = [name for name in names if name not in needed]
    return columns_of_options(frame, {option: list(needed), "frame": others})


def columns_of_options(frame: Any, wanted: dict[str, list[str]]) -> pa.Table:
    """Read the columns that options name, and convert no other; a refusal names the option."""
    _require_columns(frame, wanted)
    names = [*dict.fromkeys(name for of_option in wanted.values() for name in of_option)]

    # Each kind of frame has a way to Arrow; that of pandas and polars is the last one.
    if isinstance(frame, pa.Table | pa.RecordBatch):
        return pa.table(frame.select(names))

    if hasattr(frame, "project") and hasattr(frame, "arrow"):  # a relation of DuckDB
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        table = frame.project(quoted).arrow()
        return table if isinstance(table, pa.Table) else table.read_all()

    # Errors of a conversion quote values: the refusal names columns and kinds of values instead.
    table = _converted(frame, names)
    if table is not None:
        return table

    mixed = [name for name in names if _converted(frame, [name]) is None]
    raise _mixed_types(frame, mixed or names, wanted)


def _require_columns(frame: Any, wanted: dict[str, list[str]]) -> None:
    """Refuse a wrong name with its option and the nearest right one."""
    known = frame_column_names(frame)
    for option, names in wanted.items():
        for name in names:
            if name not in known:
                hint = _index_hint(frame, name) or closest_valid(name, known)
                got = f"{value_text(name)}{hint}"
                raise ValueError(f"{option} must be a column of the frame, got {got}")

            number = known.count(name)
            if number > 1:
                got = f"{name!r}, which {number} are called"
                raise ValueError(f"{option} must name one column, got {got}")


def _index_hint(frame: Any, name: str) -> str:
    """Say where a name is that a frame of pandas does not have among its columns."""
    of_rows = getattr(getattr(frame, "index", None), "names", ())
    if name in of_rows:
        return ", the name of its index: frame.reset_index() makes it a column"
    return ""


def _converted(frame: Any, names: list[str]) -> pa.Table | None:
    """Columns through Arrow; None where it cannot have them."""
    try:
        columns = frame[names] if hasattr(frame, "__getitem__") else frame

        # pandas warns of dates that pyarrow reads in its own way.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            if hasattr(columns, "__arrow_c_stream__"):
                return pa.table(columns).select(names)
            return pa.Table.from_pandas(columns, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # whose texts show values
        return None


def _mixed_types(frame: Any, mixed: list[str], wanted: dict[str, list[str]]) -> ValueError:
    """Refusal of columns of several types: which types the first has, and what converts it."""
    rule = "have one type of values that Arrow knows in each column"
    said = f"frame must {rule}, got others in {', '.join(map(repr, mixed))}"
    kinds = python_kinds_said(frame, mixed[0]) if hasattr(frame, "__getitem__") else ""

    # The call that mends it, as the column would need it.
    if kinds:
        option = next(option for option, names in wanted.items() if mixed[0] in names)
        said += f" ({mixed[0]!r} has {kinds}): {_mixed_advice(frame, mixed[0], option)}"

    return ValueError(said)


def _mixed_advice(frame: Any, name: str, option: str) -> str:
    """Call that makes one type of a column of several, as its option needs it."""
    texts = python_texts(frame, name)
    if option == "value":
        return numbers_advice(frame, name, texts, mixed=True)
    if option == "time":
        return times_advice(frame, name, texts)

    return text_advice(frame, name)
