"""The paper's collaboration for broadcast releases.

Everyone tests everyone by sorted prefix sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from meanstream.operators.collaboration.alone import half_width_alone
from meanstream.operators.collaboration.covariates.covariate_releases import CovariateReleases
from meanstream.operators.collaboration.variance.pooled_variance import pooled_variance
from meanstream.operators.collaboration.variance.variance_posterior import (
    VariancePosterior,
    variance_posterior_typical,
)
from meanstream.operators.records import AgentEstimates, Floats, Ints, OwnMeans, ReleaseColumns
from meanstream.operators.validation import require, require_between

MOST_GROUPS = 256
ELEMENTS = 1 << 21
DOUBT = 2.0
"""Standard errors by which the variance between members is taken to be larger than estimated."""


class ClassSums(NamedTuple):
    """Private: sums over the members of each agent's class, itself not among them.

    Attributes
    ----------
    weight, moment, number : float array (n,)
        Of 1/V, of T/V, and of members.
    squared_weight, spread : float array (n,)
        Of 1/V^2, and of (T - own mean)^2 / V.
    """

    weight: Floats
    moment: Floats
    number: Floats
    squared_weight: Floats
    spread: Floats

    def between(self, mean: Floats, precision: Floats, quantile: Floats) -> Floats:
        """Bound how much the means of an agent and its members vary, beyond their own errors.

        The random-effects variance tau^2 of DerSimonian and Laird, corrected for the test, which
        lets only small differences pass, and `DOUBT` standard errors more: few or noisy members
        show little of what they differ by.

        Parameters
        ----------
        mean, precision : float array (n,)
            Of the agent itself.
        quantile : float array (n,)
            Differences of so many standard errors pass the test.

        Examples
        --------
        >>> one = np.ones(1)
        >>> sums = ClassSums(weight=50 * one, moment=0 * one, number=50 * one,
        ...                  squared_weight=50 * one, spread=250 * one)
        >>> sums.between(0 * one, one, 2.5 * one).round(2)
        array([4.49])
        """
        total = precision + self.weight
        moved = self.moment - self.weight * mean
        heterogeneity = self.spread - moved**2 / total

        # A normal difference that is cut at the quantile varies by so much less than 1.
        density = np.exp(-0.5 * quantile**2) / np.sqrt(2 * np.pi)
        expected = self.number * (1.0 - 2.0 * quantile * density / (1.0 - 2.0 * ndtr(-quantile)))
        excess = np.maximum(heterogeneity - expected + DOUBT * np.sqrt(2.0 * self.number), 0.0)

        scale = total - (precision**2 + self.squared_weight) / total
        usable = (self.number > 0) & (scale > 1e-12 * total)
        return np.where(usable, excess / np.where(usable, scale, 1.0), 0.0)


class ClassInterval(NamedTuple):
    """Ends of intervals."""

    lower: Floats
    upper: Floats


def class_interval(  # noqa: PLR0917
    value: Floats,
    mean: Floats,
    variance: Floats,
    sums: ClassSums,
    quantile: Floats,
    level: float,
) -> ClassInterval:
    """Give the interval around a mean over a class that a test has found.

    The printed one, eq. (4), holds given that all members have one mean. This one adds what they
    may differ by, `half^2 + z^2 tau^2 (1 - w)^2` for the agent's own weight w. Where that says
    less than the agent's own samples, it is the hull of the printed interval and that of learning
    alone.

    Parameters
    ----------
    value : float array (n,)
        The weighted means over the classes.
    mean, variance : float array (n,)
        Each agent's own.
    sums : ClassSums
    quantile : float array (n,)
        Of the test.
    level : float
        Nominal coverage.

    References
    ----------
    R. DerSimonian, N. Laird, Meta-Analysis in Clinical Trials, 1986.
    """
    precision = 1 / np.maximum(variance, 1e-300)
    others = sums.weight / (precision + sums.weight)
    between = sums.between(mean, precision, quantile)
    return interval_of_members(
        value, mean, variance, weight=sums.weight, differ=others**2 * between, level=level
    )


def interval_of_members(
    value: Floats, mean: Floats, variance: Floats, *, weight: Floats, differ: Floats, level: float
) -> ClassInterval:
    """Give the interval for members of the inverse variance `weight` who add `differ` to the variance."""
    total = 1 / np.maximum(variance, 1e-300) + weight
    printed = half_width_alone(1 / total, level)
    alone = half_width_alone(variance, level)
    lower = np.minimum(value - printed, mean - alone)
    upper = np.maximum(value + printed, mean + alone)

    half = half_width_alone(1 / total + differ, level)
    shorter = 2.0 * half < upper - lower

    return ClassInterval(
        np.where(shorter, value - half, lower), np.where(shorter, value + half, upper)
    )


@dataclass(frozen=True, slots=True)
class SameMeanTests:
    """Average oneself, by inverse variance, with everyone whose release passes a test of equality.

    Released: nothing new; `fit` reads public releases. An answer mixes in the agent's own raw mean
    and goes to that agent only.

    Parameters
    ----------
    significance : float
        An agent with t samples tests at `significance / ln(t + 1)` (section VII of the paper).

    Notes
    -----
    **Privacy.** Post-processing of the releases: it spends nothing.

    Every release is read by everyone, so everyone is tested again at each snapshot (the eager
    reading). Agents whose releases have the same variance form a group; the ones accepted by a
    given agent are a contiguous range of the sorted group: O(M log M) per distinct variance. With
    more than 256 distinct variances all pairs are compared, in chunks: exact, O(M^2) time, O(M)
    memory. The variances are taken as known; pass pooled ones if they are not.

    Averaging in everyone who cannot be distinguished is worse than learning alone where agents do
    not fall into exact classes; `LearnedPrior` does not have this defect.

    Examples
    --------
    >>> one = np.ones(3, dtype=np.int64)
    >>> releases = ReleaseColumns(agent=np.arange(3), index=one, count=one, total=one,
    ...                           mean=np.array([0.0, 0.2, 5.0]), noise_variance=np.zeros(3))
    >>> own = OwnMeans(agent=np.arange(3), count=10 * one, mean=np.array([0.0, 0.2, 5.0]),
    ...                variance=np.full(3, 0.1))
    >>> answer = SameMeanTests().fit(releases, np.full(3, 0.1)).estimate(own)
    >>> answer.value.round(2).tolist(), answer.class_size.tolist()
    ([0.1, 0.1, 5.0], [2.0, 2.0, 1.0])

    References
    ----------
    Yakimenka et al., Algorithm 1, section III-C1 (test) and eq. (4) (weights and variance).
    """

    significance: float = 0.05
    name: ClassVar[str] = "tests"

    def __post_init__(self) -> None:
        require_between(0, 1, significance=self.significance)

    def fit(self, releases: ReleaseColumns, variance: Floats) -> FittedTests:
        """Sort the newest release of every agent.

        Releases of unknown (infinite) variance are left out.

        Parameters
        ----------
        releases : ReleaseColumns
            At most one release per agent.
        variance : float array, shape (len(releases),)
            Total variance of each released mean.
        """
        require(
            len(variance) == len(releases),
            "variance",
            f"have {len(releases)} entries",
            len(variance),
        )

        usable = np.isfinite(releases.mean) & np.isfinite(variance) & (variance > 0)
        mean = releases.mean[usable]
        total = variance[usable]
        agent = releases.agent[usable]
        # Prefix sums of centered values lose no digits to a large common offset.
        center = float(np.average(mean, weights=1 / total)) if len(mean) else 0.0
        order = np.lexsort((mean, total))

        return FittedTests(
            significance=self.significance,
            center=center,
            agent=agent[order],
            mean=mean[order],
            variance=total[order],
            noise=releases.noise_variance[usable][order],
        )

    def summarize(self, releases: ReleaseColumns) -> CovariateReleases:
        """Take the newest releases of some agents."""
        return CovariateReleases.of(releases)

    def fit_summary(
        self, summary: CovariateReleases, sample_variance: VariancePosterior | float
    ) -> FittedTests:
        """Fit to all agents' releases, given the variance of one sample."""
        # In one order, whoever's releases were added first.
        order = np.lexsort((summary.agent, summary.mean, summary.noise_variance, summary.count))
        releases = summary.columns().take(order)
        return self.fit(
            releases, pooled_variance(releases, variance_posterior_typical(sample_variance))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedTests:
    """Public: everyone's releases, sorted by variance and then by mean."""

    significance: float
    center: float
    agent: Ints
    mean: Floats
    variance: Floats
    noise: Floats

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
        """Private: each agent's weighted mean over its class, addressed to that agent only."""
        quantile = self._quantile(own)
        mean = own.mean - self.center
        information, moment, size, noise, *squares = self._others(own, mean, quantile)
        known = np.isfinite(own.variance)
        own_information = np.where(known, 1 / np.maximum(own.variance, 1e-300), 0.0)
        information += own_information
        # With an unknown own variance and no one else's release, the own mean is all there is.
        alone = information <= 0

        with np.errstate(invalid="ignore", divide="ignore"):
            pooled = (moment + own_information * mean) / information
            value = np.where(alone, mean, pooled) + self.center
            variance = np.where(alone, np.inf, 1 / information)
            gain = np.where(known, own.variance / variance, 1.0)
            noise = np.where(alone, 0.0, np.maximum(noise, 0.0) * variance**2)

            of_class = _class_sums(mean, information - own_information, moment, size, *squares)
            lower, upper = class_interval(
                value - self.center, mean, own.variance, of_class, quantile, level
            )

        ones = np.ones(len(own))
        return AgentEstimates(
            value=value,
            lower=lower + self.center,
            upper=upper + self.center,
            level=level,
            effective_class_size=gain,
            class_size=size + 1.0,
            component=-ones.astype(np.int64),
            membership=ones,
            noise_half_width=half_width_alone(noise, level),
        )

    def _quantile(self, own: OwnMeans) -> Floats:
        # It grows with the number of samples, so that errors of both kinds vanish (ColME).
        quantile: Floats = -ndtri(0.5 * self.significance / np.log(own.count + 1.0))
        return quantile

    def _others(self, own: OwnMeans, mean: Floats, quantile: Floats) -> Floats:
        """Sums over the accepted releases of others, of what `_numerators` and `_powers` give."""
        starts = self._group_starts()
        if len(starts) - 1 <= MOST_GROUPS:
            sums = self._by_prefix_sums(mean, own.variance, quantile, starts)
        else:
            sums = self._by_pairs(mean, own.variance, quantile)

        return sums - self._own_release(own, mean, quantile)

    def members(self, own: OwnMeans) -> list[Ints]:
        """Private: the other agents of the class of each, by number; for that agent only."""
        members = []
        for agent, mean, variance, times in zip(
            own.agent, own.mean, own.variance, self._quantile(own), strict=True
        ):
            inside = np.abs(mean - self.mean) < times * np.sqrt(variance + self.variance)
            members.append(np.sort(self.agent[inside & (self.agent != agent)]))

        return members

    def describe(self) -> dict[str, Any]:
        """Public: how many releases were read; tests fit no population model."""
        return {
            "method": "tests",
            "n_agents": len(self.mean),
            "n_components": 0,
            "components": [],
            "significance": self.significance,
        }

    def _group_starts(self) -> Ints:
        changes = np.flatnonzero(np.diff(self.variance)) + 1
        return np.concatenate([[0], changes, [len(self.variance)]]).astype(np.int64)

    def _by_prefix_sums(
        self, mean: Floats, variance: Floats, quantile: Floats, starts: Ints
    ) -> Floats:
        """Return the sums of 1/V, T/V, 1, noise/V^2, 1/V^2 and T^2/V over the accepted releases.

        One contiguous range per group.
        """
        # Releases of one variance are in order: who is accepted is an interval of them.
        sums = np.zeros((6, len(mean)))
        order = np.argsort(mean)  # searching for neighbors in turn stays in the cache
        mean = mean[order]
        variance = variance[order]
        quantile = quantile[order]

        for first, end in pairwise(starts.tolist()):
            if first == end:
                continue

            group = self.mean[first:end] - self.center
            of_group = float(self.variance[first])
            radius = quantile * np.sqrt(variance + of_group)
            low = np.searchsorted(group, mean - radius, side="right")
            high = np.searchsorted(group, mean + radius, side="left")

            # Prefix sums give all sums over accepted releases without looking at each.
            numerators = _numerators(group, self.noise[first:end])
            prefix = np.pad(np.cumsum(numerators, axis=1), ((0, 0), (1, 0)))
            sums += (prefix[:, high] - prefix[:, low]) / _powers(of_group)[:, None]

        unsorted = np.empty_like(sums)
        unsorted[:, order] = sums
        return unsorted

    def _by_pairs(self, mean: Floats, variance: Floats, quantile: Floats) -> Floats:
        """Return the same sums by comparing all pairs, a chunk of agents at a time."""
        # All pairs, where variances differ too much for groups.
        others = self.mean - self.center
        numerators = _numerators(others, self.noise) * _powers(1 / self.variance)
        columns = np.ascontiguousarray(numerators.T)
        sums = np.empty((6, len(mean)))
        chunk = max(1, ELEMENTS // max(1, len(others)))

        # A chunk of agents at a time bounds the memory.
        for start in range(0, len(mean), chunk):
            part = slice(start, start + chunk)
            radius = quantile[part, None] * np.sqrt(variance[part, None] + self.variance)
            sums[:, part] = (
                (np.abs(mean[part, None] - others) < radius).astype(np.float64) @ columns
            ).T

        return sums

    def _own_release(self, own: OwnMeans, mean: Floats, quantile: Floats) -> Floats:
        """Return each agent's own share of the sums.

        Its raw mean says the same as its release, better.
        """
        if len(self.agent) == 0:
            return np.zeros((6, len(own)))

        # Each agent's own release may be among those accepted: it must not count twice.
        order = np.argsort(self.agent)
        place = np.minimum(np.searchsorted(self.agent, own.agent, sorter=order), len(order) - 1)
        row = order[place]
        released = self.mean[row] - self.center
        variance = self.variance[row]
        radius = quantile * np.sqrt(own.variance + variance)
        inside = (
            (released > mean - radius) & (released < mean + radius) & (self.agent[row] == own.agent)
        )

        released_sums = _numerators(released, self.noise[row]) / _powers(variance)
        return np.where(inside, released_sums, 0.0)


def _class_sums(  # noqa: PLR0917 - the sums over a class
    mean: Floats, weight: Floats, moment: Floats, size: Floats, squared: Floats, squares: Floats
) -> ClassSums:
    """Take squares about each agent's own mean."""
    spread = squares - 2 * mean * moment + mean**2 * weight
    return ClassSums(weight, moment, size, squared, np.maximum(spread, 0.0))


def _numerators(mean: Floats, noise: Floats) -> Floats:
    """Give what is summed up over releases, in units of powers of their variances, shape (6, n)."""
    ones = np.ones_like(mean)
    return np.stack([ones, mean, ones, noise, ones, mean**2])


def _powers(variance: Floats | float) -> Floats:
    """Give the powers of variances by which numerators are divided, shape (6, n)."""
    square = variance**2
    return np.stack([variance, variance, np.ones_like(variance), square, square, variance])
