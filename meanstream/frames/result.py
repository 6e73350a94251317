"""What `private_means` gives: a table that may be published, as a frame, in a notebook, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from meanstream.frames.released import FrameReleases
from meanstream.frames.same_kind import frame_like
from meanstream.frames.table import ShownTable, table_axes, texts_of_row
from meanstream.operators.agents.settings import AgentsSettings
from meanstream.operators.records import ReleaseColumns

DRAWN = 60
"""Groups that a picture has room for; of more, those evenly spaced by their means."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PrivateFrame(ShownTable):
    """A table of private answers, what they cost, and the kind of frame that was asked with.

    **Privacy.** Computed from noised releases or reports alone: it may be published.

    Attributes
    ----------
    table : pyarrow.Table
        The answers.
    said : tuple of str
        What is protected, in words.
    answer : str
        Name of the column of answers; `lower` and `upper` are its interval.
    level : float
        Nominal coverage of the intervals.
    value : str
        Name of the column of values.
    """

    level: float
    keys: tuple[str, ...]
    asked: Any = field(repr=False)
    value: str
    answer: str = "mean"

    def to_frame(self) -> Any:
        """Give the answers as a frame of the kind that was given."""
        return frame_like(self.table, self.asked, self.keys)

    @property
    def guarantee(self) -> str:
        """What is protected, in words."""
        return self.said[0]

    def plot(self, axes: Any = None) -> Any:
        """Draw the answers with their intervals: windows in time, groups by size; give the axes.

        Raises
        ------
        ImportError
            Without matplotlib, naming the extra.
        """
        value, low, high = (np.asarray(self.table.column(name)) for name in (self.answer, "lower", "upper"))
        error = np.maximum([value - low, high - value], 0.0)
        label = f"{self.answer}, {self.level:.0%} interval"
        if self.keys == ("window",):
            axes = table_axes(axes, (7, 3.5))
            axes.errorbar(self.table.column("window").to_numpy(), value, yerr=error, fmt="o", ms=3, lw=1)
            axes.set_ylabel(label)
            axes.figure.autofmt_xdate()
            return axes
        order = np.argsort(value, kind="stable")
        some = order[np.unique(np.linspace(0, max(len(order) - 1, 0), min(len(order), DRAWN)).astype(int))]
        names = [
            ", ".join(texts_of_row(row)) for row in self.table.select(list(self.keys)).take(pa.array(some)).to_pylist()
        ]
        axes = table_axes(axes, (7, 1.2 + 0.22 * len(some)))
        axes.margins(y=0.02)
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
        released: FrameReleases,
        level: float,
        *,
        keys: Sequence[str],
        value: str,
        person: str | None,
    ) -> PrivateMeans:
        """Put a result together."""
        columns: dict[str, Any] = {}
        if released.every:
            every = ReleaseColumns.joined(released.every)
            columns = {"agent": pa.array(released.samples.names).take(pa.array(every.agent))}
            columns |= {
                public: getattr(every, name)
                for public, name in (("index", "index"), ("n", "count"), ("total", "total"), ("mean", "mean"))
            }
            columns["noise_variance"] = every.noise_variance
        return cls(
            table=table,
            said=released.sentences(person),
            level=level,
            keys=tuple(keys),
            asked=frame,
            value=value,
            settings=released.settings,
            releases=pa.table(columns),
        )
