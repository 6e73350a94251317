"""Means of parents and of whole groups of every level, averaged over the sets of spreads.

Everything here reads releases only, so it is post-processing: it spends nothing and its results are
public.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meanstream.operators.collaboration.levels.group_tree import GroupTree
from meanstream.operators.collaboration.levels.level_messages import (
    Message,
    downward_messages,
    upward_messages,
)
from meanstream.operators.collaboration.levels.level_spreads import LevelSpreads
from meanstream.operators.records import Floats, Ints


class LevelPosteriors(NamedTuple):
    """Public: posteriors given all releases.

    Attributes
    ----------
    parents : Message
        Of the mean of each leaf's parent, given the releases of all other leaves.
    center : float
        Mean of the whole.
    group_variances : list of float array
        With which the mean of the rows of each group is known: of the whole, then by level without
        the leaves.
    """

    parents: Message
    center: float
    group_variances: list[Floats]


def level_posteriors(
    tree: GroupTree, leaves: Message, rows: Ints, spreads: LevelSpreads, before: Message
) -> LevelPosteriors:
    """Give what releases say of parents and of groups of all levels.

    Parameters
    ----------
    tree : GroupTree
    leaves : Message
        Releases, with their variances.
    rows : int array, shape (n_leaves,)
        Rows of each leaf.
    spreads : LevelSpreads
    before : Message
        Prior of the mean of the whole.

    Examples
    --------
    >>> tree = GroupTree.of(("state", "county"), [np.array([0, 0]), np.arange(2)])
    >>> leaves = Message(np.array([1.0, 3.0]), np.ones(2))
    >>> spreads = LevelSpreads(spread=np.array([[0.0, 1.0]]), probability=np.ones(1))
    >>> before = Message(np.zeros(1), np.array([1e9]))
    >>> posteriors = level_posteriors(tree, leaves, np.array([10, 10]), spreads, before)
    >>> posteriors.parents.mean.round(3).tolist(), posteriors.group_variances[1].round(3).tolist()
    ([3.0, 1.0], [0.5])
    """
    parents = _Average(len(leaves.mean))
    groups = [_Average(size) for size in (1, *tree.sizes[:-1])]
    cautious = [_Average(size) for size in (1, *tree.sizes[:-1])]
    center = 0.0

    shares = zip(spreads.probability.tolist(), spreads.cautious.tolist(), strict=True)
    for spread, (share, cautious_share) in zip(spreads.spread, shares, strict=True):
        below = upward_messages(tree, leaves, spread)
        outside = downward_messages(tree, below, spread, before)
        parents.add(share, outside[-1])
        center += share * float(_product(below[0], before).mean[0])

        around = [before, *map(Message.wider, outside, spread.tolist())]
        for level, message in enumerate(_means_of_groups(tree, rows, below, around, spread)):
            groups[level].add(share, message)
            cautious[level].add(cautious_share, message)

    # Intervals rest on the cautious probabilities, and are around the means of the others.
    variances = [
        wide.variance + np.square(wide.mean - plain.mean)
        for wide, plain in zip(cautious, groups, strict=True)
    ]
    return LevelPosteriors(Message(parents.mean, parents.variance), center, variances)


class _Average:
    """Mean and variance of a mixture of normal laws, whose probabilities add up to 1."""

    def __init__(self, size: int) -> None:
        self._share = 0.0
        self.mean = np.zeros(size)
        self.variance = np.zeros(size)

    def add(self, share: float, message: Message) -> None:
        """Add a law with its probability; the law of total variance, one after the other."""
        if share == 0:
            return
        self._share += share
        step = message.mean - self.mean
        self.mean = self.mean + share / self._share * step
        self.variance = self.variance + share * (
            message.variance + step * (message.mean - self.mean)
        )


def _product(message: Message, other: Message) -> Message:
    variance = 1 / (1 / message.variance + 1 / other.variance)
    mean = variance * (message.mean / message.variance + other.mean / other.variance)
    return Message(mean, variance)


class _LinearMeans(NamedTuple):
    """Means of the rows of groups, given a mean mu: `constant + slope mu`, with their errors.

    mu is that of the group, or of its parent.
    """

    constant: Floats
    slope: Floats
    variance: Floats

    def given_parents(self, data: Message, squared_spread: float) -> _LinearMeans:
        """Give the same in terms of the parent's mean; `data` is what lies below each group.

        Given the parent's mean m, that of the group is `k data + (1 - k) m`, with an error of
        variance `k v` if that of the data is v.
        """
        drawn = squared_spread / (squared_spread + data.variance)
        return _LinearMeans(
            self.constant + self.slope * drawn * data.mean,
            self.slope * (1 - drawn),
            self.variance + np.square(self.slope) * drawn * data.variance,
        )

    def of_parents(self, tree: GroupTree, level: int, share: Floats) -> _LinearMeans:
        """Give the means of the parents, in which each group of a level has a share."""
        return _LinearMeans(
            tree.sums(level, share * self.constant),
            tree.sums(level, share * self.slope),
            tree.sums(level, np.square(share) * self.variance),
        )

    def posterior(self, mean: Message) -> Message:
        """Give what is known of them if mu is known so well."""
        variance = self.variance + np.square(self.slope) * mean.variance
        return Message(self.constant + self.slope * mean.mean, variance)


def _means_of_groups(
    tree: GroupTree, rows: Ints, below: list[Message], around: list[Message], spread: Floats
) -> list[Message]:
    """Give the mean of the rows of each group: of the whole, then by level without the leaves."""
    n_leaves = tree.sizes[-1]
    means = _LinearMeans(np.zeros(n_leaves), np.ones(n_leaves), np.zeros(n_leaves))
    messages = []

    for level in range(len(tree) - 1, -1, -1):
        of_groups = np.asarray(np.bincount(tree.ancestors(level), rows), np.float64)
        share = of_groups / tree.sums(level, of_groups)[tree.parents[level]]

        means = means.given_parents(below[level + 1], float(spread[level]) ** 2)
        means = means.of_parents(tree, level, share)
        messages.append(means.posterior(_product(below[level], around[level])))

    return messages[::-1]
