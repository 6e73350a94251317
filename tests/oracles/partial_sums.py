"""The estimates and variances of the paper from all partial sums of a stream at once.

What the recursions of `meanstream.lab.papers.colme.variance_trackers` and `statistic` must give.
"""

from __future__ import annotations

import numpy as np
from river import stats

from meanstream.lab.papers.colme.statistic import statistic_variance_factors
from meanstream.lab.papers.colme.variance_trackers import (
    bayesian_variance_from_parts,
    corrected_variance_from_terms,
    printed_variance_parts,
    scheme_released_from_terms,
    scheme_sample_variance,
    scheme_usable,
)
from meanstream.operators.counters.base import Counter
from meanstream.operators.counters.pm2 import Pm2
from meanstream.operators.counters.registry import counter_noise_variance
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require_positive


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
    parts = printed_variance_parts(*terms, fresh_variance)
    return bayesian_variance_from_parts(terms[0], *parts, added=2.0)


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


def _printed_terms(d: Floats, sums: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    n = np.asarray(float(d.shape[-1]))
    return n, (sums**2 / d).sum(-1), (sums / np.sqrt(d)).sum(-1), (1 / d).sum(-1)


def scheme_attributed_variance(statistic: stats.Var, *, half_width: float | None = None) -> float:
    """Return the variance that one agent attributes to itself, from river's running variance. **Private**.

    Examples
    --------
    >>> statistic = stats.Var()
    >>> for x in (1.0, 3.0, 2.0):
    ...     statistic.update(x)
    >>> scheme_attributed_variance(statistic), scheme_attributed_variance(stats.Var())
    (1.0, inf)
    """
    n = int(statistic.mean.n)
    deviations = np.asarray(statistic.get() * max(n - 1, 0))
    return float(scheme_sample_variance(np.asarray(n), deviations, half_width=half_width))


def scheme_partial_sum_ends(counter: Counter, n: int) -> Ints:
    """Return the releases at which the partial sums inside the `n`-th prefix sum end.

    PM-II joins them by the binary representation of `n`; the other counters have one per release.

    Examples
    --------
    >>> scheme_partial_sum_ends(Pm2(16), 13).tolist()
    [8, 12, 13]
    """
    if not isinstance(counter, Pm2):
        return np.arange(1, n + 1)
    bits = [1 << level for level in reversed(range(n.bit_length())) if n >> level & 1]
    return np.cumsum(np.array(bits, dtype=np.int64))


def scheme_released_fresh_variances(
    counter: Counter,
    *,
    epsilon: float,
    delta: float,
    half_width: float,
    noise: str = "gaussian",
    calibration: str = "classical",
    composition: str = "basic",
) -> tuple[float, float]:
    """Return the variances of one fresh draw for the means and for the variances when both are released.

    Parameters
    ----------
    counter, epsilon, delta, noise, calibration, composition
        As in `meanstream.operators.counters.registry.counter_noise_variance`.
    half_width : float
        Half the length L of the interval of the samples, in their unit.

    Notes
    -----
    **Privacy.** Replace-one, (epsilon, delta) for both streams of releases together, half of each for either. A sum
    changes by at most 2L, a sum of squared deviations from its own mean by at most 4L^2.

    Examples
    --------
    >>> from meanstream.operators.counters.pm1 import Pm1
    >>> scheme_released_fresh_variances(Pm1(1), epsilon=1.0, delta=0.5, half_width=0.5, noise="laplace")
    (8.0, 8.0)

    References
    ----------
    Yakimenka et al., Lemma 3 and section V-A.
    """
    require_positive(half_width=half_width)
    mean, variance = (
        counter_noise_variance(
            counter,
            epsilon=epsilon / 2,
            delta=delta / 2,
            sensitivity=sensitivity,
            noise=noise,
            calibration=calibration,
            composition=composition,
        )
        for sensitivity in (2 * half_width, 4 * half_width**2)
    )

    return mean, variance


def scheme_released(
    *,
    lengths: Ints,
    sums: Floats,
    squares: Floats,
    noise: Floats,
    variance_noise: Floats,
    fresh_variance: Floats | float,
) -> Floats:
    """Return the variance that an agent releases with its noisy mean (Sch-Var-1), shape (...).

    Parameters
    ----------
    lengths : int array, shape (..., k)
        Number of samples in each of the k partial sums.
    sums, squares : float array, shape (..., k)
        Their raw sums and raw sums of squares: private, kept by the agent.
    noise, variance_noise : float array, shape (..., k)
        The fresh draws of the partial sums, for the means and for the variances.
    fresh_variance : float
        Variance of one draw in `noise`.

    Notes
    -----
    **Privacy.** The release is post-processing of the noisy sums and of the noisy sums of squared deviations; see
    `scheme_released_fresh_variances` for the draws. Negative estimates are infinite: clipping is post-processing too.

    Examples
    --------
    >>> import numpy as np
    >>> zero = np.zeros(2)
    >>> scheme_released(lengths=np.array([2, 2]), sums=np.array([3.0, 7.0]), squares=np.array([5.0, 25.0]), noise=zero,
    ...          variance_noise=zero, fresh_variance=0.0).round(6)
    np.float64(1.666667)

    References
    ----------
    Yakimenka et al., equations (6) to (8) and Lemma 6.
    """
    d = np.asarray(lengths, dtype=np.float64)
    noisy = sums + noise
    terms = squares - sums**2 / d + (d - 1) / d * variance_noise + noisy**2 / d
    t = d.sum(-1)
    correction = fresh_variance * ((1 / d).sum(-1) - d.shape[-1] / t)

    return scheme_released_from_terms(terms.sum(-1), noisy.sum(-1), t, correction)


def variance_of_statistic(
    times: Ints,
    weights: Floats,
    *,
    sample_variance: Floats | float,
    counter: Counter,
    fresh_variance: Floats | float,
) -> Floats:
    """Return `Var[T]`, shape (...), for release times of shape (..., n) and any weights.

    Parameters
    ----------
    times, weights, counter
        As in `statistic_variance_factors`.
    sample_variance, fresh_variance : float or float array, shape (...)
        Variance of one sample and of one fresh draw, in squared value units.

    Examples
    --------
    >>> import numpy as np
    >>> from meanstream.operators.counters.pm1 import Pm1
    >>> t, w = np.array([10, 20]), np.array([0.5, 0.5])
    >>> variance_of_statistic(t, w, sample_variance=1.0, counter=Pm1(2), fresh_variance=0.0).round(6)
    np.float64(0.0625)
    """
    return statistic_variance_factors(times, weights, counter).variance(
        sample_variance, fresh_variance
    )


def statistic_noise_factor_pm2(times: Ints, weights: Floats) -> float:
    """Return equation (21) as the paper prints it, over `s2`.

    Kept to show the error, used by nothing.

    It takes all releases of `2**(l-1) .. 2**l - 1` that have a one at the same place as users of
    the same draw; from 7 releases on they are not, and the equation overestimates: with windowed
    weights under a round robin of 200 agents by 8 % at 7 releases, 68 % at 127 and 103 % at 511;
    with "last" it is right.

    Examples
    --------
    >>> import numpy as np
    >>> from meanstream.operators.counters.pm2 import Pm2
    >>> t, w = np.arange(1, 8), np.full(7, 1 / 7)
    >>> round(float(statistic_noise_factor_pm2(t, w) / statistic_variance_factors(t, w, Pm2(7)).noise), 3)
    1.023
    """
    n = len(times)
    total = 0.0
    release = np.arange(1, n + 1)
    per_sample = np.asarray(weights) / times

    for length in range(1, Pm2(n).levels + 1):  # l of equation (21)
        block = (release >= 1 << (length - 1)) & (release < 1 << length)
        for i in range(length):
            bit = (release >> i) & 1
            total += float((per_sample * bit)[block].sum() ** 2)

    return total
