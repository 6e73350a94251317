"""Public attributes of agents, as someone declares them in a table.

One row per agent, one column per attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from meanstream.operators.collaboration.covariates.covariate_design import (
    AgentCovariates,
    Category,
    CovariateDesign,
    Number,
    categories_of,
    number_of,
)
from meanstream.operators.records import AnyInts, Ints
from meanstream.operators.validation import closest_valid, printable

NULLS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
"""Cells that hold no value."""


def read_covariates_file(place: str, key: str) -> AgentCovariates:
    """Read declared attributes."""
    path = Path(place)
    try:
        status = path.stat()
    except OSError as error:
        raise ValueError(
            f"covariates must be a readable file, got {place!r} ({error.strerror})"
        ) from None

    return _read(str(path.resolve()), key, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=2)
def _read(path: str, key: str, _modified: int, _size: int) -> AgentCovariates:
    try:
        table = parquet.read_table(path) if path.endswith(".parquet") else _csv(path, key)
        _ = table.column_names  # which are no UTF-8, perhaps
    except OSError as error:
        raise ValueError(
            f"covariates must be a readable file, got {path!r} ({error.strerror or 'unreadable'})"
        ) from None
    except (pa.ArrowException, UnicodeDecodeError):  # whose texts show values
        raise ValueError(
            f"covariates must be CSV with a header, or Parquet (.parquet), got {path!r}"
        ) from None

    return replace(covariates_of_table(table, key), place=(path, key))


def _csv(path: str, key: str) -> pa.Table:
    options = csv.ConvertOptions(
        null_values=list(NULLS), strings_can_be_null=True, column_types={key: pa.string()}
    )
    return csv.read_csv(path, convert_options=options)


NUMBERS_AS_TEXT = 50
OF_THEM = 0.9
"""Text of that many different values, of which this share are numbers, is a column of numbers that
was read as text."""
_SHOWN = 64


def covariates_of_table(table: pa.Table, key: str) -> AgentCovariates:
    """Read declared attributes.

    Examples
    --------
    >>> table = pa.table({"plane": ["a", "b", "c", "d"], "engine": ["jet"] * 3 + [None], "seats": [50, 60, 60, 70]})
    >>> covariates = covariates_of_table(table, "plane")
    >>> covariates.of(["d", "b", "unknown"]).tolist()
    [[2, 2609], [0, 2048], [2, 4096]]
    """
    names = _names(table, key)
    return covariates_of_columns(
        names, {name: table.column(name) for name in table.column_names if name != key}
    )


def covariates_of_columns(names: Sequence[str], columns: dict[str, Any]) -> AgentCovariates:
    """Read attributes of agents whose names are known; see `covariates_of_table`."""
    if not columns:
        raise ValueError("covariates must have a column other than that of the agents, got none")
    kinds = {name: declared_column(name, column) for name, column in columns.items()}
    texts = {
        name: _levels(name, column) for name, column in kinds.items() if not _is_number(column.type)
    }
    categories = dict(
        zip(texts, categories_of([(name, *of) for name, of in texts.items()]), strict=True)
    )
    attributes: list[Category | Number] = []
    codes: list[AnyInts] = []

    for name, column in kinds.items():
        if name in categories:
            category, category_codes = categories[name]
            attributes.append(category)
            codes.append(category_codes)
            continue

        values = np.asarray(
            column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64
        )
        number = number_of(name, values)
        attributes.append(number)
        codes.append(number.codes(values))

    return AgentCovariates(
        CovariateDesign(tuple(attributes)), tuple(names), np.stack(codes, axis=1)
    )


def _names(table: pa.Table, key: str) -> list[str]:
    column_names = list(table.column_names)
    if key not in column_names:
        rule = f"have the column {printable(key)[:_SHOWN]!r} that names the agents"
        raise ValueError(f"covariates must {rule}, got none{closest_valid(key, column_names)}")

    twice = next((name for name in column_names if column_names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"covariates must have columns of different names, got two named {printable(twice)[:_SHOWN]!r}"
        )

    column = table.column(key)
    if column.null_count:
        raise ValueError(
            f"covariates must name an agent in every row, got {column.null_count:,} rows that do not"
        )

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_floating(kind) or pa.types.is_nested(kind):
        raise ValueError(
            f"covariates must name agents by text or whole numbers, got {kind} in {printable(key)!r}"
        )

    names = [str(name) for name in pc.cast(column.cast(kind), pa.string()).to_pylist()]
    several = len(names) - len(set(names))
    if several:
        raise ValueError(
            f"covariates must have one row per agent, got {several:,} rows more than agents"
        )

    return names


def declared_column(name: str, column: Any) -> pa.Array:
    """Give the values of an attribute in one piece.

    Of categories as text, of dates as days or the like.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type

    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], kind)

    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return column.cast(
            pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()
        )

    text = (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )
    if text or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column.cast(pa.string())

    if not _is_number(kind):
        shown = printable(name)[:_SHOWN]
        raise ValueError(
            f"covariates must be text, numbers, dates, or true and false, got {kind} in column {shown!r}"
        )

    return column


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _levels(name: str, column: pa.Array) -> tuple[list[str], Ints]:
    """Give the levels of a category in order, and each agent's; -1 where it has none."""
    encoded = column.dictionary_encode()
    levels = encoded.dictionary.to_pylist()
    indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    numbers = sum(map(_reads_as_number, levels)) if len(levels) > NUMBERS_AS_TEXT else 0

    if numbers > OF_THEM * len(levels):
        raise ValueError(
            f"covariates must hold numbers or categories in column {printable(name)[:_SHOWN]!r}, got text with "
            f"{numbers:,} different numbers; leave cells without a number empty"
        )

    order = sorted(range(len(levels)), key=levels.__getitem__)
    rank = np.empty(len(levels) + 1, np.int64)
    rank[order] = np.arange(len(levels))
    rank[-1] = -1

    return [levels[i] for i in order], rank[indices]


def _reads_as_number(text: str) -> bool:
    try:
        float(text[:_SHOWN].replace(",", ""))
    except ValueError:
        return False

    return True
