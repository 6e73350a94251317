"""What the honest default is expected to cost.

Its mean squared error for a law of users, before any report.

The stages are followed without noise, except that the center and each scale are placed at three
points (the Gauss-Hermite nodes of their errors), so that a window that comes out too narrow or too
wide is paid for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from meanstream.operators.estimators.adaptive.adaptive_design import (
    EVERYTHING,
    TOP_EDGE,
    AdaptiveFound,
    AdaptivePlan,
    adaptive_design_cut_window,
    adaptive_design_next_window,
    adaptive_design_window_moment,
)
from meanstream.operators.estimators.adaptive.adaptive_scale import (
    BIAS_SHARE,
    RATIO,
    Scale,
    fit_scale,
    nearest_scale,
    scale_bin,
    scale_half_normal_shares,
    scale_halving_edges,
    scale_vote_edges,
    scale_votes,
)
from meanstream.operators.records import Floats
from meanstream.operators.rounds.binomial import binomial_probability
from meanstream.operators.rounds.user_sizes import SizeDistribution

NODES = ((-math.sqrt(3.0), 1.0 / 6.0), (0.0, 2.0 / 3.0), (math.sqrt(3.0), 1.0 / 6.0))
MAX_SIZES = 48
MAX_SAMPLES = 4000


@dataclass(frozen=True, slots=True)
class PlacedLaw:
    """A law of users' means around the population's mean.

    Attributes
    ----------
    deviation, weight : float array (k,)
        Points on [-2, 2] of mean 0, and their probabilities.
    mean : float
        The population's mean, in [-1, 1].
    """

    deviation: Floats
    weight: Floats
    mean: float = 0.0

    @property
    def variance(self) -> float:
        """Variance of users' means, their samples' noise included."""
        return float(np.sum(self.weight * self.deviation**2))

    @classmethod
    def of(cls, means: Floats) -> PlacedLaw:
        """Make the law of a sample of users' means."""
        mean = float(np.mean(means))
        return cls(
            np.asarray(means, dtype=np.float64) - mean, np.full(len(means), 1.0 / len(means)), mean
        )

    @classmethod
    def normal(cls, standard: float) -> PlacedLaw:
        """Make a normal law of this standard deviation."""
        points = ndtri((np.arange(200) + 0.5) / 200)
        return cls(
            standard * points / math.sqrt(float(np.mean(points**2))), np.full(200, 1.0 / 200)
        )

    @classmethod
    def alike(cls, sizes: SizeDistribution, mean: float = 0.0) -> PlacedLaw:
        """Make the law of users who are alike and whose samples are -1 or 1.

        The widest that sampling can make.
        """
        size, probability = _few_sizes(sizes)
        deviation = []
        weight = []
        for m, p in zip(size, probability, strict=True):
            ones = np.arange(m + 1)
            mass = binomial_probability(ones, m, 0.5 * (1.0 + mean))
            kept = mass > 1e-12
            deviation.append(2.0 * ones[kept] / m - 1.0 - mean)
            weight.append(p * mass[kept] / mass[kept].sum())

        return cls(np.concatenate(deviation), np.concatenate(weight), mean)


@dataclass(frozen=True, slots=True)
class _Part:
    """Reports of one stage: bias of their mean, and its variance."""

    bias: float
    variance: float


def adaptive_risk(plan: AdaptivePlan, law: PlacedLaw) -> float:
    """Mean squared error of the answer on [-1, 1] when users' means follow this law.

    Examples
    --------
    >>> from meanstream.operators.rounds.base import Settings
    >>> settings = Settings(method="adaptive", epsilon=1.0, users=20_000, sizes=None, mode="tuned", level=0.95)
    >>> plan = AdaptivePlan(settings, (0.15, 0.05, 0.25, 0.05, 0.5))
    >>> risk = adaptive_risk(plan, PlacedLaw.normal(0.06))
    >>> bool(risk < 0.25 * adaptive_one_shot_risk(plan, PlacedLaw.normal(0.06)))
    True
    """
    if len(plan.shares) == 1:
        return adaptive_one_shot_risk(plan, law)
    count = plan.settings.users * np.asarray(plan.shares)
    start = _part(plan, law, EVERYTHING, plan.start_moment, count[0])
    stderr = math.sqrt(start.variance)
    risk = 0.0

    for node, p in NODES:
        for scale, q in _scales(
            plan, law, node * stderr, scale_vote_edges(TOP_EDGE, stderr), count[1]
        ):
            risk += p * q * _after_vote(plan, law, replace(start, bias=node * stderr), scale)

    return risk


def adaptive_one_shot_risk(plan: AdaptivePlan, law: PlacedLaw) -> float:
    """Mean squared error if every user sends one report on [-1, 1], through a channel that fits any values."""
    return _part(plan, law, EVERYTHING, plan.start_moment, plan.settings.users).variance


def _after_vote(plan: AdaptivePlan, law: PlacedLaw, start: _Part, scale: Scale) -> float:
    """Risk if the first center is off by `start.bias` and the first votes tell this scale."""
    count = plan.settings.users * np.asarray(plan.shares)
    unbiased = replace(start, bias=0.0)
    stderr = math.sqrt(start.variance)
    center = law.mean + start.bias
    known = AdaptiveFound(n_users=0, center=center, center_stderr=stderr)
    found = adaptive_design_next_window(plan, scale, known, 1)

    if found["mode"] == "wide":
        return _mse(
            [unbiased, _part(plan, law, EVERYTHING, found["moment"], float(sum(count[2:])))]
        )

    half_width = found["window"][1]
    narrow = _part(plan, law, (center, half_width), found["moment"], count[2])
    both = _merge([start, narrow])
    risk = 0.0
    spread = math.sqrt(both.variance)

    for node, p in NODES:
        place = both.bias + node * spread
        for second, q in _scales(
            plan, law, place, scale_vote_edges(half_width / 2.0, spread), count[3]
        ):
            window = (law.mean + place, min(plan.window(second, spread, 3), half_width))
            risk += (
                p
                * q
                * _mse(
                    [
                        unbiased,
                        narrow,
                        _part(plan, law, window, adaptive_design_window_moment(*window), count[4]),
                    ]
                )
            )

    return risk


def _scales(
    plan: AdaptivePlan, law: PlacedLaw, center: float, edges: Floats, voters: float
) -> Iterator[tuple[Scale, float]]:
    """Scales that votes around a center may tell, with their probabilities."""
    row = scale_bin(np.abs(law.deviation - center), edges)
    shares = np.bincount(row, law.weight, minlength=len(edges) + 1).astype(np.float64)
    variance = scale_votes(plan.settings.epsilon, len(shares)).share_variance(shares, voters)
    found = fit_scale(shares, edges, variance)

    for node, p in NODES:
        yield replace(found, value=found.value * math.exp(node * found.log_stderr)), p


def _part(
    plan: AdaptivePlan, law: PlacedLaw, window: tuple[float, float], moment: float, count: float
) -> _Part:
    """Follow the reports of that many users in a window that is not yet cut to [-1, 1]."""
    center, half_width = adaptive_design_cut_window(*window)
    position = np.clip((law.mean + law.deviation - center) / half_width, -1.0, 1.0)
    mean = float(np.sum(law.weight * position))
    c0, c1 = plan.channel(moment).moments
    variance = half_width**2 * (c0 + c1 * float(np.sum(law.weight * position**2)) - mean**2) / count

    return _Part(center + half_width * mean - law.mean, variance)


def _merge(parts: list[_Part]) -> _Part:
    weight = np.array([1.0 / part.variance for part in parts])
    bias = float(np.sum(weight * [part.bias for part in parts]) / weight.sum())
    return _Part(bias, float(1.0 / weight.sum()))


def _mse(parts: list[_Part]) -> float:
    merged = _merge(parts)
    return merged.bias**2 + merged.variance


def adaptive_risk_size_factor(sizes: SizeDistribution, noise: float) -> float:
    """How many scales a window must reach because some users have few samples, hence means far out.

    Parameters
    ----------
    sizes : SizeDistribution
    noise : float
        Standard error of the mean of the reports in a window of half-width 1.

    Notes
    -----
    For values of two points with mean 0, .6 or .8 of their half-range: the window, in the scale that votes would tell,
    at which the clip bias is a fifth of the standard error. It depends on the law of sizes, not on the values' range.
    """
    factor = 0.0
    for mean in (0.0, 0.6, 0.8):
        law = PlacedLaw.alike(sizes, mean)
        edges = scale_halving_edges(2.0, 2.0 / RATIO**16)
        row = scale_bin(np.abs(law.deviation), edges)
        scale = nearest_scale(
            np.bincount(row, law.weight, minlength=len(edges) + 1).astype(np.float64), edges
        )

        reach = np.geomspace(1.0, 40.0, 120)
        cut = np.clip(law.deviation[None, :], -reach[:, None] * scale, reach[:, None] * scale)
        enough = np.abs(cut @ law.weight) <= BIAS_SHARE * reach * scale * noise
        # From the first window beyond the last one that is too narrow.
        factor = max(
            factor, float(reach[min(int(np.flatnonzero(np.r_[True, ~enough])[-1]), len(reach) - 1)])
        )

    return factor


def adaptive_risk_vote_log_stderr(epsilon: float, voters: float) -> float:
    """Predicted standard error of a scale's logarithm from that many votes, for a scale amid six bins."""
    edges = scale_halving_edges(TOP_EDGE, TOP_EDGE / RATIO**4)
    shares = scale_half_normal_shares(edges, np.array([TOP_EDGE / RATIO**2.5]))[0]
    votes = scale_votes(epsilon, len(shares))
    return fit_scale(shares, edges, votes.share_variance(shares, voters)).log_stderr


def _few_sizes(sizes: SizeDistribution) -> tuple[list[int], Floats]:
    """At most 48 sizes that stand for all.

    Small ones as they are, the others in groups of equal probability.
    """
    size = np.minimum(sizes.support, MAX_SAMPLES)
    place = np.minimum(np.cumsum(sizes.probability) - 0.5 * sizes.probability, 1.0 - 1e-12)
    group = np.where(size <= 16, size, 17 + (place * (MAX_SIZES - 17)).astype(np.int64))
    _, first, index = np.unique(group, return_index=True, return_inverse=True)
    weight = np.bincount(index, sizes.probability)
    kept = weight > 0.0

    return [int(m) for m in size[first][kept]], weight[kept] / weight[kept].sum()
