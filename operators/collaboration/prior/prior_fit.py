"""Fits normal mixtures of common spread to released means, of every spread and size that the releases support.

Everything here reads releases only, so it is post-processing: it spends nothing and its results are
public.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meanstream.operators.collaboration.prior.prior_points import Moments, Points
from meanstream.operators.records import Bools, Floats

CANDIDATES = 256
CANDIDATES_PER_STDDEV = 8
FORWARD_STEPS = 6
FORWARD_EM = 12
BACKWARD_EM = 8
CONVERGED = 0.01
LEAST_GAIN = 0.25
"""Peaks that together gain less than this part of what one component costs are noise: no more are
added."""
HOPELESS = 20.0
"""A model this far below the best, in log probability, has no weight."""
MANY = 10_000
"""Agents among whom three spreads that cannot compete, one after the other, end the search; among
ten times as many two do."""
RAREST = 60.0
"""Logarithm of how many times likelier another component makes a release, at most: more of it than
32 bits hold."""
_ZOOMS = 3
_ZOOM_POINTS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalMixture:
    """Public: a mixture of normals fitted to releases.

    Attributes
    ----------
    spread : float
        Standard deviation of each component (0: exact classes).
    weight, center, center_variance : float array, shape (n_components,)
        Share and mean of each component, and the variance with which that mean is known.
    log_likelihood : float
    """

    spread: float
    weight: Floats
    center: Floats
    center_variance: Floats
    log_likelihood: float

    @property
    def variance(self) -> Floats:
        """Variance of a mean within each component, and of its center."""
        return self.spread**2 + self.center_variance

    @property
    def size(self) -> int:
        """Number of components."""
        return len(self.weight)


def fit_prior_mixtures(
    points: Points, spreads: Floats, *, lower: float, upper: float, max_components: int = 40
) -> list[NormalMixture]:
    """Fit mixtures of every useful size for each spread.

    Parameters
    ----------
    points : Points
        Released means, binned or one by one.
    spreads : float array
        Spreads to try.
    lower, upper : float
        Declared bounds: noise carries releases beyond them, no mean lies there, and so no center.
    max_components : int
        More classes than this are described by a density, not one by one.

    Notes
    -----
    For each spread, components are added at all peaks of the directional derivative
    `mean_b N(T_b; mu, V_b + tau^2) / f(T_b)` until none promises more than it costs; then the closest two are merged
    again and again. EM polishes every size. Growing in leaps and shrinking one by one finds the classes that adding
    one by one misses.
    """
    mixtures: list[NormalMixture] = []
    best = -np.inf
    hopeless = 0
    log_total = float(np.log(points.total))

    for spread in np.sort(spreads)[::-1]:
        em = _Em(points.coarser(float(spread)), float(spread), (lower, upper))
        row = list(_shrink(em, *_grow(em, max_components), best))
        mixtures += row
        of_row = max(m.log_likelihood - (m.size - 0.5) * log_total for m in row)
        best = max(best, of_row)
        # Narrower components can stand for wider ones, but only many of them can: a spread at which
        # this many do not fit any more leaves nothing to the narrower spreads. Among many agents
        # finer classes would have shown before.
        many = em.total >= MANY
        hopeless = (
            hopeless + 1
            if (of_row if many else row[0].log_likelihood - 0.5 * log_total) < best - HOPELESS
            else 0
        )

        if hopeless >= (2 if em.total >= 10 * MANY else 3) and (
            many or row[0].size > max_components // 2
        ):
            break

    return mixtures


def prior_fit_best_spread(points: Points, spreads: Floats) -> float:
    """Give the spread at which one normal component is likeliest, from positive spreads in increasing order.

    Examples
    --------
    >>> mean = np.random.default_rng(0).normal(0, 0.25, 10_000)
    >>> points = Points(mean=mean, variance=np.full(10_000, 0.01), weight=np.ones(10_000))
    >>> round(prior_fit_best_spread(points, np.geomspace(0.01, 1, 8)), 2)  # 0.25**2 = 0.23**2 + 0.01
    0.23
    """
    moments = points.moments()
    for _ in range(_ZOOMS):
        at = int(np.argmax(_log_likelihoods_of_one(moments, spreads)))
        spreads = np.geomspace(
            spreads[max(at - 1, 0)], spreads[min(at + 1, len(spreads) - 1)], _ZOOM_POINTS
        )

    return float(spreads[_ZOOM_POINTS // 2])


def _log_likelihoods_of_one(moments: Moments, spreads: Floats) -> Floats:
    """Of one normal component of each spread.

    All that it reads of releases are moments of groups of like variance.
    """
    precision = 1 / (moments.variance + spreads[:, None] ** 2)
    share = moments.number * precision
    center = (share * moments.mean).sum(axis=1) / share.sum(axis=1)
    squares = moments.squares + moments.number * (moments.mean - center[:, None]) ** 2

    return np.asarray(
        0.5 * (moments.number * np.log(precision) - precision * squares).sum(axis=1),
        dtype=np.float64,
    )


class _Em:
    """EM over the points for one spread; arrays are (component, point)."""

    def __init__(self, points: Points, spread: float, bounds: tuple[float, float]) -> None:
        self.points = points
        self.spread = spread
        self.total = points.total
        self.bounds = bounds
        self.precision = 1.0 / (points.variance + spread**2)
        self.falls = -0.5 * self.precision
        self.log_norm = 0.5 * np.log(self.precision / (2 * np.pi))
        information = points.weight * self.precision
        self.columns = np.stack([points.weight, information, information * points.mean])

    def joint(self, weight: Floats, center: Floats) -> tuple[Floats, Floats, Floats]:
        """Component densities times weights, scaled per point, their sum, and the log density of every point."""
        exponent = self.points.mean - center[:, None]
        np.square(exponent, out=exponent)
        exponent *= self.falls
        exponent += np.log(weight)[:, None]
        top = np.maximum.reduce(exponent, axis=0)
        exponent -= top
        joint = np.exp(exponent, out=exponent)
        total = np.add.reduce(joint, axis=0)

        return joint, total, np.log(total) + top + self.log_norm

    def kernel(self, candidates: Floats) -> tuple[Floats, Floats]:
        """Densities of the points for each candidate, relative to the likeliest one of the point, and that one's log.

        They decide where components are added, and EM where these end: seven digits are enough.
        Sums over them are of 64 bits: OpenBLAS's product of 32 bits has warned of invalid values in
        one process of many with the same input.
        """
        exponent = (self.points.mean - candidates[:, None]).astype(np.float32)
        np.square(exponent, out=exponent)
        exponent *= self.falls.astype(np.float32)
        top = exponent.max(axis=0)
        exponent -= top

        return np.exp(exponent, out=exponent).astype(np.float64), top + self.log_norm

    def run(self, weight: Floats, center: Floats, steps: int) -> NormalMixture:
        """Take EM steps until the log-likelihood stands still.

        Components that lost all points are dropped.
        """
        points = self.points
        before = -np.inf
        low, high = self.bounds
        for _ in range(steps):
            joint, total, log_density = self.joint(weight, center)
            share = joint @ (self.columns / total).T
            used = share[:, 0] > 1e-9 * self.total
            weight, information, moment = share[used].T
            # The likelihood of a center is a parabola: at its most within bounds where it is
            # clipped to them.
            center = np.minimum(np.maximum(moment / information, low), high)
            weight, variance = weight / self.total, 1 / information
            log_likelihood = float(log_density @ points.weight)

            if log_likelihood - before < CONVERGED:
                break
            before = log_likelihood

        order = np.argsort(center)
        return NormalMixture(
            spread=self.spread,
            weight=weight[order],
            center=center[order],
            center_variance=variance[order],
            log_likelihood=log_likelihood,
        )


def _grow(em: _Em, max_components: int) -> tuple[Floats, Floats]:
    """Add components at all peaks of the directional derivative until no peak can pay for itself."""
    points = em.points
    candidates = _candidates(np.clip(points.mean, *em.bounds), 1 / np.sqrt(em.precision.max()))
    kernel, log_most = em.kernel(candidates)
    share = em.precision * points.weight
    weight = np.ones(1)
    center = np.clip([share @ points.mean / share.sum()], *em.bounds)
    # The log-likelihood is concave in the mixing distribution: a peak of height D gains at most M
    # (D - 1).
    worthwhile = 1 + np.log(points.total + 1) / points.total
    least = LEAST_GAIN * np.log(points.total)
    before = -np.inf

    for _ in range(FORWARD_STEPS):
        fitted = em.run(weight, center, FORWARD_EM)
        weight = fitted.weight
        center = fitted.center

        if len(weight) == max_components or fitted.log_likelihood - before < least:
            break
        before = fitted.log_likelihood
        rarity = np.minimum(log_most - em.joint(weight, center)[2], RAREST)
        derivative = kernel @ (points.weight * np.exp(rarity)) / points.total
        peaks = np.flatnonzero(_is_peak(derivative) & (derivative > worthwhile))
        peaks = peaks[np.argsort(-derivative[peaks])][: max_components - len(weight)]

        if len(peaks) == 0:
            break
        n = len(peaks) + len(weight)
        weight = np.concatenate([weight * (1 - len(peaks) / n), np.full(len(peaks), 1 / n)])
        center = np.concatenate([center, candidates[peaks]])

    return weight, center


def _candidates(mean: Floats, stddev: float) -> Floats:
    """Give released means no closer than components of this standard deviation can be distinguished."""
    distinct = np.unique(mean)
    step = max(stddev / CANDIDATES_PER_STDDEV, (distinct[-1] - distinct[0]) / CANDIDATES)
    place = np.floor((distinct - distinct[0]) / step)
    return np.asarray(distinct[np.diff(place, prepend=-1.0) > 0], dtype=np.float64)


def _is_peak(values: Floats) -> Bools:
    peak = np.ones(len(values), np.bool_)
    peak[1:] = values[1:] > values[:-1]
    peak[:-1] &= values[:-1] >= values[1:]
    return peak


def _shrink(em: _Em, weight: Floats, center: Floats, best: float) -> Iterator[NormalMixture]:
    """Polish and record every size, merging the closest pair in between.

    Stop where no smaller one can compete.
    """
    log_total = float(np.log(em.total))
    highest = -np.inf
    while True:
        fitted = em.run(weight, center, BACKWARD_EM)
        yield fitted
        highest = max(highest, fitted.log_likelihood)
        best = max(best, fitted.log_likelihood - (fitted.size - 0.5) * log_total)

        # A smaller mixture fits no better, and its penalty is at least that of one component.
        if fitted.size == 1 or fitted.log_likelihood - 0.5 * log_total < best - HOPELESS:
            return
        weight, center = _merge_closest(fitted.weight, fitted.center)
        # Sizes that could not compete if they fitted as well as the largest are passed over.
        while len(weight) > 1 and highest - (len(weight) - 0.5) * log_total < best - HOPELESS:
            weight, center = _merge_closest(weight, center)


def _merge_closest(weight: Floats, center: Floats) -> tuple[Floats, Floats]:
    """Merge the two neighbors whose merger moves the least weight the least far (Ward's criterion)."""
    pair = weight[:-1] + weight[1:]
    i = int(np.argmin(weight[:-1] * weight[1:] / pair * np.diff(center) ** 2))
    merged = (weight[i] * center[i] + weight[i + 1] * center[i + 1]) / pair[i]
    return (
        np.concatenate([weight[:i], [pair[i]], weight[i + 2 :]]),
        np.concatenate([center[:i], [merged], center[i + 2 :]]),
    )
