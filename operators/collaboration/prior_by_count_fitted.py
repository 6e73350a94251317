"""A population whose means may go with their counts.

The posterior mean of every agent, and its description.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from meanstream.operators.collaboration.count_trend import CountGroups
from meanstream.operators.collaboration.mixture_posterior import (
    MixturePrior,
    bounded_means,
    mixture_mean,
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
"""An answer leaves the agent's own mean, or the bound that noise carries it beyond, by at most so
many of its standard errors."""
CHANCE = 5.4
"""Estimated variances exceed the true one by chance, by up to this over the root of the degrees of
freedom: 99 % of 5 samples."""
_BLOCK = 1 << 18
_PART = 1 << 13
"""Agents that are sorted by their counts, and of whom answers are computed at a time: they stay in
the cache."""
SHOWN = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 100_000)
"""Counts for which the prior is described."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedByCount:
    """Public: prior of an agent's mean given its count, averaged over all models.

    Attributes
    ----------
    weight, cautious, center, variance : float array, shape (n_components,)
        Normal components, those of one class of counts after those of another; `cautious` are the
        weights that make the intervals. Not normalized.
    is_class : float array, shape (n_components,)
        1 for a component of several.
    start : int array, shape (n_classes + 1,)
        Where each class begins.
    noise : float array, shape (2, n_classes)
        Variances of the privacy noise, as in `FittedNoise`.
    sample_variance : float
        What the variance of one sample is probably below; 0 where nothing is known of it.
    degrees : float
        What a sample's own squares are worth, of a degree of freedom: of rare events few samples
        show any.
    trend : float array, shape (3, n_shown)
        Mean of the means, its standard deviation, and their spread, given the counts of `SHOWN`.
    plain : FittedPrior
        What the same releases say if counts are ignored: the picture of the population, and its
        components.
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
        models = families.models
        most = float(groups.count.max())
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
            probability=dict(
                zip(("same", "strata", "trend"), families.probability(cautious=False), strict=True)
            ),
        )

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
        """Private: each agent's posterior mean and interval given its own raw mean, addressed to that agent only.

        Parameters
        ----------
        own : OwnMeans
            At least one sample each. A variance that is not known (infinite) gives the prior's
            answer.
        level : float
            Nominal coverage of the interval.
        """
        require_between(0, 1, level=level)
        found = np.empty((7, len(own)))
        component = np.empty(len(own), np.int64)
        for c, some in self._by_class(own.count):
            of_part, component[some] = self._answers(c, own, some, level=level)
            for column, answer in zip(found, of_part, strict=True):
                column[some] = answer

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

    def values(self, own: OwnMeans, which: Ints) -> Floats:
        """Private: the posterior means of these agents alone, given the variances that the value rests on.

        An agent's is the same to the last bit among whatever others.
        """
        value = np.empty(len(which))
        for c, some in self._by_class(own.count[which]):
            who = which[some]
            mean, variance, _, outside = self._known(own, who, own.value_variance[who])
            value[some] = self._near(
                mixture_mean(self._prior(c), mean, variance, outside), mean, np.sqrt(variance)
            )

        return value

    def _by_class(self, counts: Ints) -> Iterator[tuple[int, slice | Ints]]:
        """Give the agents of each class of counts, few at a time.

        Places that are near each other.
        """
        n_classes = len(self.start) - 1
        for first in range(0, len(counts), _BLOCK):
            count = counts[first : first + _BLOCK]
            # As int16, for which a stable sort is a radix sort.
            of = np.minimum(prior_family_class(count), n_classes - 1).astype(np.int16)
            order = None if (of == of[0]).all() else first + np.argsort(of, kind="stable")
            starts = np.cumsum(np.bincount(of + 1, minlength=n_classes + 1))

            for c in np.flatnonzero(np.diff(starts)).tolist():
                for start in range(starts[c], starts[c + 1], _PART):
                    part = slice(start, min(start + _PART, starts[c + 1]))
                    yield (
                        c,
                        slice(first + part.start, first + part.stop)
                        if order is None
                        else order[part],
                    )

    def _prior(self, c: int) -> MixturePrior:
        part = slice(self.start[c], self.start[c + 1])
        return MixturePrior(
            weight=self.weight[part], cautious=self.cautious[part], center=self.center[part],
            variance=self.variance[part], is_class=self.is_class[part], width=self.plain.upper - self.plain.lower,
        )  # fmt: skip

    def _known(
        self, own: OwnMeans, some: slice | Ints, variance: Floats
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Give usable own means, their variances without and with Student's factor, and by what samples vary too much.

        The last is by what they vary more than those of members of a class.
        """
        lower = self.plain.lower
        upper = self.plain.upper
        student = own.student[some]
        mean, wide = bounded_means(own.mean[some], variance, lower=lower, upper=upper)
        noise = own.noise_variance[some] if own.noise_variance.any() else 0.0
        of_samples = np.minimum(wide - noise, (upper - lower) ** 2)

        return mean, wide / student, wide, self._outside(of_samples, own.count[some])

    def _near(self, value: Floats, mean: Floats, stddev: Floats) -> Floats:
        """Let answers leave own means by so much only (limited translation), and the bounds not at all."""
        lower = self.plain.lower
        upper = self.plain.upper
        most = TRANSLATION * stddev
        inside = np.clip(mean, lower, upper)  # noise carries a release beyond the bounds

        return np.clip(np.clip(value, inside - most, inside + most), lower, upper)

    def _answers(
        self, c: int, own: OwnMeans, some: slice | Ints, *, level: float
    ) -> tuple[tuple[Floats, ...], Ints]:
        """Answer some agents of one class of counts."""
        mean, narrow, variance, outside = self._known(own, some, own.variance[some])
        value, posterior = mixture_posterior(self._prior(c), mean, narrow, outside)
        value = self._near(value, mean, np.sqrt(narrow))
        posterior *= 1 + np.minimum(posterior / narrow, 1.0) * (variance / narrow - 1)
        stddev = np.sqrt(variance)
        half_width = posterior_far_half_width(posterior, variance, level)

        component, membership, class_size = self.plain.membership(mean, variance)
        of_noise = FittedNoise(*self.noise[:, c]).half_width(half_width, posterior, variance)
        kept = np.minimum(np.sqrt(posterior) / stddev, 1.0)
        ends = posterior_doubted_interval(
            value, half_width, mean=mean, kept=kept, own_stddev=stddev, level=level
        )

        return (value, *ends, variance / posterior, class_size, membership, of_noise), component

    def _outside(self, variance: Floats, count: Ints) -> Floats:
        """By what each agent's samples vary more than chance lets those of a member of a class.

        Whose values are now of one class, now of another, has a mean between the classes: it is no
        member.
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
