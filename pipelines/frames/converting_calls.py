"""Calls that convert a column of text, in the library of its frame.

A call is named only where it reads every text of the column's notation rightly: a call that turns
`12,50` into a missing value is worse than none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from meanstream.pipelines.frames.dirty_columns import (
    DAYS,
    DAYS_PATTERN,
    DECIMAL_COMMA,
    GROUPED,
    GROUPED_COMMA,
    OTHER_NUMBERS,
    PLAIN,
    TIMES,
    UNIT,
    kinds_of_text,
    plain_text,
)

NOTATIONS = (PLAIN, DECIMAL_COMMA, GROUPED_COMMA, GROUPED, OTHER_NUMBERS, UNIT)
"""Kinds of text that are numbers in some notation."""
SAFE = {
    frozenset(): PLAIN,
    frozenset([PLAIN]): PLAIN,
    frozenset([DECIMAL_COMMA]): DECIMAL_COMMA,
    frozenset([PLAIN, DECIMAL_COMMA]): DECIMAL_COMMA,
    frozenset([GROUPED_COMMA]): GROUPED_COMMA,
    frozenset([DECIMAL_COMMA, GROUPED_COMMA]): GROUPED_COMMA,
    frozenset([GROUPED]): GROUPED,
    frozenset([PLAIN, GROUPED]): GROUPED,
}
"""Notations that may be mixed, with the one whose call reads all of them."""
SEPARATORS = {GROUPED_COMMA: ".", GROUPED: ","}
"""What stands between thousands, beside a space and an apostrophe."""
ISO_TIMES = "write them all as 2026-01-31T08:00:00Z"
ONE_NOTATION = "write them in one notation first"
DAY_FIRST = r"^\s*(1[3-9]|2\d|3[01])[./-]\d"
MONTH_FIRST = r"^\s*\d{1,2}[./-](1[3-9]|2\d|3[01])[./-]"
CLOCKS = {
    "": r"^[^:]*\d\s*$",
    " %H:%M": r"\d \d{1,2}:\d{2}\s*$",
    " %H:%M:%S": r"\d \d{1,2}:\d{2}:\d{2}$",
}
"""Ends of a format of days, and of the texts that have them."""


def numbers_advice(frame: Any, name: str, texts: pa.ChunkedArray, *, mixed: bool = False) -> str:
    """Say how a column of texts becomes one of numbers.

    `mixed` columns of pandas hold numbers as well, which have no text yet.

    Examples
    --------
    >>> frame = pa.table({"v": ["12,50", "8,1"]})
    >>> numbers_advice(frame, "v", frame["v"]).partition(" converts it")[0]
    "pc.cast(pc.replace_substring(frame['v'], ',', '.'), 'float64')"
    >>> both = pa.table({"v": ["12,50", "1,234.50"]})
    >>> numbers_advice(both, "v", both["v"])
    'write them in one notation first'
    """
    kinds = frozenset(kinds_of_text(texts)) & frozenset(NOTATIONS)
    if UNIT in kinds:
        return f"{_without_unit(frame, name)} takes the unit away; then convert the rest"

    if kinds not in SAFE:
        return ONE_NOTATION
    if not (kinds or mixed):
        return "none of its texts is a number"

    call = _numbers_call(frame, name, SAFE[kinds], mixed=mixed)
    if mixed:
        return f"{call} makes them one type"

    return f"{call} converts it, and nulls='drop' leaves out the rest"


def times_advice(frame: Any, name: str, texts: pa.ChunkedArray) -> str:
    """Say how a column of texts becomes one of times.

    Examples
    --------
    >>> frame = pa.table({"t": ["31.12.2026 08:00"]})
    >>> times_advice(frame, "t", frame["t"])
    "pc.strptime(frame['t'], format='%d.%m.%Y %H:%M', unit='s') converts it"
    """
    kinds = frozenset(kinds_of_text(texts)) & {PLAIN, DAYS, TIMES}
    if kinds == {DAYS}:
        form, sure = _day_format(texts)
        if form is None:
            return ISO_TIMES

        said = f"{_times_call(frame, name, form)} converts it"
        return said if sure else f"{said} if the day comes first"

    if kinds == {PLAIN}:
        return f"{_numbers_call(frame, name, PLAIN, mixed=True)} makes seconds of it"
    if kinds == {TIMES}:
        return f"{_times_call(frame, name, None)} converts it"

    return ISO_TIMES


def text_advice(frame: Any, name: str) -> str:
    """Say how a column of several types becomes one of text."""
    if library_of(frame) == "pandas":
        return f"frame[{name!r}].astype(str) makes them one type"

    return f"text in every row of {name!r} makes them one type"


def frame_advice(frame: Any) -> str:
    """End of a refusal of what is no frame: the call that makes one; empty where none is known."""
    if hasattr(type(frame), "collect"):
        return "; .collect() makes one of it"
    if isinstance(frame, dict | list):
        return "; pd.DataFrame(...) makes one of it"
    if isinstance(frame, str | Path):
        return "; pd.read_csv(...) or duckdb.read_csv(...) reads a file"

    return ""


def library_of(frame: Any) -> str:
    """Name of the library that made a frame."""
    return type(frame).__module__.partition(".")[0].lstrip("_")


def _numbers_call(frame: Any, name: str, notation: str, *, mixed: bool) -> str:
    # A decimal comma becomes a point, once separators of thousands are gone.
    thousands = f"[{SEPARATORS[notation]} ']" if notation in SEPARATORS else None
    comma = notation in (DECIMAL_COMMA, GROUPED_COMMA)

    match library_of(frame):
        case "pandas":
            column = f"frame[{name!r}]"
            if mixed and notation != PLAIN:
                column += ".astype(str)"
            if thousands is not None:
                column += f'.str.replace("{thousands}", "", regex=True)'
            if comma:
                column += ".str.replace(',', '.')"
            return f"pd.to_numeric({column}, errors='coerce')"
        case "polars":
            column = f"pl.col({name!r}).str.strip_chars()"
            if thousands is not None:
                column += f'.str.replace_all("{thousands}", "")'
            if comma:
                column += ".str.replace_all(',', '.')"
            return f"{column}.cast(pl.Float64, strict=False)"
        case "duckdb":
            column = f'"{name}"'
            if thousands is not None:
                quoted = thousands.replace("'", "''")
                column = f"regexp_replace({column}, '{quoted}', '', 'g')"
            if comma:
                column = f"replace({column}, ',', '.')"
            return f"try_cast({column} AS DOUBLE)"

    column = f"frame[{name!r}]"
    if thousands is not None:
        column = f'pc.replace_substring_regex({column}, "{thousands}", "")'
    if comma:
        column = f"pc.replace_substring({column}, ',', '.')"

    return f"pc.cast({column}, 'float64')"


def _without_unit(frame: Any, name: str) -> str:
    # At both ends only: the letter of an exponent stays.
    pattern = "^[^0-9.+-]+|[^0-9.]+$"

    match library_of(frame):
        case "pandas":
            return f"frame[{name!r}].str.replace('{pattern}', '', regex=True)"
        case "polars":
            return f"pl.col({name!r}).str.replace_all('{pattern}', '')"
        case "duckdb":
            return f"regexp_replace(\"{name}\", '{pattern}', '', 'g')"

    return f"pc.replace_substring_regex(frame[{name!r}], '{pattern}', '')"


def _times_call(frame: Any, name: str, form: str | None) -> str:
    """Call that reads a form of days, or times of ISO 8601 where there is none."""
    iso = form is None
    match library_of(frame):
        case "pandas":
            how = "format='ISO8601', utc=True" if iso else f"format={form!r}"
            return f"pd.to_datetime(frame[{name!r}], {how}, errors='coerce')"
        case "polars":
            call = "to_datetime(time_zone='UTC'" if iso else f"strptime(pl.Datetime, {form!r}"
            return f"pl.col({name!r}).str.{call}, strict=False)"
        case "duckdb":
            if iso:
                return f'try_cast("{name}" AS TIMESTAMP)'
            return f"try_strptime(\"{name}\", '{form}')"

    return f"pc.strptime(frame[{name!r}], format={form or '%Y-%m-%d'!r}, unit='s')"


def _day_format(texts: pa.ChunkedArray) -> tuple[str | None, bool]:
    """Format of a column's days, None if they have several, and whether it is sure.

    A day beyond 12 shows whether days or months come first.
    """
    days = plain_text(texts)
    days = days.filter(pc.match_substring_regex(days, DAYS_PATTERN))

    separators = [mark for mark in "./-" if _all_match(days, rf"^\s*\d+[{mark}]\d+[{mark}]")]
    years = [year for year, digits in (("%Y", 4), ("%y", 2)) if _all_match(days, _year(digits))]
    clocks = [clock for clock, end in CLOCKS.items() if _all_match(days, end)]
    if not (separators and years and clocks):
        return None, False

    day_first = _some_match(days, DAY_FIRST)
    month_first = _some_match(days, MONTH_FIRST)
    if day_first and month_first:
        return None, False

    order = ("%m", "%d") if month_first else ("%d", "%m")
    return separators[0].join((*order, years[0])) + clocks[0], day_first or month_first


def _year(digits: int) -> str:
    return rf"^\s*\d+[./-]\d+[./-]\d{{{digits}}}(\s|$)"


def _all_match(texts: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern)).as_py())


def _some_match(texts: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())
