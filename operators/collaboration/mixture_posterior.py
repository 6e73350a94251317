"""Bayes' rule for a normal mixture as prior, and intervals that cover those too who are far from the crowd."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from meanstream.operators.collaboration.alone import half_width_alone
from meanstream.operators.records import Floats

Floats32 = NDArray[np.float32]
FAR = 2.84
NEARER = 1.15
"""Half-widths, in posterior standard deviations, that cover nine in ten of the farthest 5 %:
`FAR - NEARER r^2.5`."""
FAR_SHARE = 0.7
FAR_FALL = 1.5
"""How far intervals go from the normal half-width to that one, where an answer keeps nothing of its
own mean: eight in ten of the farthest are covered there. It falls with this power of what is not
kept; own means that are kept say themselves whether they are far."""
CONTRADICTED = (0.3, 1.2)
"""From where to where an own mean contradicts the prior, in predicted standard deviations,"""
BELIEVED = 0.3
LATER = 0.75
"""and where an answer keeps less of it than the square of the first, by how much later: exact
classes stay exact."""
_ELEMENTS = 1 << 16
"""Agents times components at a time: they stay in the cache."""
_LEAST = 1e-12
_CERTAIN = 1e-18
_UNKNOWN = 1e4
"""Variances of own means in squared widths: no less, or something is divided by 0; and no more, see
`bounded_means`."""
_NOMINAL = float(ndtri(0.975))


@dataclass(frozen=True, slots=True, kw_only=True)
class MixturePrior:
    """Public: normal components of a prior of means.

    Attributes
    ----------
    weight, cautious : float array, shape (n_components,)
        Weights for the value, and for the interval. Not normalized.
    center, variance : float array, shape (n_components,)
    is_class : float array, shape (n_components,)
        1 for a component of several, 0 for what describes everyone.
    width : float
        Of the declared bounds.
    """

    weight: Floats
    cautious: Floats
    center: Floats
    variance: Floats
    is_class: Floats
    width: float


def bounded_means(
    mean: Floats, variance: Floats, *, lower: float, upper: float
) -> tuple[Floats, Floats]:
    """Give means and variances that are finite and positive, and that say the same of a mean within the bounds.

    Notes
    -----
    A noisy release may have any variance, also far more than the squared width; infinite is not known at all. Of a mean
    between the bounds, `N(m, v)` says `m / v` and `1 / v`. Where v is more than 10,000 squared widths, both are
    kept as they are, but for a curvature that changes no likelihood by more than 1 in 10,000.

    Examples
    --------
    >>> mean, variance = np.array([2.0, 901.0, 7.0]), np.array([0.0, 2e4, np.inf])
    >>> mean, variance = bounded_means(mean, variance, lower=0.0, upper=2.0)
    >>> mean.tolist(), variance.tolist()
    ([2.0, 901.0, 1.0], [4e-18, 20000.0, 40000.0])
    """
    width = upper - lower
    middle = (lower + upper) / 2
    usable = np.clip(variance, _CERTAIN * width**2, _UNKNOWN * width**2)
    return np.where(
        variance > usable, middle + (mean - middle) * (usable / np.maximum(variance, usable)), mean
    ), usable


def mixture_posterior(
    prior: MixturePrior, mean: Floats, variance: Floats, outside: Floats
) -> tuple[Floats, Floats]:
    """Posterior mean, and posterior variance under the cautious weights around it, given own means.

    Parameters
    ----------
    prior : MixturePrior
    mean, variance : float array, shape (n,)
        Own means and their variances, as `bounded_means` gives them.
    outside : float array, shape (n,)
        What an agent's own samples vary by more than those of members of a class: it may be that
        far from a center.

    Notes
    -----
    How far a mean is from each center is taken in 64 bits, what follows in 32: an answer and its standard error are off
    by at most 1e-5 of the own standard error, and are the same bits among whatever others.

    Examples
    --------
    >>> one, no = np.ones(1), np.zeros(1)
    >>> prior = MixturePrior(weight=one, cautious=one, center=no, variance=one, is_class=one, width=4.0)
    >>> mixture_posterior(prior, np.array([2.0]), one, no)
    (array([1.]), array([0.5]))
    """
    value = np.empty(len(mean))
    posterior = np.empty(len(mean))
    for part in _blocks(prior, len(mean)):
        value[part], posterior[part] = _posterior(prior, mean[part], variance[part], outside[part])

    return value, posterior


def mixture_mean(prior: MixturePrior, mean: Floats, variance: Floats, outside: Floats) -> Floats:
    """Posterior mean alone, the same to the last bit as that of `mixture_posterior`, for half of the work.

    Examples
    --------
    >>> one, no = np.ones(1), np.zeros(1)
    >>> prior = MixturePrior(weight=one, cautious=one, center=no, variance=one, is_class=one, width=4.0)
    >>> mixture_mean(prior, np.array([2.0]), one, no)
    array([1.])
    """
    value = np.empty(len(mean))
    weight = _relative(prior, prior.weight)
    for part in _blocks(prior, len(mean)):
        n = part.stop - part.start
        drawn, density, _, _ = _drawn(prior, mean[part], variance[part], outside[part])
        drawn *= density
        away = mixture_sum(weight, drawn) / mixture_sum(weight, density)
        value[part] = mean[part] - prior.width * away.astype(np.float64)[:n]

    return value


def _blocks(prior: MixturePrior, n: int) -> Iterator[slice]:
    block = max(1, _ELEMENTS // len(prior.weight))
    for start in range(0, n, block):
        yield slice(start, min(start + block, n))


def _relative(prior: MixturePrior, weight: Floats) -> Floats32:
    """Give weights relative to those of the densities.

    Where one of both priors has none, it does not vanish.
    """
    return np.maximum(weight / np.maximum(prior.weight, prior.cautious), _LEAST).astype(np.float32)


def _drawn(
    prior: MixturePrior, mean: Floats, variance: Floats, outside: Floats
) -> tuple[Floats32, Floats32, Floats32, Floats32]:
    """How far each component draws each answer, its density, and its posterior variance by both of its factors."""
    width = prior.width
    if (
        len(mean) == 1
    ):  # sums over components run along columns: the same order for any number of agents
        mean, variance, outside = np.repeat(mean, 2), np.repeat(variance, 2), np.repeat(outside, 2)

    own = (variance / width**2).astype(np.float32)
    around = (prior.variance / width**2).astype(np.float32)[:, None]
    if outside.any():
        around = around + np.multiply.outer(prior.is_class, outside / width**2).astype(np.float32)

    away = mixture_distances(mean, prior.center, width)
    density, precision = mixture_densities(
        away, own + around, np.log(np.maximum(prior.weight, prior.cautious))
    )
    precision *= own
    away *= precision

    return away, density, precision, around


def _posterior(
    prior: MixturePrior, mean: Floats, variance: Floats, outside: Floats
) -> tuple[Floats, Floats]:
    n = len(mean)
    width = prior.width
    away, density, precision, around = _drawn(prior, mean, variance, outside)
    for_value = _relative(prior, prior.weight)
    for_interval = _relative(prior, prior.cautious)
    precision *= around  # the posterior variance of each component

    drawn = away * density
    first = mixture_sum(for_value, drawn) / mixture_sum(for_value, density)
    normal = mixture_sum(for_interval, density)
    careful = mixture_sum(for_interval, drawn) / normal
    away -= careful
    np.square(away, out=away)
    away += precision
    away *= density
    second = mixture_sum(for_interval, away) / normal + (first - careful) ** 2

    return mean - width * first.astype(np.float64)[:n], (width**2 * second.astype(np.float64))[:n]


def mixture_distances(mean: Floats, center: Floats, width: float) -> Floats32:
    """How far each mean is from each center in widths, shape (n_components, n)."""
    away = np.empty((len(center), len(mean)), np.float32)
    return np.subtract(mean / width, (center / width)[:, None], out=away, casting="same_kind")


def mixture_densities(
    away: Floats32, total: Floats32, log_weight: Floats
) -> tuple[Floats32, Floats32]:
    """Give components' densities relative to the likeliest one, which is 1, and precisions.

    `total` is overwritten.

    Examples
    --------
    >>> away, total = np.array([[0.0], [2.0]], np.float32), np.ones((2, 1), np.float32)
    >>> mixture_densities(away, total, np.zeros(2))[0].astype(np.float64).round(3).tolist()
    [[1.0], [0.135]]
    """
    precision = np.reciprocal(total)
    log_density = away * away
    log_density *= precision
    log_density += np.log(total, out=total)
    log_density *= np.float32(-0.5)
    log_density += log_weight.astype(np.float32)[:, None]
    log_density -= log_density.max(axis=0)

    return np.exp(log_density, out=log_density), precision


def mixture_sum(weight: Floats32, columns: Floats32) -> Floats32:
    """Weighted sum over components, shape (n,).

    A BLAS product rounds a column by where it stands among the others.
    """
    return np.asarray(np.einsum("k,kn->n", weight, columns), dtype=np.float32)


def posterior_far_half_width(
    posterior_variance: Floats, own_variance: Floats, level: float
) -> Floats:
    """Half the length of an interval between one that covers at its level on average and one that covers far agents.

    Notes
    -----
    `r`, the posterior's variance over the own one, is the share that an answer keeps of its agent's own mean. Among the
    5 % of a normal population who are farthest from its center, normal intervals cover .5 where `r` is small: their
    answers are pulled by more than the posterior, which is right on average, owns to. The factor is fitted to the
    quantile that covers .90 of them (by simulation, within 2 %). The half-width lies between that and the normal one,
    nearer to the first where nothing is kept of the own mean: 95 % intervals get longer by at most 31 %, and no longer
    than those of the own mean. Where much is kept, `posterior_doubted_interval` covers those who are far.

    Examples
    --------
    >>> weight = np.array([1.0, 0.5, 0.01])
    >>> (posterior_far_half_width(weight, np.ones(3), 0.95) / np.sqrt(weight)).round(2).tolist()
    [1.96, 2.13, 2.57]
    """
    kept = np.minimum(posterior_variance / own_variance, 1.0)
    far = np.square(kept)
    far *= np.sqrt(kept)
    far *= -NEARER / _NOMINAL
    far += FAR / _NOMINAL
    np.maximum(far, 1.0, out=far)
    far -= 1.0
    far *= FAR_SHARE * (1 - kept) ** FAR_FALL
    far += 1.0
    far *= ndtri(0.5 + 0.5 * level)
    far *= np.sqrt(posterior_variance)

    return np.minimum(far, half_width_alone(own_variance, level), out=far)


def posterior_doubted_interval(
    value: Floats,
    half_width: Floats,
    *,
    mean: Floats,
    kept: Floats,
    own_stddev: Floats,
    level: float,
) -> tuple[Floats, Floats]:
    """Give intervals around answers: longer towards an own mean that contradicts the prior.

    Parameters
    ----------
    value, half_width : float array, shape (n,)
        Answers, and half-widths that would do if the prior were right; at most those of the own
        means.
    mean, own_stddev : float array, shape (n,)
        Own means, and their standard errors.
    kept : float array, shape (n,)
        Standard deviation of the answer over that of the own mean, at most 1.
    level : float

    Notes
    -----
    A prior predicts that an answer leaves the own mean by `sqrt(1 - kept^2)` of its standard errors. Who is left by
    more is far from everyone, or the prior is wrong: its spread is read off noisy releases, and populations have
    longer tails than normal ones. An agent far from the crowd is missed on the side away from it: an interval that
    holds the own one on that side misses it as rarely as alone, whatever the prior says. The end moves there as the own
    mean goes from a third of what is predicted to a fifth more than it; whom the prior describes has the shorter
    interval. Only where both disagree may it be longer than that of the own mean: cut back to that length it covers
    less, and least with few samples, where intervals alone cover too little.

    Examples
    --------
    >>> zero, half = np.zeros(3), np.full(3, 0.5)
    >>> lower, upper = posterior_doubted_interval(zero, 2 * half, mean=np.array([0.1, -0.7, 3.0]), kept=half,
    ...                                           own_stddev=2 * half, level=0.95)
    >>> lower.round(2).tolist(), upper.round(2).tolist()
    ([-1.0, -1.94, -1.0], [1.0, 1.0, 4.96])
    """
    shift = mean - value
    away = np.abs(shift)
    doubt = away / (own_stddev * np.sqrt(1.001 - np.square(kept)))
    doubt -= CONTRADICTED[0] + LATER * np.maximum(1.0 - kept * (1 / BELIEVED), 0.0)
    doubt *= 1 / (CONTRADICTED[1] - CONTRADICTED[0])
    np.clip(doubt, 0.0, 1.0, out=doubt)
    away += ndtri(0.5 + 0.5 * level) * own_stddev
    away -= half_width
    np.maximum(away, 0.0, out=away)
    away *= doubt
    above = shift > 0

    return value - half_width - np.where(above, 0.0, away), value + half_width + np.where(
        above, away, 0.0
    )
