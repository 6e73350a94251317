"""A learned prior that knows public attributes of the agents.

Their effects are learned from the releases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit

from meanstream.operators.collaboration.alone import FittedAlone, half_width_alone
from meanstream.operators.collaboration.covariates.covariate_design import (
    CovariateDesign,
    require_codes,
)
from meanstream.operators.collaboration.covariates.covariate_releases import CovariateReleases
from meanstream.operators.collaboration.covariates.learned_effects import (
    LearnedEffects,
    learn_effects,
)
from meanstream.operators.collaboration.prior.mixture_posterior import (
    bounded_means,
    mixture_distances,
)
from meanstream.operators.collaboration.prior.mixture_prior import (
    LearnedPrior,
    releases_fit_for_bins,
)
from meanstream.operators.collaboration.prior.prior_by_count import (
    TRIMMED,
    FittedByCount,
    PriorByCount,
    count_class,
)
from meanstream.operators.collaboration.prior.prior_fitted import FittedPrior
from meanstream.operators.collaboration.prior.release_bins import ReleaseBins
from meanstream.operators.collaboration.variance.variance_posterior import (
    VariancePosterior,
    variance_posterior_typical,
)
from meanstream.operators.records import AgentEstimates, Floats, Ints, OwnMeans, ReleaseColumns
from meanstream.operators.validation import require

USED = 0.8
"""Prior probability that an agent's mean follows its attributes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedWithCovariates:
    """Public: the population without attributes, what these explain, and the population of what they leave.

    Attributes
    ----------
    without, beyond : FittedByCount or FittedPrior
        Of the releases, and of the releases less their offsets.
    effects : LearnedEffects
    """

    without: FittedByCount | FittedPrior
    beyond: FittedByCount | FittedPrior
    effects: LearnedEffects

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
        """Private: each agent's answer given its own mean and its public attributes, addressed to that agent only.

        Parameters
        ----------
        own : OwnMeans
            At least one sample each, with the codes of their attributes.
        level : float
            Nominal coverage of the interval.
        """
        plain = self.without.estimate(own, level=level)
        offset = self.effects.offsets(own.covariates, own.count)
        doubt = self.effects.doubts(own.covariates, own.count)
        second = self._around(offset, doubt, own, level)

        return mixed_estimates(
            plain, second, own, share=self._share(own, offset, doubt), bounds=self._bounds
        )

    def describe(self) -> dict[str, Any]:
        """Public: the fitted population as plain data, with what was learned of attributes."""
        learned = {"explained": self.effects.explained, "attributes": self.effects.described}
        return {**self.without.describe(), "covariates": learned}

    @property
    def _bounds(self) -> tuple[float, float]:
        plain = self.without.plain if isinstance(self.without, FittedByCount) else self.without
        return plain.lower, plain.upper

    def _around(self, offset: Floats, doubt: Floats, own: OwnMeans, level: float) -> AgentEstimates:
        """Answer by what attributes leave, where an offset is off by an error of variance `doubt`.

        An own mean is offset, error of the offset, what is left, and sampling error. Given what is
        left, the two errors share the rest of it by their variances; that of the offset is part of
        the answer.
        """
        left = own.mean - offset
        extra = np.where(np.isfinite(own.variance), doubt, 0.0)
        answer = self.beyond.estimate(
            replace(
                own, mean=left, variance=own.variance + extra, value_variance=own.value_variance + extra,
            ),
            level=level,
        )  # fmt: skip

        variance = _finite_variance(own, self._bounds)
        extra_share = extra / np.maximum(variance + extra, np.finfo(np.float64).tiny)
        alone = half_width_alone(extra_share * variance + doubt - extra, level)
        value = offset + (1 - extra_share) * answer.value + extra_share * left

        posterior = (
            (1 - extra_share) ** 2 * (variance + extra) / answer.effective_class_size
            + extra_share * variance
            + doubt
            - extra
        )
        noise = (
            None if answer.noise_half_width is None else (1 - extra_share) * answer.noise_half_width
        )

        return replace(
            answer,
            value=value,
            lower=value - np.hypot((1 - extra_share) * (answer.value - answer.lower), alone),
            upper=value + np.hypot((1 - extra_share) * (answer.upper - answer.value), alone),
            effective_class_size=variance / posterior,
            noise_half_width=noise,
        )

    def _share(self, own: OwnMeans, offset: Floats, doubt: Floats) -> Floats:
        """Probability that each agent's mean follows its attributes, given that mean."""
        width = self._bounds[1] - self._bounds[0]
        beyond = log_predictive_density(
            self.beyond, own.mean - offset, own.value_variance + doubt, own.count
        )
        without = log_predictive_density(self.without, own.mean, own.value_variance, own.count)
        wider = self.beyond.plain if isinstance(self.beyond, FittedByCount) else self.beyond
        # Both are relative to the widths of their own bounds.
        log_odds = beyond - np.log((wider.upper - wider.lower) / width) - without

        return np.asarray(expit(np.log(USED / (1 - USED)) + log_odds), np.float64)


def _finite_variance(own: OwnMeans, bounds: tuple[float, float]) -> Floats:
    """Give variances of own means; where one is not known, the squared width of the bounds."""
    return np.where(np.isfinite(own.variance), own.variance, (bounds[1] - bounds[0]) ** 2)


def mixed_estimates(
    first: AgentEstimates,
    second: AgentEstimates,
    own: OwnMeans,
    *,
    share: Floats,
    bounds: tuple[float, float],
) -> AgentEstimates:
    """Mix the answers of both priors by the law of total variance."""
    value = np.clip((1 - share) * first.value + share * second.value, *bounds)
    apart = (1 - share) * (first.value - value) ** 2 + share * (second.value - value) ** 2

    def side(a: Floats, b: Floats) -> Floats:
        return np.sqrt((1 - share) * a**2 + share * b**2 + apart)

    posterior = (1 - share) / first.effective_class_size + share / second.effective_class_size
    noise = [
        np.zeros(1) if answer.noise_half_width is None else answer.noise_half_width
        for answer in (first, second)
    ]

    return replace(
        first,
        value=value,
        lower=value - side(first.value - first.lower, second.value - second.lower),
        upper=value + side(first.upper - first.value, second.upper - second.value),
        effective_class_size=1 / (posterior + apart / _finite_variance(own, bounds)),
        noise_half_width=np.sqrt((1 - share) * noise[0] ** 2 + share * noise[1] ** 2),
        moved=value - first.value,
    )


_ELEMENTS = 1 << 16


def log_predictive_density(
    fitted: FittedByCount | FittedPrior, mean: Floats, variance: Floats, count: Ints
) -> Floats:
    """Give the logarithm of the density of each agent's own mean, relative to the bounds' width, given its count.

    Parameters
    ----------
    fitted : FittedByCount or FittedPrior
    mean, variance : float array, shape (n,)
        Own means, and their variances.
    count : int array, shape (n,)
    """
    if isinstance(fitted, FittedPrior):
        start = np.array([0, len(fitted.weight)])
        of = np.zeros(len(mean), np.int16)
        plain = fitted
    else:
        start = fitted.start
        plain = fitted.plain
        of = np.minimum(count_class(count), len(start) - 2).astype(np.int16)

    mean, variance = bounded_means(mean, variance, lower=plain.lower, upper=plain.upper)
    order = np.argsort(of, kind="stable")
    ends = np.cumsum(np.bincount(of, minlength=len(start) - 1))
    log_density = np.empty(len(mean))

    for c in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
        members = order[0 if c == 0 else ends[c - 1] : ends[c]]
        of_class = slice(start[c], start[c + 1])
        components = fitted.weight[of_class], fitted.center[of_class], fitted.variance[of_class]
        block = max(2, _ELEMENTS // len(components[0]))

        for first_row in range(0, len(members), block):
            rows = members[first_row : first_row + block]
            log_density[rows] = _log_density(
                components, mean[rows], variance[rows], plain.upper - plain.lower
            )

    return log_density


def _log_density(
    components: tuple[Floats, Floats, Floats], mean: Floats, variance: Floats, width: float
) -> Floats:
    weight, center, around = components
    n = len(mean)
    if n == 1:  # sums over components run along columns: the same order for any number of agents
        mean, variance = np.repeat(mean, 2), np.repeat(variance, 2)

    away = mixture_distances(mean, center, width)
    total = (variance / width**2).astype(np.float32) + (around / width**2).astype(np.float32)[
        :, None
    ]
    log_density = away * away
    log_density /= total

    log_density += np.log(total, out=total)
    log_density *= np.float32(-0.5)
    log_density += np.log(np.maximum(weight / weight.sum(), 1e-30)).astype(np.float32)[:, None]
    top = log_density.max(axis=0)
    log_density -= top
    total_log = top + np.log(np.exp(log_density, out=log_density).sum(axis=0))

    return np.asarray(total_log[:n], np.float64)


PRIORS: dict[str, type[PriorByCount | LearnedPrior]] = {
    p.name: p for p in (PriorByCount, LearnedPrior)
}
"""Priors that covariates can be added to."""
WIDENED = 0.5
"""What attributes do not explain has bounds that are wider to each side, in widths."""


@dataclass(frozen=True, slots=True)
class PriorWithCovariates:
    """Learn the effects of public attributes and a prior of what they leave.

    Answer with both priors by evidence.

    Released: nothing new; `fit` reads public releases and public attributes, and its result is
    public.

    Parameters
    ----------
    name : str
        The prior, a key of `PRIORS`.
    lower, upper : float
        Declared bounds of a sample, in the value's unit.
    design : CovariateDesign
        Public: the attributes.
    strangers : bool
        As for `make_collaboration`.

    Notes
    -----
    **Privacy.** Post-processing of the releases: it spends nothing. The attributes are public because their owner
    declares them so; nothing protects them.

    A release is `x'b + u + e`: effects of attributes, normal with a variance for all columns of an
    attribute; what is not explained; sampling and noise. Regressions over sets of attributes and
    both variances are averaged by their evidence. The prior is fitted to the releases and once more
    to the releases less the offsets `x'b`. An answer mixes both by the density that each gives to
    the agent's own mean. So useless attributes cost little.

    Examples
    --------
    >>> from meanstream.operators.collaboration.covariates.covariate_design import Category
    >>> rng = np.random.default_rng(0)
    >>> region, one = np.arange(300) % 3, np.ones(300, dtype=np.int64)
    >>> mean = np.array([0.2, 0.5, 0.6])[region] + rng.normal(0, 0.05, 300)
    >>> releases = ReleaseColumns(agent=np.arange(300), index=one, count=100 * one, total=one, mean=mean,
    ...                           noise_variance=np.full(300, 1e-4), covariates=region[:, None])
    >>> design = CovariateDesign((Category(name="region", levels=("a", "b", "c")),))
    >>> fitted = PriorWithCovariates("pooled_prior", 0.0, 1.0, design).fit(releases, np.full(300, 4e-4))
    >>> learned = fitted.describe()["covariates"]
    >>> round(learned["explained"], 2), round(learned["attributes"][0]["probability"], 2)
    (0.91, 1.0)

    References
    ----------
    Fay, Herriot (1979), "Estimates of income for small places"; Ignatiadis, Wager (2019), "Covariate-powered empirical
    Bayes estimation".
    """

    name: str
    lower: float
    upper: float
    design: CovariateDesign
    strangers: bool = True

    def __post_init__(self) -> None:
        require(
            self.name in PRIORS,
            "covariates",
            f"go with the collaboration {' or '.join(PRIORS)}",
            self.name,
        )

    def summarize(self, releases: ReleaseColumns) -> CovariateReleases:
        """Take releases of some agents.

        The codes of their attributes may be added until the fit.
        """
        return CovariateReleases.of(releases)

    def fit(self, releases: ReleaseColumns, variance: Floats) -> FittedWithCovariates | FittedAlone:
        """Fit the population to the newest release of every agent, with the total variance of each."""
        usable = releases_fit_for_bins(releases, variance)
        used = releases.take(usable)
        if len(used) < 2:
            return FittedAlone(self.name)

        of_sample = np.maximum(variance[usable] - used.noise_variance, 0.0) * used.count
        return self.fit_summary(self.summarize(used), float(f"{of_sample.mean():.12g}"))

    def fit_summary(
        self, summary: CovariateReleases, sample_variance: VariancePosterior | float
    ) -> FittedWithCovariates | FittedAlone:
        """Fit the population to everyone's releases, given what is known of the variance of one sample."""
        if summary.n < 2:
            return FittedAlone(self.name)
        require_codes(self.design, summary.codes, summary.n)
        without = self._fit_prior(summary, sample_variance, summary.mean, 0.0)

        if isinstance(without, FittedAlone):
            return without
        total = variance_posterior_typical(sample_variance) / summary.count + summary.noise_variance
        effects = learn_effects(
            self.design, summary.codes, count=summary.count, mean=summary.mean,
            variance=_believed(total) if self.strangers else total, lower=self.lower, upper=self.upper,
        )  # fmt: skip
        offset = effects.offsets(summary.codes, summary.count)
        beyond = self._fit_prior(
            summary, sample_variance, summary.mean - offset, WIDENED * (self.upper - self.lower)
        )

        if isinstance(beyond, FittedAlone):
            return beyond

        return FittedWithCovariates(without=without, beyond=beyond, effects=effects)

    def _fit_prior(  # type: ignore[no-untyped-def]  # of either prior
        self,
        summary: CovariateReleases,
        sample_variance: VariancePosterior | float,
        mean: Floats,
        wider: float,
    ):
        lower = self.lower - wider
        upper = self.upper + wider
        bins = ReleaseBins(lower, upper)
        bins.update(mean, summary.count, summary.noise_variance, summary.noise_terms)
        prior = PRIORS[self.name](lower, upper)

        if isinstance(prior, PriorByCount) and not self.strangers:
            prior = replace(prior, trimmed=0.0)

        return prior.fit_summary(bins, sample_variance)


def _believed(variance: Floats) -> Floats:
    """Raise variances below that of an eighth of the others: a count of a stranger may be a lie."""
    usable = variance[np.isfinite(variance) & (variance > 0)]
    if not len(usable):
        return variance
    rank = min(int(TRIMMED * len(usable)), len(usable) - 1)

    return np.asarray(np.maximum(variance, np.partition(usable, rank)[rank]), np.float64)
