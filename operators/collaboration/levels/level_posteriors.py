"""Means of parents and of whole groups of every level, averaged over the sets of spreads.

Everything here reads releases only, so it is post-processing: it spends nothing and its results are
public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from meanstream.operators.collaboration.levels.group_tree import (
    GroupTree,
    Message,
    downward_messages,
    message_to_parents,
    upward_messages,
)
from meanstream.operators.records import Floats, Ints

SPREADS = 24
LEAST_SPREAD = 0.002
MOST_SPREAD = 0.5
"""Spreads that are tried, in widths of the bounds; on higher levels 0 is tried as well."""
NONE = 0.5
"""Prior probability that the groups of a higher level do not differ."""
POWER = 1.0
LEAF_POWER = 3.0
"""Powers of the spread that are flat before: on higher levels, and among leaves, as where levels
are ignored."""
NEGLIGIBLE = 1e-3
MOST_KEPT = 128
"""Sets of spreads less likely than this share of the likeliest one have no part, nor have all but
so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSpreads:
    """Public: sets of spreads with their posterior probabilities.

    Attributes
    ----------
    spread : float array, shape (n_sets, n_levels)
        Standard deviation of the groups of each level around their parents, in the value's unit.
    probability : float array, shape (n_sets,)
    """

    spread: Floats
    probability: Floats

    @property
    def differs(self) -> Floats:
        """Probability that the groups of each level differ, shape (n_levels,)."""
        return self.probability @ (self.spread > 0)

    @property
    def cautious(self) -> Floats:
        """Probabilities for intervals, shape (n_sets,).

        Releases cannot exclude a small spread: it is not 0 on a level that may have one.
        """
        may_differ = (self.spread > 0).any(axis=0)
        positive = np.where((self.spread[:, may_differ] > 0).all(axis=1), self.probability, 0.0)
        total = float(positive.sum())

        if total == 0:
            return self.probability
        return positive / total

    @property
    def variance(self) -> Floats:
        """Squared spread of each level, averaged, shape (n_levels,)."""
        return self.probability @ np.square(self.spread)


class _Set(NamedTuple):
    """Spreads of a level and below, their log probability, and what they say of the level above."""

    spread: tuple[float, ...]
    log_weight: float
    message: Message


def prior_of_the_whole(lower: float, upper: float) -> Message:
    """Give the prior of the mean of all: about the middle of the bounds, by half their width."""
    return Message(np.array([(lower + upper) / 2]), np.array([np.square((upper - lower) / 2)]))


def learn_level_spreads(
    tree: GroupTree, leaves: Message, *, lower: float, upper: float
) -> LevelSpreads:
    """Weigh sets of spreads, one for each level, by the evidence of the releases.

    Parameters
    ----------
    tree : GroupTree
    leaves : Message
        Releases, with their variances.
    lower, upper : float
        Declared bounds of a sample.

    Notes
    -----
    From the leaves upwards: given the spreads below, the evidence of a spread within parents is one
    pass over the groups of its level. Sets that are hopeless by then go no further. So the work is
    a few passes over the leaves, however many levels there are. Before, a spread of a higher level
    is 0 with probability one half, or flat; the cube of that of the leaves is flat, as in
    `NormalPrior`. A level whose groups are those of the level below, or that has a single group in
    each parent, has no spread of its own.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> state = np.repeat(np.arange(30), 20)
    >>> mean = 0.5 + rng.normal(0, 0.1, 30)[state] + rng.normal(0, 0.05, 600)
    >>> tree = GroupTree.of(("state", "county"), [state, np.arange(600)])
    >>> spreads = learn_level_spreads(tree, Message(mean, np.full(600, 1e-3)), lower=0.0, upper=1.0)
    >>> np.sqrt(spreads.variance).round(2).tolist(), spreads.differs.round(2).tolist()
    ([0.09, 0.04], [1.0, 1.0])
    """
    width = upper - lower
    precise = 0.3 * float(np.sqrt(leaves.variance.min())) / width
    low = min(LEAST_SPREAD, max(precise, 1e-9))
    positive = np.geomspace(low, MOST_SPREAD, SPREADS)

    sets = [_Set((), 0.0, leaves)]
    for level in range(len(tree) - 1, -1, -1):
        spreads, log_prior = _tried(tree, level, positive)
        longer = []
        for below in sets:
            for spread, before in zip((width * spreads).tolist(), log_prior.tolist(), strict=True):
                above, evidence = message_to_parents(tree, level, below.message.wider(spread))
                log_weight = below.log_weight + before + evidence
                longer.append(_Set((spread, *below.spread), log_weight, above))

        sets = _likely(longer)

    return LevelSpreads(
        spread=np.array([below.spread for below in sets]),
        probability=_probabilities(sets, prior_of_the_whole(lower, upper)),
    )


def _tried(tree: GroupTree, level: int, positive: Floats) -> tuple[Floats, Floats]:
    """Give the spreads of a level that are tried, and the log of their prior probabilities."""
    is_leaf = level == len(tree) - 1
    share = positive ** (LEAF_POWER if is_leaf else POWER)
    share /= share.sum()
    if is_leaf:
        return positive, np.log(share)

    # Where each parent has one child, both are the same group.
    size = tree.sizes[level]
    if size in (tree.size_above(level), tree.sizes[level + 1]):
        return np.zeros(1), np.zeros(1)

    return np.append(0.0, positive), np.log(np.append(NONE, (1 - NONE) * share))


def _probabilities(sets: list[_Set], whole: Message) -> Floats:
    """Give the posterior probabilities of sets, with what they say of the mean of the whole."""
    center = np.array([below.message.mean[0] for below in sets])
    variance = np.array([below.message.variance[0] for below in sets]) + whole.variance
    log_weight = np.array([below.log_weight for below in sets])
    log_weight -= 0.5 * (np.square(center - whole.mean) / variance + np.log(variance))
    probability = np.exp(log_weight - log_weight.max())

    return np.asarray(probability / probability.sum(), np.float64)


def _likely(sets: list[_Set]) -> list[_Set]:
    """Leave out the sets that are hopeless."""
    log_weight = np.array([below.log_weight for below in sets])
    order = np.argsort(-log_weight, kind="stable")[:MOST_KEPT]
    least = log_weight[order[0]] + np.log(NEGLIGIBLE)

    return [sets[number] for number in order.tolist() if log_weight[number] >= least]


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
