"""The tuned collaboration.

A prior for everyone's mean, learned from the releases (empirical Bayes).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.special import gammaln

from meanstream.operators.collaboration.alone import FittedAlone
from meanstream.operators.collaboration.noise_share import NoiseShare
from meanstream.operators.collaboration.prior.prior_fit import (
    MANY,
    NormalMixture,
    fit_prior_mixtures,
    prior_fit_best_spread,
)
from meanstream.operators.collaboration.prior.prior_fitted import FittedPrior
from meanstream.operators.collaboration.prior.prior_points import Points
from meanstream.operators.collaboration.prior.release_bins import ReleaseBins, bin_releases
from meanstream.operators.collaboration.variance.variance_posterior import (
    VariancePosterior,
    variance_posterior_typical,
)
from meanstream.operators.records import Bools, Floats, ReleaseColumns
from meanstream.operators.validation import require, require_between, require_bounds


@dataclass(frozen=True, slots=True)
class FitOfBins:
    """Base of the ways to collaborate that fit a population to everyone's releases in bins.

    Parameters
    ----------
    lower, upper : float
        Declared bounds of a sample, in the value's unit.
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        require_bounds(self.lower, self.upper)

    def summarize(self, releases: ReleaseColumns) -> ReleaseBins:
        """Count releases in bins, which add up with those of other agents."""
        bins = ReleaseBins(self.lower, self.upper)
        bins.update(releases.mean, releases.count, releases.noise_variance, releases.noise_terms)
        return bins


def releases_fit_for_bins(releases: ReleaseColumns, variance: Floats) -> Bools:
    """Tell which releases say something.

    Those with a number, and a total variance that is finite and positive.
    """
    require(
        len(variance) == len(releases), "variance", f"have {len(releases)} entries", len(variance)
    )
    return np.isfinite(variance) & (variance > 0) & np.isfinite(releases.mean)


SPREAD_RATIO = 1.6
USUAL = 1.0
"""Squared spreads up to this part of the variance of one sample are usual."""
COMPONENT_PENALTY = 2.0
"""Prior odds of one component more are exp(-2): two components of one class cost more than they
explain."""


@dataclass(frozen=True, slots=True)
class LearnedPrior(FitOfBins):
    """Learn the distribution of the agents' means from their releases.

    Answer each agent with its posterior mean.

    Released: nothing new; `fit` reads public releases and its result is public. An answer mixes in
    the agent's own raw mean and goes to that agent only.

    Parameters
    ----------
    lower, upper : float
        Declared bounds of a sample, hence of every mean, in the value's unit.
    exact_classes : float
        Prior probability that agents of a class have exactly the same mean. The rest is flat in the
        fourth power of the spread. Where the releases cannot tell, equal means are then about as
        likely as a spread of a fiftieth of the bounds, and any wider spread is far likelier: equal
        means are believed once the releases exclude spreads that would matter, and not because they
        are too noisy to show one.
    per_class : float
        Factor of that probability for each class more than one. Many classes can stand for any
        smooth population whose releases are noisy; between them lie agents whom exact classes would
        mislead.
    sample_variance : float
        Variance of one sample, where it is known. Far greater squared spreads are less likely
        before: agents seldom differ by much more than their own samples do. 0 where it is not
        known: then any spread may be.

    Notes
    -----
    **Privacy.** Post-processing of the releases: it spends nothing.

    Releases are `T ~ N(theta, V)` with known `V`; means `theta` follow a mixture of K normals of
    common spread tau. Every (K, tau) is fitted by EM and keeps its approximate posterior
    probability (Laplace's approximation; centers uniform over the bounds, weights Dirichlet(1),
    P(K) falling as exp(-2K)); their mixture is the prior. Each center carries the variance with
    which it is known. The interval uses the same models under the prior without its point mass at
    tau = 0: releases cannot exclude a spread that is small against their noise, so an interval must
    not either.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = np.repeat([0.2, 0.8], 100)
    >>> one, count = np.ones(200, dtype=np.int64), np.full(200, 100)
    >>> releases = ReleaseColumns(agent=np.arange(200), index=one, count=count, total=one,
    ...                           mean=truth + rng.normal(0, 0.1, 200), noise_variance=np.full(200, 0.0075))
    >>> prior = LearnedPrior(0.0, 1.0).fit(releases, np.full(200, 0.01))
    >>> [round(c["center"], 1) for c in prior.describe()["components"]]
    [0.2, 0.8]

    References
    ----------
    Efron (2014), "Two modeling strategies for empirical Bayes estimation", Statistical Science 29; Wang (2007), "On
    fast computation of the non-parametric maximum likelihood estimate of a mixing distribution", JRSS B 69, for
    adding components at the peaks of the directional derivative.
    """

    exact_classes: float = 2e-6
    per_class: float = 1.0
    sample_variance: float = field(default=0.0, repr=False)
    name: ClassVar[str] = "pooled_prior"

    def __post_init__(self) -> None:
        FitOfBins.__post_init__(self)
        require_between(0, 1, exact_classes=self.exact_classes)

    def fit(self, releases: ReleaseColumns, variance: Floats) -> FittedPrior | FittedAlone:
        """Fit the population to the newest release of every agent.

        Parameters
        ----------
        releases : ReleaseColumns
            At most one release per agent.
        variance : float array, shape (len(releases),)
            Total variance of each released mean: of the sampling and of the noise. Releases whose
            variance is not finite and positive say nothing and are left out.
        """
        usable = releases_fit_for_bins(releases, variance)
        noise = releases.noise_variance[usable]
        total = variance[usable]
        share = NoiseShare.of(
            np.ones(len(total)), noise=noise, total=total, width=self.upper - self.lower
        )

        return self._fit(
            bin_releases(releases.mean, variance, lower=self.lower, upper=self.upper), share
        )

    def fit_summary(
        self, summary: ReleaseBins, sample_variance: VariancePosterior | float
    ) -> FittedPrior | FittedAlone:
        """Fit the population to all agents' bins, given the variance of one sample that they have in common."""
        of_sample = variance_posterior_typical(sample_variance)
        return self._fit(summary.points(of_sample), summary.noise_share(of_sample))

    def models(self, points: Points) -> Models:
        """Fit mixtures of every spread and size to at least two releases; weigh them."""
        grid = self._spreads(points.variance)
        if points.total >= MANY:  # who know the spread better than the grid has it
            grid = np.union1d(grid, prior_fit_best_spread(points, grid[1:]))

        mixtures = fit_prior_mixtures(points, grid, lower=self.lower, upper=self.upper)
        width = self.upper - self.lower
        log_evidence = np.array(
            [_log_evidence(mixture, points.total, width) for mixture in mixtures]
        )

        return Models(
            mixtures=mixtures,
            log_weight=log_evidence
            + self._log_prior(mixtures, grid, self.exact_classes, self.per_class),
            log_cautious=log_evidence + self._log_prior(mixtures, grid, 0.0),
            n_agents=round(points.total),
        )

    def _log_prior(
        self,
        mixtures: list[NormalMixture],
        grid: Floats,
        exact_classes: float,
        per_class: float = 1.0,
    ) -> Floats:
        spread_index = np.searchsorted(grid, [mixture.spread for mixture in mixtures])
        further_classes = np.array([mixture.size - 1.0 for mixture in mixtures])
        log_prior = _log_cells(grid, exact_classes, USUAL * self.sample_variance)[spread_index]
        log_prior += np.where(spread_index == 0, further_classes * np.log(per_class), 0.0)

        return np.asarray(log_prior, dtype=np.float64)

    def _fit(self, points: Points, noise: NoiseShare) -> FittedPrior | FittedAlone:
        # A population of one is the agent's own release: it would count its own samples twice.
        if points.total < 2:
            return FittedAlone(self.name)
        models = self.models(points)
        return FittedPrior.build(
            models.mixtures,
            probability=normalized_prior(models.log_weight),
            cautious=normalized_prior(models.log_cautious),
            n_agents=models.n_agents,
            noise=noise,
            lower=self.lower,
            upper=self.upper,
        )

    def _spreads(self, variance: Floats) -> Floats:
        """0, then geometric from what no release could show to half the range, the most that a spread can be."""
        widest = (self.upper - self.lower) / 2
        least = min(0.1 * float(np.sqrt(variance.min())), 0.03 * widest)
        steps = int(np.ceil(np.log(widest / least) / np.log(SPREAD_RATIO)))
        return np.concatenate([[0.0], np.geomspace(least, widest, steps + 1)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Public: mixtures fitted to releases, each with the logarithm of its posterior probability up to a constant.

    Attributes
    ----------
    mixtures : list of Mixture
    log_weight, log_cautious : float array, shape (n_mixtures,)
        Under the prior, and under the prior without its point mass at equal means, which makes the
        intervals.
    n_agents : int
    """

    mixtures: list[NormalMixture]
    log_weight: Floats
    log_cautious: Floats
    n_agents: int


def _log_cells(grid: Floats, exact_classes: float, usual: float) -> Floats:
    """Log prior probability of the cell of each spread.

    A point mass at 0, the rest by the fourth power of the spread.

    From the squared spread that is `usual` on it flattens: the prior is flat in the square of
    `s / (1 + s / usual)`, with s the squared spread. Below, nothing changes.
    """
    positive = grid[1:]
    edge = np.concatenate([[0.0], (positive[1:] + positive[:-1]) / 2, positive[-1:]])
    squared = edge**2 / (1 + edge**2 / usual) if usual > 0 else edge**2
    share = np.diff((squared / positive[-1] ** 2) ** 2) * (1 - exact_classes)

    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.concatenate([[exact_classes], share])), dtype=np.float64)


def _log_evidence(mixture: NormalMixture, n_agents: float, width: float) -> float:
    """Laplace's approximation of the marginal likelihood of a model, times the prior of its size."""
    size = mixture.size
    center = np.log(np.minimum(np.sqrt(2 * np.pi * mixture.center_variance) / width, 1.0)).sum()
    share = 0.5 * np.log(mixture.weight).sum() + 0.5 * (size - 1) * np.log(2 * np.pi / n_agents)
    volume = center + share + gammaln(size + 1) + gammaln(size)

    return float(mixture.log_likelihood + volume - COMPONENT_PENALTY * size)


def normalized_prior(log_weight: Floats) -> Floats:
    """Give probabilities that add up to 1."""
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum(), dtype=np.float64)
