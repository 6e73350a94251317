"""The default collaboration.

A prior for everyone's mean given its public count, learned from the releases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from meanstream.operators.collaboration.alone import FittedAlone
from meanstream.operators.collaboration.count_trend import CountGroups, TrendFit
from meanstream.operators.collaboration.fit_of_bins import FitOfBins, releases_fit_for_bins
from meanstream.operators.collaboration.mixture_prior import LearnedPrior, Models, normalized_prior
from meanstream.operators.collaboration.prior_by_count_fitted import FittedByCount
from meanstream.operators.collaboration.prior_families import Families
from meanstream.operators.collaboration.release_bins import ReleaseBins
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.records import Floats, ReleaseColumns

TRIMMED = 1 / 8
"""No release of strangers is taken for more precise than those of this share of the others: a count
may be a lie."""
VARIANCES = 3
"""Points that the posterior of the variance of one sample is taken at, for mixtures."""
SAME_VARIANCE = 0.02
"""Posteriors of the standard deviation narrower than this, relative, are one point."""
NEGLIGIBLE_SHARE = 1e-4
"""Models less likely than this say nothing of the spread of all means."""
STRAYING = (3.0, 15.0)
EXACTLY = 0.95
"""By what a mean may stray from its component: variances of one sample over n; and how likely it is
by none."""
HOPELESS = 20.0
"""Where the evidence has fallen by so much, in logarithms, it does not come back."""
KNOWN_SHARE = 0.6
"""The variance of one sample is below its largest believed value with this probability. The
posterior of noisy votes has a long tail; with a value from there, no agent varies too much to be a
member of a class."""
PER_CLASS = 0.5
"""By how much less likely exact classes are for each one more."""
STRATA = (30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0, 100_000.0)
"""Counts at which populations may differ."""
LEAST_STRATUM = 100
"""Strata of fewer releases are joined,"""
KNOWN_CENTER = 0.5
KNOWN_SPREAD = 1.0
"""and so are those whose releases do not show their center to so many spreads of all means, and the
square of their own spread to that many squares of that: of noise alone a stratum would learn
anything between the bounds."""


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

    Notes
    -----
    **Privacy.** Post-processing of the releases: it spends nothing. Counts are public.

    Three families are averaged by the evidence of the releases: mixtures that are the same for all
    counts (`LearnedPrior`), mixtures of each range of counts, and one normal component whose center
    (a line in log n that bends where the releases say much, and a random walk around it) and spread
    (a power of n) go with the count. The first is the likeliest before. How steep a line may be is
    measured in spreads, and a range of counts whose releases are mostly noise has no mixture of its
    own: what precise releases show holds there, too. Each is averaged over what is not known of the
    variance of one sample and over how far means stray from their component. An answer takes the
    agent's own count, a release its own; an agent too small to release is answered with a trend
    that is less and less certain.

    Guards against strangers, who may publish anything: no release is taken for more precise than
    those of an eighth of the others (`trimmed`); a component that fewer than 2 % of the agents
    carry shrinks no one; and an answer leaves the agent's own mean by at most 3.5 of its standard
    errors (limited translation: members of exact classes lose .3 % by it). Whatever others publish,
    the squared error is therefore at most `(|e| + 3.5 s)^2` for an own error `e` of standard error
    `s`: 13 times that of learning alone where the shift does not depend on `e`, 19 times in the
    worst case. An agent whose own samples vary more than those of others is not taken for a member
    of a class.

    No one knows that a population is normal: a twentieth of each component is wider. Intervals are
    longer than normal ones, for those who are farthest from the crowd (`posterior_far_half_width`),
    know that the spread at a count may be wider than the family has it (`local_spread_doubt`), and
    are longer towards an own mean that contradicts the prior (`posterior_doubted_interval`): they
    are not symmetric then.

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
        pool = _few_points(sample_variance, VARIANCES)
        typical = float(pool.weight @ pool.variance)
        groups = summary.groups(typical, trimmed=self.trimmed).with_variance(
            float(pool.variance[0])
        )

        if groups.total < 2:
            return FittedAlone(self.name)
        plain = LearnedPrior(self.lower, self.upper, per_class=PER_CLASS, sample_variance=typical)
        spreads, log_prior = plain.spread_prior(
            groups.noise_variance + pool.variance[0] / groups.count
        )

        models, straying = self._same_for_all(summary, plain, pool)
        spread = _spread_of_all(models)
        families = Families(
            models=models,
            straying=straying,
            strata=self._strata(summary, plain, groups, typical, spread),
            trend=TrendFit.of(
                groups, pool, spreads, log_prior, spread=spread, lower=self.lower, upper=self.upper
            ),
            sample_variance=_most(sample_variance),
            degrees=_degrees(sample_variance),
            typical=typical,
            noise=groups.noise_share(typical, self.upper - self.lower),
        )

        return FittedByCount.build(families, groups, lower=self.lower, upper=self.upper)

    def _same_for_all(
        self, summary: ReleaseBins, plain: LearnedPrior, pool: VariancePosterior
    ) -> tuple[Models, Floats]:
        """Fit mixtures with every variance of one sample, and with greater ones.

        Give how much greater, by mixture.
        """
        parts: list[Models] = []
        log_share = []
        straying = []
        best = -np.inf

        for variance, share, more in _wider(pool):
            part = plain.models(summary.points(variance, trimmed=self.trimmed))
            parts.append(part)
            log_share.append(np.log(share))
            straying.append(np.full(len(part.mixtures), more))
            evidence = part.log_evidence

            if more > 0 and evidence < best - HOPELESS:
                break
            best = max(best, evidence)

        return Models.joined(parts, np.array(log_share)), np.concatenate(straying)

    def _strata(
        self,
        summary: ReleaseBins,
        plain: LearnedPrior,
        groups: CountGroups,
        variance: float,
        spread: float,
    ) -> list[tuple[float, Models]]:
        """Fit each range of counts by itself; give the count below which each ends.

        One range is no strata.
        """
        edges = list(_edges(groups, variance, spread))
        if len(edges) < 2:
            return []
        found = []
        low = 0.0

        for high in edges:
            points = summary.points(variance, trimmed=self.trimmed, counts=(low, high))
            found.append((high, plain.models(points)))
            low = high

        return found


def _spread_of_all(models: Models) -> float:
    """Give the squared spread of all means, averaged over the models."""
    weight = normalized_prior(models.log_weight)
    found = 0.0

    for share, mixture in zip(weight.tolist(), models.mixtures, strict=True):
        if share > NEGLIGIBLE_SHARE:
            middle = mixture.weight @ mixture.center
            found += share * float(
                mixture.spread**2 + mixture.weight @ (mixture.center - middle) ** 2
            )

    return found


def _edges(groups: CountGroups, variance: float, spread: float) -> Iterator[float]:
    """Give the ends of strata that releases tell enough of; the last is infinite."""
    total = variance / groups.count + groups.noise_variance + spread
    told = np.stack([groups.number, groups.number / total, groups.number / (2 * total**2)])
    spread = max(spread, 1e-12 * float(total.max()))
    least = np.array(
        [LEAST_STRATUM, 1 / (KNOWN_CENTER**2 * spread), 1 / (KNOWN_SPREAD * spread) ** 2]
    )
    left = told.sum(axis=1)
    low = 0.0

    for edge in STRATA:
        inside = told[:, (groups.count >= low) & (groups.count < edge)].sum(axis=1)
        if (inside >= least).all() and (left - inside >= least).all():
            yield edge
            left, low = left - inside, edge

    yield np.inf


def _wider(pool: VariancePosterior) -> Iterator[tuple[float, float, float]]:
    """Give variances of one sample to fit with, the prior probability of each, and by how much it exceeds the pool's.

    Means that stray from their class by a variance of `c / n` look in the releases like samples of
    a variance that is greater by `c`.
    """
    typical = float(pool.weight @ pool.variance)
    for variance, share in zip(pool.variance.tolist(), pool.weight.tolist(), strict=True):
        yield variance, EXACTLY * share, 0.0

    for ratio in STRAYING if typical > 0 else ():
        yield (1 + ratio) * typical, (1 - EXACTLY) / len(STRAYING), ratio * typical


def _most(variance: VariancePosterior | float) -> float:
    """Give what the variance of one sample is probably below.

    Who exceeds it by more than chance is in no class.
    """
    if isinstance(variance, float):
        return variance
    order = np.argsort(variance.variance, kind="stable")
    below = np.cumsum(variance.weight[order])

    return float(
        variance.variance[order][min(int(np.searchsorted(below, KNOWN_SHARE)), len(order) - 1)]
    )


def _degrees(variance: VariancePosterior | float) -> float:
    """Give what a sample's own squares are worth, of a degree of freedom."""
    return (
        1.0
        if isinstance(variance, float)
        else float(np.average(variance.degrees, weights=variance.weight))
    )


def _few_points(posterior: VariancePosterior | float, most: int) -> VariancePosterior:
    """Give few points with weights that stand for a posterior.

    The middles of as many equal shares of it.

    Examples
    --------
    >>> _few_points(4.0, 3).variance.tolist()
    [4.0]
    >>> sure = VariancePosterior(variance=np.array([3.99, 4.01]), weight=np.array([0.5, 0.5]))
    >>> _few_points(sure, 3).variance.round(3).tolist()
    [4.0]
    """
    if isinstance(posterior, float):
        return VariancePosterior(variance=np.array([posterior]), weight=np.ones(1))
    order = np.argsort(posterior.variance, kind="stable")
    weight = posterior.weight[order]
    stddev = np.sqrt(posterior.variance[order])
    below = np.cumsum(weight)
    ends = np.interp([0.02, 0.98], below, stddev)
    parts = most if ends[1] > (1 + SAME_VARIANCE) * ends[0] else 1
    middle = (np.arange(parts) + 0.5) / parts
    found = np.interp(middle, below - 0.5 * weight, stddev) ** 2

    return VariancePosterior(variance=found, weight=np.full(parts, 1 / parts))
