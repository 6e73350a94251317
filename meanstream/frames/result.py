"""What `private_means` gives: a table that may be published, as a frame, in a notebook, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from meanstream.frames.columns import frame_like
from meanstream.frames.table import ShownTable, table_axes, texts_of_row
from meanstream.operators.agents.settings import AgentsSettings
from meanstream.operators.records import ReleaseColumns
from meanstream.streaming.engine.options import EngineOptions

CALLS = (2, 30)
"""Of which a result says what they cost together: a second look, and a month of days."""
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
    """

    level: float
    keys: tuple[str, ...]
    asked: Any = field(repr=False)
    answer: str = "mean"

    def to_frame(self) -> Any:
        """Give the answers as a frame of the kind that was given."""
        return frame_like(self.table, self.asked)

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
    covariates : dict or None
        Public: what was learned of declared attributes: the share of the spread that they explain, and for each its
        probability, its size and the standard error of that.
    """

    settings: AgentsSettings
    releases: pa.Table
    covariates: dict[str, Any] | None = None

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
        counted: bool,
    ) -> PrivateMeans:
        """Put a result together; `counted` says whether a ledger charges its releases."""
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
            said=(guarantee,) if counted else (guarantee, _calls_add_up(settings)),
            level=options.level,
            keys=tuple(keys),
            asked=frame,
            settings=settings,
            releases=pa.table(columns),
        )


def _calls_add_up(settings: AgentsSettings) -> str:
    """Say what calls on other frames cost together: a row in all of them is released by each.

    Examples
    --------
    >>> _calls_add_up(AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6)).partition(";")[0]
    'No ledger counts this call: 2 calls on different frames are epsilon 1.45 together, 30 calls 6.58'
    """
    two, many = (f"{settings.epsilon_over(calls):.3g}" for calls in CALLS)
    return (
        f"No ledger counts this call: {CALLS[0]} calls on different frames are epsilon {two} together, "
        f"{CALLS[1]} calls {many}; store= charges each row once"
    )
