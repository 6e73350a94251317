"""The default collaboration.

A normal prior for everyone's mean given its public count, learned from the releases, and classes of
equal means where they show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from meanstream.operators.collaboration.alone import FittedAlone, half_width_alone
from meanstream.operators.collaboration.joint_means import JointMeans
from meanstream.operators.collaboration.noise_share import FittedNoise, NoiseShare
from meanstream.operators.collaboration.prior.mixture_posterior import (
    MixturePrior,
    bounded_means,
    mixture_posterior,
    released_mixture_posterior,
)
from meanstream.operators.collaboration.prior.mixture_prior import (
    FitOfBins,
    LearnedPrior,
    Models,
    normalized_prior,
    releases_fit_for_bins,
)
from meanstream.operators.collaboration.prior.normal_prior import NormalPrior
from meanstream.operators.collaboration.prior.prior_fitted import FittedPrior
from meanstream.operators.collaboration.prior.release_bins import ReleaseBins
from meanstream.operators.collaboration.prior.separate_classes import (
    Classes,
    separate_classes,
    weighed_exactly,
)
from meanstream.operators.collaboration.release_law import is_shaped
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.records import AgentEstimates, Floats, Ints, OwnMeans, ReleaseColumns
from meanstream.operators.validation import require_between

_EXACT_COUNTS = 16
_PER_OCTAVE = 6
_OCTAVES = 40


def count_class(count: Ints) -> Ints:
    """Class of a number of samples: each up to 16 has its own, larger ones are six to an octave.

    Examples
    --------
    >>> count_class(np.array([1, 2, 16, 17, 32, 64])).tolist()
    [0, 1, 15, 16, 21, 27]
    """
    count = np.asarray(count)
    if count.size < _WORTH_A_TABLE or count.max() >= _TABLED or count.min() < 0:
        return _count_class(count)
    return np.asarray(_class_table().take(count), np.int64)


def _count_class(count: Ints) -> Ints:
    finer = np.floor(
        _PER_OCTAVE * np.log2(np.maximum(count, _EXACT_COUNTS) / _EXACT_COUNTS) - 1e-9
    ).astype(np.int64)
    return np.where(count <= _EXACT_COUNTS, np.maximum(count, 1) - 1, _EXACT_COUNTS + finer)


_TABLED = 1 << 18
_WORTH_A_TABLE = 1 << 12
"""Counts in one call for which the table is made: a run of few agents starts without it."""


@cache
def _class_table() -> npt.NDArray[np.int16]:
    """Classes of small counts: a look-up is far cheaper than a logarithm."""
    return _count_class(np.arange(_TABLED)).astype(np.int16)


_FINER = _EXACT_COUNTS * 2 ** ((np.arange(_PER_OCTAVE * _OCTAVES) + 0.5) / _PER_OCTAVE)
CLASS_COUNTS: Floats = np.concatenate([np.arange(1.0, _EXACT_COUNTS + 1), _FINER])
"""Middle of each class."""


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
        most_samples = max(float(counts[np.isfinite(counts)].max(initial=1.0)), 1.0)
        of_class = np.minimum(
            CLASS_COUNTS[: int(count_class(np.array([int(most_samples)]))[0]) + 1], most_samples
        )
        several = len(of_class)

        # Components by row, classes of counts by column.
        class_weight = classes.weight[:, None]
        in_normal = max(1.0 - float(class_weight.sum()), UNSEEN / models.n_agents)
        columns = np.ones((1, several))
        normal_weight, normal_center, normal_variance = normal.components(of_class)
        weight = np.concatenate([in_normal * normal_weight, class_weight * columns])
        center = np.concatenate([normal_center, classes.center[:, None] * columns])
        variance, cautious = (
            np.concatenate([normal_variance, of_classes[:, None] * columns])
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
        of_center = share @ (noise.of_center(normal.spread)[:, None] * center_variance)
        of_center = in_normal * of_center + in_classes * plain.noise.center
        of_spread = in_normal * float(share @ noise.of_squared_spread(normal.spread))
        of_spread += in_classes * float(plain.noise.squared_spread)
        around = in_normal * float(share @ normal.spread**2)

        return cls(
            weight=weight.T[used],
            center=center.T[used],
            variance=variance.T[used],
            cautious_variance=cautious.T[used],
            start=np.concatenate([[0], np.cumsum(used.sum(axis=1))]),
            noise=np.stack([of_center, of_spread * np.ones(several), around * np.ones(several)]),
            center_variance=normal.center_variance,
            trend=_described(normal, np.array([n for n in SHOWN if n <= most_samples], np.float64)),
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
        for c, rows in self._by_class(own.count):
            of_part, component[rows] = self._answers(c, own, rows, level=level)
            for column, answer in zip(columns, of_part, strict=True):
                column[rows] = answer

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
                    rows = slice(start, min(start + _PART, starts[c + 1]))
                    yield (
                        c,
                        slice(first + rows.start, first + rows.stop)
                        if order is None
                        else order[rows],
                    )

    def _prior(self, c: int) -> MixturePrior:
        of_class = slice(self.start[c], self.start[c + 1])
        width = self.plain.upper - self.plain.lower
        return MixturePrior(
            weight=self.weight[of_class],
            center=self.center[of_class],
            variance=self.variance[of_class],
            cautious_variance=self.cautious_variance[of_class],
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
        usable = releases_fit_for_bins(releases, variance)
        used = releases if usable.all() else releases.take(usable)
        if len(used) < 2:
            return FittedAlone(self.name)

        of_sample = np.maximum(variance[usable] - used.noise_variance, 0.0) * used.count
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
