"""A table that shows itself: as text, in a notebook, to whatever reads Arrow."""

from __future__ import annotations

import html
import math
import textwrap
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any

import pyarrow as pa

from meanstream.operators.validation import printable

SHOWN = 10
"""Rows that are shown."""
WIDTH = 90
"""Characters in a line of what is said of them."""
DIGITS_OF_NOISE = 2
DIGITS_ALONE = 4
MOST_DECIMALS = 6
"""Digits of numbers with an interval, and of others; smaller numbers have an exponent."""
RIGHT = ' style="text-align: right; font-variant-numeric: tabular-nums"'
LEFT = ' style="text-align: left"'


@dataclass(frozen=True, kw_only=True, eq=False)
class ShownTable:
    """A table, and what is to be known of it.

    Attributes
    ----------
    table : pyarrow.Table
    notes : tuple of str
        Sentences below it.
    """

    table: pa.Table
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def to_arrow(self) -> pa.Table:
        """Give it as a table of Arrow."""
        return self.table

    def to_frame(self) -> Any:
        """Give it as a table of Arrow, which pandas, Polars and DuckDB read."""
        return self.table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Hand it to whatever reads Arrow."""
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        rows = [self.table.column_names, *(self._texts(row) for row in self._first_rows())]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
            for row in rows
        ]
        further = [f"... {len(self) - SHOWN:,} more"] if len(self) > SHOWN else []

        sentences = [textwrap.fill(sentence, WIDTH) for sentence in self._sentences()]

        return "\n".join([*lines, *further, *sentences])

    def _repr_html_(self) -> str:
        """Show the first rows in a notebook: numbers to the right, a bar for each interval."""
        further = f"<p>{len(self) - SHOWN:,} more rows</p>" if len(self) > SHOWN else ""
        notes = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self._sentences())

        return self._html() + further + notes

    def _sentences(self) -> tuple[str, ...]:
        """Sentences below the table."""
        return self.notes

    def _first_rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table.slice(0, SHOWN).to_pylist()
        return rows

    def _texts(self, row: dict[str, Any]) -> list[str]:
        """Cells of a row as they are shown."""
        return texts_of_row(row)

    def _bars(self, rows: list[dict[str, Any]]) -> list[str]:  # noqa: ARG002 - of subclasses
        """Cells of HTML that draw the rows' intervals; none where rows have no interval."""
        return []

    def _html(self) -> str:
        """Table of HTML with the first rows, in the colors of the page around it."""
        rows = self._first_rows()
        right = [RIGHT if _is_number(field.type) else LEFT for field in self.table.schema]
        head = [
            f"<th{style}>{html.escape(name)}</th>"
            for name, style in zip(self.table.column_names, right, strict=True)
        ]

        lines = [
            [
                f"<td{style}>{html.escape(text)}</td>"
                for text, style in zip(self._texts(row), right, strict=True)
            ]
            for row in rows
        ]
        bars = self._bars(rows)

        if bars:
            head.append(f"<th{LEFT}>interval</th>")
            lines = [[*cells, bar] for cells, bar in zip(lines, bars, strict=True)]

        body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in lines)

        return f"<table><thead><tr>{''.join(head)}</tr></thead><tbody>{body}</tbody></table>"


def interval_bar(value: float, lower: float, upper: float, *, start: float, end: float) -> str:
    """Cell of HTML that draws an interval and its answer on an axis from `start` to `end`.

    It has the color of the text around it, so that it can be read on light and on dark pages.

    Examples
    --------
    >>> "left:25.0%;width:50.0%" in interval_bar(2.0, 1.0, 3.0, start=0.0, end=4.0)
    True
    """
    width = end - start if end > start else 1.0
    left, middle, right = (100 * (end_point - start) / width for end_point in (lower, value, upper))
    line = f"left:{left:.1f}%;width:{right - left:.1f}%;top:0.45em;height:0.15em;opacity:0.5"
    dot = f"left:calc({middle:.1f}% - 0.2em);width:0.4em;top:0.33em;height:0.4em;border-radius:50%"
    pieces = "".join(
        f'<div style="position:absolute;background:currentColor;{style}"></div>'
        for style in (line, dot)
    )

    return (
        f'<td><div style="position:relative;width:10em;height:1.1em" title="{lower:.4g} to '
        f'{upper:.4g}">{pieces}</div></td>'
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def table_axes(axes: Any, size: tuple[float, float]) -> Any:
    """Give the axes to draw on: new ones of a size, in inches, unless some are given."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("plot needs matplotlib: pip install 'meanstream[plot]'") from None

    if axes is None:
        return plt.subplots(figsize=size, layout="constrained")[1]
    return axes


def texts_of_row(row: dict[str, Any]) -> list[str]:
    """Write the cells of a row."""
    return [_text(value) for value in row.values()]


def _text(value: Any) -> str:
    if isinstance(value, datetime):  # a day, where it is the whole of it
        return str(value.date() if value.time() == time() else value.replace(tzinfo=None))
    if value is None:
        return "-"

    if isinstance(value, float):
        return rounded_text(value)
    return printable(str(value))


def rounded_text(value: float, *, noise: float | None = None) -> str:
    """Text of a number with the digits that its noise leaves, or with four where there is none.

    Two digits of the noise are shown, and whole numbers are whole.

    Examples
    --------
    >>> rounded_text(41.953486, noise=4.519), rounded_text(6.54321, noise=0.0892)
    ('42.0', '6.543')
    >>> rounded_text(1234.5, noise=57.0), rounded_text(0.547106), rounded_text(200.0)
    ('1234', '0.5471', '200')
    """
    if not math.isfinite(value):
        return str(value)

    scale = abs(value) if noise is None else noise
    if not (math.isfinite(scale) and scale > 0):
        return f"{value:.4g}"

    digits = DIGITS_ALONE if noise is None else DIGITS_OF_NOISE
    decimals = max(digits - 1 - math.floor(math.log10(scale)), 0)
    if decimals > MOST_DECIMALS:
        return f"{value:.4g}"

    text = f"{value:.{decimals}f}"

    if noise is None and "." in text:
        return text.rstrip("0").rstrip(".")
    return text
