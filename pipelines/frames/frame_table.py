"""A table that shows itself: as text, in a notebook, to whatever reads Arrow."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any

import pyarrow as pa

SHOWN = 10
"""Rows that are shown."""
WIDTH = 90
"""Characters in a line of what is said of them."""


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
        rows = [
            self.table.column_names,
            *(texts_of_row(row) for row in self.table.slice(0, SHOWN).to_pylist()),
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
            for row in rows
        ]
        more = [f"... {len(self) - SHOWN:,} more"] if len(self) > SHOWN else []

        return "\n".join([*lines, *more, *(textwrap.fill(one, WIDTH) for one in self.notes)])

    def _repr_html_(self) -> str:
        """Show the first rows in a notebook, as the frame's own library does where it can."""
        first = self.table.slice(0, SHOWN)
        own = getattr(self._shown(first), "_repr_html_", None)
        found = own() if own is not None else _html(first)
        more = f"<p>{len(self) - SHOWN:,} more rows</p>" if len(self) > SHOWN else ""

        return found + more + "".join(f"<p>{html.escape(one)}</p>" for one in self.notes)

    def _shown(self, table: pa.Table) -> Any:
        """Give rows as the frame that a notebook shows."""
        return table


def _html(table: pa.Table) -> str:
    """Write a table for a notebook, numbers to the right."""
    right = [' style="text-align: right"' if _is_number(one.type) else "" for one in table.schema]
    head = "".join(
        f"<th{at}>{html.escape(name)}</th>"
        for name, at in zip(table.column_names, right, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{at}>{html.escape(text)}</td>"
            for text, at in zip(texts_of_row(row), right, strict=True)
        )
        + "</tr>"
        for row in table.to_pylist()
    )

    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def table_axes(axes: Any, size: tuple[float, float]) -> Any:
    """Give the axes to draw on: new ones of a size, in inches, unless some are given."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("plot needs matplotlib: pip install 'meanstream[plot]'") from None

    return plt.subplots(figsize=size, layout="constrained")[1] if axes is None else axes


def texts_of_row(row: dict[str, Any]) -> list[str]:
    """Write the cells of a row."""
    return [_text(value) for value in row.values()]


def _text(value: Any) -> str:
    if isinstance(value, datetime):  # a day, where it is the whole of it
        return str(value.date() if value.time() == time() else value.replace(tzinfo=None))
    if value is None:
        return "-"

    return f"{value:.6g}" if isinstance(value, float) else str(value)
