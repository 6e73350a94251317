"""What `private_means` gives.

A table that may be published, as a frame, in a notebook, as a picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pyarrow as pa

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.collaboration.joint_means import JointMeans
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
    from meanstream.pipelines.frames.explanation import FramePromise


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedPopulation:
    """Public: what the releases of all groups said of their means.

    **Privacy.** A function of releases: it spends nothing.

    Attributes
    ----------
    method : str
        How groups learned of each other: "learned_prior", "none" or another collaboration.
    spread : float or None
        Standard deviation of the groups' means around their center, in the value's unit; None where
        no prior was learned.
    n_centers : int
        Centers of the learned prior, around which the means lie.

    Examples
    --------
    >>> LearnedPopulation(method="pooled_prior", spread=2.5, n_centers=1).sentence()
    'the means of groups differ by 2.5 (standard deviation around their center)'
    """

    method: str
    spread: float | None
    n_centers: int

    @classmethod
    def of(cls, description: Mapping[str, Any], method: str) -> Self:
        """Read it off the description of a population; without groups nothing was learned."""
        return cls(
            method=description.get("method", method),
            spread=description.get("spread"),
            n_centers=description.get("n_components", 0),
        )

    def sentence(self) -> str:
        """Say how far the means of groups lie apart; empty where that was not learned."""
        if self.spread is None:
            return ""

        centers = "their center"
        if self.n_centers > 1:
            centers = f"the nearest of {self.n_centers} centers"

        return (
            f"the means of groups differ by {self.spread:.3g} (standard deviation around {centers})"
        )


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
    learned : LearnedPopulation
        Public: how groups learned of each other, and how far their means lie apart.
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
    learned: LearnedPopulation
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
        from meanstream.pipelines.frames.explanation import promise_as_text

        return promise_as_text(self._promise())

    def report(self, path: str | Path) -> Path:
        """Write the same as one page of HTML, for anyone who approves the publication.

        Give its path.
        """
        from meanstream.pipelines.frames.explanation import write_promise

        return write_promise(path, self._title(), self._promise())

    def _title(self) -> str:
        return f"Private means of {self.value} by {', '.join(self.keys)}"

    def _promise(self) -> FramePromise:
        from meanstream.pipelines.frames.explanation import promise_of_means

        return promise_of_means(self)

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
        learned: LearnedPopulation,
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
        # What is shown, and what is known of it.
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
            learned=learned,
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
