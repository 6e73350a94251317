"""Which group of the level above each group belongs to."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

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


_LOG_TWO_PI = float(np.log(2 * np.pi))


class Message(NamedTuple):
    """Public: a normal likelihood of the mean of each group of a level."""

    mean: Floats
    variance: Floats

    def wider(self, spread: float) -> Message:
        """Give what is said of groups that are spread around these by a standard deviation."""
        return Message(self.mean, self.variance + spread * spread)


def message_to_parents(tree: GroupTree, level: int, groups: Message) -> tuple[Message, float]:
    """Give what groups say of their parents' means, and the logarithm of what that leaves out.

    Notes
    -----
    The product of `N(m_i; mu, v_i)` over the children is `N(m; mu, v)` with
    `1 / v = sum 1 / v_i` and `m = v sum m_i / v_i`, times a factor without mu: the evidence
    within parents.

    Examples
    --------
    >>> tree = GroupTree.of(("state", "county"), [np.array([0, 0]), np.arange(2)])
    >>> above, _ = message_to_parents(tree, 1, Message(np.array([1.0, 4.0]), np.array([1.0, 2.0])))
    >>> above.mean.round(3).tolist(), above.variance.round(3).tolist()
    ([2.0], [0.667])
    """
    precision = 1.0 / groups.variance
    total = tree.sums(level, precision)
    mean = tree.sums(level, precision * groups.mean) / total
    away = groups.mean - mean[tree.parents[level]]

    # sum log N(m_i; m, v_i), and the width of the product.
    exponent = float((precision * away * away).sum())
    of_children = float((np.log(groups.variance) + _LOG_TWO_PI).sum())
    of_parents = float((_LOG_TWO_PI - np.log(total)).sum())

    return Message(mean, 1.0 / total), 0.5 * (of_parents - of_children - exponent)


def upward_messages(tree: GroupTree, leaves: Message, spread: Floats) -> list[Message]:
    """Give what releases of a group and below it say of its mean: of the whole, then by level."""
    messages = [leaves]
    for level in range(len(tree) - 1, -1, -1):
        around = messages[-1].wider(float(spread[level]))
        messages.append(message_to_parents(tree, level, around)[0])

    return messages[::-1]


def downward_messages(
    tree: GroupTree, below: list[Message], spread: Floats, before: Message
) -> list[Message]:
    """Give, by level, what all releases but those of a group and below it say of its parent's mean.

    Parameters
    ----------
    tree : GroupTree
    below : list of Message
        As `upward_messages` gives them.
    spread : float array, shape (n_levels,)
    before : Message
        Prior of the mean of the whole.

    Notes
    -----
    It is what all say of the parent less what the group itself says, in precisions: the group's
    own releases do not count twice.
    """
    outside = before
    messages = []

    for level, parent in enumerate(tree.parents):
        # All that is known of the parents, from below and from outside.
        above = below[level]
        precision = 1 / above.variance + 1 / outside.variance
        moment = above.mean / above.variance + outside.mean / outside.variance

        # Without one child: never less than what is known from outside.
        child = below[level + 1].wider(float(spread[level]))
        of_others = np.maximum(precision[parent] - 1 / child.variance, 1 / outside.variance[parent])
        mean = (moment[parent] - child.mean / child.variance) / of_others

        messages.append(Message(mean, 1 / of_others))
        outside = messages[-1].wider(float(spread[level]))

    return messages
