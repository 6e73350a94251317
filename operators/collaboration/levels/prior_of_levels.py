"""A learned prior for groups within groups: a child is centered on what is known of its parent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from scipy.special import expit

from meanstream.operators.collaboration.levels.group_tree import GroupTree
from meanstream.operators.collaboration.levels.level_messages import Message
from meanstream.operators.collaboration.levels.level_posteriors import level_posteriors
from meanstream.operators.collaboration.levels.level_spreads import (
    learn_level_spreads,
    prior_of_the_whole,
)
from meanstream.operators.collaboration.levels.prior_of_levels_fitted import FittedLevels
from meanstream.operators.collaboration.prior.prior_by_count import PriorByCount
from meanstream.operators.collaboration.prior.prior_by_count_fitted import FittedByCount
from meanstream.operators.collaboration.prior.release_bins import ReleaseBins
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.records import Floats, ReleaseColumns

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
