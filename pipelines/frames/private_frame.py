"""A table of private answers, as a frame, in a notebook, as a picture."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from meanstream.pipelines.drawn_text import drawn_text
from meanstream.pipelines.frames.frame_table import (
    ShownTable,
    interval_bar,
    rounded_text,
    table_axes,
    texts_of_row,
)

DRAWN = 30
"""Groups that a picture has room for; of more, those evenly spaced by their means."""
LINES = 8
"""Categories that a picture has room for."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PrivateFrame(ShownTable):
    """A table of private answers, what they cost, and the kind of the original frame.

    **Privacy.** Computed from noised releases or reports alone: it may be published.

    Attributes
    ----------
    table : pyarrow.Table
        The answers.
    notes : tuple of str
        What is protected, in words.
    answer : str
        Name of the column of answers; `lower` and `upper` are its interval.
    level : float
        Nominal coverage of the intervals.
    value : str
        Name of the column of values.
    meaning : str
        What the answers are of, in words: the first line below the table.
    """

    level: float
    keys: tuple[str, ...]
    original: Any = field(repr=False)
    value: str
    meaning: str = ""
    answer: str = "mean"

    def to_frame(self) -> Any:
        """Give the answers as a frame of the kind that was given."""
        return frame_like(self.table, self.original)

    def _sentences(self) -> tuple[str, ...]:
        if self.meaning:
            return (self.meaning, *self.notes)
        return self.notes

    def _intervals(self) -> dict[str, tuple[str, str]]:
        """Columns of lower and upper ends by the column whose interval they are."""
        names = self.table.column_names
        ends = {name: (f"{name}_lower", f"{name}_upper") for name in names}
        return {name: pair for name, pair in ends.items() if {*pair} <= {*names}} | {
            self.answer: ("lower", "upper")
        }

    def _texts(self, row: dict[str, Any]) -> list[str]:
        """Cells of a row, each rounded to what its interval or its noise leaves."""
        # A column is rounded by half of its own interval.
        noise: dict[str, float] = {}
        for name, (lower, upper) in self._intervals().items():
            noise |= dict.fromkeys((name, lower, upper), (row[upper] - row[lower]) / 2)

        # Columns without an interval of their own have that of the answer.
        noise |= dict.fromkeys(("stderr", "moved_by_covariates"), noise[self.answer])
        if "noise_stddev" in row:
            noise |= dict.fromkeys(("released", "noise_stddev"), row["noise_stddev"])

        return [
            rounded_text(value, noise=noise[name])
            if isinstance(value, float) and name in noise
            else text
            for (name, value), text in zip(row.items(), texts_of_row(row), strict=True)
        ]

    def _bars(self, rows: list[dict[str, Any]]) -> list[str]:
        """Intervals of the answers on one axis, from the lowest end that is shown to the highest."""
        start = min((row["lower"] for row in rows), default=0.0)
        end = max((row["upper"] for row in rows), default=1.0)

        return [
            interval_bar(row[self.answer], row["lower"], row["upper"], start=start, end=end)
            for row in rows
        ]

    @property
    def guarantee(self) -> str:
        """What is protected, in words."""
        return self.notes[0]

    def plot(self, axes: Any = None, *, unit: str | None = None) -> Any:
        """Draw the answers with their intervals: windows in time, groups by size; give the axes."""
        ends = ("lower", "upper")
        value, low, high = (np.asarray(self.table.column(n)) for n in (self.answer, *ends))
        label = drawn_text(self.value if unit is None else f"{self.value}, {unit}")
        label = f"{drawn_text(self.answer)} of {label} ({100 * self.level:g} % interval)"

        # Values outside an interval are possible only by rounding.
        error = np.maximum([value - low, high - value], 0.0)
        if self.keys == ("window",):
            return self._plot_windows(axes, value, error, label)
        if self.keys[0] == "window":
            return self._plot_parts(axes, value, error, label)

        return self._plot_groups(axes, value, error, label)

    def _plot_windows(self, axes: Any, value: Any, error: Any, label: str) -> Any:
        """Draw the answers in time."""
        axes = table_axes(axes, (7, 3.5))
        when = self.table.column("window").to_numpy()
        axes.errorbar(when, value, yerr=error, fmt="o", ms=3, lw=1)
        title = f"Private means of {len(value):,} windows"
        return _in_time(axes, label, title)

    def _plot_groups(self, axes: Any, value: Any, error: Any, label: str) -> Any:
        """Draw groups by their means; of many, evenly spaced ones."""
        order = np.argsort(value, kind="stable")
        n_drawn = min(len(order), DRAWN)
        steps = np.linspace(0, max(len(order) - 1, 0), n_drawn).astype(int)
        drawn = order[np.unique(steps)]
        rows = self.table.select(list(self.keys)).take(pa.array(drawn)).to_pylist()
        names = [drawn_text(", ".join(texts_of_row(row))) for row in rows]

        axes = table_axes(axes, (7, 1.4 + 0.22 * len(drawn)))
        axes.margins(y=0.02)
        lines = np.arange(len(drawn))
        axes.errorbar(value[drawn], lines, xerr=error[:, drawn], fmt="o", ms=3, lw=1)
        axes.set_yticks(lines, names, fontsize=7)

        title = f"all {len(order):,} groups"
        if len(drawn) < len(order):
            title = f"{len(drawn):,} of {len(order):,} groups, evenly by their means"

        keys = drawn_text(", ".join(self.keys))
        axes.set(xlabel=label, ylabel=keys, title=f"Private means: {title}")
        return axes

    def _plot_parts(self, axes: Any, value: Any, error: Any, label: str) -> Any:
        """Draw the answers of each category or quantile in time, those with the largest ones."""
        axes = table_axes(axes, (7, 3.5))
        key = self.keys[1]
        when = self.table.column("window").to_numpy()
        names = np.array(self.table.column(key).to_pylist())

        # As more lines than that cannot be told apart.
        categories = [*dict.fromkeys(names.tolist())]
        largest = sorted(categories, key=lambda name: -float(value[names == name].sum()))[:LINES]
        for name in largest:
            rows = names == name
            style = {"fmt": "o-", "ms": 3, "lw": 1, "label": drawn_text(f"{name}")}
            axes.errorbar(when[rows], value[rows], yerr=error[:, rows], **style)

        shown = f"{len(categories)}"
        if len(categories) > LINES:
            shown = f"the {LINES} largest of {shown}"

        axes.legend(fontsize=7)
        return _in_time(axes, label, f"Private answers by {drawn_text(key)}: {shown}")


def _in_time(axes: Any, label: str, title: str) -> Any:
    axes.set(ylabel=label, xlabel="start of the window (UTC)", title=title)
    axes.figure.autofmt_xdate()
    return axes


def frame_like(table: pa.Table, frame: Any, keys: Sequence[str] = ()) -> Any:
    """Give a table as a frame of the same kind as another; pyarrow where the kind is not known.

    Examples
    --------
    >>> asked = pa.table({"ward": pa.array(["a", "b"]).dictionary_encode()})
    >>> frame_like(pa.table({"ward": ["b"], "mean": [1.0]}), asked, ["ward"]).schema.field("ward").type
    DictionaryType(dictionary<values=string, indices=int32, ordered=0>)
    """
    kind = type(frame).__module__.partition(".")[0]

    # Each kind of frame gets its own types of keys back.
    if kind == "pandas":
        return table.to_pandas().astype({name: frame[name].dtype for name in keys})

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

    # A type that Arrow does not cast to keeps the plain one.
    for name in keys:
        with contextlib.suppress(pa.ArrowException):
            cast = table.column(name).cast(schema.field(name).type)
            table = table.set_column(table.column_names.index(name), name, cast)

    return table
