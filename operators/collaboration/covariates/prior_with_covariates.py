"""A learned prior that knows public attributes of the agents.

Their effects are learned from the releases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from meanstream.operators.collaboration.alone import FittedAlone
from meanstream.operators.collaboration.covariates.covariate_design import (
    CovariateDesign,
    require_codes,
)
from meanstream.operators.collaboration.covariates.covariate_releases import CovariateReleases
from meanstream.operators.collaboration.covariates.learned_effects import learn_effects
from meanstream.operators.collaboration.covariates.prior_with_covariates_fitted import (
    FittedWithCovariates,
)
from meanstream.operators.collaboration.prior.fit_of_bins import releases_fit_for_bins
from meanstream.operators.collaboration.prior.mixture_prior import LearnedPrior
from meanstream.operators.collaboration.prior.prior_by_count import TRIMMED, PriorByCount
from meanstream.operators.collaboration.prior.release_bins import ReleaseBins
from meanstream.operators.collaboration.variance.variance_posterior import (
    VariancePosterior,
    variance_posterior_typical,
)
from meanstream.operators.records import Floats, ReleaseColumns
from meanstream.operators.validation import require

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
        some = releases_fit_for_bins(releases, variance)
        used = releases.take(some)
        if len(used) < 2:
            return FittedAlone(self.name)

        of_sample = np.maximum(variance[some] - used.noise_variance, 0.0) * used.count
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
    some = variance[np.isfinite(variance) & (variance > 0)]
    if not len(some):
        return variance
    place = min(int(TRIMMED * len(some)), len(some) - 1)

    return np.asarray(np.maximum(variance, np.partition(some, place)[place]), np.float64)
