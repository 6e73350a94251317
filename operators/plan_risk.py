"""What a window around a public center costs: bias and variance of clipped user means, without simulation.

A user of m samples has the mean xbar, shrinks its distance from the center by `a = sqrt(min(m, cap) / cap)` and clips it
to the window. The estimate is right on average up to the clip bias, which two-point laws make largest: they are what the
risk is computed for. Everything here is public; nothing sees data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom

from operators.records import Floats
from operators.sizes import SizeDistribution

MEANS = (0.0, 0.5, 0.85)
"""Means of the two-point laws on {-1, 1} over which the risk is a maximum."""

_EXACT = 10
"""Up to this size the binomial law is enumerated; above, the normal law with its skewness."""

_SMOOTH = 1e-9
"""Standard deviation that stands for an atom in the formulas of the normal law."""


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """Law of a user's mean around the population's mean: a mixture of (nearly) normal components.

    Attributes
    ----------
    size : float array (J,)
        Number of samples of the users of each component.
    offset, stddev, skewness : float array (J,)
        Center (relative to the population's mean), standard deviation and skewness of each component.
    weight : float array (J,)
        Share of the users; adds to 1.
    """

    size: Floats
    offset: Floats
    stddev: Floats
    skewness: Floats
    weight: Floats

    @property
    def second_moment(self) -> float:
        """Mean squared distance of users' means from the population's."""
        return float(self.weight @ (self.offset**2 + self.stddev**2))


def group_sizes(sizes: SizeDistribution, most: int = 20) -> tuple[Floats, Floats]:
    """Replace a size distribution by few sizes with the same mean square root in each group.

    Parameters
    ----------
    sizes : SizeDistribution
        Public.
    most : int
        Groups above `_EXACT`, evenly spaced in the logarithm of the size; sizes up to that stand alone.

    Returns
    -------
    size, probability : float arrays (J,)

    Examples
    --------
    >>> size, probability = group_sizes(SizeDistribution.parse("uniform:1,199"), most=4)
    >>> size[-4:].round(), probability[-4:].round(2)
    (array([ 19.,  37.,  74., 149.]), array([0.06, 0.12, 0.25, 0.5 ]))
    """
    support = np.asarray(sizes.support, dtype=np.float64)
    probability = np.asarray(sizes.probability, dtype=np.float64)
    if len(support) <= most:
        return support, probability
    low, high = max(support[0], _EXACT + 0.5), support[-1] * (1 + 1e-9)
    group = np.where(support <= _EXACT, support, 0.0)
    place = np.floor(most * np.log(np.maximum(support / low, 1.0)) / math.log(high / low))
    group = np.where(support <= _EXACT, group, _EXACT + 1 + np.minimum(place, most - 1))
    _, index = np.unique(group, return_inverse=True)
    share = np.bincount(index, probability)
    root = np.bincount(index, probability * np.sqrt(support))
    kept = share > 0
    return (root[kept] / share[kept]) ** 2, share[kept]


def laws_of(sizes: SizeDistribution, between_users: float) -> list[Law]:
    """Return the laws over which the risk is a maximum: two-point laws, no spread at all, and skewed user means.

    Parameters
    ----------
    sizes : SizeDistribution
        Public.
    between_users : float
        Declared bound on the standard deviation of users' own means, on [-1, 1]; 0 for users that are alike.
    """
    size, probability = group_sizes(sizes)
    laws = [_two_point(size, probability, theta, between_users) for theta in MEANS]
    alike = np.zeros_like(size)
    laws.append(Law(size, alike, np.full_like(size, max(between_users, _SMOOTH)), alike, probability))
    if between_users > 0:
        laws.append(_exponential(size, probability, between_users))
    return laws


def _two_point(size: Floats, probability: Floats, theta: float, between_users: float) -> Law:
    columns = []
    for m, share in zip(size, probability, strict=True):
        if m <= _EXACT and m == int(m):
            k = np.arange(int(m) + 1)
            weight = share * binom.pmf(k, int(m), 0.5 * (1 + theta))
            atom = np.full(len(k), max(between_users, _SMOOTH))
            columns.append([np.full(len(k), m), 2 * k / m - 1 - theta, atom, np.zeros(len(k)), weight])
        else:
            stddev = math.sqrt((1 - theta**2) / m + between_users**2)
            third = -2 * theta * (1 - theta**2) / m**2
            columns.append([np.array([x]) for x in (m, 0.0, stddev, third / stddev**3, share)])
    return Law(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def _exponential(size: Floats, probability: Floats, between_users: float, nodes: int = 12) -> Law:
    """Users' means spread as `between_users * (Exp(1) - 1)`: slices of equal probability, each with its own spread."""
    edge = -np.log1p(-np.arange(nodes) / nodes)
    # E[x; x > t] = (t + 1) exp(-t) and E[x^2; x > t] = (t^2 + 2 t + 2) exp(-t)
    first = -np.diff(np.append((edge + 1) * np.exp(-edge), 0.0)) * nodes
    second = -np.diff(np.append((edge**2 + 2 * edge + 2) * np.exp(-edge), 0.0)) * nodes
    offset, spread = between_users * (first - 1), between_users**2 * (second - first**2)
    m = np.repeat(size, nodes)
    return Law(
        m,
        np.tile(offset, len(size)),
        np.sqrt(1 / m + np.tile(spread, len(size))),
        np.zeros_like(m),
        np.repeat(probability, nodes) / nodes,
    )


def clip_moments(law: Law, cap: float, window: Floats, error: Floats) -> tuple[Floats, Floats]:
    """Mean and second moment of a clipped and shrunk distance from the center.

    Parameters
    ----------
    law : Law
        Of users' means.
    cap : float
        Size from which on users are not shrunk.
    window : float array (C,)
        Where distances are cut.
    error : float array (K,)
        Center minus the population's mean.

    Returns
    -------
    mean, second : float arrays (C, K)

    Notes
    -----
    Closed forms of the normal law; the mean has the Edgeworth term of the skewness, which is what skewed laws bias. The
    second moment only sets the noise's share that depends on the data, where the term is negligible.
    """
    shrink = np.sqrt(np.minimum(law.size, cap) / cap)
    stddev = shrink * law.stddev
    mu = shrink * (law.offset - error[:, None])
    w = window[:, None, None]
    low, high = (-w - mu) / stddev, (w - mu) / stddev
    below, upto = ndtr(low), ndtr(high)
    at_low, at_high = _density(low), _density(high)
    inside, edges = upto - below, at_low - at_high
    bend = low * at_low - high * at_high
    mean = w * (1 - upto - below) + mu * inside + stddev * (edges + law.skewness / 6 * bend)
    second = w**2 * (1 - inside) + (mu**2 + stddev**2) * inside + stddev * (2 * mu * edges + stddev * bend)
    return mean @ law.weight, second @ law.weight


def _density(z: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * z * z) * (1 / math.sqrt(2 * math.pi)))


@lru_cache(maxsize=1)
def normal_nodes() -> tuple[Floats, Floats]:
    """Return nodes and weights for averages over a standard normal error of the center."""
    node, weight = np.polynomial.hermite_e.hermegauss(7)
    return node, weight / weight.sum()


def uniform_nodes(half: float) -> tuple[Floats, Floats]:
    """Return nodes and weights for averages over an error spread evenly over `[-half, half]`."""
    node, weight = np.polynomial.legendre.leggauss(7)
    return half * node, weight / 2


@dataclass(frozen=True, slots=True, eq=False)
class WindowEffect:
    """What clip stages do, for C windows and L laws.

    Attributes
    ----------
    variance : float array (L, C)
        Variance of the estimate from one report.
    bias_squared : float array (L, C)
        Squared bias, averaged over the error of the center.
    gain : float array (C,)
        kappa, by which the mean report is divided: halfway between no clipping and the steepest clipping.
    second_moment : float array (C,)
        Largest mean square of what is sent, relative to the window; it decides the channel.
    near : float array (C, K)
        Size of the mean report for each error of the center.
    skew_bias : float array (C,)
        Largest bias at a perfect center: of skewed laws, which no average removes.
    far : float array (C,)
        Size of the mean report when the center is off by `far_error`.
    """

    variance: Floats
    bias_squared: Floats
    gain: Floats
    second_moment: Floats
    skew_bias: Floats
    near: Floats
    far: Floats


def window_effect(
    laws: Sequence[Law],
    moments: Sequence[tuple[float, float]],
    cap: float,
    shrunk: float,
    window: Floats,
    error: tuple[Floats, Floats],
    far_error: float = 0.0,
) -> WindowEffect:
    """Compute bias and variance of a clip stage for several windows.

    Parameters
    ----------
    laws : sequence of Law
        Of users' means.
    moments : sequence of (float, float)
        `(c0, c1)` of each channel: second moment of a report is `c0 + c1 g^2`.
    cap : float
        Size from which on users are not shrunk (the papers' m~).
    shrunk : float
        A, the mean over users of the shrinkage.
    window : float array (C,)
        Half-widths.
    error : tuple of float arrays (K,)
        Nodes and weights of the error of the center; the middle node is 0.
    far_error : float
        An error of the center that must be told apart from the others.
    """
    node, weight = error
    places = np.append(node, far_error)
    found = [clip_moments(law, cap, window, places) for law in laws]
    mean = np.stack([m for m, _ in found])
    second = np.stack([s for _, s in found])[..., :-1] @ weight / window**2
    size, mean = np.abs(mean) / window[:, None], mean[..., :-1]
    slope = -(mean @ (weight * node)) / (weight @ node**2 * shrunk)
    gain = np.clip(0.5 * (1 + slope.min(axis=0)), 0.05, 1.0)
    off = node + mean / (shrunk * gain)[:, None]
    sent = np.min([c0 + c1 * second for c0, c1 in moments], axis=0)
    unit = (window / (shrunk * gain)) ** 2
    return WindowEffect(
        variance=unit * (sent - (mean**2 @ weight) / window**2),
        bias_squared=off**2 @ weight,
        gain=gain,
        second_moment=second.max(axis=0),
        skew_bias=np.abs(off[..., len(node) // 2]).max(axis=0),
        near=size[..., :-1].max(axis=0),
        far=size[..., -1].min(axis=0),
    )


def vote_failure(epsilon: float, voters: float, bins: int, inside: float) -> float:
    """Bound the probability that a pair of bins far from the population's mean wins a one-hot SUE vote.

    Parameters
    ----------
    epsilon : float
        Of one vote.
    voters : float
        Users asked.
    bins : int
        Number of bins.
    inside : float
        Share of the users who vote for the right pair.

    Notes
    -----
    A union bound over pairs that share no bin with the right one, each by the normal law of the difference of two sums
    of two bins.
    """
    keep = 1 / (1 + math.exp(-0.5 * epsilon))
    gap = (2 * keep - 1) * inside
    variance = 4 * keep * (1 - keep) + gap * ((2 * keep - 1) - gap)
    return min(1.0, max(bins - 4, 0) * float(ndtr(-math.sqrt(voters / variance) * gap)))
