"""Linear statistics `T = sum_i w_i (mean_i + noise_i)` over the releases of one stream: weights and variance.

Everywhere the variance is `sample_variance * data + fresh_variance * noise`: the two factors depend
on public times and counts only, so they are computed once and serve known and estimated variances
alike. For every counter, weighting and pattern of release times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from meanstream.operators.counters.base import Counter, State
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require, require_least

WEIGHTS = ("last", "mean_of_means", "windowed", "gls")
"""Names of the weightings; "gls" needs the covariance of the releases, the others only their
number."""


def weights(name: str, n: int, *, covariance: Floats | None = None) -> Floats:
    """Return the weights after `n` releases; they add to 1.

    Parameters
    ----------
    name : {"last", "mean_of_means", "windowed", "gls"}
        "last": the newest release (the papers' non-MoM). "mean_of_means": all equally (MoM).
        "windowed": equally from the release `2**floor(log2 n)` on (wMoM). "gls": generalized least
        squares, the least variance of all weights for the given covariance.
    n : int
        Number of releases, at least 1.
    covariance : float array, shape (n, n), optional
        Covariance of the released means (`statistic_release_covariance`); for "gls", and only
        there.

    Notes
    -----
    Weights depend on counts and known variances only: combining releases is post-processing and costs no privacy.

    Examples
    --------
    >>> weights("windowed", 5).tolist(), weights("last", 3).tolist()
    ([0.0, 0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 1.0])
    >>> import numpy as np
    >>> weights("gls", 2, covariance=np.diag([1.0, 3.0])).round(6).tolist()
    [0.75, 0.25]

    References
    ----------
    Yakimenka et al., equation (1), sections III-A and IV-B. Aitken (1935) for generalized least squares.
    """
    _require_weights(name)
    require_least(1, n=n)
    require(
        (covariance is not None) == (name == "gls"),
        "covariance",
        "be given for gls and only there",
        name,
    )

    if covariance is not None:
        require(
            covariance.shape == (n, n), "covariance", f"have shape ({n}, {n})", covariance.shape
        )
        best: Floats = weights_gls_table(covariance)[-1]

        return best

    return _constant_from(int(weights_window_start(name, np.asarray(n))), n)


def weights_window_start(name: str, release: Ints) -> Ints:
    """Return the first release that has weight, for the weightings that are equal from there on.

    Examples
    --------
    >>> import numpy as np
    >>> weights_window_start("windowed", np.array([1, 3, 4, 7, 8])).tolist()
    [1, 2, 4, 4, 8]
    """
    _require_weights(name)
    release = np.asarray(release, dtype=np.int64)
    if name == "last":
        return release
    if name == "mean_of_means":
        return np.ones_like(release)

    require(name == "windowed", "weights", "be last, mean_of_means or windowed here", name)
    _, exponent = np.frexp(release.astype(np.float64))  # exact for release < 2**53
    return np.left_shift(np.int64(1), exponent.astype(np.int64) - 1)


def weights_gain(name: str, release: Ints) -> Floats:
    """Return by how much a new release moves the statistic.

    `T_k = T_{k-1} + gain_k (release_k - T_{k-1})`.

    Examples
    --------
    >>> import numpy as np
    >>> weights_gain("windowed", np.array([1, 2, 3, 4, 5])).tolist()
    [1.0, 1.0, 0.5, 1.0, 0.5]
    """
    release = np.asarray(release, dtype=np.int64)
    return 1.0 / (release - weights_window_start(name, release) + 1)


def weights_gls_table(covariance: Floats) -> Floats:
    """Return the least-variance weights after 1, ..., n releases as rows, from one Cholesky factor.

    Parameters
    ----------
    covariance : float array, shape (n, n)
        Covariance of the releases.

    Notes
    -----
    With the lower Cholesky factor `L`, the whitened releases `L^{-1} y` are uncorrelated estimates with coefficients
    `a = L^{-1} 1`; leading blocks share `L`, so the best estimate after `k` releases is
    `sum_{i <= k} a_i (L^{-1} y)_i / sum_{i <= k} a_i**2`, and its variance is one over that denominator. The releases
    are scaled to standard deviation 1 first: their variances span orders of magnitude.

    Examples
    --------
    >>> import numpy as np
    >>> weights_gls_table(np.diag([1.0, 3.0])).round(6).tolist()
    [[1.0, 0.0], [0.75, 0.25]]
    """
    factor, scale = _scaled_factor(covariance)
    whiten = solve_triangular(factor, np.diag(1.0 / scale), lower=True)
    coefficient = whiten.sum(axis=1)
    table: Floats = np.cumsum(coefficient[:, np.newaxis] * whiten, axis=0)
    table /= np.cumsum(coefficient**2)[:, np.newaxis]

    return table


def weights_gls_variance(covariance: Floats) -> Floats:
    """Return the variance of the best estimate after 1, ..., n releases.

    That of the rows of `weights_gls_table`.

    Examples
    --------
    >>> import numpy as np
    >>> weights_gls_variance(np.diag([1.0, 3.0])).round(6).tolist()
    [1.0, 0.75]
    """
    factor, scale = _scaled_factor(covariance)
    coefficient = solve_triangular(factor, 1.0 / scale, lower=True)
    return np.asarray(1.0 / np.cumsum(coefficient**2))


def _scaled_factor(covariance: Floats) -> tuple[Floats, Floats]:
    """Return the lower Cholesky factor of the correlations, and the standard deviations."""
    scale = np.sqrt(np.diag(covariance))
    factor: Floats = cholesky(covariance / np.multiply.outer(scale, scale), lower=True)
    return factor, scale


def _require_weights(name: str) -> None:
    """Refuse a name that is not one of `WEIGHTS`."""
    require(name in WEIGHTS, "weights", f"be one of {', '.join(WEIGHTS)}", name)


def _constant_from(start: int, n: int) -> Floats:
    """Return equal weights for the releases `start..n`."""
    equal = np.zeros(n)
    equal[start - 1 :] = 1.0 / (n - start + 1)
    return equal


class VarianceFactors(NamedTuple):
    """What multiplies the variance of one sample (`data`) and of one fresh draw (`noise`)."""

    data: Floats
    noise: Floats

    def variance(self, sample_variance: Floats | float, fresh_variance: Floats | float) -> Floats:
        """Return `sample_variance * data + fresh_variance * noise`.

        Infinite where the sample variance is.
        """
        return np.asarray(
            sample_variance * self.data + fresh_variance * self.noise, dtype=np.float64
        )


def statistic_variance_factors(times: Ints, weights: Floats, counter: Counter) -> VarianceFactors:
    """Return the factors of `Var[sum_i w_i (mean_i + noise_i)]`, for any weights: the direct sums.

    Parameters
    ----------
    times : int array, shape (..., n)
        Number of samples in each released mean, strictly increasing.
    weights : float array, shape (n,) or (..., n)
        Weights of the releases; they should add to 1.
    counter : Counter
        Its matrix `B` says which release contains which draw.

    Notes
    -----
    `data = sum_i d_i (sum_{j >= i} w_j / t_j)**2` with `d_i = t_i - t_{i-1}` and
    `noise = sum_e (sum_j B[j, e] w_j / t_j)**2`. For PM-II the inner sum runs over `j = e .. min(n, e + 2**v2(e) - 1)`:
    equation (21) of the paper as printed differs from 7 releases on.

    Examples
    --------
    >>> import numpy as np
    >>> from meanstream.operators.counters.pm1 import Pm1
    >>> factors = statistic_variance_factors(np.array([10, 20]), np.array([0.0, 1.0]), Pm1(2))
    >>> factors.data.round(6), factors.noise.round(6)
    (np.float64(0.05), np.float64(0.005))

    References
    ----------
    Yakimenka et al., equations (2), (20) and (21).
    """
    per_sample = np.asarray(weights) / times
    later = np.cumsum(per_sample[..., ::-1], axis=-1)[..., ::-1]
    lengths = np.diff(times, axis=-1, prepend=0)
    noise = per_sample @ counter.matrix(times.shape[-1])

    return VarianceFactors((lengths * later**2).sum(-1), (noise**2).sum(-1))


def statistic_release_covariance(
    times: Ints, *, sample_variance: float, counter: Counter, fresh_variance: float
) -> Floats:
    """Return the covariance of the noisy means, shape (n, n): what "gls" weights need.

    Two running means share the samples of the shorter: their covariance is the sample variance over
    the later time.

    Examples
    --------
    >>> import numpy as np
    >>> from meanstream.operators.counters.pm1 import Pm1
    >>> statistic_release_covariance(np.array([1, 2]), sample_variance=1.0, counter=Pm1(2), fresh_variance=4.0).tolist()
    [[5.0, 2.5], [2.5, 2.5]]
    """
    return _covariance(times, sample_variance, fresh_variance * counter.covariance(len(times)))


def _covariance(times: Ints, sample_variance: float, noise: Floats) -> Floats:
    covariance: Floats = sample_variance / np.maximum.outer(
        times, times
    ) + noise / np.multiply.outer(times, times)
    return covariance


def statistic_factors_table(times: Ints, name: str, counter: Counter) -> VarianceFactors:
    """Return the factors after every release, shape (..., n), for many streams at once.

    Parameters
    ----------
    times : int array, shape (..., n)
        Release times of each stream (of each pair, under a round robin).
    name : str
        "last", "mean_of_means" or "windowed".
    counter : Counter
        A horizon of at least n.

    Examples
    --------
    >>> import numpy as np
    >>> from meanstream.operators.counters.pm1 import Pm1
    >>> statistic_factors_table(np.array([10, 20]), "mean_of_means", Pm1(2)).data.tolist()
    [0.1, 0.0625]
    """
    flat = times.reshape(-1, times.shape[-1])
    tracker = FactorTracker(counter, name)
    state = tracker.init(len(flat))
    rows = np.arange(len(flat))
    steps = [
        tracker.step(state, rows, np.full(len(flat), k + 1), flat[:, k])
        for k in range(flat.shape[1])
    ]

    return VarianceFactors(
        *(np.stack(part, axis=-1).reshape(times.shape) for part in zip(*steps, strict=True))
    )


def statistic_variance_table(
    times: Ints, name: str, *, sample_variance: float, counter: Counter, fresh_variance: float
) -> Floats:
    """Return `Var[T]` after every release, shape (..., n).

    For "gls" the weights are the best for these variances.

    Examples
    --------
    >>> import numpy as np
    >>> from meanstream.operators.counters.pm1 import Pm1
    >>> noise = {"counter": Pm1(2), "fresh_variance": 10.0}
    >>> table = statistic_variance_table(np.array([[10, 20]]), "gls", sample_variance=1.0, **noise)
    >>> table.round(4).tolist()
    [[0.2, 0.1]]
    """
    if name != "gls":
        return statistic_factors_table(times, name, counter).variance(
            sample_variance, fresh_variance
        )

    noise = fresh_variance * counter.covariance(times.shape[-1])
    flat = times.reshape(-1, times.shape[-1])
    best = [weights_gls_variance(_covariance(stream, sample_variance, noise)) for stream in flat]
    return np.array(best).reshape(times.shape)


@dataclass(frozen=True)
class FactorTracker:
    """The factors after each release in the memory of the counter.

    O(1), O(log) for PM-II, per release.

    Parameters
    ----------
    counter : Counter
        The counter of the noise.
    weights : str
        "last", "mean_of_means" or "windowed".

    Notes
    -----
    Over the releases with weight, `T = (1/m) sum_i y_i / t_i`, so adding release `k` adds its own variance and twice
    its covariance with the earlier ones: `1/t_k` with each for the data, `Counter.covariance_with_past` for the noise.

    Examples
    --------
    >>> import numpy as np
    >>> from meanstream.operators.counters.pm2 import Pm2
    >>> tracker = FactorTracker(Pm2(4), "windowed")
    >>> state, row = tracker.init(1), np.array([0])
    >>> [tracker.step(state, row, np.array([k]), np.array([10 * k])).noise.round(6).item() for k in (1, 2)]
    [0.01, 0.0025]
    """

    counter: Counter
    weights: str

    def __post_init__(self) -> None:
        weights_window_start(self.weights, np.array([1]))  # refuses what has no recursion

    def init(self, n_rows: int) -> State:
        """Return the state of `n_rows` streams before their first release."""
        return {
            "data": np.zeros(n_rows),
            "noise": np.zeros(n_rows),
            **self.counter.init_past(n_rows),
        }

    def step(self, state: State, rows: Ints, release: Ints, times: Ints) -> VarianceFactors:
        """Return the factors after these releases and update the state in place.

        Parameters
        ----------
        state : State
            From `init`.
        rows, release, times : int array, shape (m,)
            Distinct rows, the number of the release within each, from 1, and its number of samples.
        """
        if self.weights == "last":
            return VarianceFactors(
                1.0 / times, self.counter.noise_variance(release) / times.astype(np.float64) ** 2
            )

        start = weights_window_start(self.weights, release)
        for values in state.values():
            values[rows[start == release]] = 0.0

        inverse = 1.0 / times
        shared = self.counter.covariance_with_past(state, rows, release, inverse)
        own = self.counter.noise_variance(release) * inverse
        state["data"][rows] += (2.0 * (release - start) + 1.0) * inverse
        state["noise"][rows] += (2.0 * shared + own) * inverse
        share = weights_gain(self.weights, release) ** 2

        return VarianceFactors(state["data"][rows] * share, state["noise"][rows] * share)
