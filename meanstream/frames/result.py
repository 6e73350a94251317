"""What `private_means` gives: a table that may be published, as a frame, in a notebook, as a picture."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from typing import Any

import numpy as np
import pyarrow as pa

from meanstream.frames.columns import frame_like
from meanstream.operators.agents.settings import AgentsSettings
from meanstream.operators.records import ReleaseColumns
from meanstream.streaming.engine.options import EngineOptions

SHOWN = 10
"""Rows that are shown."""
WIDTH = 90
"""Characters in a line of what is said of them."""
DRAWN = 60
"""Groups that a picture has room for; of more, those evenly spaced by their means."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateFrame:
    """A table of private answers, what they cost, and the kind of frame that was asked with.

    **Privacy.** Computed from noised releases or reports alone: it may be published.

    Attributes
    ----------
    table : pyarrow.Table
        The answers.
    guarantee : str
        What is protected, in words.
    answer : str
        Name of the column of answers; `lower` and `upper` are its interval.
    level : float
        Nominal coverage of the intervals.
    """

    table: pa.Table
    guarantee: str
    level: float
    keys: tuple[str, ...]
    asked: Any = field(repr=False)
    answer: str = "mean"

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def to_frame(self) -> Any:
        """Give the answers as a frame of the kind that was given."""
        return frame_like(self.table, self.asked)

    def to_arrow(self) -> pa.Table:
        """Give the answers as a table of Arrow."""
        return self.table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Hand the answers to whatever reads Arrow."""
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        rows = [self.table.column_names, *(_texts(row) for row in self.table.slice(0, SHOWN).to_pylist())]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
        more = [f"... {len(self) - SHOWN:,} more"] if len(self) > SHOWN else []
        return "\n".join([*lines, *more, textwrap.fill(self.guarantee, WIDTH)])

    def _repr_html_(self) -> str:
        """Show the first rows in a notebook."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.table.column_names)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in _texts(row)) + "</tr>"
            for row in self.table.slice(0, SHOWN).to_pylist()
        )
        more = f"<p>{len(self) - SHOWN:,} more rows</p>" if len(self) > SHOWN else ""
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"
            f"<p>{html.escape(self.guarantee)}</p>"
        )

    def plot(self, axes: Any = None) -> Any:
        """Draw the answers with their intervals: windows in time, groups by size; give the axes.

        Raises
        ------
        ImportError
            Without matplotlib, naming the extra.
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise ImportError("plot needs matplotlib: pip install 'meanstream[plot]'") from None
        value, low, high = (np.asarray(self.table.column(name)) for name in (self.answer, "lower", "upper"))
        error = np.maximum([value - low, high - value], 0.0)
        label = f"{self.answer}, {self.level:.0%} interval"
        if self.keys == ("window",):
            axes = plt.subplots(figsize=(7, 3.5), layout="constrained")[1] if axes is None else axes
            axes.errorbar(self.table.column("window").to_numpy(), value, yerr=error, fmt="o", ms=3, lw=1)
            axes.set_ylabel(label)
            axes.figure.autofmt_xdate()
            return axes
        order = np.argsort(value, kind="stable")
        some = order[np.unique(np.linspace(0, max(len(order) - 1, 0), min(len(order), DRAWN)).astype(int))]
        names = [", ".join(_texts(row)) for row in self.table.select(list(self.keys)).take(pa.array(some)).to_pylist()]
        if axes is None:
            axes = plt.subplots(figsize=(7, 1.2 + 0.22 * len(some)), layout="constrained")[1]
        axes.errorbar(value[some], np.arange(len(some)), xerr=error[:, some], fmt="o", ms=3, lw=1)
        axes.set_yticks(np.arange(len(some)), names, fontsize=7)
        axes.set_xlabel(label)
        return axes


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PrivateMeans(PrivateFrame):
    """One private mean per group; see `private_means`.

    Attributes
    ----------
    settings : AgentsSettings
        How the groups released.
    releases : pyarrow.Table
        Public: every release, as an engine publishes it.
    """

    settings: AgentsSettings
    releases: pa.Table

    @classmethod
    def of(
        cls,
        frame: Any,
        table: pa.Table,
        settings: AgentsSettings,
        options: EngineOptions,
        found: Sequence[ReleaseColumns],
        *,
        keys: Sequence[str],
        names: Sequence[str],
    ) -> PrivateMeans:
        """Put a result together."""
        every = ReleaseColumns.joined(list(found)) if found else None
        columns: dict[str, Any] = {}
        if every is not None:
            columns = {"agent": pa.array(list(names)).take(pa.array(every.agent))}
            columns |= {
                told: getattr(every, name)
                for told, name in (("index", "index"), ("n", "count"), ("total", "total"), ("mean", "mean"))
            }
            columns["noise_variance"] = every.noise_variance
        guarantee = (
            f"({settings.epsilon:g}, {settings.delta:g})-differentially private towards the value of one row; public: "
            "which groups there are and how many rows they have"
        )
        return cls(
            table=table,
            guarantee=guarantee,
            level=options.level,
            keys=tuple(keys),
            asked=frame,
            settings=settings,
            releases=pa.table(columns),
        )


def _texts(row: dict[str, Any]) -> list[str]:
    return [_text(value) for value in row.values()]


def _text(value: Any) -> str:
    if isinstance(value, datetime):  # a day, where it is the whole of it
        return str(value.date() if value.time() == time() else value.replace(tzinfo=None))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
