"""A population whose means may go with their counts: the posterior mean of every agent, and its description."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from meanstream.operators.collaboration.count_trend import CountGroups
from meanstream.operators.collaboration.mixture_posterior import (
    MixturePrior,
    bounded_means,
    mixture_posterior,
    posterior_doubted_interval,
    posterior_far_half_width,
)
from meanstream.operators.collaboration.mixture_prior import normalized_prior
from meanstream.operators.collaboration.noise_share import FittedNoise
from meanstream.operators.collaboration.prior_families import Families, prior_family_class
from meanstream.operators.collaboration.prior_fitted import FittedPrior
from meanstream.operators.records import AgentEstimates, Floats, Ints, OwnMeans
from meanstream.operators.validation import require_between

TRANSLATION = 3.5
"""An answer leaves the agent's own mean, or the bound that noise carries it beyond, by at most so many of its standard
errors."""
CHANCE = 5.4
"""Estimated variances exceed the true one by chance, by up to this over the root of the degrees of freedom: 99 % of 5
samples."""
_BLOCK, _PART = 1 << 18, 1 << 13
"""Agents that are sorted by their counts, and of whom answers are computed at a time: they stay in the cache."""
SHOWN = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 100_000)
"""Counts for which the prior is described."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedByCount:
    """Public: prior of an agent's mean given its count, averaged over all models.

    Attributes
    ----------
    weight, cautious, center, variance : float array, shape (n_components,)
        Normal components, those of one class of counts after those of another; `cautious` are the weights that make
        the intervals. Not normalized.
    is_class : float array, shape (n_components,)
        1 for a component of several.
    start : int array, shape (n_classes + 1,)
        Where each class begins.
    noise : float array, shape (2, n_classes)
        Variances of the privacy noise, as in `FittedNoise`.
    sample_variance : float
        The most that the variance of one sample may be, by what is known of it; 0 where nothing is.
    degrees : float
        What a sample's own squares are worth, of a degree of freedom: of rare events few samples show any.
    trend : float array, shape (3, n_shown)
        Mean of the means, its standard deviation, and their spread, given the counts of `SHOWN`.
    plain : FittedPrior
        What the same releases say if counts are ignored: the picture of the population, and its components.
    probability : dict
        Posterior probability that counts do not matter (`same`), of `strata`, and of a `trend`.
    """

    weight: Floats
    cautious: Floats
    center: Floats
    variance: Floats
    is_class: Floats
    start: Ints
    noise: Floats
    sample_variance: float
    trend: Floats
    plain: FittedPrior
    probability: dict[str, float]
    degrees: float = 1.0  # what 0.2.0 saved on Beam has none

    @classmethod
    def build(cls, families: Families, groups: CountGroups, *, lower: float, upper: float) -> Self:
        """Average mixtures, strata and trends by their probabilities."""
        models, most = families.models, float(groups.count.max())
        plain = FittedPrior.build(
            models.mixtures,
            probability=normalized_prior(models.log_weight),
            cautious=normalized_prior(models.log_cautious),
            n_agents=models.n_agents,
            noise=families.noise,
            lower=lower,
            upper=upper,
        )
        classes = families.by_class(groups, most, lower=lower, upper=upper)
        return cls(
            weight=np.concatenate([c.weight for c in classes]),
            cautious=np.concatenate([c.cautious for c in classes]),
            center=np.concatenate([c.center for c in classes]),
            variance=np.concatenate([c.variance for c in classes]),
            is_class=np.concatenate([c.is_class for c in classes]),
            sample_variance=families.sample_variance,
            degrees=families.degrees,
            start=np.cumsum([0] + [len(c.weight) for c in classes]),
            noise=np.array([c.noise for c in classes]).T,
            trend=families.trend.trend.described(np.array([n for n in SHOWN if n <= most])),
            plain=plain,
            probability=dict(zip(("same", "strata", "trend"), families.probability(cautious=False), strict=True)),
        )

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
        """Private: each agent's posterior mean and interval given its own raw mean, addressed to that agent only.

        Parameters
        ----------
        own : OwnMeans
            At least one sample each. A variance that is not known (infinite) gives the prior's answer.
        level : float
            Nominal coverage of the interval.
        """
        require_between(0, 1, level=level)
        n = len(own)
        found, component = np.empty((7, n)), np.empty(n, np.int64)
        for start in range(0, n, _BLOCK):
            part = slice(start, start + _BLOCK)
            self._answer_block(own, part, level, found[:, part], component[part])
        value, lower, upper, size, class_size, membership, noise = found
        return AgentEstimates(
            value=value,
            lower=lower,
            upper=upper,
            level=level,
            effective_class_size=size,
            class_size=class_size,
            component=component,
            membership=membership,
            noise_half_width=noise,
        )

    def _answer_block(self, own: OwnMeans, block: slice, level: float, found: Floats, component: Ints) -> None:
        """Write the answers of a block of agents, class of counts by class."""
        n_classes = len(self.start) - 1
        # As int16, for which a stable sort is a radix sort.
        of = np.minimum(prior_family_class(own.count[block]), n_classes - 1).astype(np.int16)
        columns = [own.mean[block], own.variance[block], own.noise_variance[block]]
        count = own.count[block]
        answers, components, order = found, component, None
        if (of != of[0]).any():
            order = np.argsort(of, kind="stable")
            columns, count = [column[order] for column in columns], count[order]
            answers, components = np.empty_like(found), np.empty_like(component)
        starts = np.cumsum(np.bincount(of + 1, minlength=n_classes + 1))
        for c in np.flatnonzero(np.diff(starts)).tolist():
            for start in range(starts[c], starts[c + 1], _PART):
                part = slice(start, min(start + _PART, starts[c + 1]))
                chosen = [column[part] for column in columns]
                of_part, components[part] = self._answers(c, chosen, count[part], level=level)
                for answer, column in zip(answers, of_part, strict=True):
                    answer[part] = column
        if order is None:
            return
        back = np.empty(len(of), np.int64)
        back[order] = np.arange(len(of))
        for column, of_sorted in zip((*found, component), (*answers, components), strict=True):
            of_sorted.take(back, out=column, mode="clip")  # which no place needs, and which needs no copy

    def _answers(self, c: int, columns: list[Floats], count: Ints, *, level: float) -> tuple[tuple[Floats, ...], Ints]:
        """Answer some agents of one class of counts: own means, their variances, those of the noise."""
        mean, variance, noise = columns
        lower, upper = self.plain.lower, self.plain.upper
        width, part = upper - lower, slice(self.start[c], self.start[c + 1])
        mean, variance = bounded_means(mean, variance, lower=lower, upper=upper)
        outside = self._outside(np.minimum(variance - noise, width**2), count)
        prior = MixturePrior(
            weight=self.weight[part], cautious=self.cautious[part], center=self.center[part],
            variance=self.variance[part], is_class=self.is_class[part], width=width,
        )  # fmt: skip
        value, posterior = mixture_posterior(prior, mean, variance, outside)
        stddev = np.sqrt(variance)
        most, inside = TRANSLATION * stddev, np.clip(mean, lower, upper)  # noise carries a release beyond the bounds
        value = np.clip(np.clip(value, inside - most, inside + most), lower, upper)
        half_width = posterior_far_half_width(posterior, variance, level)
        component, membership, class_size = self.plain.membership(mean, variance)
        of_noise = FittedNoise(*self.noise[:, c]).half_width(half_width, posterior, variance)
        kept = np.minimum(np.sqrt(posterior) / stddev, 1.0)
        ends = posterior_doubted_interval(value, half_width, mean=mean, kept=kept, own_stddev=stddev, level=level)
        return (value, *ends, variance / posterior, class_size, membership, of_noise), component

    def _outside(self, variance: Floats, count: Ints) -> Floats:
        """By what each agent's samples vary more than chance lets those of a member of a class.

        Whose values are now of one class, now of another, has a mean between the classes: it is no member.
        """
        if not self.sample_variance:
            return np.zeros(len(variance))
        chance = (1 + CHANCE / np.sqrt(self.degrees * count)) * self.sample_variance
        return np.asarray(np.maximum(variance * count - chance, 0.0), dtype=np.float64)

    def describe(self) -> dict[str, Any]:
        """Public: the fitted population as plain data, for an event or a dashboard."""
        columns = ("center", "center_stddev", "spread")
        rows = [
            {"n": n} | dict(zip(columns, row, strict=True))
            for n, row in zip(SHOWN, self.trend.T.tolist(), strict=False)
        ]
        return {
            **self.plain.describe(),
            "method": "learned_prior",
            "count_probability": self.probability,
            "count_trend": {"probability": self.probability["trend"], "counts": rows},
        }
