"""The exact law of a released mean: normal sampling, and noise of a staircase, Laplace or normal.

Everything here reads releases only, so it is post-processing: it spends nothing and its results are
public.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr, roots_genlaguerre

from meanstream.operators.noise.distributions import STEPS_OF_EPSILON
from meanstream.operators.records import Bools, Floats, Ints

NORMAL_TERMS = 5
"""A sum of that many Laplace draws is taken for normal: its kurtosis exceeds a normal one's by
3/5."""
SMALL_NOISE = 0.02
"""Noise of a smaller share of the whole variance has no shape that shows: it is taken for
normal."""
NODES = 8
_EDGES = 1024
_NEGLIGIBLE_STEP = 30.0
_LEAST_DENSITY = 1e-280
_FLAT = 10.0
"""Standard deviations within an end: what a normal law has beyond these is lost in rounding."""
_PARTS = 1 << 15
"""Parts of staircases that are computed together."""
_LOG_TWO_PI = float(np.log(2 * np.pi))


class ReleaseLaw(NamedTuple):
    """Logarithm of the density of releases, its derivative, and the negative of its second one."""

    log_density: Floats
    score: Floats
    curvature: Floats


def release_law(away: Floats, variance: Floats, noise_variance: Floats, terms: Ints) -> ReleaseLaw:
    """Evaluate the law of `N(0, variance)` plus noise.

    Parameters
    ----------
    away : float array, shape (..., n)
        Releases less their center.
    variance : float array, shape (..., n) or (n,)
        Of what is normal: of the means, and of the samples.
    noise_variance : float array, shape (n,)
        Variance of the privacy noise.
    terms : int array, shape (n,)
        Laplace draws of equal scale in the noise; 0 where it is normal; of one staircase
        its number (`StaircaseNoise.law`).

    Notes
    -----
    One draw of scale b and a normal variable of standard deviation s have the density
    `(exp g(x) + exp g(-x)) / 2b` with `g(x) = x / b + (s/b)^2 / 2 + log Phi(-(x/s + s/b))`. The derivatives follow from
    `f'/f = tanh((g(x) - g(-x)) / 2) / b` and `f'' = (f - N(x; 0, s^2)) / b^2`. A sum of two to four draws is normal
    with a variance of `2 b^2` times a Gamma variable: that is averaged by Gauss and Laguerre's rule.

    A staircase is a mixture of uniform laws about 0; with a normal variable each has a difference
    of two normal distribution functions as its density.

    Examples
    --------
    >>> x, one = np.array([0.0, 3.0]), np.ones(2)
    >>> law = release_law(x, one, 2 * one, np.array([1, 0]))
    >>> law.log_density.round(3).tolist(), law.score.round(3).tolist()
    ([-1.341, -2.968], [0.0, -1.0])
    """
    variance = np.broadcast_to(variance, away.shape)
    total = variance + noise_variance
    law = ReleaseLaw(
        -0.5 * (away * away / total + np.log(total) + _LOG_TWO_PI), -away / total, 1 / total
    )

    shaped = is_shaped(noise_variance, terms)
    for number in np.unique(terms[shaped]).tolist():
        of_number = shaped & (terms == number)
        some = np.broadcast_to(of_number, away.shape) & (noise_variance > SMALL_NOISE * total)
        noise = np.broadcast_to(noise_variance, away.shape)[some]
        exact = _shaped_law(number)(away[some], variance[some], noise, number)

        for column, values in zip(law, exact, strict=True):
            column[some] = values

    return law


def _shaped_law(number: int) -> Callable[[Floats, Floats, Floats, int], ReleaseLaw]:
    if number < 0:
        return _one_staircase
    if number == 1:
        return _one_draw
    return _few_draws


def _one_draw(away: Floats, variance: Floats, noise: Floats, _number: int) -> ReleaseLaw:
    stddev = np.sqrt(variance)
    scale = np.sqrt(noise / 2)
    ratio = stddev / scale
    standard = away / stddev
    above = away / scale + 0.5 * ratio * ratio + log_ndtr(-(standard + ratio))
    below = -away / scale + 0.5 * ratio * ratio + log_ndtr(standard - ratio)

    log_density = np.logaddexp(above, below) - np.log(2 * scale)
    score = np.tanh(0.5 * (above - below)) / scale
    normal = np.exp(-0.5 * (standard * standard + _LOG_TWO_PI) - np.log(stddev) - log_density)

    return ReleaseLaw(log_density, score, score * score - (1 - normal) / scale**2)


def _one_staircase(away: Floats, variance: Floats, noise: Floats, number: int) -> ReleaseLaw:
    staircase = _staircase(-number / STEPS_OF_EPSILON)
    sums = np.empty((3, len(away)))

    # Some releases at a time, so that all their parts stay in the cache.
    together = max(_PARTS // len(staircase[0]), 1)
    for first in range(0, len(away), together):
        some = slice(first, first + together)
        sums[:, some] = _sums_of_parts(away[some], variance[some], noise[some], staircase)

    density = np.maximum(sums[0], _LEAST_DENSITY)
    score = sums[1] / density
    return ReleaseLaw(np.log(density), score, score * score - sums[2] / density)


def _sums_of_parts(
    away: Floats, variance: Floats, noise: Floats, staircase: tuple[Floats, Floats, float]
) -> tuple[Floats, Floats, Floats]:
    """Add up what uniform laws give to the density of each release, and to its two derivatives."""
    share, reach, unit_variance = staircase
    stddev = np.sqrt(variance)
    n = len(away)

    # A uniform law on [-r, r] and a normal one: the difference of Phi at both ends, over 2 r.
    radius = np.multiply.outer(reach, np.sqrt(noise / unit_variance))
    density = share[:, None] / (2 * radius)

    # Far within [-r, r] that difference is 1, and flat, in every digit that is kept.
    near_an_end = np.flatnonzero(radius < np.abs(away) + _FLAT * stddev)
    release = near_an_end % n
    height = density.take(near_an_end)
    end = radius.take(near_an_end)
    distance = away.take(release)
    deviation = stddev.take(release)

    above = (distance + end) / deviation
    below = (distance - end) / deviation
    between, first, second = _between(above, below)

    density.put(near_an_end, height * between)
    slope = height * first / deviation
    bend = height * second / variance.take(release)

    return (
        np.add.reduce(density, axis=0),
        np.asarray(np.bincount(release, slope, n), np.float64),
        np.asarray(np.bincount(release, bend, n), np.float64),
    )


def _between(above: Floats, below: Floats) -> tuple[Floats, Floats, Floats]:
    """Give Phi(above) - Phi(below) and its first two derivatives."""
    # By symmetry in the lower tail, where the difference loses no digits.
    between = ndtr(np.minimum(above, -below)) - ndtr(np.minimum(below, -above))
    at_above = np.exp(-0.5 * (above * above + _LOG_TWO_PI))
    at_below = np.exp(-0.5 * (below * below + _LOG_TWO_PI))
    return between, at_above - at_below, below * at_below - above * at_above


@cache
def _staircase(epsilon: float) -> tuple[Floats, Floats, float]:
    """Shares and ends of the uniform laws that make a staircase of sensitivity 1, and its variance.

    Its density falls by exp(-epsilon) at `edge`, `edge + 1`, ... on either side: the uniform law up
    to each of these has the share of what falls there (Geng, Viswanath 2014). The edge is that of
    least variance, as `StaircaseNoise` has it.
    """
    edge = np.arange(1, _EDGES + 1) / _EDGES
    step = np.arange(int(np.ceil(_NEGLIGIBLE_STEP / epsilon)) + 1)
    reach = np.add.outer(edge, step)
    share = reach * np.exp(-epsilon * step)
    share /= share.sum(axis=1, keepdims=True)

    variance = (share * reach**2).sum(axis=1) / 3
    best = int(np.argmin(variance))
    return share[best], reach[best], float(variance[best])


def _few_draws(away: Floats, variance: Floats, noise: Floats, number: int) -> ReleaseLaw:
    node, weight = _gamma_nodes(number)
    total = variance + noise / number * node[:, None]
    square = away * away / total
    log_part = np.log(weight)[:, None] - 0.5 * (square + np.log(total) + _LOG_TWO_PI)
    top = log_part.max(axis=0)
    share = np.exp(log_part - top)
    sum_of_shares = share.sum(axis=0)
    share /= sum_of_shares

    score = -(share * away / total).sum(axis=0)
    second = (share * (square - 1) / total).sum(axis=0)
    return ReleaseLaw(top + np.log(sum_of_shares), score, score * score - second)


@cache
def _gamma_nodes(number: int) -> tuple[Floats, Floats]:
    """Nodes and weights of the Gamma law of that shape; `number` times their mean is the noise's variance."""
    node, weight = roots_genlaguerre(NODES, number - 1)
    return np.asarray(node), (weight / weight.sum())


def is_shaped(noise_variance: Floats, terms: Ints) -> Bools:
    """Tell which releases have noise whose law is not normal."""
    return np.asarray((terms != 0) & (terms < NORMAL_TERMS) & (noise_variance > 0))
