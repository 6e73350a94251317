"""Estimates of the variance of one sample made from raw samples.

An agent's own, and the one that it releases.

Shapes: a leading shape `...` of streams or pairs, last axis the partial sums. An estimate that
cannot be used (too few terms, or negative because of the noise) is infinite: its weight is 0 and
every test accepts it. The same estimates one release at a time are in `trackers`; estimates from
noisy sums in `from_releases`.
"""

from __future__ import annotations

import numpy as np
from river import stats

from meanstream.operators.counters.base import Counter
from meanstream.operators.counters.pm2 import Pm2
from meanstream.operators.counters.registry import counter_noise_variance
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require_positive


def scheme_sample_variance(
    count: Ints, squared_deviations: Floats, *, half_width: float | None = None
) -> Floats:
    """Return each agent's own sample variance. **Private**.

    It is made of raw samples and stays with its owner.

    Parameters
    ----------
    count : int array
        Number of samples.
    squared_deviations : float array
        Sum of squared deviations from the sample mean.
    half_width : float, optional
        Half the length L of the declared interval. Samples that are all equal (discrete data) say
        little about the variance: it is then taken as `L**2 / count`, as if one more sample had
        been off by L. Without it, infinite.

    Returns
    -------
    float array
        Infinite for fewer than two samples; never zero or NaN.

    Examples
    --------
    >>> import numpy as np
    >>> scheme_sample_variance(np.array([1, 3, 4]), np.array([0.0, 6.0, 0.0]), half_width=2.0).tolist()
    [inf, 3.0, 1.0]
    """
    n = np.asarray(count, dtype=np.float64)
    constant = np.inf if half_width is None else half_width**2 / np.maximum(n, 1.0)
    variance = np.where(
        squared_deviations > 0, squared_deviations / np.maximum(n - 1.0, 1.0), constant
    )

    return np.where(n >= 2, variance, np.inf)


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


def scheme_usable(variance: Floats) -> Floats:
    """Return the estimates with negative and undefined ones set to infinity.

    Examples
    --------
    >>> import numpy as np
    >>> scheme_usable(np.array([0.5, -0.1, np.nan])).tolist()
    [0.5, inf, inf]
    """
    return np.where(variance >= 0, variance, np.inf)


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


def scheme_released_from_terms(
    terms: Floats, noisy_total: Floats, time: Floats, correction: Floats
) -> Floats:
    """Return equation (8) from its sums.

    Over the partial sums, of all samples, and the expected noise.
    """
    variance = (terms - noisy_total**2 / time - correction) / np.maximum(time - 1, 1)
    return scheme_usable(np.where(time > 1, variance, np.inf))
