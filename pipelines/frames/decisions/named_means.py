"""Groups by their names, with the joint posterior of their means: what all decisions are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from meanstream.operators.collaboration.joint_means import (
    JointMeans,
    difference_of_two,
    differences_from_one,
    rank_sets,
)
from meanstream.operators.records import Ints
from meanstream.operators.validation import closest_valid, require
from meanstream.pipelines.frames.decisions.decided_tables import (
    Comparison,
    Difference,
    GroupRanks,
    TopGroups,
)
from meanstream.pipelines.frames.groups import key_texts

MOST_RANKED = 20_000
"""Groups that are ranked: the work grows with the square of their number."""
FREE = "From the answers alone: no privacy cost"


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedMeans:
    """Public: groups and the joint posterior of their means.

    Attributes
    ----------
    keys : pyarrow.Table
        Names of the groups, a row each.
    joint : JointMeans
        Of the same groups.
    level : float
        Of intervals and sets.
    lower, upper : float
        Bounds of a mean.
    """

    keys: pa.Table
    joint: JointMeans
    level: float
    lower: float
    upper: float

    def difference(self, first: Any, second: Any) -> Difference:
        """Estimate by how much the mean of one group is above that of another."""
        rows = self._row(first), self._row(second)
        require(rows[0] != rows[1], "difference", "be of two different groups", first)
        value, half_width, probability = difference_of_two(self.joint, *rows, level=self.level)
        width = self.upper - self.lower

        return Difference(
            value=value,
            interval=(max(value - half_width, -width), min(value + half_width, width)),
            probability=probability,
            level=self.level,
        )

    def compare(self, to: Any) -> Comparison:
        """Estimate the difference of every other group from one; all intervals hold together."""
        row = self._row(to)
        value, half_width, probability = differences_from_one(self.joint, row, level=self.level)
        width = self.upper - self.lower
        columns = {
            "difference": value,
            "lower": np.maximum(value - half_width, -width),
            "upper": np.minimum(value + half_width, width),
            "probability": np.round(probability, 4),
        }

        others = np.delete(np.arange(len(value)), row)
        table = self._table({name: pa.array(column) for name, column in columns.items()})
        notes = (
            f"Differences from {_plain_key(to)!r}: all {self.level:.0%} intervals hold together; "
            "probability: of being above",
            FREE,
        )

        return Comparison(table=table.take(pa.array(others)), notes=notes)

    def ranks(self) -> GroupRanks:
        """Rank the groups; the sets of ranks of all groups hold together."""
        rank, least, greatest = self._rank_sets
        table = self._table(
            {
                "mean": pa.array(self.joint.value),
                "rank": pa.array(rank),
                "lower": pa.array(least),
                "upper": pa.array(greatest),
            }
        )
        notes = (
            f"Rank 1 is the highest mean. With {self.level:.0%} probability the true ranks of all groups lie between "
            "lower and upper",
            FREE,
        )

        return GroupRanks(
            table=table.take(pa.array(np.argsort(rank))),
            notes=notes,
            keys=tuple(self.keys.column_names),
        )

    def top(self, count: int) -> TopGroups:
        """Say which groups are surely, and which possibly, among the highest ones."""
        n = len(self.joint)
        whole = isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= n
        require(whole, "top", f"be a whole number from 1 to the number of groups, {n:,}", count)
        ranked = self.ranks()
        possible = np.asarray(ranked.table["lower"]) <= count
        listed = ranked.table.filter(pa.array(possible))
        surely = np.asarray(listed["upper"]) <= count
        names = _plain_keys(listed.select(list(ranked.keys)))

        notes = (
            f"With {self.level:.0%} probability every group that is surely among the highest {count:,} is, and none is "
            "that is not listed",
            FREE,
        )

        return TopGroups(
            table=listed.append_column("surely", pa.array(surely)),
            notes=notes,
            surely=tuple(name for name, sure in zip(names, surely, strict=True) if sure),
            possibly=tuple(name for name, sure in zip(names, surely, strict=True) if not sure),
        )

    def _table(self, columns: dict[str, pa.Array]) -> pa.Table:
        """Put columns beside the names of the groups, which keep their own where both are called alike."""
        clash = next((name for name in columns if name in self.keys.column_names), None)
        rule = f"not be named like a column of this table ({', '.join(columns)})"
        require(clash is None, "by", rule, clash)

        table = self.keys
        for name, column in columns.items():
            table = table.append_column(name, column)

        return table

    @cached_property
    def _rank_sets(self) -> tuple[Ints, Ints, Ints]:
        n = len(self.joint)
        rule = f"be of at most {MOST_RANKED:,} groups: ask for fewer, or use difference and compare"
        require(n <= MOST_RANKED, "ranks", rule, f"{n:,}")
        require(n > 0, "ranks", "be of at least one group", n)

        return rank_sets(self.joint, level=self.level)

    @cached_property
    def _rows(self) -> dict[Any, int]:
        """Rows of the groups by their keys, and by their texts where those are no other group's."""
        rows: dict[Any, int] = {}
        texts = [
            key_texts(column, name)
            for name, column in zip(self.keys.column_names, self.keys.columns, strict=True)
        ]

        for row, names in enumerate(zip(*texts, strict=True)):
            rows[names if len(names) > 1 else names[0]] = row

        return rows | {key: row for row, key in enumerate(_plain_keys(self.keys))}

    def _row(self, key: Any) -> int:
        """Find the row of a group."""
        name = tuple(key) if isinstance(key, list) else key
        try:
            row = self._rows.get(name)
        except TypeError:
            row = None

        if row is not None:
            return row

        columns = self.keys.column_names
        names = [text for text in self._rows if isinstance(text, str)]
        hint = closest_valid(name, names, listed="some:") if isinstance(name, str) and names else ""
        several = f" (a tuple of {', '.join(columns)})" if len(columns) > 1 else ""
        raise ValueError(f"group must be one of the result{several}, got {key!r}{hint}")


def _plain_keys(keys: pa.Table) -> list[Any]:
    """Give the key of each group: a value, or a tuple of several columns'."""
    columns = [column.to_pylist() for column in keys.columns]

    if len(columns) == 1:
        return list(columns[0])
    return list(zip(*columns, strict=True))


def _plain_key(key: Any) -> Any:
    """Key as Python writes it, also where a frame gave a number of NumPy."""
    if isinstance(key, tuple):
        return tuple(_plain_key(element) for element in key)
    if isinstance(key, np.generic):
        return key.item()

    return key


_COLUMNS = ("joint stddev", "joint weight", "joint center variance", "joint is calibrated")


def joint_columns(joint: JointMeans | None) -> dict[str, pa.Array]:
    """Public: the joint posterior as columns, none where the population has intervals alone."""
    if joint is None:
        return {}

    center = np.full(len(joint), joint.center_variance)
    calibrated = np.full(len(joint), joint.calibrated)
    columns = (joint.stddev, joint.weight, center, calibrated)

    return {name: pa.array(column) for name, column in zip(_COLUMNS, columns, strict=True)}


def take_joint(table: pa.Table, level: float) -> tuple[pa.Table, JointMeans]:
    """Give a table without these columns, and the joint posterior of its rows.

    Where it has none, the posteriors are independent and have the intervals of the rows.

    Examples
    --------
    >>> rows = pa.table({"mean": [1.0], "lower": [-0.96], "upper": [2.96]})
    >>> take_joint(rows, 0.95)[1].stddev.round(3).tolist()
    [1.0]
    """
    value, lower, upper = (np.asarray(table[name]) for name in ("mean", "lower", "upper"))
    if _COLUMNS[0] not in table.column_names:
        return table, JointMeans.independent(value, lower, upper, level)

    stddev, weight, center, calibrated = (np.asarray(table[name]) for name in _COLUMNS)
    joint = JointMeans(
        value=value,
        stddev=stddev,
        weight=weight,
        center_variance=float(center[0]) if len(center) else 0.0,
        calibrated=bool(calibrated.all()),
    )

    return table.drop_columns(list(_COLUMNS)), joint


class DecidedMeans(ABC):
    """Public: a result whose groups can be compared, at no privacy cost."""

    @property
    @abstractmethod
    def named_means(self) -> NamedMeans:
        """The groups by their names, with the joint posterior of their means."""

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
        return self.named_means.difference(first, second)

    def compare(self, to: Any) -> Comparison:
        """Estimate the difference of every other group from one.

        All intervals hold together at the level of the result.
        """
        return self.named_means.compare(to)

    def ranks(self) -> GroupRanks:
        """Rank the groups by their means, the highest first, with the ranks that each may have.

        The ranks of all groups lie between `lower` and `upper` together at the level of the result.
        """
        return self.named_means.ranks()

    def top(self, count: int) -> TopGroups:
        """List the groups that may be among the `count` highest: `surely` and `possibly`.

        Both lists hold together at the level of the result.
        """
        return self.named_means.top(count)
