"""Bayes' rule for a normal mixture as prior."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meanstream.operators.collaboration.release_law import is_shaped, release_law
from meanstream.operators.records import Floats, Ints

Floats32 = NDArray[np.float32]
_ELEMENTS = 1 << 16
"""Agents times components at a time."""
_LEAST = 1e-30
_CERTAIN = 1e-18
_UNKNOWN = 1e4
"""Variances of own means in squared widths: no less, or something is divided by 0; and no more, see
`bounded_means`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixturePrior:
    """Public: normal components of a prior of means.

    Attributes
    ----------
    weight, center, variance : float array, shape (n_components,)
        Weights need not add up to 1.
    cautious_variance : float array, shape (n_components,)
        The variance of each that errors are computed with.
    width : float
        Of the declared bounds.
    """

    weight: Floats
    center: Floats
    variance: Floats
    cautious_variance: Floats
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
    prior: MixturePrior, mean: Floats, variance: Floats, true_variance: Floats
) -> tuple[Floats, Floats]:
    """Posterior mean given own means, and the variance of its error.

    Parameters
    ----------
    prior : MixturePrior
    mean, variance : float array, shape (n,)
        Own means, and the variances that the answers rest on, as `bounded_means` gives them.
    true_variance : float array, shape (n,)
        The variances that the errors of the own means have: where samples depend, another.

    Notes
    -----
    A component of center c and variance V answers `c + k (m - c)`, k = V / (V + w), for an own mean m of variance w.
    Its error has the variance `k^2 w' + (1 - k)^2 V'` if that of m is w' and means vary by V' about
    c: `k w` where these are w and V. Answers are averaged by `p N(m; c, w + V)`, and so are errors,
    with what answers differ by.

    How far a mean is from each center is taken in 64 bits, what follows in 32: an answer and its
    standard error are off by at most 1e-5 of the own standard error, and are the same bits among
    whatever others.

    Examples
    --------
    >>> one, no = np.ones(1), np.zeros(1)
    >>> prior = MixturePrior(weight=one, center=no, variance=one, cautious_variance=one, width=4.0)
    >>> mixture_posterior(prior, np.array([2.0]), one, one)
    (array([1.]), array([0.5]))
    """
    value = np.empty(len(mean))
    error = np.empty(len(mean))
    for rows in blocks_of_agents(len(mean), len(prior.weight)):
        value[rows], error[rows] = _posterior(
            prior, mean[rows], variance[rows], true_variance[rows]
        )

    return value, error


def blocks_of_agents(n: int, n_components: int) -> Iterator[slice]:
    """Rows of few agents at a time: what is computed of them stays in the cache."""
    block = max(1, _ELEMENTS // n_components)
    for start in range(0, n, block):
        yield slice(start, start + block)


def _posterior(
    prior: MixturePrior, mean: Floats, variance: Floats, true_variance: Floats
) -> tuple[Floats, Floats]:
    n = len(mean)
    width = prior.width

    if n == 1:  # sums over components run along columns: the same order for any number of agents
        mean, variance, true_variance = (np.repeat(c, 2) for c in (mean, variance, true_variance))

    own = (variance / width**2).astype(np.float32)
    true = (true_variance / width**2).astype(np.float32)
    around = (prior.variance / width**2).astype(np.float32)[:, None]
    away = mixture_distances(mean, prior.center, width)
    log_weight = np.log(np.maximum(prior.weight, _LEAST))
    density, precision = mixture_densities(away, own + around, log_weight)
    everything = np.ones(len(density), np.float32)
    density /= mixture_sum(everything, density)

    # By how much each component draws an answer from the own mean, which leaves 1 - drawn = k.
    drawn = precision * own
    away *= drawn
    shift = mixture_sum(everything, away * density)

    # k^2 w' + (1 - k)^2 V', and what the answers of the components differ by.
    around = (prior.cautious_variance / width**2).astype(np.float32)[:, None]
    around = drawn * drawn * around
    np.subtract(np.float32(1), drawn, out=drawn)
    drawn *= drawn
    drawn *= true
    around += drawn
    away -= shift
    away *= away
    away += around
    away *= density
    error = mixture_sum(everything, away)

    value = mean - width * shift.astype(np.float64)
    return value[:n], (width**2 * error.astype(np.float64))[:n]


def released_mixture_posterior(
    prior: MixturePrior,
    mean: Floats,
    variance: Floats,
    *,
    true_variance: Floats,
    noise_variance: Floats,
    terms: Ints,
) -> tuple[Floats, Floats]:
    """Posterior mean given releases in the place of own means, and the variance of its error.

    Parameters
    ----------
    prior : MixturePrior
    mean, variance, true_variance : float array, shape (n,)
        As for `mixture_posterior`; variances include that of the noise.
    noise_variance, terms : float array, int array, shape (n,)
        The noise in each release, and its law (`release_law`).

    Notes
    -----
    With the law f of releases about the center c, of which V is normal, the mean is
    `c + V (log f)'` at the release, with the sign turned, and its variance is `V + V^2 (log f)''`
    (Tweedie's formula): exact, whatever the noise is.

    Examples
    --------
    >>> one = np.ones(1)
    >>> prior = MixturePrior(weight=one, center=0 * one, variance=one, cautious_variance=one, width=4.0)
    >>> value, _ = released_mixture_posterior(prior, 40 * one, 3 * one, true_variance=3 * one, noise_variance=2 * one,
    ...                                       terms=np.ones(1, np.int64))
    >>> value.round(2).tolist()  # normal noise of that variance would have it at 10
    [1.0]
    """
    value, error = mixture_posterior(prior, mean, variance, true_variance)
    shaped = np.flatnonzero(is_shaped(noise_variance, terms) & (variance > noise_variance))
    log_weight = np.log(np.maximum(prior.weight, _LEAST))[:, None]
    around = prior.variance[:, None]
    cautious = (prior.cautious_variance - prior.variance)[:, None]

    for block in blocks_of_agents(len(shaped), len(prior.weight)):
        rows = shaped[block]
        law = release_law(
            mean[rows] - prior.center[:, None],
            around + (variance - noise_variance)[rows],
            noise_variance[rows],
            terms[rows],
        )
        share = law.log_density + log_weight
        share = np.exp(share - share.max(axis=0))
        share /= share.sum(axis=0)

        answer = prior.center[:, None] - around * law.score
        drawn = around * law.curvature
        wider = (true_variance - variance)[rows]
        errors = around * (1 - drawn) + drawn**2 * wider + (1 - drawn) ** 2 * cautious
        errors = np.maximum(errors, 0.0)

        value[rows] = (share * answer).sum(axis=0)
        error[rows] = (share * (errors + (answer - value[rows]) ** 2)).sum(axis=0)

    return value, error


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
