"""Messages on columns that hold the wrong kind of values.

They name the kinds and the call that converts them, and never show a value.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

PLAIN = "numbers"
DECIMAL_COMMA = "numbers such as 12,50"
GROUPED_COMMA = "numbers such as 1.234,50"
GROUPED = "numbers such as 1,234.50"
OTHER_NUMBERS = "numbers with a comma or a space"
UNIT = "numbers with a unit or a sign"
TIMES = "times"
DAYS = "days such as 31/12/2026"
DAYS_PATTERN = r"^\s*\d{1,2}[./-]\d{1,2}[./-]\d{2,4}"
TEXT_KINDS = (
    ("empty", r"^\s*$"),
    (PLAIN, r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"),
    (DECIMAL_COMMA, r"^\s*[+-]?(0,\d+|\d+,(\d{1,2}|\d{4,}))\s*$"),
    (GROUPED_COMMA, r"^\s*[+-]?\d{1,3}([. '\xA0]\d{3})+,\d+\s*$"),
    (GROUPED, r"^\s*[+-]?\d{1,3}([, '\xA0]\d{3})+(\.\d+)?\s*$"),
    (DAYS, DAYS_PATTERN),
    (OTHER_NUMBERS, r"^\s*[+-]?\d[\d., '\xA0]*\s*$"),
    (UNIT, r"^[^\d]{0,4}[+-]?\d[\d., ]*[^\d]{0,8}$"),
    (TIMES, r"^\s*\d{4}-\d{2}-\d{2}"),
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
    'text: numbers such as 12,50 (2), empty (1), numbers (1), other text (1)'
    >>> kinds_said(pa.chunked_array([[True, False]]))
    'true and false'
    """
    if not is_text(column.type):
        names = [name for holds, name in ARROW_NAMES if holds(column.type)]

        if names:
            return names[0]
        return str(column.type)

    counts = kinds_of_text(column).items()
    shown = sorted(counts, key=lambda pair: -pair[1])

    return f"text: {', '.join(f'{name} ({count:,})' for name, count in shown)}"


def kinds_of_text(column: pa.ChunkedArray) -> dict[str, int]:
    """Numbers of a column's texts by their kind, of the kinds that occur."""
    others = plain_text(column).drop_null()
    counts = {}
    for name, pattern in TEXT_KINDS:
        matches = pc.match_substring_regex(others, pattern)
        counts[name] = pc.sum(matches).as_py() or 0
        others = others.filter(pc.invert(matches))

    counts[OTHER_TEXT] = len(others)
    return {name: count for name, count in counts.items() if count}


def python_kinds_said(frame: Any, name: str) -> str:
    """Types of Python's values in a column that Arrow cannot convert; empty if it has none."""
    column = frame[name]
    if not hasattr(column, "map") or not hasattr(column, "tolist"):
        return ""

    counts = Counter(type(value).__name__ for value in column.tolist())
    shown = [f"{TYPE_NAMES.get(kind, kind)} ({count:,})" for kind, count in counts.most_common()]

    return " and ".join(shown)


def python_texts(frame: Any, name: str) -> pa.ChunkedArray:
    """Texts among Python's values in a column that Arrow cannot convert."""
    return pa.chunked_array([[value for value in frame[name].tolist() if isinstance(value, str)]])
