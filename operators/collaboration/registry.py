"""What agents make of each other's releases.

The common interface, and the registry of its implementations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any, Protocol, runtime_checkable

import numpy as np

from meanstream.operators.collaboration.alone import LearningAlone, ReleaseCount
from meanstream.operators.collaboration.covariates.covariate_design import CovariateDesign
from meanstream.operators.collaboration.covariates.covariate_releases import CovariateReleases
from meanstream.operators.collaboration.covariates.prior_with_covariates import (
    FittedWithCovariates,
    PriorWithCovariates,
)
from meanstream.operators.collaboration.james_stein import JamesStein
from meanstream.operators.collaboration.levels.prior_of_levels import FittedLevels
from meanstream.operators.collaboration.prior.mixture_prior import LearnedPrior
from meanstream.operators.collaboration.prior.prior_by_count import FittedByCount, PriorByCount
from meanstream.operators.collaboration.prior.release_bins import ReleaseBins
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.entry_points import (
    COLLABORATIONS_GROUP,
    entry_points_of,
    register_passed,
    valid_own_name,
)
from meanstream.operators.records import AgentEstimates, Floats, Ints, OwnMeans, ReleaseColumns
from meanstream.operators.validation import require

ALIKE = 1.02
"""Variances whose ratio is within this of 1 give one answer."""


class FittedPopulation(Protocol):
    """What everyone's releases say: public, computed once per snapshot."""

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
        """Private: answer each agent, given its own raw mean."""
        ...

    def describe(self) -> dict[str, Any]:
        """Public: the population as plain data.

        At least `method`, `n_agents`, `n_components` and `components`.
        """
        ...


@runtime_checkable
class HasMembers(Protocol):
    """A fitted population that says with whom each agent is averaged."""

    def members(self, own: OwnMeans) -> list[Ints]:
        """Private: the other agents of the class of each, by number; for that agent only."""
        ...


def estimate_with_two_variances(
    fitted: FittedPopulation, own: OwnMeans, *, level: float = 0.95
) -> AgentEstimates:
    """Private: answer each agent, given its own raw mean; addressed to that agent only.

    Parameters
    ----------
    fitted : FittedPopulation
        Public: what everyone's releases say.
    own : OwnMeans
        With the variance of each mean for its interval and for its value.
    level : float
        Nominal coverage of the intervals.

    Notes
    -----
    Where samples depend on each other an own mean is worth less than that many independent samples if the next month is
    asked for, and as much if another half of the same samples is. The value rests on the variance of one sample, and
    the interval on that of the long run: the long one makes values worse where a half or a block of time is asked for,
    and hardly better by the next month. The learned prior does both at once: its interval is that of its answer's
    error. Of others the interval is that of an answer with the long-run variance, about the value; each of its sides is
    the root of the squares of its own length and of what the value was moved by.

    **Privacy.** How many agents have two variances depends on raw values, and how most priors evaluate on the number of
    agents: those evaluate all of them twice. The prior by count evaluates one agent as among whatever others.

    Examples
    --------
    >>> from meanstream.operators.collaboration.alone import FittedAlone
    >>> own = OwnMeans(agent=np.array([0]), count=np.array([4]), mean=np.array([2.0]), variance=np.array([1.0]),
    ...                value_variance=np.array([0.25]))
    >>> answer = estimate_with_two_variances(FittedAlone(), own)
    >>> answer.value.tolist(), answer.upper.round(2).tolist()
    ([2.0], [3.96])
    """
    answer = fitted.estimate(own, level=level)
    plain = fitted.without if isinstance(fitted, FittedWithCovariates | FittedLevels) else fitted
    if isinstance(plain, FittedByCount):
        return answer

    ratio = own.variance / np.maximum(own.value_variance, np.finfo(np.float64).tiny)
    two = (ratio > ALIKE) | (ratio < 1 / ALIKE)
    if not two.any():
        return answer

    short = fitted.estimate(replace(own, variance=own.value_variance), level=level)
    value = np.where(two, short.value, answer.value)
    moved = answer.moved
    if moved is not None and short.moved is not None:
        moved = np.where(two, short.moved, moved)

    shift = value - answer.value

    def side(length: Floats) -> Floats:
        return np.asarray(np.sqrt(np.square(length) + np.square(shift)))

    return replace(
        answer,
        value=value,
        lower=np.where(two, value - side(answer.value - answer.lower), answer.lower),
        upper=np.where(two, value + side(answer.upper - answer.value), answer.upper),
        moved=moved,
    )


class ReleaseSummary(Protocol):
    """Public: what a fit reads of everyone's newest releases.

    Those of disjoint groups of agents merge.

    Merging is commutative and associative to the last bit: a population is the same, however its
    agents were split.
    """

    @property
    def n(self) -> int:
        """How many releases it holds."""
        ...

    def merge(self, other: Any) -> None:
        """Add the releases of other agents."""
        ...

    def subtract(self, other: Any) -> None:
        """Take out releases that were added before."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Plain data with a version: numbers and arrays."""
        ...


class Collaboration(Protocol):
    """How agents use each other's releases. Post-processing: it spends no privacy."""

    @property
    def name(self) -> str:
        """Its key in the registry."""
        ...

    def fit(self, releases: ReleaseColumns, variance: Floats) -> FittedPopulation:
        """Read the newest release of every agent, with the total variance of each released mean."""
        ...

    def summarize(self, releases: ReleaseColumns) -> ReleaseSummary:
        """Read the newest releases of some agents."""
        ...

    def fit_summary(
        self, summary: Any, sample_variance: VariancePosterior | float
    ) -> FittedPopulation:
        """Fit to a summary of everyone's newest release, given what is known of the variance of one sample."""
        ...


SUMMARIES: dict[str, type[Any]] = {
    "bins": ReleaseBins,
    "count": ReleaseCount,
    "covariates": CovariateReleases,
}
"""The kinds of summary; `restore` of each makes one of its snapshot."""

OF_PAPERS = {
    "tests": "meanstream.lab.papers.colme.same_mean_tests:SameMeanTests",
    "consensus": "meanstream.lab.papers.colme.consensus:Consensus",
}
"""The papers' collaborations, by where their classes are: loaded by name."""


def _of_paper(name: str) -> Callable[[float, float, float], Collaboration]:
    return lambda _, __, significance: resolve_name(OF_PAPERS[name])(significance)


COLLABORATIONS: dict[str, Callable[[float, float, float], Collaboration]] = {
    PriorByCount.name: lambda lower, upper, _: PriorByCount(lower, upper),
    LearnedPrior.name: lambda lower, upper, _: LearnedPrior(lower, upper),
    JamesStein.name: lambda lower, upper, _: JamesStein(lower, upper),
    **{name: _of_paper(name) for name in OF_PAPERS},
    LearningAlone.name: lambda *_: LearningAlone(),
}


def make_collaboration(
    name: str,
    *,
    lower: float,
    upper: float,
    significance: float = 0.05,
    covariates: CovariateDesign | None = None,
    strangers: bool = True,
) -> Collaboration:
    """Return a collaboration of the registry, or of another package.

    A package registers `make(lower, upper, significance)` as an entry point of
    "meanstream.collaborations", under a name that the registry does not have.

    Parameters
    ----------
    name : str
        A key of `COLLABORATIONS`.
    lower, upper : float
        Declared bounds of a sample, in the value's unit; the learned prior's range of means.
    significance : float
        Of the same-mean tests.
    covariates : CovariateDesign, optional
        Public attributes of the agents, whose effects a learned prior takes into account.
    strangers : bool
        Releases come from others, who may lie about counts: the learned prior trusts few of the
        most precise ones. False if the caller counted the samples.

    Examples
    --------
    >>> make_collaboration("pooled_prior", lower=0.0, upper=1.0)
    LearnedPrior(lower=0.0, upper=1.0, exact_classes=2e-06, per_class=1.0)
    """
    if name not in COLLABORATIONS:
        others = entry_points_of(COLLABORATIONS_GROUP)
        require(
            name in others,
            "collaboration",
            f"be one of {', '.join({**COLLABORATIONS, **others})}",
            name,
        )
        known: Any = others[name].load()
        made: Collaboration = known(lower, upper, significance) if callable(known) else known

        return made

    if covariates is not None:
        return PriorWithCovariates(name, lower, upper, covariates, strangers)
    made = COLLABORATIONS[name](lower, upper, significance)

    if isinstance(made, PriorByCount) and not strangers:
        return replace(made, trimmed=0.0)
    return made


def collaboration_name(given: str | Collaboration) -> str:
    """Return the name of a collaboration.

    One that is passed as an object is registered for this process.

    Examples
    --------
    >>> collaboration_name("tests")
    'tests'
    """
    if isinstance(given, str):
        return given
    name = valid_own_name("collaboration", given, COLLABORATIONS)
    require(
        hasattr(given, "fit_summary"), "collaboration", "have fit, summarize and fit_summary", name
    )

    return register_passed(COLLABORATIONS_GROUP, name, given)


def answers_from_releases(
    fitted: FittedPopulation,
    releases: ReleaseColumns,
    variance: Floats,
    *,
    value_variance: Floats | None = None,
    level: float = 0.95,
) -> AgentEstimates:
    """Public: what anyone can say of each agent's mean.

    Its newest release takes the place of its raw mean.

    Parameters
    ----------
    fitted : FittedPopulation
        The population fitted to releases, these among them.
    releases : ReleaseColumns
        At most one release per agent.
    variance : float array, shape (len(releases),)
        Total variance of each released mean: of the sampling and of the noise. The intervals rest
        on it.
    value_variance : float array, shape (len(releases),), optional
        The one that the values rest on; by default the same.
    level : float
        Nominal coverage of the intervals.

    Notes
    -----
    **Privacy.** Post-processing of the releases: it spends nothing, and no raw mean enters. An agent's own estimate is
    usually more precise: its raw mean has no noise. The effective class size compares with the release alone.

    Examples
    --------
    >>> import numpy as np
    >>> from meanstream.operators.collaboration.alone import FittedAlone
    >>> one = np.ones(1, dtype=np.int64)
    >>> release = ReleaseColumns(agent=0 * one, index=one, count=4 * one, total=one, mean=np.array([2.0]),
    ...                          noise_variance=np.array([0.75]))
    >>> answer = answers_from_releases(FittedAlone(), release, np.array([1.0]))
    >>> answer.value.tolist(), answer.upper.round(2).tolist()
    ([2.0], [3.96])
    """
    own = means_of_releases(
        releases, variance, variance if value_variance is None else value_variance
    )
    return estimate_with_two_variances(fitted, own, level=level)


def means_of_releases(
    releases: ReleaseColumns, variance: Floats, value_variance: Floats | None = None
) -> OwnMeans:
    """Public: releases in the place of raw means."""
    return OwnMeans(
        agent=releases.agent, count=releases.count, mean=releases.mean, variance=variance,
        noise_variance=releases.noise_variance, noise_terms=releases.noise_terms,
        value_variance=variance if value_variance is None else value_variance,
        covariates=releases.covariates,
    )  # fmt: skip
