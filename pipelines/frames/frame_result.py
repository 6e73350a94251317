"""What `private_means` gives.

A table that may be published, as a frame, in a notebook, as a picture.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.collaboration.joint.joint_means import JointMeans
from meanstream.operators.records import ReleaseColumns
from meanstream.operators.validation import require
from meanstream.pipelines.frames.decisions.decided_tables import (
    Comparison,
    Difference,
    GroupRanks,
    TopGroups,
)
from meanstream.pipelines.frames.decisions.joint_columns import take_joint
from meanstream.pipelines.frames.decisions.named_means import NamedMeans
from meanstream.pipelines.frames.frame_releases import FrameReleases, LedgerCharge, bounds_note
from meanstream.pipelines.frames.frame_table import (
    ShownTable,
    interval_bar,
    rounded_text,
    table_axes,
    texts_of_row,
)

if TYPE_CHECKING:
    from meanstream.pipelines.commands.report.report_parts import ReportPart

DRAWN = 30
"""Groups that a picture has room for; of more, those evenly spaced by their means."""
LINES = 8
"""Categories that a picture has room for."""
WIDE = 0.6
"""Width of a median interval, as a part of the bounds, from which on a result says that it says
little."""


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
        value, low, high = (
            np.asarray(self.table.column(name))
            for name in (self.answer, "lower", "upper")
            # Values outside an interval are possible only by rounding.
        )
        error = np.maximum([value - low, high - value], 0.0)
        label = self.value if unit is None else f"{self.value}, {unit}"
        label = f"{self.answer} of {label} ({100 * self.level:g} % interval)"

        # Windows are drawn in time; categories and quantiles each with a line of their own.
        if self.keys[0] == "window" and len(self.keys) > 1:
            return self._plot_parts(axes, value, error, label)

        if self.keys == ("window",):
            axes = table_axes(axes, (7, 3.5))
            axes.errorbar(
                self.table.column("window").to_numpy(), value, yerr=error, fmt="o", ms=3, lw=1
            )
            axes.set(
                ylabel=label,
                xlabel="start of the window (UTC)",
                title=f"Private means of {len(value):,} windows",
            )
            axes.figure.autofmt_xdate()

            return axes

        # Groups are drawn by their means; of many, some evenly.
        order = np.argsort(value, kind="stable")
        some = order[
            np.unique(np.linspace(0, max(len(order) - 1, 0), min(len(order), DRAWN)).astype(int))
        ]
        names = [
            ", ".join(texts_of_row(row))
            for row in self.table.select(list(self.keys)).take(pa.array(some)).to_pylist()
        ]

        axes = table_axes(axes, (7, 1.4 + 0.22 * len(some)))
        axes.margins(y=0.02)
        axes.errorbar(value[some], np.arange(len(some)), xerr=error[:, some], fmt="o", ms=3, lw=1)
        axes.set_yticks(np.arange(len(some)), names, fontsize=7)
        shown = f"{len(some):,} of {len(order):,} groups, evenly by their means"
        title = shown if len(some) < len(order) else f"all {len(order):,} groups"
        axes.set(xlabel=label, ylabel=", ".join(self.keys), title=f"Private means: {title}")

        return axes

    def _plot_parts(self, axes: Any, value: Any, error: Any, label: str) -> Any:
        """Draw the answers of each category or quantile in time, those with the largest ones.

        Give the axes.
        """
        axes, part = table_axes(axes, (7, 3.5)), self.keys[1]
        when = self.table.column("window").to_numpy()
        names = np.array(self.table.column(part).to_pylist())

        # The parts with the largest answers, as more lines than that cannot be told apart.
        known = [*dict.fromkeys(names.tolist())]
        largest = sorted(known, key=lambda name: -float(value[names == name].sum()))[:LINES]

        for name in largest:
            mine = names == name
            axes.errorbar(
                when[mine], value[mine], yerr=error[:, mine], fmt="o-", ms=3, lw=1, label=f"{name}"
            )

        shown = f"the {LINES} largest of {len(known)}" if len(known) > LINES else f"{len(known)}"
        axes.set(
            ylabel=label,
            xlabel="start of the window (UTC)",
            title=f"Private answers by {part}: {shown}",
        )
        axes.legend(fontsize=7)
        axes.figure.autofmt_xdate()

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
    charge : LedgerCharge, optional
        Public: what the call has charged in a ledger.
    person : str, optional
        Name of the column of persons.
    covariates : dict or None
        Public: what was learned of declared attributes: the share of the spread that they explain,
        and for each its probability, its size and the standard error of that.
    joint : JointMeans
        Public: the joint posterior of the means, in the order of the table.
    """

    settings: AgentsSettings
    joint: JointMeans = field(repr=False)
    releases: pa.Table
    charge: LedgerCharge | None
    person: str | None
    covariates: dict[str, Any] | None = None

    def to_frame(self) -> Any:
        """Give the answers as a frame of the kind that was given.

        Its groups have the types of the frame's.
        """
        return frame_like(self.table, self.original, self.keys)

    def difference(self, first: Any, second: Any) -> Difference:
        """Estimate by how much the mean of one group is above that of another.

        Parameters
        ----------
        first, second : key
            Of the groups; tuples where `by` has several columns.

        Returns
        -------
        Difference
            With `value`, `interval`, and the `probability` that the first group's mean is above.

        Notes
        -----
        **Privacy.** From the answers alone, as are `compare`, `ranks` and `top`: they spend nothing. What the answers
        have in common, an error of a learned center, cancels where it enters both alike.
        """
        return self._named.difference(first, second)

    def compare(self, to: Any) -> Comparison:
        """Estimate the difference of every other group from one.

        All intervals hold together at the level of the result.
        """
        return self._named.compare(to)

    def ranks(self) -> GroupRanks:
        """Rank the groups by their means, the highest first, with the ranks that each may have.

        The ranks of all groups lie between `lower` and `upper` together at the level of the result.
        """
        return self._named.ranks()

    def top(self, count: int) -> TopGroups:
        """List the groups that may be among the `count` highest: `surely` and `possibly`.

        Both lists hold together at the level of the result.
        """
        return self._named.top(count)

    @cached_property
    def _named(self) -> NamedMeans:
        return NamedMeans(
            keys=self.table.select(list(self.keys)),
            joint=self.joint,
            level=self.level,
            lower=self.settings.lower,
            upper=self.settings.upper,
        )

    def plot(
        self,
        axes: Any = None,
        *,
        unit: str | None = None,
        kind: Literal["means", "ranks"] = "means",
    ) -> Any:
        """Draw the answers with their intervals, or the ranks with those that are possible; give the axes."""
        require(kind in ("means", "ranks"), "kind", "be 'means' or 'ranks'", kind)
        if kind == "ranks":
            return self.ranks().plot(axes)
        return super().plot(axes, unit=unit)

    def explain(self) -> str:
        """Say in plain words what is protected, what that means as odds, what was spent and what is not covered."""
        from meanstream.pipelines.frames.explanation import explained_as_text

        return explained_as_text(self._explained())

    def report(self, path: str | Path) -> Path:
        """Write the same as one page of HTML, for anyone who approves the publication.

        Give its path.
        """
        from meanstream.pipelines.frames.explanation import write_explained

        return write_explained(path, self._title(), self._explained())

    def _title(self) -> str:
        return f"Private means of {self.value} by {', '.join(self.keys)}"

    def _explained(self) -> list[ReportPart]:
        from meanstream.pipelines.frames.explanation import means_explained

        facts = [("value", self.value), ("groups", f"{len(self):,} by {', '.join(self.keys)}")]
        facts += [] if self.person is None else [("person", self.person)]
        return means_explained(self.settings, self.notes, facts, self.charge, meaning=self.meaning)

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

        # Releases of all calls, so that whoever trusts the secret can check them.
        if released.every:
            every = ReleaseColumns.joined(released.every)
            columns = {"agent": pa.array(released.samples.names).take(pa.array(every.agent))}
            columns |= {
                public: getattr(every, name)
                for public, name in (
                    ("index", "index"),
                    ("n", "count"),
                    ("total", "total"),
                    ("mean", "mean"),
                )
            }
            columns["noise_variance"] = every.noise_variance

        shown, joint = take_joint(table, level)
        return cls(
            table=shown,
            joint=joint,
            notes=(
                *released.sentences(person),
                bounds_note(released.settings),
                *wide_answers(table, released.settings),
            ),
            meaning=means_meaning(released.settings, level),
            level=level,
            keys=tuple(keys),
            original=frame,
            value=value,
            settings=released.settings,
            releases=pa.table(columns),
            charge=released.charge,
            person=person,
        )


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
        found = table.to_pandas()
        return found.astype({name: frame[name].dtype for name in keys})

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

    for name in keys:
        with contextlib.suppress(
            pa.ArrowException
        ):  # a type that Arrow does not cast to keeps the plain one
            cast = table.column(name).cast(schema.field(name).type)
            table = table.set_column(table.column_names.index(name), name, cast)

    return table


def means_meaning(settings: AgentsSettings, level: float) -> str:
    """Sentence on what a group's mean and its interval are of."""
    return (
        f"`mean` estimates a group's long-run mean of values clipped to [{settings.lower:g}, "
        f"{settings.upper:g}]; its {100 * level:g} % interval includes noise and sampling"
    )


def wide_answers(table: pa.Table, settings: AgentsSettings) -> Iterator[str]:
    """Say so where intervals fill most of the bounds, and so say hardly more than the bounds do."""
    if not len(table):
        return

    # Half of the groups must say more than the bounds do, or a note says that they do not.
    widths = np.subtract(table["upper"].to_numpy(), table["lower"].to_numpy()) / (
        settings.upper - settings.lower
    )

    if (half := float(np.median(widths))) > WIDE:
        yield (
            f"Half of the intervals are at least {half:.0%} as wide as the bounds, and say little: a larger epsilon or "
            "more rows per group help (`plan_means` compares epsilons)"
        )
