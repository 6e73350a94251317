"""What `private_means` gives.

A table that may be published, as a frame, in a notebook, as a picture.
"""

from __future__ import annotations

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
from meanstream.pipelines.frames.decisions.named_means import DecidedMeans, NamedMeans, take_joint
from meanstream.pipelines.frames.frame_levels import (
    AGREE,
    LevelMeans,
    LevelTables,
    table_of_all_levels,
)
from meanstream.pipelines.frames.frame_releases import FrameReleases, LedgerCharge, bounds_note
from meanstream.pipelines.frames.private_frame import PrivateFrame, frame_like

if TYPE_CHECKING:
    from meanstream.pipelines.commands.report.report_parts import ReportPart

WIDE = 0.6
"""Width of a median interval, as a part of the bounds, from which on a result says that it says
little."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PrivateMeans(DecidedMeans, PrivateFrame):
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
    levels : LevelTables, optional
        Public: the means of higher levels, and what was learned of them; none without `nested`.
    """

    settings: AgentsSettings
    joint: JointMeans = field(repr=False)
    releases: pa.Table
    charge: LedgerCharge | None
    person: str | None
    covariates: dict[str, Any] | None = None
    levels: LevelTables | None = None

    def to_frame(self) -> Any:
        """Give the answers as a frame of the kind that was given.

        Its groups have the types of the frame's.
        """
        return frame_like(self.table, self.original, self.keys)

    @cached_property
    def named_means(self) -> NamedMeans:
        """The groups by their names, with the joint posterior of their means."""
        return NamedMeans(
            keys=self.table.select(list(self.keys)),
            joint=self.joint,
            level=self.level,
            lower=self.settings.lower,
            upper=self.settings.upper,
        )

    def means_of(self, name: str) -> LevelMeans:
        """Give the means of the groups of a higher level, with intervals; it needs `nested=True`.

        Parameters
        ----------
        name : str
            Column of `by` whose groups are requested: "state", of `by=["state", "county"]`.

        Returns
        -------
        LevelMeans
            A row per group: `groups`, how many groups of the last level it has, `rows`, `mean`,
            `lower`, `upper`, and the noisy mean of all of its rows. It has `difference`, `compare`,
            `ranks`, `top` and `plot`, too.

        Notes
        -----
        **Privacy.** From the releases alone: it spends nothing.

        A mean is that of the answers of the group's own groups, in proportion to their rows.
        """
        tables = self._level_tables("means_of")
        above = self.keys[:-1]
        rule = f"name a column of by above the last one ({', '.join(above)})"
        require(name in above, "means_of", rule, name)
        number = above.index(name)

        return LevelMeans(
            table=tables.tables[1 + number],
            keys=self.keys[: 1 + number],
            notes=(*self.notes, AGREE),
            meaning=self.meaning,
            level=self.level,
            original=self.original,
            value=self.value,
            bounds=(self.settings.lower, self.settings.upper),
        )

    def consistent(self) -> PrivateFrame:
        """Give all levels in one table, the whole first, whose sums agree; it needs `nested=True`.

        A key is null where a row is of all groups below. The mean of each row is that of the rows
        below it in proportion to their `rows`, so that a report may show all levels together.
        """
        tables = self._level_tables("consistent")
        return PrivateFrame(
            table=table_of_all_levels(tables.tables, self.table, self.keys),
            keys=self.keys,
            notes=(*self.notes, AGREE),
            meaning=self.meaning,
            level=self.level,
            original=self.original,
            value=self.value,
        )

    def _level_tables(self, method: str) -> LevelTables:
        if self.levels is None:
            raise ValueError(
                f"{method} needs groups within groups: private_means(..., nested=True)"
            )
        return self.levels

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
        learned = () if self.levels is None else tuple(self.levels.sentences())
        said = [note for note in self.notes if note not in learned]
        parts = means_explained(self.settings, said, facts, self.charge, meaning=self.meaning)

        # After what is estimated, and before what it costs.
        return parts if self.levels is None else [*parts[:3], self.levels.explained(), *parts[3:]]

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
        meaning: str,
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
            meaning=meaning,
            level=level,
            keys=tuple(keys),
            original=frame,
            value=value,
            settings=released.settings,
            releases=pa.table(columns),
            charge=released.charge,
            person=person,
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
