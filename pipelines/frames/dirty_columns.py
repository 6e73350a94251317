"""Messages on columns that hold the wrong kind of values.

They name the kinds and the call that converts them, and never show a value.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

TEXT_KINDS = (
    ("empty", r"^\s*$"),
    ("numbers", r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"),
    ("numbers with a comma or a space", r"^\s*[+-]?\d[\d., '\xA0]*\s*$"),
    ("numbers with a unit or a sign", r"^[^\d]{0,4}[+-]?\d[\d., ]*[^\d]{0,8}$"),
    ("times", r"^\s*\d{4}-\d{2}-\d{2}"),
    ("days such as 31/12/2026", r"^\s*\d{1,2}[./-]\d{1,2}[./-]\d{2,4}"),
)
"""Kinds of text by their form; a text is of the first that it matches."""
OTHER_TEXT = "other text"
ZONE = r"(Z|[+-]\d{2}(:?\d{2})?)\s*$"
"""End of a time that says its zone."""
TYPE_NAMES = {
    "int": "integers",
    "float": "numbers",
    "str": "text",
    "bool": "true and false",
    "NoneType": "nulls",
    "list": "lists",
    "dict": "dictionaries",
    "bytes": "bytes",
    "date": "dates",
    "datetime": "times",
    "Timestamp": "times",
    "Decimal": "decimals",
}
"""Types of Python's values, as a message calls them."""
ARROW_NAMES = (
    (pa.types.is_boolean, "true and false"),
    (pa.types.is_temporal, "dates or times"),
    (pa.types.is_nested, "lists or records"),
    (pa.types.is_null, "nothing but nulls"),
)


def is_text(kind: pa.DataType) -> bool:
    """Say whether a column of a type holds text."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)

    return any(holds(plain) for holds in text)


def plain_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts of a column as large strings, which every function of Arrow takes."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)

    return column.cast(pa.large_string())


def kinds_said(column: pa.ChunkedArray) -> str:
    """Kinds of values of a column with their numbers, the most frequent first.

    Examples
    --------
    >>> kinds_said(pa.chunked_array([["12,50", "n/a", "3.1", "", "7,25"]]))
    'text: numbers with a comma or a space (2), empty (1), numbers (1), other text (1)'
    >>> kinds_said(pa.chunked_array([[True, False]]))
    'true and false'
    """
    if not is_text(column.type):
        names = [name for holds, name in ARROW_NAMES if holds(column.type)]

        if names:
            return names[0]
        return str(column.type)

    rest = plain_text(column)
    counts = []
    for name, pattern in TEXT_KINDS:
        matches = pc.match_substring_regex(rest, pattern)
        counts.append((name, pc.sum(matches).as_py() or 0))
        rest = rest.filter(pc.invert(matches))

    counts.append((OTHER_TEXT, len(rest)))
    shown = sorted((pair for pair in counts if pair[1]), key=lambda pair: -pair[1])

    return f"text: {', '.join(f'{name} ({count:,})' for name, count in shown)}"


def python_kinds_said(frame: Any, name: str) -> str:
    """Types of Python's values in a column that Arrow cannot convert; empty if it has none."""
    column = frame[name]
    if not hasattr(column, "map") or not hasattr(column, "tolist"):
        return ""

    counts = Counter(type(value).__name__ for value in column.tolist())
    shown = [f"{TYPE_NAMES.get(kind, kind)} ({count:,})" for kind, count in counts.most_common()]

    return " and ".join(shown)


def numbers_call(frame: Any, name: str) -> str:
    """Call that makes numbers of a column, in the library of its frame."""
    match _library(frame):
        case "pandas":
            return f"pd.to_numeric(frame[{name!r}], errors='coerce')"
        case "polars":
            return f"pl.col({name!r}).cast(pl.Float64, strict=False)"
        case "duckdb":
            return f'try_cast("{name}" AS DOUBLE)'

    return f"pyarrow.compute.cast(frame[{name!r}], 'float64')"


def times_call(frame: Any, name: str) -> str:
    """Call that makes times of a column, in the library of its frame."""
    match _library(frame):
        case "pandas":
            return f"pd.to_datetime(frame[{name!r}], utc=True)"
        case "polars":
            return f"pl.col({name!r}).str.to_datetime(time_zone='UTC', strict=False)"
        case "duckdb":
            return f'try_cast("{name}" AS TIMESTAMP)'

    return f"pyarrow.compute.strptime(frame[{name!r}], format='%Y-%m-%d', unit='s')"


def text_call(frame: Any, name: str) -> str:
    """Call that makes text of a column of several types."""
    if _library(frame) == "pandas":
        return f"frame[{name!r}].astype(str)"

    return f"text in every row of {name!r}"


def _library(frame: Any) -> str:
    return type(frame).__module__.partition(".")[0].lstrip("_")
