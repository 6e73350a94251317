"""A population whose means may go with their counts.

The posterior mean of every agent, and its description.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from meanstream.operators.collaboration.alone import half_width_alone
from meanstream.operators.collaboration.count_classes import CLASS_COUNTS, count_class
from meanstream.operators.collaboration.joint.joint_means import JointMeans
from meanstream.operators.collaboration.noise_share import FittedNoise, NoiseShare
from meanstream.operators.collaboration.prior.mixture_posterior import (
    MixturePrior,
    bounded_means,
    mixture_posterior,
    released_mixture_posterior,
)
from meanstream.operators.collaboration.prior.mixture_prior import Models, normalized_prior
from meanstream.operators.collaboration.prior.normal_prior import NormalPrior
from meanstream.operators.collaboration.prior.prior_fitted import FittedPrior
from meanstream.operators.collaboration.prior.separate_classes import Classes
from meanstream.operators.collaboration.release_law import is_shaped
from meanstream.operators.records import AgentEstimates, Floats, Ints, OwnMeans
from meanstream.operators.validation import require_between

TRANSLATION = 3.5
"""An answer leaves the agent's own mean, or the bound that noise carries it beyond, by at most so
many of its standard errors."""
NEGLIGIBLE = 1e-6
_LEAST_ERROR = 1e-9
UNSEEN = 0.25
"""Someone may be in none of the classes: prior weight of the normal prior, in agents, at least."""
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
    weight, center, variance : float array, shape (n_components,)
        Normal components, those of one class of counts after those of another.
    cautious_variance : float array, shape (n_components,)
        What intervals take for the variance of each.
    start : int array, shape (n_classes + 1,)
        Where each class begins.
    noise : float array, shape (3, n_classes)
        Variances of the privacy noise, as in `FittedNoise`.
    center_variance : float
        Variance with which the center of the means is known where most releases are.
    trend : float array, shape (3, n_shown)
        Mean of the means, its standard deviation, and their spread, given the counts of `SHOWN`.
    plain : FittedPrior
        What the same releases say if counts are ignored: the picture of the population, and its
        components.
    probability : dict
        Posterior probability that means do not go with counts (`same`), and that they do (`trend`).
    """

    weight: Floats
    center: Floats
    variance: Floats
    cautious_variance: Floats
    start: Ints
    noise: Floats
    center_variance: float
    trend: Floats
    plain: FittedPrior
    probability: dict[str, float]

    @classmethod
    def build(
        cls,
        normal: NormalPrior,
        classes: Classes,
        models: Models,
        *,
        counts: Floats,
        noise: NoiseShare,
    ) -> Self:
        """Put the normal prior and classes together, for each class of counts.

        Parameters
        ----------
        normal : NormalPrior
        classes : Classes
        models : Models
            Mixtures that are the same for all counts, for the picture.
        counts : float array
            Samples in the releases.
        noise : NoiseShare
            Part of a center's variance that is privacy noise.
        """
        most = max(float(counts[np.isfinite(counts)].max(initial=1.0)), 1.0)
        of_class = np.minimum(CLASS_COUNTS[: int(count_class(np.array([int(most)]))[0]) + 1], most)
        several = len(of_class)

        # Components by row, classes of counts by column.
        class_weight = classes.weight[:, np.newaxis]
        rest = max(1.0 - float(class_weight.sum()), UNSEEN / models.n_agents)
        columns = np.ones((1, several))
        normal_weight, normal_center, normal_variance = normal.components(of_class)
        weight = np.concatenate([rest * normal_weight, class_weight * columns])
        center = np.concatenate([normal_center, classes.center[:, np.newaxis] * columns])
        variance, cautious = (
            np.concatenate([normal_variance, of_classes[:, np.newaxis] * columns])
            for of_classes in (classes.variance, classes.cautious_variance)
        )
        used = weight.T > NEGLIGIBLE

        plain = FittedPrior.build(
            models.mixtures,
            probability=normalized_prior(models.log_weight),
            cautious=normalized_prior(models.log_cautious),
            n_agents=models.n_agents,
            noise=noise,
            lower=normal.lower,
            upper=normal.upper,
        )

        # What of the noise is in a center and in a spread: of the normal prior, and of classes.
        in_classes = float(class_weight.sum())
        share = normal.probability
        _, center_variance = normal.center(of_class)
        of_center = share @ (noise.of_center(normal.spread)[:, np.newaxis] * center_variance)
        of_center = rest * of_center + in_classes * plain.noise.center
        of_spread = rest * float(share @ noise.of_squared_spread(normal.spread))
        of_spread += in_classes * float(plain.noise.squared_spread)
        around = rest * float(share @ normal.spread**2)

        return cls(
            weight=weight.T[used],
            center=center.T[used],
            variance=variance.T[used],
            cautious_variance=cautious.T[used],
            start=np.concatenate([[0], np.cumsum(used.sum(axis=1))]),
            noise=np.stack([of_center, of_spread * np.ones(several), around * np.ones(several)]),
            center_variance=normal.center_variance,
            trend=_described(normal, np.array([n for n in SHOWN if n <= most], np.float64)),
            plain=plain,
            probability={"same": normal.without_trend, "trend": 1.0 - normal.without_trend},
        )

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
        """Private: each agent's posterior mean and interval given its own raw mean, addressed to that agent only.

        Parameters
        ----------
        own : OwnMeans
            At least one sample each. A variance that is not known (infinite) gives the prior's
            answer. The value rests on `value_variance`, the interval on what its error is if the
            own mean has the variance `variance`.
        level : float
            Nominal coverage of the interval.
        """
        require_between(0, 1, level=level)
        columns = np.empty((7, len(own)))
        component = np.empty(len(own), np.int64)
        for c, some in self._by_class(own.count):
            of_part, component[some] = self._answers(c, own, some, level=level)
            for column, answer in zip(columns, of_part, strict=True):
                column[some] = answer

        value, lower, upper, size, class_size, membership, noise = columns
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

    def joint(self, own: OwnMeans) -> JointMeans:
        """Give the joint posterior of these agents, whose answers share the error of the center.

        An answer takes over as much of the center's error as it leaves of the own mean: one less
        the posterior variance in units of the own one. Errors are not quite normal where few
        Laplace draws are the noise, so that ranks rest on a bound.
        """
        answer = self.estimate(own)
        variance = np.square(
            (answer.upper - answer.lower) / float(2 * half_width_alone(np.ones(1), 0.95)[0])
        )
        weight = np.clip(1.0 - 1.0 / answer.effective_class_size, 0.0, 1.0)
        of_center = np.minimum(np.square(weight) * self.center_variance, variance)

        # An answer that is all center, or held at a bound, has no error of its own to divide by.
        width = self.plain.upper - self.plain.lower
        own_variance = np.maximum(variance - of_center, np.square(_LEAST_ERROR * width))

        return JointMeans(
            value=answer.value,
            stddev=np.sqrt(own_variance),
            weight=weight,
            center_variance=self.center_variance,
            calibrated=False,
        )

    def _by_class(self, counts: Ints) -> Iterator[tuple[int, slice | Ints]]:
        """Give the agents of each class of counts, few at a time.

        Places that are near each other.
        """
        n_classes = len(self.start) - 1
        for first in range(0, len(counts), _BLOCK):
            count = counts[first : first + _BLOCK]
            # As int16, for which a stable sort is a radix sort.
            of = np.minimum(count_class(count), n_classes - 1).astype(np.int16)
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
        width = self.plain.upper - self.plain.lower
        return MixturePrior(
            weight=self.weight[part],
            center=self.center[part],
            variance=self.variance[part],
            cautious_variance=self.cautious_variance[part],
            width=width,
        )

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
        bounds = {"lower": self.plain.lower, "upper": self.plain.upper}
        mean, variance = bounded_means(own.mean[some], own.value_variance[some], **bounds)
        _, true_variance = bounded_means(own.mean[some], own.variance[some], **bounds)
        prior = self._prior(c)
        noise = own.noise_variance[some]
        terms = own.noise_terms[some]

        if is_shaped(noise, terms).any():
            value, error = released_mixture_posterior(
                prior,
                mean,
                variance,
                true_variance=true_variance,
                noise_variance=noise,
                terms=terms,
            )
        else:
            value, error = mixture_posterior(prior, mean, variance, true_variance)

        value = self._near(value, mean, np.sqrt(variance))
        half_width = half_width_alone(error, level)
        component, membership, class_size = self.plain.membership(mean, variance)
        of_noise = FittedNoise(*self.noise[:, c]).half_width(half_width, error, true_variance)
        ends = value - half_width, value + half_width

        # Who is between two classes may be known less well than its own mean alone says: the
        # interval is longer then, and nothing is gained.
        size = np.maximum(true_variance / error, 1.0)
        return (value, *ends, size, class_size, membership, of_noise), component

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


def _described(normal: NormalPrior, counts: Floats) -> Floats:
    """Give center of the means, its standard deviation, and their spread at some counts, shape (3, n)."""
    weight, center, variance = normal.components(counts)
    middle = (weight * center).sum(axis=0)
    square = float(normal.probability @ normal.spread**2) * normal.falling(counts) ** 2
    known = (weight * (variance + (center - middle) ** 2)).sum(axis=0) - square

    return np.stack([middle, np.sqrt(np.maximum(known, 0.0)), np.sqrt(square)])
