"""Columns of a data frame as arrays, whichever library it is of, and results as a frame of the same kind."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import closest_valid
from meanstream.streaming.events.times import TimeParser


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSamples:
    """Private: the samples of a frame, in event-time order.

    Attributes
    ----------
    keys : pyarrow.Table
        Values of the grouping columns, a row per group, in the order in which groups are first met.
    names : list of str
        One text per group: the owner of its noise.
    group, value, time : array (n,)
        Number of the group, sample, event time in seconds.
    """

    keys: pa.Table
    names: list[str]
    group: Ints
    value: Floats
    time: Floats


def frame_samples(frame: Any, *, by: str | Sequence[str], value: str, time: str | None) -> FrameSamples:
    """Read the columns that are needed, and put the samples into event-time order.

    Raises
    ------
    ValueError
        Naming the column and the rule; never a value.
    TypeError
        If it is no frame.
    """
    grouping = [by] if isinstance(by, str) else [str(name) for name in by]
    if not grouping or len({*grouping}) < len(grouping):
        raise ValueError(f"by must name one column or several different ones, got {by!r}")
    wanted = {"by": grouping, "value": [value], "time": [] if time is None else [time]}
    table = _table(frame, wanted)
    given = _numbers(table, value)
    order, when = _order(table, time)
    codes, keys = _groups(table, grouping)
    if order is not None:
        codes, given, when = codes[order], given[order], when[order]
    return _first_met(codes, keys, given, when)


def frame_column_names(frame: Any, *, option: str) -> list[str]:
    """Give the names of a frame's columns; `TypeError` naming the option if it is no frame."""
    return _column_names(frame, option)


def frame_columns(frame: Any, names: Sequence[str], *, option: str, needed: Sequence[str]) -> pa.Table:
    """Read columns of a frame through Arrow. `needed` ones are an option's.

    Raises
    ------
    ValueError
        Naming the option and the column; never a value.
    TypeError
        If it is no frame.
    """
    return _table(frame, {option: list(needed), "frame": [name for name in names if name not in needed]})


def frame_group_names(keys: pa.Table, *, option: str) -> list[str]:
    """Name the group of each row by its keys, as `frame_samples` names groups."""
    codes, groups = _groups(keys, list(keys.column_names), option)
    names = _names(groups)
    return [names[code] for code in codes.tolist()]


def frame_like(table: pa.Table, frame: Any) -> Any:
    """Give a table as a frame of the same kind as another; pyarrow where the kind is not known."""
    kind = type(frame).__module__.partition(".")[0]
    if kind == "pandas":
        return table.to_pandas()
    if kind == "polars":
        import polars as pl

        return pl.from_arrow(table)
    if kind in ("duckdb", "_duckdb"):
        import duckdb

        return duckdb.from_arrow(table)
    return table


def _table(frame: Any, wanted: dict[str, list[str]]) -> pa.Table:
    """Read the wanted columns through Arrow; other columns are not converted."""
    columns = [name for names in wanted.values() for name in names]
    known = _column_names(frame)
    for option, names in wanted.items():
        for name in names:
            if name not in known:
                hint = _index_hint(frame, name) or closest_valid(name, known)
                raise ValueError(f"{option} must be a column of the frame, got {name!r}{hint}")
            if known.count(name) > 1:
                raise ValueError(f"{option} must name one column, got {name!r}, which {known.count(name)} are called")
    unique = [*dict.fromkeys(columns)]
    if isinstance(frame, pa.Table | pa.RecordBatch):
        return pa.table(frame.select(unique))
    if hasattr(frame, "project") and hasattr(frame, "arrow"):  # a relation of DuckDB
        found = frame.project(", ".join('"' + name.replace('"', '""') + '"' for name in unique)).arrow()
        return found if isinstance(found, pa.Table) else found.read_all()
    try:
        return _converted(frame, unique)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # whose texts show values
        mixed = [name for name in unique if not _converts(frame, name)]
    rule = "have one type of values that Arrow knows in each column"
    raise ValueError(f"frame must {rule}, got others in {', '.join(map(repr, mixed or unique))}")


def _index_hint(frame: Any, name: str) -> str:
    """Say where a name is that a frame of pandas does not have among its columns."""
    of_rows = getattr(getattr(frame, "index", None), "names", ())
    return ", the name of its index: frame.reset_index() makes it a column" if name in of_rows else ""


def _converted(frame: Any, names: list[str]) -> pa.Table:
    part = frame[names] if hasattr(frame, "__getitem__") else frame
    with warnings.catch_warnings():  # of pandas, of how pyarrow reads its dates
        warnings.simplefilter("ignore", DeprecationWarning)
        if hasattr(part, "__arrow_c_stream__"):
            return pa.table(part).select(names)
        return pa.Table.from_pandas(part, preserve_index=False)


def _converts(frame: Any, name: str) -> bool:
    try:
        _converted(frame, [name])
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def _column_names(frame: Any, option: str = "frame") -> list[str]:
    if isinstance(frame, pa.Table | pa.RecordBatch):
        return list(frame.schema.names)
    lazy = hasattr(type(frame), "collect")
    names = None if lazy else getattr(frame, "columns", None)
    if names is None and hasattr(frame, "__arrow_c_schema__"):
        names = pa.schema(frame).names
    if names is None:
        rule = "be a frame of pandas, polars (collected), DuckDB or Arrow"
        raise TypeError(f"{option} must {rule}, got {type(frame).__module__}.{type(frame).__name__}")
    return [str(name) for name in names]


def _whole(table: pa.Table, option: str, name: str) -> pa.ChunkedArray:
    column = table.column(name)
    if column.null_count:
        raise ValueError(f"{option} must have a value in every row, got {column.null_count:,} nulls in column {name!r}")
    return column


def _numbers(table: pa.Table, name: str) -> Floats:
    column = _whole(table, "value", name)
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise ValueError(f"value must be a column of numbers, got {kind} in column {name!r}")
    found: Floats = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)
    wrong = len(found) - int(np.isfinite(found).sum())
    if wrong:
        raise ValueError(f"value must be finite in every row, got {wrong:,} that are not in column {name!r}")
    return found


def _order(table: pa.Table, name: str | None) -> tuple[Ints | None, Floats]:
    """Give the order of the samples, None where it is that of the rows, and their times in the rows' order."""
    if name is None:
        return None, np.arange(table.num_rows, dtype=np.float64)
    column = _whole(table, "time", name)
    kind = column.type
    timed = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    if not (timed or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ValueError(f"time must be a column of timestamps, dates or seconds, got {kind} in column {name!r}")
    when = TimeParser("s").parse(column)
    wrong = int(np.isnan(when).sum())
    if wrong:
        rule = "lie between the years 1900 and 2100 in every row (numbers are seconds since 1970)"
        raise ValueError(f"time must {rule}, got {wrong:,} that do not in column {name!r}")
    if not (np.diff(when) < 0).any():
        return None, when
    return np.argsort(when, kind="stable"), when


def _groups(table: pa.Table, grouping: list[str], option: str = "by") -> tuple[Ints, pa.Table]:
    """Give the group of each row, and a table of the groups' keys."""
    codes, sizes, parts = [], [], []
    for name in grouping:
        column = _whole(table, option, name)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind) or _is_no_name(kind):
            raise ValueError(
                f"{option} must be a column of names (text, integers, dates, true and false), got {kind} in {name!r}"
            )
        text = pa.types.is_null(kind) or pa.types.is_string_view(kind) or pa.types.is_large_string(kind)
        octets = pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind)
        plain = _without_codes(column, pa.string() if text else pa.binary() if octets else kind)
        encoded = plain.dictionary_encode().unify_dictionaries().combine_chunks()
        if isinstance(encoded, pa.ChunkedArray):  # of no rows, or too large for one piece
            encoded = (
                pa.concat_arrays(encoded.chunks) if encoded.num_chunks else pa.array([], plain.type).dictionary_encode()
            )
        codes.append(np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64))
        parts.append(encoded.dictionary)
        sizes.append(len(encoded.dictionary))
    if len(grouping) == 1:
        return codes[0], pa.table({grouping[0]: parts[0]})
    joined = codes[0]
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        joined = joined * size + code
        _, joined = np.unique(joined, return_inverse=True)  # stays small, however many columns
    _, first, joined = np.unique(joined, return_index=True, return_inverse=True)
    keys = {name: part.take(pa.array(code[first])) for name, part, code in zip(grouping, parts, codes, strict=True)}
    return np.asarray(joined, np.int64), pa.table(keys)


def _is_no_name(kind: pa.DataType) -> bool:
    return bool(pa.types.is_interval(kind) or pa.types.is_run_end_encoded(kind))


def _without_codes(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Give a column's values as such, also those of a categorical column, whose chunks have a list each."""
    if not pa.types.is_dictionary(column.type):
        return column.cast(kind)
    return pa.chunked_array([chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks], kind)


def _first_met(codes: Ints, keys: pa.Table, value: Floats, time: Floats) -> FrameSamples:
    """Count the groups in the order in which they are first met, as an engine does."""
    n = keys.num_rows
    first = np.full(n, len(codes), np.int64)
    np.minimum.at(first, codes, np.arange(len(codes)))
    order = np.argsort(first, kind="stable")
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    keys = keys.take(pa.array(order))
    return FrameSamples(keys=keys, names=_names(keys), group=place[codes], value=value, time=time)


def _names(keys: pa.Table) -> list[str]:
    """Name each group: by its text, of several columns by a JSON list of theirs."""
    texts = [_texts(column, name) for name, column in zip(keys.column_names, keys.columns, strict=True)]
    if len(texts) == 1:
        return list(texts[0])
    return [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in zip(*texts, strict=True)]


def _texts(column: pa.ChunkedArray, name: str) -> list[str]:
    """Write keys as texts; those that nobody could be shown are refused."""
    try:
        if pa.types.is_temporal(column.type):
            column.to_pylist()  # Python has dates of the years 1 to 9999, and zones that it knows
        return list(pc.cast(column, pa.string()).to_pylist())
    except (pa.ArrowException, OverflowError, LookupError, ValueError):  # whose texts show values
        rule = "have names that are UTF-8, or dates that Python has, in every row"
        raise ValueError(f"by must {rule}, got others in column {name!r}") from None
