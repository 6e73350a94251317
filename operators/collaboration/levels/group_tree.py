"""Which group of the level above each group belongs to."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from meanstream.operators.records import AnyInts, Floats, Ints

MOST_LEVELS = 5
"""Levels of groups."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupTree:
    """Public: groups within groups, the highest level first and the leaves last.

    Attributes
    ----------
    names : tuple of str
        Of the levels.
    parents : tuple of int array
        By level: the number of each group's parent on the level above; 0 on the highest level,
        whose groups are parts of the whole.

    Examples
    --------
    >>> tree = GroupTree.of(("state", "county"), [np.array([0, 0, 1]), np.arange(3)])
    >>> tree.sizes, tree.parents[1].tolist(), tree.ancestors(0).tolist()
    ((2, 3), [0, 0, 1], [0, 0, 1])
    """

    names: tuple[str, ...]
    parents: tuple[Ints, ...]

    @classmethod
    def of(cls, names: Sequence[str], groups: Sequence[AnyInts]) -> Self:
        """Make a tree of the group that each leaf is in, by level; groups are numbered from 0."""
        # A group's parent is that of any of its leaves.
        parents = [np.zeros(_size(groups[0]), np.int64)]
        for above, below in itertools.pairwise(groups):
            parent = np.zeros(_size(below), np.int64)
            parent[below] = above
            parents.append(parent)

        return cls(tuple(names), tuple(parents))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of groups, by level."""
        return tuple(len(parent) for parent in self.parents)

    def size_above(self, level: int) -> int:
        """Give how many parents the groups of a level have."""
        return 1 if level == 0 else len(self.parents[level - 1])

    def ancestors(self, level: int) -> Ints:
        """Give the number of the group of a level that each leaf is in."""
        ancestor = np.arange(len(self.parents[-1]))
        for parent in self.parents[:level:-1]:
            ancestor = parent[ancestor]

        return ancestor

    def sums(self, level: int, values: Floats) -> Floats:
        """Add up values of the groups of a level, by their parents."""
        sums = np.bincount(self.parents[level], values, self.size_above(level))
        return np.asarray(sums, np.float64)


def _size(groups: AnyInts) -> int:
    return int(groups.max(initial=-1)) + 1
