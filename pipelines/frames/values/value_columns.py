"""Bounds of one value column or of several, and those that truth values have by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meanstream.operators.validation import require, valid_float
from meanstream.pipelines.frames.frame_reader import frame_columns

Bounds = float | Sequence[float | None] | Mapping[str, float] | None
"""One bound for all columns, one for each in their order, or by the names of columns."""


def bound_of_each(option: str, bound: Bounds, columns: Sequence[str]) -> list[float | None]:
    """Give the bound of each column; None where it has none.

    Examples
    --------
    >>> bound_of_each("lower", {"delay": -30}, ["delay", "late"])
    [-30, None]
    >>> bound_of_each("upper", [120], ["delay", "late"])
    Traceback (most recent call last):
    ValueError: upper must have one bound for each of the 2 columns, got 1
    """
    if isinstance(bound, Mapping):
        unknown = next((name for name in bound if name not in columns), None)
        rule = f"name value columns ({', '.join(columns)})"
        require(unknown is None, option, rule, unknown)
        return [bound.get(name) for name in columns]

    if isinstance(bound, list | tuple):
        rule = f"have one bound for each of the {len(columns)} columns"
        require(len(bound) == len(columns), option, rule, len(bound))
        return list(bound)

    return [cast("float | None", bound)] * len(columns)


def frame_bounds(frame: Any, name: str, lower: Any, upper: Any) -> tuple[float, float]:
    """Give the bounds of one column of a frame."""
    lower, upper = (
        bound_of_each(option, bound, [name])[0]
        for option, bound in (("lower", lower), ("upper", upper))
    )
    kind = frame_columns(frame, [], option="value", needed=[name]).schema.field(name).type

    return bounds_of_column(kind, name, lower, upper)


def is_number(kind: pa.DataType) -> bool:
    """Say whether a column holds numbers, which true and false are not."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def bounds_of_column(kind: pa.DataType, name: str, lower: Any, upper: Any) -> tuple[float, float]:
    """Give the bounds of a column; those of truth values are 0 and 1 by themselves.

    Examples
    --------
    >>> bounds_of_column(pa.bool_(), "late", None, None)
    (0.0, 1.0)
    """
    if pa.types.is_boolean(kind):
        for option, bound, own in (("lower", lower, 0), ("upper", upper, 1)):
            require(bound in (None, own), option, f"be {own} for true and false", bound)

        return 0.0, 1.0

    for option, bound in (("lower", lower), ("upper", upper)):
        rule = f"be given for the numbers of column {name!r}, chosen without a look at the data"
        require(bound is not None, option, rule, bound)
        single = isinstance(bound, int | float) or hasattr(bound, "__float__")
        require(single, option, "be one number for one column", bound)

    return lower, upper


def missing_as_nulls(
    frame: Any, values: Sequence[str], missing: Sequence[float], others: Sequence[str]
) -> Any:
    """Give the needed columns of a frame with nulls in value columns where a number stands for a missing value.

    Without such numbers the frame itself.

    Examples
    --------
    >>> rows = pa.table({"g": ["a", "b"], "v": [1, -999]})
    >>> missing_as_nulls(rows, ["v"], [-999], ["g"])["v"].to_pylist()
    [1, None]
    """
    listed = isinstance(missing, Sequence) and not isinstance(missing, str)
    require(listed, "missing", "be a list of numbers, as [-999]", missing)
    numbers = [valid_float("missing", number) for number in missing]
    if not numbers:
        return frame

    table = frame_columns(frame, [*values, *others], option="value", needed=values)
    for name in values:
        column = table.column(name)
        kind = column.type
        numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if not (numeric or pa.types.is_decimal(kind)):
            continue  # true and false have no such number; other kinds are refused as values

        plain = column.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy()
        stands_for_none = pa.chunked_array([pa.array(np.isin(plain, numbers))])
        cleared = pc.if_else(stands_for_none, pa.scalar(None, kind), column)
        table = table.set_column(table.column_names.index(name), name, cleared)

    return table


STATISTICS = ("mean", "sum", "variance")
VARIANCE = ("variance", "variance_lower", "variance_upper")


def valid_statistics(statistics: Sequence[str]) -> tuple[str, ...]:
    """Give the columns that further statistics have.

    Examples
    --------
    >>> valid_statistics(["mean", "sum"])
    ('sum', 'sum_lower', 'sum_upper')
    """
    listed = isinstance(statistics, str | Sequence)
    require(listed, "statistics", f"be of {', '.join(STATISTICS)}", statistics)
    names = [statistics] if isinstance(statistics, str) else list(statistics)
    unknown = next((name for name in names if name not in STATISTICS), None)
    require(unknown is None, "statistics", f"be of {', '.join(STATISTICS)}", unknown)

    if "sum" in names:
        return ("sum", "sum_lower", "sum_upper")
    return ()


def with_sums(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Add the sums of the clipped values of all rows, with their intervals: means times numbers of rows."""
    for name, mean in zip(columns, ("mean", "lower", "upper"), strict=bool(columns)):
        total = np.asarray(table["rows"]) * np.asarray(table[mean])
        table = table.append_column(name, pa.array(total, pa.float64()))

    return table
