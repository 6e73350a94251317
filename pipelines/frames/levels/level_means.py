"""Means of the groups of a higher level, and of all levels together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from meanstream.operators.collaboration.joint_means import JointMeans
from meanstream.pipelines.commands.report.report_parts import ReportPart
from meanstream.pipelines.frames.decisions.decided_means import DecidedMeans
from meanstream.pipelines.frames.decisions.named_means import NamedMeans
from meanstream.pipelines.frames.groups import rows_by_key
from meanstream.pipelines.frames.private_frame import PrivateFrame, frame_like

GROUPS = "groups"
"""Column of a higher level: how many groups of the last level a group has."""
_ANSWERS = ("mean", "lower", "upper", "released", "noise_stddev")
AGREE = "The mean of a group is that of its own groups in proportion to their rows: sums agree"
EXPLAINED = (
    "Each level has a prior of its own: a group is expected to be near its parent, as near as the "
    "releases of all groups say. All levels are computed from the releases of the last one: they "
    "cost no privacy."
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LevelTables:
    """Public: answers of higher levels, and what was learned of the levels.

    Attributes
    ----------
    tables : tuple of pyarrow.Table
        Of the whole, then by level without the last one.
    learned : list of dict
        By level: name, number of groups, spread around the parents' means, share of the spread of
        the last level's means, and the probability that groups differ. None of a single group.
    """

    tables: tuple[pa.Table, ...]
    learned: list[dict[str, Any]]

    @classmethod
    def without_groups(cls, keys: pa.Table) -> Self:
        """Give the tables of a result that has no group; `keys` are those of its leaves."""
        kinds = dict.fromkeys((GROUPS, "rows"), pa.int64()) | dict.fromkeys(_ANSWERS, pa.float64())
        columns = {name: pa.array([], kind) for name, kind in kinds.items()}
        none = keys.slice(0, 0)
        names = [none.column_names[:level] for level in range(len(none.column_names))]
        tables = (pa.table({name: none[name] for name in some} | columns) for some in names)

        return cls(tables=tuple(tables), learned=[])

    def changed(self, change: Callable[[pa.Table], pa.Table]) -> LevelTables:
        """Give the same with a change of all tables, as further columns."""
        return replace(self, tables=tuple(change(table) for table in self.tables))

    def sentences(self) -> Iterator[str]:
        """Say what was learned of levels."""
        if not self.learned:
            return
        shares = ", ".join(
            f"{level['name']} {100 * level['explained']:.0f} %" for level in self.learned
        )
        doubts = ", ".join(
            f"{level['name']} {100 * level['probability']:.0f} %" for level in self.learned[:-1]
        )
        said = f"shares of the spread of means: {shares}; likely to matter: {doubts}"
        yield f"Groups within groups: {said}"

    def explained(self) -> ReportPart:
        """Say what the levels are, and what was learned of them."""
        rows = [(str(level["name"]), _learned_text(level)) for level in self.learned]
        return ReportPart(title="Groups within groups", text=f"{EXPLAINED} {AGREE}.", table=rows)


def _learned_text(level: dict[str, Any]) -> str:
    share = 100 * level["explained"]
    likely = 100 * level["probability"]
    return (
        f"{level['groups']:,} groups, {share:.0f} % of the spread of the means; they differ with "
        f"probability {likely:.0f} %"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LevelMeans(DecidedMeans, PrivateFrame):
    """One private mean per group of a higher level; see `PrivateMeans.means_of`.

    Attributes
    ----------
    bounds : (float, float)
        Of a value.
    """

    bounds: tuple[float, float] = field(repr=False)

    def to_frame(self) -> Any:
        """Give the answers as a frame of the kind that was given, with its types of keys."""
        return frame_like(self.table, self.original, self.keys)

    @cached_property
    def named_means(self) -> NamedMeans:
        """The groups by their names; their errors are taken as independent."""
        value, lower, upper = (np.asarray(self.table[name]) for name in ("mean", "lower", "upper"))
        return NamedMeans(
            keys=self.table.select(list(self.keys)),
            joint=JointMeans.independent(value, lower, upper, self.level),
            level=self.level,
            lower=self.bounds[0],
            upper=self.bounds[1],
        )


def table_of_all_levels(
    levels: Sequence[pa.Table], leaves: pa.Table, keys: Sequence[str]
) -> pa.Table:
    """Put the whole, the groups of higher levels and the leaves into one table, parents first.

    A key is null where a row is of all of its groups.

    Examples
    --------
    >>> one = {"groups": [2], "rows": [4], "mean": [2.5]}
    >>> keys = {"state": ["A", "A"], "county": ["x", "y"]}
    >>> leaves = pa.table({**keys, "rows": [1, 3], "mean": [1.0, 3.0]})
    >>> levels = [pa.table(one), pa.table({"state": ["A"], **one})]
    >>> table = table_of_all_levels(levels, leaves, ["state", "county"])
    >>> table["county"].to_pylist(), table["mean"].to_pylist()
    ([None, None, 'x', 'y'], [2.5, 2.5, 1.0, 3.0])
    """
    leaves = leaves.append_column(GROUPS, pa.array(np.ones(len(leaves), np.int64)))
    columns = [*keys, *levels[0].column_names]
    tables = [*levels, leaves]
    selected = [
        table.select([name for name in columns if name in table.column_names]) for table in tables
    ]
    joined = pa.concat_tables(selected, promote_options="default").select(columns)

    # A group stands before the first of its leaves, and below the group that it is in.
    places = [np.zeros(len(levels[0]), np.int64)]
    for level in range(1, len(keys)):
        number, _ = rows_by_key(leaves, list(keys[:level]))
        places.append(np.unique(number, return_index=True)[1])

    places.append(np.arange(len(leaves)))
    depth = np.repeat(np.arange(len(places)), [len(place) for place in places])
    order = np.lexsort((depth, np.concatenate(places)))

    return joined.take(pa.array(order))
