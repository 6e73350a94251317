"""The default collaboration.

A normal prior for everyone's mean given its public count, learned from the releases, and classes of
equal means where they show.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from meanstream.operators.collaboration.alone import FittedAlone
from meanstream.operators.collaboration.prior.fit_of_bins import FitOfBins, releases_fit_for_bins
from meanstream.operators.collaboration.prior.mixture_prior import LearnedPrior
from meanstream.operators.collaboration.prior.normal_prior import NormalPrior
from meanstream.operators.collaboration.prior.prior_by_count_fitted import FittedByCount
from meanstream.operators.collaboration.prior.release_bins import ReleaseBins
from meanstream.operators.collaboration.prior.separate_classes import (
    separate_classes,
    weighed_exactly,
)
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.records import Floats, ReleaseColumns

TRIMMED = 1 / 8
"""No release of strangers is taken for more precise than those of this share of the others: a count
may be a lie."""
PER_CLASS = 0.5
"""By how much less likely exact classes are for each one more."""


@dataclass(frozen=True, slots=True)
class PriorByCount(FitOfBins):
    """Learn how the agents' means are spread, and how they go with the counts.

    Answer with posterior means.

    Released: nothing new; `fit` reads public releases and its result is public. An answer mixes in
    the agent's own raw mean and goes to that agent only.

    Parameters
    ----------
    lower, upper : float
        Declared bounds of a sample, hence of every mean, in the value's unit.
    trimmed : float
        Share of the releases that may claim to be more precise than they are; 0 where who fits has
        counted the samples. Where few agents have most of the samples, what the large ones release
        is nearly all that is known.
    classes : bool
        Look for classes of equal means.

    Notes
    -----
    **Privacy.** Post-processing of the releases: it spends nothing. Counts are public.

    The page *The learned prior* states the model. Means given the count n are `N(c + d l, tau^2)`,
    with l the logarithm of n (`NormalPrior`); releases have their exact law. All that they leave
    open about c, d and tau is averaged, and each agent's own mean has a say in it: an own mean far
    from all others makes a small spread unlikely in this agent's answer. Too much shrinkage costs
    more than too little: the cube of the spread is flat before, and the variance of one sample is
    taken for the 3 % quantile of its posterior. Classes of like means, as in the paper, are a
    second model, with the 20 % quantile; it is weighed by its evidence among mixtures of every
    spread (`LearnedPrior`), and not believed of yes/no data, whose sampling is not normal.

    Guards against strangers, who may publish anything: no release is taken for more precise than
    those of an eighth of the others (`trimmed`); a class that fewer than 2 % of the agents carry
    shrinks no one; and an answer leaves the agent's own mean by at most 3.5 of its standard errors
    (limited translation: members of exact classes lose .3 % by it). Whatever others publish, the
    squared error is therefore at most `(|e| + 3.5 s)^2` for an own error `e` of standard error `s`:
    13 times that of learning alone where the shift does not depend on `e`, 19 times in the worst
    case.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> count = np.repeat([20, 200, 2000], 100)
    >>> truth = 0.2 + 0.1 * np.log10(count) + rng.normal(0, 0.02, 300)
    >>> one, noise = np.ones(300, dtype=np.int64), (4 / count) ** 2
    >>> releases = ReleaseColumns(agent=np.arange(300), index=one, count=count, total=one, noise_variance=noise,
    ...                           mean=truth + rng.normal(0, 1, 300) * np.sqrt(noise + 0.04 / count))
    >>> described = PriorByCount(0.0, 1.0).fit(releases, noise + 0.04 / count).describe()
    >>> round(described["count_probability"]["trend"], 2)
    1.0

    References
    ----------
    Weinstein, Ma, Brown, Zhang (2018), "Group-linear empirical Bayes estimates for a heteroscedastic normal mean"; Chen
    (2022), "Empirical Bayes when estimation precision predicts parameters"; Efron, Morris (1971), for the limit.
    """

    trimmed: float = TRIMMED
    classes: bool = True
    name: ClassVar[str] = "learned_prior"

    def fit(self, releases: ReleaseColumns, variance: Floats) -> FittedByCount | FittedAlone:
        """Fit the population to the newest release of every agent.

        Parameters
        ----------
        releases : ReleaseColumns
            At most one release per agent.
        variance : float array, shape (len(releases),)
            Total variance of each released mean: of the sampling and of the noise. Releases whose
            variance is not finite and positive say nothing and are left out. What is not noise is
            taken for the sampling of one variance that all samples have in common, the mean of what
            these say.
        """
        some = releases_fit_for_bins(releases, variance)
        used = releases if some.all() else releases.take(some)
        if len(used) < 2:
            return FittedAlone(self.name)

        of_sample = np.maximum(variance[some] - used.noise_variance, 0.0) * used.count
        return self.fit_summary(self.summarize(used), float(f"{of_sample.mean():.12g}"))

    def fit_summary(
        self, summary: ReleaseBins, sample_variance: VariancePosterior | float
    ) -> FittedByCount | FittedAlone:
        """Fit the population to all agents' bins, given what is known of the variance of one sample."""
        if isinstance(sample_variance, float):
            variance = sample_variance
            of_classes = sample_variance
            yes_no = 0.0
        else:
            variance = sample_variance.least
            of_classes = sample_variance.likely_least
            yes_no = sample_variance.yes_no or 0.0

        cells = summary.cells(variance, trimmed=self.trimmed)
        if cells.weight.sum() < 2:
            return FittedAlone(self.name)

        # Means of a few 0 and 1 are not normal, and as far apart as the steps of a staircase: it
        # would be taken for them.
        if yes_no > 0.5:
            cells = replace(cells, terms=np.where(cells.terms < 0, 0, cells.terms))

        normal = NormalPrior.fit(cells, variance, lower=self.lower, upper=self.upper)
        mixtures = LearnedPrior(
            self.lower, self.upper, per_class=PER_CLASS, sample_variance=of_classes
        ).models(summary.points(of_classes, trimmed=self.trimmed))
        models = weighed_exactly(mixtures, cells, of_classes)
        classes = separate_classes(models)
        believed = classes.weight * (1 - yes_no) * self.classes

        return FittedByCount.build(
            normal,
            classes._replace(weight=believed),
            models,
            counts=cells.count,
            noise=summary.noise_share(variance),
        )
