"""A learned prior for groups within groups: a child is centered on what is known of its parent."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, cast

import numpy as np
from scipy.special import expit

from meanstream.operators.collaboration.covariates.prior_with_covariates import (
    log_predictive_density,
    mixed_estimates,
)
from meanstream.operators.collaboration.levels.group_tree import GroupTree, Message
from meanstream.operators.collaboration.levels.level_posteriors import (
    LevelSpreads,
    learn_level_spreads,
    level_posteriors,
    prior_of_the_whole,
)
from meanstream.operators.collaboration.prior.prior_by_count import FittedByCount, PriorByCount
from meanstream.operators.collaboration.prior.release_bins import ReleaseBins
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.records import AgentEstimates, Floats, Ints, OwnMeans, ReleaseColumns

_MOVED = ("value", "lower", "upper")
_NOT_BY_LEAF = ("level", "moved")


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLevels:
    """Public: the population without levels, that of what parents leave, and groups of all levels.

    Attributes
    ----------
    without, beyond : FittedByCount
        Of the releases, and of the releases less the offsets.
    tree : GroupTree
    agent : int array, shape (n_leaves,)
        Numbers of the leaves, increasing.
    offset, doubt : float array, shape (n_leaves,)
        What the releases of all other leaves say of the parent's mean, above that of the whole, and
        the variance of that.
    spreads : LevelSpreads
    group_variances : list of float array
        With which the mean of the rows of each group is known: of the whole, then by level without
        the leaves.
    share : float
        Probability that means follow their parents'.
    """

    without: FittedByCount
    beyond: FittedByCount
    tree: GroupTree
    agent: Ints
    offset: Floats
    doubt: Floats
    spreads: LevelSpreads
    group_variances: list[Floats]
    share: float

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
        """Private: each leaf's answer given its own mean, addressed to that leaf only.

        Parameters
        ----------
        own : OwnMeans
            Leaves of the fit, at least one sample each.
        level : float
            Nominal coverage of the interval.
        """
        plain = self.without.plain
        answers = mixed_estimates(
            self.without.estimate(own, level=level),
            self._around_parents(own, level),
            own,
            share=np.full(len(own), self.share),
            bounds=(plain.lower, plain.upper),
        )

        return replace(answers, moved=None)

    def describe(self) -> dict[str, Any]:
        """Public: the fitted population as plain data, with what was learned of levels."""
        return self.without.describe() | self.learned()

    def learned(self) -> dict[str, Any]:
        """Public: what was learned of each level, and how likely means follow their parents'.

        Of a level: the number of its groups, the probability that they differ, their spread around
        their parents, and its share of the spread of the leaves.
        """
        squared = self.spreads.variance
        columns = (
            self.tree.names,
            self.tree.sizes,
            self.spreads.differs.tolist(),
            np.sqrt(squared).tolist(),
            (squared / squared.sum()).tolist(),
        )
        names = ("name", "groups", "probability", "spread", "explained")
        levels = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

        return {"levels": levels, "levels_used": self.share}

    def gained_densities(self, releases: ReleaseColumns, variance: Floats) -> Floats:
        """Give the logarithm of how many times likelier levels make each release."""
        row = self._rows(releases.agent)
        plain = self.without.plain
        wider = self.beyond.plain
        without = log_predictive_density(self.without, releases.mean, variance, releases.count)
        beyond = log_predictive_density(
            self.beyond,
            releases.mean - self.offset[row],
            variance + self.doubt[row],
            releases.count,
        )

        # Both are relative to the widths of their own bounds.
        ratio = (wider.upper - wider.lower) / (plain.upper - plain.lower)
        return np.asarray(beyond - without - np.log(ratio), np.float64)

    def _rows(self, agent: Ints) -> Ints:
        return np.searchsorted(self.agent, agent)

    def _around_parents(self, own: OwnMeans, level: float) -> AgentEstimates:
        """Answer by what offsets leave; the error of an offset makes the prior wider."""
        row = self._rows(own.agent)
        offset = self.offset[row]
        doubt = self.doubt[row]
        beyond = self.beyond
        columns: dict[str, Any] = {}

        # Leaves whose parents are known alike are answered together.
        for extra in np.unique(doubt).tolist():
            alike = np.flatnonzero(doubt == extra)
            alike_means = _taken(own, alike)
            around = replace(
                beyond,
                variance=beyond.variance + extra,
                cautious_variance=beyond.cautious_variance + extra,
            )
            answer = around.estimate(
                replace(alike_means, mean=alike_means.mean - offset[alike]), level=level
            )

            for column in fields(answer):
                if column.name not in _NOT_BY_LEAF:
                    values = getattr(answer, column.name)
                    empty = np.zeros(len(own), values.dtype)
                    columns.setdefault(column.name, empty)[alike] = values

        columns |= {name: columns[name] + offset for name in _MOVED}
        return AgentEstimates(level=level, **columns)


def _taken(own: OwnMeans, which: Ints) -> OwnMeans:
    return OwnMeans(**{column.name: getattr(own, column.name)[which] for column in fields(own)})


USED = 0.25
"""Prior probability that means follow their parents' at all."""
MOST_OFFSET = 0.5
"""A parent moves the prior of a leaf by at most this part of the width."""
LEAST_VARIANCE = 1e-12
"""Of a release, in squared widths."""
_DOUBTS = 4
"""Classes of the variance of a parent's mean in each octave."""


@dataclass(frozen=True, slots=True)
class PriorOfLevels:
    """Learn a prior for each level of groups within groups.

    Released: nothing new; `fit` reads public releases, and its result is public.

    Parameters
    ----------
    lower, upper : float
        Declared bounds of a sample, in the value's unit.
    tree : GroupTree
        Public: the groups. Its leaves are in the order of the releases.

    Notes
    -----
    **Privacy.** Post-processing of the releases: it spends nothing. Groups and numbers of
    rows are public.

    A leaf's mean is normal around its parent's, and this one around that of the next level, up to
    the mean of all. The spread of each level is learned (`learn_level_spreads`); answers are
    averaged over what releases leave open about it. What the releases of all other leaves say of a
    leaf's parent is its offset, with a variance. The default prior (`PriorByCount`) is then fitted
    to the releases less their offsets: it knows counts, classes and the exact law of the noise, and
    answers around the offsets. Where levels do not matter offsets are next to nothing, and answers
    are those of the default prior. The evidence of all releases decides between both.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> state, one = np.repeat(np.arange(30), 20), np.ones(600, np.int64)
    >>> truth = 0.5 + rng.normal(0, 0.1, 30)[state] + rng.normal(0, 0.02, 600)
    >>> variance = np.full(600, 0.01)
    >>> releases = ReleaseColumns(
    ...     agent=np.arange(600), index=one, count=10 * one, total=one,
    ...     mean=truth + rng.normal(0, 0.1, 600), noise_variance=0.9 * variance)
    >>> flat = PriorByCount(0.0, 1.0).fit(releases, variance)
    >>> tree = GroupTree.of(("state", "county"), [state, np.arange(600)])
    >>> fitted = PriorOfLevels(0.0, 1.0, tree).fit(releases, 0.01, variance, without=flat)
    >>> round(fitted.share, 2), [round(one["spread"], 2) for one in fitted.learned()["levels"]]
    (1.0, [0.1, 0.02])

    References
    ----------
    Fay, Herriot (1979), "Estimates of income for small places"; Pearl (1988), "Probabilistic
    Reasoning in Intelligent Systems", for messages in trees.
    """

    lower: float
    upper: float
    tree: GroupTree

    def fit(
        self,
        releases: ReleaseColumns,
        sample_variance: VariancePosterior | float,
        variance: Floats,
        *,
        without: FittedByCount,
    ) -> FittedLevels:
        """Fit a prior per level to the newest release of every leaf.

        Parameters
        ----------
        releases : ReleaseColumns
            One of each leaf, two or more, by increasing number.
        sample_variance : VariancePosterior or float
            What is known of the variance of one sample.
        variance : float array, shape (n_leaves,)
            Total variance of each release: of the sampling and of the noise.
        without : FittedByCount
            What the same releases say where levels are ignored.
        """
        bounds = {"lower": self.lower, "upper": self.upper}
        width = self.upper - self.lower
        leaves = Message(releases.mean, np.maximum(variance, LEAST_VARIANCE * width**2))

        # What all other releases say of the parent of each leaf.
        spreads = learn_level_spreads(self.tree, leaves, **bounds)
        posteriors = level_posteriors(
            self.tree, leaves, releases.count, spreads, prior_of_the_whole(**bounds)
        )
        away = posteriors.parents.mean - posteriors.center
        offset = np.clip(away, -MOST_OFFSET * width, MOST_OFFSET * width)
        doubt = _in_classes(posteriors.parents.variance, LEAST_VARIANCE * width**2)

        fitted = FittedLevels(
            without=without,
            beyond=self._beyond(releases, sample_variance, offset, doubt),
            tree=self.tree,
            agent=releases.agent,
            offset=offset,
            doubt=doubt,
            spreads=spreads,
            group_variances=posteriors.group_variances,
            share=1.0,
        )

        # The default prior without levels is another model of the same releases.
        gained = fitted.gained_densities(releases, leaves.variance)
        share = expit(np.log(USED / (1 - USED)) + gained.sum())
        return replace(fitted, share=float(share))

    def _beyond(
        self,
        releases: ReleaseColumns,
        sample_variance: VariancePosterior | float,
        offset: Floats,
        doubt: Floats,
    ) -> FittedByCount:
        """Fit the default prior to what offsets leave, within bounds that have room for it."""
        wider = float(np.abs(offset).max())
        bins = ReleaseBins(self.lower - wider, self.upper + wider)
        noise = releases.noise_variance

        # The error of an offset is no noise, but known like it; the law is that of the larger part.
        terms = np.where(noise > doubt, releases.noise_terms, 0)
        bins.update(releases.mean - offset, releases.count, noise + doubt, terms)
        prior = PriorByCount(bins.lower, bins.upper, trimmed=0.0)

        return cast("FittedByCount", prior.fit_summary(bins, sample_variance))


def _in_classes(variance: Floats, least: float) -> Floats:
    """Give variances that are alike their mean, so that leaves are answered together."""
    octave = np.floor(_DOUBTS * np.log2(np.maximum(variance, least))).astype(np.int64)
    _, group = np.unique(octave, return_inverse=True)
    mean = np.bincount(group, variance) / np.bincount(group)

    return mean[group]
