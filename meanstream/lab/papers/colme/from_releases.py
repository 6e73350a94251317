"""Estimates of the variance of one sample read off noisy sums.

Public in, public out, no further privacy cost.

Shapes: a leading shape `...` of streams or pairs, last axis the partial sums. An estimate that
cannot be used (too few terms, or negative because of the noise) is infinite: its weight is 0 and
every test accepts it.
"""

from __future__ import annotations

import math

import numpy as np

from meanstream.lab.papers.colme.variance_schemes import scheme_usable
from meanstream.operators.counters.base import Counter
from meanstream.operators.records import Floats, Ints

PRINTED_SHAPE = 2.0
JEFFREYS_SHAPE = 1.0
"""Equation (19) has the shape `(kappa + 2) / 2`, footnote 3's Jeffreys prior `(kappa + 1) / 2`. The
latter is also the posterior mean under the prior that equation (19) itself has, since the mean
takes one degree of freedom."""


def printed_variance_from_releases(
    lengths: Ints, sums: Floats, fresh_variance: Floats | float
) -> Floats:
    """Return the variance read off noisy partial sums as the paper prints it (Sch-Var-2), shape (...).

    Parameters
    ----------
    lengths : int array, shape (..., k)
        Number of samples in each partial sum.
    sums : float array, shape (..., k)
        The noisy partial sums: public.
    fresh_variance : float
        Variance of the noise in one of them.

    Notes
    -----
    It compares `G_i / sqrt(d_i)`, whose expectations are equal only if all lengths are: otherwise it is biased upwards
    by the spread of `sqrt(d_i)` times the squared mean (Lemma 7 does not hold). `variance_from_releases` is unbiased
    always.

    Examples
    --------
    >>> import numpy as np
    >>> printed_variance_from_releases(np.array([4, 4, 4]), np.array([2.0, 4.0, 6.0]), 0.4).round(6)
    np.float64(0.9)

    References
    ----------
    Yakimenka et al., equation (16).
    """
    spread, noise = printed_variance_parts(
        *_printed_terms(np.asarray(lengths, dtype=np.float64), sums), fresh_variance
    )
    return scheme_usable(spread - noise)


def bayesian_variance_from_releases(
    lengths: Ints, sums: Floats, fresh_variance: Floats | float
) -> Floats:
    """Return equation (16), and where it is negative the posterior mean under a flat prior on the share of the noise.

    Parameters are those of `printed_variance_from_releases`. With one partial sum there is no
    estimate: infinite.

    Examples
    --------
    >>> import numpy as np
    >>> bayesian_variance_from_releases(np.array([4, 4, 4]), np.array([2.0, 4.0, 6.0]), 8.0).round(4)
    np.float64(1.5395)

    References
    ----------
    Yakimenka et al., equation (19).
    """
    terms = _printed_terms(np.asarray(lengths, dtype=np.float64), sums)
    return bayesian_variance_from_parts(terms[0], *printed_variance_parts(*terms, fresh_variance))


def printed_variance_parts(
    n: Floats, squares: Floats, roots: Floats, reciprocals: Floats, fresh_variance: Floats | float
) -> tuple[Floats, Floats]:
    """Return `V'` and `K s2` of equation (19) from the sums of 1, G^2/d, G/sqrt(d) and 1/d.

    NaN for one partial sum.
    """
    spread = (squares - roots**2 / np.maximum(n, 1)) / np.where(n > 1, n - 1, np.nan)
    return spread, fresh_variance * reciprocals / np.maximum(n, 1)


def bayesian_variance_from_parts(
    n: Floats, spread: Floats, noise: Floats, *, added: float = PRINTED_SHAPE
) -> Floats:
    """Return equation (19) from the number of partial sums, `V'` and `K s2`.

    Its shape is `(n + added) / 2`.

    Notes
    -----
    With shape `a = (n + 2) / 2` as printed, or `(n + 1) / 2`, and `x = (n - 1) V' / (2 K s2)`, Kummer's
    `gamma(a, x) = x^a e^{-x} M(1, a + 1, x) / a` turns the ratio of incomplete gamma functions, which underflow from a
    hundred releases on, into `K s2 (a + x M) / ((a - 1) M)`. It is used for `V' < K s2`, so `x < a`: M's series
    converges.
    """
    variance = np.asarray(spread - noise, dtype=np.float64)
    negative = variance < 0
    if np.any(negative):
        shape = np.broadcast_to((n + added) / 2, variance.shape)[negative]
        level = np.broadcast_to(noise, variance.shape)[negative]
        degrees = shape - 0.5 * (added + 1)
        x = np.maximum(degrees * np.broadcast_to(spread, variance.shape)[negative] / level, 0.0)
        kummer = _kummer(shape, x)
        variance = variance.copy()
        variance[negative] = level * ((shape / kummer + x) / (shape - 1) - 1)

    return scheme_usable(variance)


def variance_from_releases(
    lengths: Ints, sums: Floats, counter: Counter, fresh_variance: Floats | float
) -> Floats:
    """Return the variance read off the increments of noisy prefix sums, unbiased for any lengths and any counter.

    Parameters
    ----------
    lengths : int array, shape (..., k)
        Number of samples between consecutive releases.
    sums : float array, shape (..., k)
        Differences of consecutive noisy prefix sums: public.
    counter : Counter
        What made the noise: the variance of each difference is known.
    fresh_variance : float
        Variance of one fresh draw.

    Notes
    -----
    `V = [sum_i (G_i - d_i T)^2 / d_i - s2 (sum_i v_i / d_i - v / t)] / (k - 1)` with the noisy mean `T`, the variance
    `v_i` of the noise in `G_i` and `v` of the noise in the last prefix sum. For PM-I (`v_i = 1`, `v = k`) it is
    equation (16) with Lemma 7 repaired; for PM-II it uses all k differences, where (16) has one term per binary one.

    Examples
    --------
    >>> import numpy as np
    >>> from meanstream.operators.counters.pm1 import Pm1
    >>> variance_from_releases(np.array([1, 3]), np.array([1.0, 7.0]), Pm1(2), 0.5).round(6)
    np.float64(0.916667)
    """
    d = np.asarray(lengths, dtype=np.float64)
    release = np.arange(1, d.shape[-1] + 1)
    return corrected_variance_from_terms(
        n=np.asarray(float(len(release))),
        squares=(sums**2 / d).sum(-1),
        noise=(counter.increment_variance(release) / d).sum(-1),
        total=sums.sum(-1),
        time=d.sum(-1),
        total_noise=counter.noise_variance(release[-1:])[0],
        fresh_variance=fresh_variance,
    )


def corrected_variance_from_terms(
    *,
    n: Floats,
    squares: Floats,
    noise: Floats,
    total: Floats,
    time: Floats,
    total_noise: Floats,
    fresh_variance: Floats | float,
) -> Floats:
    """Return `variance_from_releases` from the sums of 1, G^2/d and v/d, the last prefix sum, its time and its `v`."""
    expected = fresh_variance * (noise - total_noise / time)
    return scheme_usable((squares - total**2 / time - expected) / np.where(n > 1, n - 1, np.nan))


def _printed_terms(d: Floats, sums: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    n = np.asarray(float(d.shape[-1]))
    return n, (sums**2 / d).sum(-1), (sums / np.sqrt(d)).sum(-1), (1 / d).sum(-1)


def _kummer(shape: Floats, x: Floats) -> Floats:
    """Return `M(1, shape + 1, x) = sum_j x^j / ((shape + 1) ... (shape + j))` for 0 <= x < shape."""
    total = np.ones_like(x)
    term = np.ones_like(x)
    j = 0
    # More steps than an entry needs do not change its bits: so it depends on no other. A NaN ends
    # no one's series.
    while np.any(term > total * (math.ulp(1.0) / 4)):
        j += 1
        term = term * x / (shape + j)
        total = total + term

    return total
