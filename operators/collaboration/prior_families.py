"""Ways in which means may go with counts, weighed against each other.

Not at all, by strata, by a trend.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanstream.operators.collaboration.count_trend import CountGroups, CountTrend, TrendFit
from meanstream.operators.collaboration.local_spread import FACTORS, local_spread_doubt
from meanstream.operators.collaboration.mixture_prior import Models, normalized_prior, prior_log_sum
from meanstream.operators.collaboration.noise_share import FittedNoise, NoiseShare
from meanstream.operators.collaboration.prior_fitted import fitted_prior_noise
from meanstream.operators.records import Floats, Ints

CARRIED = 0.02
"""A component that fewer of the agents carry shrinks no one: its weight is spread over the
bounds."""
UNSEEN = 0.25
"""Someone whom no release shows may have any mean: prior weight, in agents."""
BEFORE = (0.8, 0.1, 0.1)
"""Prior probabilities that means do not go with counts, go by strata, and by a trend."""
TAIL = 0.05
TAIL_VARIANCE = 6.0
"""Part of each component that is so much wider: real populations have longer tails than normal
ones."""
NO_TAIL = 0.02
"""Components spread by less than this part of the variance of a typical agent's own mean have
none."""
TREND_PARTS = 12
PART_RATIO = 1.3
NEGLIGIBLE = 1e-6
_EXACT_COUNTS = 16
_PER_OCTAVE = 6
_OCTAVES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Normal components of a prior, as `mixture_posterior` takes them.

    `spread`: variance without the center's.
    """

    weight: Floats
    cautious: Floats
    center: Floats
    variance: Floats
    spread: Floats
    is_class: Floats
    noise: FittedNoise

    def doubted(self, at_least: float, doubt: Floats) -> Components:
        """Give long tails to what has at least this spread.

        For intervals, add that the whole may be wider.

        `doubt` has the probability of each of `FACTORS`. The last component, which is anywhere,
        stays as it is.
        """
        tail = np.flatnonzero(self.spread[:-1] >= at_least)
        longer = self.variance[tail] + (TAIL_VARIANCE - 1) * self.spread[tail]
        short = np.ones(len(self.weight))
        short[tail] -= TAIL
        wider, middle, variance = doubt.sum(), *self.moments()
        likely, careful = (
            np.concatenate([w * short, TAIL * w[tail]]) for w in (self.weight, self.cautious)
        )
        several = len(doubt)

        return Components(
            weight=np.append(likely, 0 * doubt),
            cautious=np.append((1 - wider) * careful, self.cautious[:-1].sum() * doubt),
            center=np.concatenate([self.center, self.center[tail], np.full(several, middle)]),
            variance=np.concatenate([self.variance, longer, variance * FACTORS]),
            spread=np.concatenate(
                [self.spread, TAIL_VARIANCE * self.spread[tail], variance * FACTORS]
            ),
            is_class=np.concatenate([self.is_class, self.is_class[tail], np.zeros(several)]),
            noise=self.noise,
        )

    def moments(self) -> tuple[float, float]:
        """Mean and variance of all but the last component, by the cautious weights."""
        share = self.cautious[:-1] / self.cautious[:-1].sum()
        middle = float(share @ self.center[:-1])
        return middle, float(share @ (self.variance[:-1] + (self.center[:-1] - middle) ** 2))

    def kept(self) -> Components:
        """Leave out what has no weight in either."""
        some = np.maximum(self.weight, self.cautious) > NEGLIGIBLE
        return Components(
            weight=self.weight[some], cautious=self.cautious[some], center=self.center[some],
            variance=self.variance[some], spread=self.spread[some], is_class=self.is_class[some], noise=self.noise,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Families:
    """Public: everything that was fitted to the releases.

    Attributes
    ----------
    models : Models
        Mixtures that are the same for all counts.
    straying : float array, shape (n_mixtures,)
        Means stray from their component of each mixture by a variance of this over their count.
    strata : list of (float, Models)
        Mixtures of each range of counts, and where it ends; none where there are too few agents.
    trend : TrendFit
        One normal component whose center and spread go with the count.
    sample_variance : float
        What the variance of one sample is probably below.
    degrees : float
        What a sample's own squares are worth, of a degree of freedom: less than 1 for rare events.
    typical : float
        What is expected of it.
    noise : NoiseShare
        Part of a center's variance that is privacy noise.
    """

    models: Models
    straying: Floats
    strata: list[tuple[float, Models]]
    trend: TrendFit
    sample_variance: float
    degrees: float
    typical: float
    noise: NoiseShare

    def probability(self, *, cautious: bool) -> tuple[float, float, float]:
        """Posterior probabilities of: the same for all, strata, a trend."""

        def evidence(models: Models) -> float:
            return prior_log_sum(models.log_cautious if cautious else models.log_weight)

        # All hold the model of one component for all counts, by which the trend's evidence is
        # brought to their scale.
        one = np.array([m.size == 1 for m in self.models.mixtures]) & (self.straying == 0)
        trend = (
            self.trend.log_evidence
            - self.trend.log_flat
            + prior_log_sum(self.models.log_cautious[one])
        )
        strata = sum(evidence(models) for _, models in self.strata) if self.strata else -np.inf
        found = normalized_prior(
            np.log(BEFORE) + np.array([evidence(self.models), strata, trend])
        ).tolist()

        return found[0], found[1], found[2]

    def by_class(
        self, groups: CountGroups, most: float, *, lower: float, upper: float
    ) -> list[Components]:
        """Give the prior for each class of counts up to the largest that is believed.

        `groups` has all releases.
        """
        value = self.probability(cautious=False)
        careful = self.probability(cautious=True)
        counts = np.minimum(
            CLASS_COUNTS[: int(prior_family_class(np.array([int(most)]))[0]) + 1], most
        )
        center, variance, spread, weight = _trend_parts(self.trend.trend, counts)
        noise = self._noise(value, counts)
        middle = (lower + upper) / 2

        widest = (upper - lower) ** 2 / 12
        anywhere = UNSEEN / self.models.n_agents
        same = _components(self.models, self.straying, value[0], careful[0])
        strata = [
            _components(m, np.zeros(len(m.mixtures)), value[1], careful[1]) for _, m in self.strata
        ]
        ends = [end for end, _ in self.strata]
        found = []

        for c, count in enumerate(counts.tolist()):
            own = (
                [same]
                if not strata
                else [same, strata[int(np.searchsorted(ends, count, side="right"))]]
            )
            lost = [sum(part[4][k] for part in own) for k in (0, 1)]
            found.append(
                Components(
                    weight=np.concatenate(
                        [*(p[0] for p in own), value[2] * weight[c], [anywhere + lost[0]]]
                    ),
                    cautious=np.concatenate(
                        [*(p[1] for p in own), careful[2] * weight[c], [anywhere + lost[1]]]
                    ),
                    center=np.concatenate([*(p[2] for p in own), center[c], [middle]]),
                    variance=np.concatenate(
                        [*(p[3][0] + p[3][1] / count for p in own), variance[c], [widest]]
                    ),
                    spread=np.concatenate(
                        [*(p[3][2] + p[3][1] / count for p in own), spread[c], [widest]]
                    ),
                    is_class=np.concatenate([*(p[5] for p in own), 0 * weight[c], [0.0]]),
                    noise=FittedNoise(float(noise[0, c]), float(noise[1, c])),
                )
            )

        doubt = self._doubt(found, groups, counts)
        return [
            part.doubted(NO_TAIL * self.typical / count, doubt[c]).kept()
            for c, (part, count) in enumerate(zip(found, counts.tolist(), strict=True))
        ]

    def _doubt(self, found: list[Components], groups: CountGroups, counts: Floats) -> Floats:
        """Tell for each class of counts how likely its spread is wider than it has it, shape (n_counts, n_factors)."""
        center, variance = np.array([part.moments() for part in found]).T
        of = np.minimum(prior_family_class(np.rint(groups.count).astype(np.int64)), len(found) - 1)
        return local_spread_doubt(groups, self.typical, counts, center[of], variance[of])

    def _noise(self, value: tuple[float, float, float], counts: Floats) -> Floats:
        """Average `FittedNoise` over all models, for each class of counts, shape (2, n_counts)."""
        of_models = np.array(
            [
                fitted_prior_noise(m.mixtures, normalized_prior(m.log_weight), self.noise)
                for m in (self.models, *(m for _, m in self.strata))
            ]
        ).T

        stratum = np.searchsorted([end for end, _ in self.strata], counts, side="right")
        own = of_models[:, 1:][:, stratum] if self.strata else 0.0
        trend = self.trend.trend
        _, variance, spread = trend.predict(counts)
        center = trend.weight @ (self.noise.of_center(spread) * (variance - spread**2))
        of_trend = np.stack([center, trend.weight @ self.noise.of_squared_spread(spread)])

        return np.asarray(
            value[0] * of_models[:, :1] + value[1] * own + value[2] * of_trend, dtype=np.float64
        )


_Part = tuple[Floats, Floats, Floats, tuple[Floats, Floats, Floats], tuple[float, float], Floats]


def _components(models: Models, straying: Floats, value: float, careful: float) -> _Part:
    """Give weights, cautious weights, centers, variances (all; to be divided by n; spread), what few carry, classes."""
    sizes = [mixture.size for mixture in models.mixtures]
    share = np.concatenate([mixture.weight for mixture in models.mixtures])
    weight = value * np.repeat(normalized_prior(models.log_weight), sizes) * share
    cautious = careful * np.repeat(normalized_prior(models.log_cautious), sizes) * share
    carried = share >= CARRIED
    keep = carried & (np.maximum(weight, cautious) > NEGLIGIBLE)

    variance = np.concatenate([mixture.variance for mixture in models.mixtures])
    center = np.concatenate([mixture.center for mixture in models.mixtures])
    lost = float(weight[~carried].sum()), float(cautious[~carried].sum())
    several = np.repeat(np.array(sizes) > 1, sizes)[keep].astype(np.float64)
    spread = np.repeat([mixture.spread**2 for mixture in models.mixtures], sizes)
    variances = variance[keep], np.repeat(straying, sizes)[keep], spread[keep]

    return weight[keep], cautious[keep], center[keep], variances, lost, several


def _trend_parts(trend: CountTrend, counts: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Join models of similar width, shape (n_counts, TREND_PARTS).

    Centers, variances, squared spreads, weights.
    """
    center, variance, stray = trend.predict(counts)
    stddev = np.sqrt(variance)
    part = np.floor(np.log(stddev / stddev.min(axis=0)) / np.log(PART_RATIO)).astype(np.int64)
    place = np.minimum(part, TREND_PARTS - 1) + TREND_PARTS * np.arange(len(counts))

    size = TREND_PARTS * len(counts)
    share = np.broadcast_to(trend.weight[:, None], center.shape)
    weight = np.bincount(place.ravel(), share.ravel(), size)
    safe = np.maximum(weight, 1e-300)
    middle = np.bincount(place.ravel(), (share * center).ravel(), size) / safe
    second = (
        np.bincount(
            place.ravel(), (share * (variance + (center - middle[place]) ** 2)).ravel(), size
        )
        / safe
    )

    spread = np.bincount(place.ravel(), (share * stray**2).ravel(), size) / safe
    found = np.stack([middle, np.where(weight > 0, second, 1.0), spread, weight]).astype(np.float64)
    by_count = found.reshape(4, len(counts), TREND_PARTS)

    return by_count[0], by_count[1], by_count[2], by_count[3]


def prior_family_class(count: Ints) -> Ints:
    """Class of a number of samples: each up to 16 has its own, larger ones are six to an octave.

    Examples
    --------
    >>> prior_family_class(np.array([1, 2, 16, 17, 32, 64])).tolist()
    [0, 1, 15, 16, 21, 27]
    """
    count = np.asarray(count)
    if not count.size or count.max() >= _TABLED or count.min() < 0:
        return _family_class(count)
    return np.asarray(_CLASSES.take(count), np.int64)


def _family_class(count: Ints) -> Ints:
    finer = np.floor(
        _PER_OCTAVE * np.log2(np.maximum(count, _EXACT_COUNTS) / _EXACT_COUNTS) - 1e-9
    ).astype(np.int64)
    return np.where(count <= _EXACT_COUNTS, np.maximum(count, 1) - 1, _EXACT_COUNTS + finer)


_TABLED = 1 << 18
_CLASSES = _family_class(np.arange(_TABLED)).astype(np.int16)
"""Classes of small counts: a look-up is far cheaper than a logarithm."""


_FINER = _EXACT_COUNTS * 2 ** ((np.arange(_PER_OCTAVE * _OCTAVES) + 0.5) / _PER_OCTAVE)
CLASS_COUNTS: Floats = np.concatenate([np.arange(1.0, _EXACT_COUNTS + 1), _FINER])
"""Middle of each class."""
