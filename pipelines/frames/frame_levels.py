"""Levels of a frame's groups: their tree, and the population that has a prior for each level."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from meanstream.operators.collaboration.alone import half_width_alone
from meanstream.operators.collaboration.anytime_intervals import Coverage
from meanstream.operators.collaboration.joint_means import JointMeans
from meanstream.operators.collaboration.levels.group_tree import MOST_LEVELS, GroupTree
from meanstream.operators.collaboration.levels.prior_of_levels import FittedLevels, PriorOfLevels
from meanstream.operators.collaboration.prior.prior_by_count import FittedByCount, PriorByCount
from meanstream.operators.collaboration.registry import Collaboration
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require
from meanstream.pipelines.commands.report.report_parts import ReportPart
from meanstream.pipelines.frames.decisions.named_means import DecidedMeans, NamedMeans
from meanstream.pipelines.frames.groups import key_order, rows_by_key
from meanstream.pipelines.frames.private_frame import PrivateFrame, frame_like
from meanstream.streaming.agents.public_population import PublicPopulation

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
        tables = (
            pa.table({name: none[name] for name in columns_of_level} | columns)
            for columns_of_level in names
        )

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
    depth = np.repeat(np.arange(len(places)), [len(positions) for positions in places])
    order = np.lexsort((depth, np.concatenate(places)))

    return joined.take(pa.array(order))


def level_columns(nested: bool) -> list[str]:
    """Name the further columns that tables of levels have."""
    return [GROUPS] if nested else []


def check_nested(
    nested: bool,
    by: str | Sequence[str],
    collaboration: str | Collaboration,
    *,
    coverage: Coverage = "pointwise",
    covariates: Any = None,
) -> None:
    """Refuse what groups within groups do not go with, before anything is read.

    Examples
    --------
    >>> check_nested(True, "county", "learned_prior")
    Traceback (most recent call last):
    ValueError: by must name 2 to 5 columns with nested, the highest level first, got 1
    """
    require(isinstance(nested, bool), "nested", "be True or False", nested)
    if not nested:
        return

    n_levels = 1 if isinstance(by, str) else len(by)
    rule = f"name 2 to {MOST_LEVELS} columns with nested, the highest level first"
    require(2 <= n_levels <= MOST_LEVELS, "by", rule, n_levels)

    usual = PriorByCount.name
    rule = f"be {usual!r} with nested, which learns a prior per level; leave it out"
    require(collaboration == usual, "collaboration", rule, collaboration)
    rule = (
        "be 'pointwise' with nested; for intervals that hold at all calls together leave nested out"
    )
    require(coverage == "pointwise", "coverage", rule, coverage)
    rule = "be left out with nested; an attribute that is a category can be a level: name it in by"
    require(covariates is None, "covariates", rule, type(covariates).__name__)


@dataclass(frozen=True, slots=True, eq=False)
class FrameLevels:
    """Public: the tree of a frame's groups, and the keys of the groups of its higher levels.

    Attributes
    ----------
    tree : GroupTree
        Its leaves are the groups of all columns of `by`.
    keys : tuple of pyarrow.Table
        By level, without the leaves.
    rank : int array
        Place of each leaf in the order of the result.
    """

    tree: GroupTree
    keys: tuple[pa.Table, ...]
    rank: Ints

    @classmethod
    def of(cls, keys: pa.Table) -> Self:
        """Read the levels off the keys of the leaves."""
        names = keys.column_names
        groups = []
        tables = []
        for level in range(1, len(names)):
            number, table = rows_by_key(keys, names[:level])
            groups.append(number.astype(np.int64))
            tables.append(table)

        groups.append(np.arange(keys.num_rows))
        rank = np.argsort(key_order(keys), kind="stable")
        return cls(GroupTree.of(names, groups), tuple(tables), rank)

    def fitted(
        self, people: PublicPopulation, sample_variance: VariancePosterior
    ) -> PublicPopulation:
        """Public: give the same releases a prior for each level; a single group stays as it is."""
        if not isinstance(people.fitted, FittedByCount):
            return people

        prior = PriorOfLevels(people.lower, people.upper, self.tree)
        levels = prior.fit(people.releases, sample_variance, people.variance, without=people.fitted)
        return replace(people, fitted=levels, description=people.description | levels.learned())

    def tables_of(self, people: PublicPopulation, leaves: Mapping[str, Floats]) -> LevelTables:
        """Public: give the means of the whole and of the groups of each level but the last.

        A mean is that of the answers of a group's leaves, in proportion to their rows: sums agree.
        Groups are in the order of their leaves. `leaves` are columns of the leaves' answers.
        """
        whole = np.zeros(len(leaves["rows"]), np.int64)
        tables = []

        for above in range(len(self.tree)):
            # Groups on the level above this one: the whole is above the highest level.
            group = self.tree.ancestors(above - 1) if above else whole
            keys = self.keys[above - 1] if above else pa.table({})
            named = dict(zip(keys.column_names, keys.columns, strict=True))
            columns = self._columns(people, leaves, above, group)
            named |= {name: pa.array(column) for name, column in columns.items()}

            # In the order of the result.
            first = np.full(int(group.max()) + 1, len(group), np.int64)
            np.minimum.at(first, group, self.rank)
            tables.append(pa.table(named).take(pa.array(np.argsort(first))))

        learned = people.description.get("levels", [])
        return LevelTables(tables=tuple(tables), learned=learned)

    def _columns(
        self, people: PublicPopulation, leaves: Mapping[str, Floats], above: int, group: Ints
    ) -> dict[str, Any]:
        """Give the answers of the groups that leaves are in."""
        number = np.bincount(group)
        rows = np.asarray(leaves["rows"], np.float64)
        total = _sums(group, rows)
        share = rows / total[group]

        value = _sums(group, share * leaves["mean"])
        half_width = self._half_widths(people, above, number)
        ends = np.clip([value - half_width, value + half_width], people.lower, people.upper)

        # A group of one leaf is that leaf, and has its interval.
        leaf_ends = np.stack([_sums(group, leaves[name]) for name in ("lower", "upper")])
        lower, upper = np.where(number == 1, leaf_ends, ends)

        return {
            GROUPS: number,
            "rows": total.astype(np.int64),
            "mean": value,
            "lower": lower,
            "upper": upper,
            "released": _sums(group, share * leaves["released"]),
            "noise_stddev": np.sqrt(_sums(group, np.square(share * leaves["noise_stddev"]))),
        }

    @staticmethod
    def _half_widths(people: PublicPopulation, above: int, number: Ints) -> Floats:
        """Half-widths of the intervals of a level; a single leaf has no fit of its own."""
        if not isinstance(people.fitted, FittedLevels):
            return np.zeros(len(number))
        return half_width_alone(people.fitted.group_variances[above], people.level)


def _sums(group: Ints, values: Floats) -> Floats:
    return np.asarray(np.bincount(group, values), np.float64)
