"""The square-root Toeplitz counter with a few buffers.

The lowest variance for a given privacy, in constant memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from meanstream.operators.counters.base import Counter, State
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require

EXCESS = 0.02
"""Largest relative excess of the noise's standard deviation over the exact square-root
factorization.

Another value, like another grid of the search, makes other noise from the same draws: a stored
stream could not resume.
"""

_GRID = 2.0**-40
_EXACT_TERMS = 4096
_TABLE_LENGTH = 4096


class Buffers(NamedTuple):
    """A buffered Toeplitz pair.

    `b_0 = 1`, `b_j = sum_m weight_m decay_m**(j-1)`, `c_j = sum_m left_m rate_m**j`.
    """

    decay: Floats
    weight: Floats
    rate: Floats
    left: Floats


def lower_toeplitz(column: Floats) -> Floats:
    """Return the lower-triangular Toeplitz matrix of a column.

    Examples
    --------
    >>> lower_toeplitz(np.array([1.0, 0.5])).tolist()
    [[1.0, 0.0], [0.5, 1.0]]
    """
    place = np.arange(len(column))
    return np.tril(column[place[:, None] - place])


@dataclass(frozen=True)
class Toeplitz(Counter):
    """Noise of the `k`-th prefix sum.

    `sum_{e <= k} b_{k-e} fresh_e` with `b_j` close to `binomial(2j, j) / 4**j`.

    Parameters
    ----------
    horizon : int
        Largest number of releases of one row. Generous is cheap: the variance grows with its
        logarithm.

    Notes
    -----
    **Privacy.** Gaussian noise only. The vector `C x + fresh` is one Gaussian mechanism; a sample lies in one
    increment. `l2_sensitivity` is the norm of the first (longest) column of `C = B^{-1} A` for the coefficients `b`
    that are really used, summed in closed form: the approximation below costs accuracy, never privacy.

    The exact coefficients are `f_j = (1/pi) int (1 + e^s)^{-j} / (2 cosh(s/2)) ds`; the trapezoidal
    rule makes them a sum of exponentials, one buffer each. `fit_toeplitz_buffers` takes the fewest
    buffers that keep the standard deviation within `EXCESS` of the exact factorization at every
    release up to the horizon: 4 for 1e4 releases, 5 for 1e6.

    Examples
    --------
    >>> import numpy as np
    >>> counter = Toeplitz(horizon=1000)
    >>> len(fit_toeplitz_buffers(1000).decay), round(counter.l2_sensitivity**2, 2)
    (4, 3.29)
    >>> (counter.l2_sensitivity**2 * counter.noise_variance(np.array([10, 1000]))).round(1).tolist()
    [5.8, 10.7]

    References
    ----------
    Fichtenberger, Henzinger, Upadhyay (2023), "Constant matters", for the factorization. Dvijotham, McMahan, Pillutla,
    Steinke, Thakurta (2024), arXiv 2404.16706, and McMahan, Xu, Zhang (2024), arXiv 2408.08868, for the buffers.
    """

    name: ClassVar[str] = "toeplitz"

    @property
    def l2_sensitivity(self) -> float:
        """Norm of the first column of `C` of the pair in use."""
        return math.sqrt(
            float(_squared_norm(fit_toeplitz_buffers(self.horizon), np.asarray(self.horizon)))
        )

    @property
    def l1_sensitivity(self) -> float:
        """Refuse: Laplace noise needs a column of few entries, this one has as many as there are releases."""
        raise ValueError("noise must be gaussian for the toeplitz counter, got 'laplace'")

    def matrix(self, n: int) -> Floats:
        """Return the lower-triangular Toeplitz matrix of `b`."""
        buffers = fit_toeplitz_buffers(self.horizon)
        later = (buffers.weight * buffers.decay ** np.arange(max(n - 1, 0))[:, None]).sum(-1)
        return lower_toeplitz(np.append(1.0, later)[:n])

    def lagged_covariance(self, n: int, lags: int) -> Floats:
        """Return `sum_{j < k - d} b_j b_{j + d}`: running sums, no matrix."""
        buffers = fit_toeplitz_buffers(self.horizon)
        later = toeplitz_weighted(buffers.decay ** np.arange(n + lags)[:, None], buffers.weight)
        coefficient = np.append(1.0, later)
        covariance = np.zeros((lags, n))

        for lag in range(min(lags, n)):
            covariance[lag, lag:] = np.cumsum(coefficient[: n - lag] * coefficient[lag:n])

        return covariance

    def noise_variance(self, release: Ints) -> Floats:
        """Return `sum_{j < k} b_j**2`."""
        k = np.asarray(release)
        if int(np.max(k, initial=0)) <= _TABLE_LENGTH:  # a million agents, few different releases
            return _variance_table(self.horizon)[k - 1]
        return _noise_variance(fit_toeplitz_buffers(self.horizon), k)

    def increment_variance(self, release: Ints) -> Floats:
        """Return `1 + sum_{1 <= j < k} (b_j - b_{j-1})**2`."""
        buffers = fit_toeplitz_buffers(self.horizon)
        k = np.asarray(release)
        first = np.where(k > 1, (buffers.weight.sum() - 1.0) ** 2, 0.0)
        change = buffers.weight * (buffers.decay - 1.0)

        return 1.0 + first + _squared_sums(change, buffers.decay, np.maximum(k - 2, 0))

    def init(self, n_rows: int) -> State:
        """Return empty buffers.

        Column `m` will be the sum of `decay_m**age` times the past draws.
        """
        return {"buffers": np.zeros((n_rows, len(fit_toeplitz_buffers(self.horizon).decay)))}

    def _step(self, state: State, rows: Ints | slice, release: Ints, fresh: Floats) -> Floats:  # noqa: ARG002
        buffers = fit_toeplitz_buffers(self.horizon)
        held = state["buffers"][rows]
        noise = fresh + toeplitz_weighted(held, buffers.weight)
        state["buffers"][rows] = held * buffers.decay + fresh[:, None]

        return noise

    def init_past(self, n_rows: int) -> State:
        """Return the covariance of no releases with the buffers."""
        return {"past": np.zeros((n_rows, len(fit_toeplitz_buffers(self.horizon).decay)))}

    def covariance_with_past(
        self, state: State, rows: Ints, release: Ints, coefficient: Floats
    ) -> Floats:
        """Return the covariance of this noise with the weighted sum of the earlier ones, through the buffers."""
        buffers = fit_toeplitz_buffers(self.horizon)
        past = state["past"][rows]
        product = np.multiply.outer(buffers.decay, buffers.decay)
        shared = toeplitz_geometric(
            product, (np.asarray(release) - 1)[:, None, None]
        )  # Cov of the buffers
        own = 1.0 + buffers.decay * (shared * buffers.weight).sum(
            -1
        )  # Cov(noise_k, buffers after release k)
        state["past"][rows] = past * buffers.decay + coefficient[:, None] * own

        return toeplitz_weighted(past, buffers.weight)


def toeplitz_norm(n: Ints) -> Floats:
    """Return `S_n = sum_{j < n} (binomial(2j, j) / 4**j)**2`, to 12 digits.

    Examples
    --------
    >>> import numpy as np
    >>> toeplitz_norm(np.array([1, 2, 1000])).round(6).tolist()
    [1.0, 1.25, 3.265003]
    """
    j = np.arange(1, _EXACT_TERMS)
    exact = np.cumsum(np.concatenate([[1.0], np.cumprod(1.0 - 0.5 / j)]) ** 2)
    length = np.maximum(np.asarray(n, dtype=np.float64), 1.0)
    # Euler-Maclaurin of sum 1/(pi j) (1 - 1/(4j) + ...): the next term is of order 1/n^3
    series = (
        np.log(length) + np.euler_gamma + 4 * math.log(2) - 0.25 / length + 5 / (192 * length**2)
    ) / math.pi

    return np.where(length < _EXACT_TERMS, exact[np.minimum(n, _EXACT_TERMS) - 1], series)


@lru_cache(maxsize=64)
def fit_toeplitz_buffers(horizon: int) -> Buffers:
    """Return the pair with the fewest buffers whose noise is within `EXCESS` of the exact factorization.

    The search is over a fixed grid of steps of the trapezoidal rule, and the parameters are rounded
    to multiples of 2**-40: every platform gets the same floats, and so the same noise on replay.
    """
    for n_buffers in range(1, 33):
        pairs = [_trapezoid(horizon, n_buffers, step) for step in np.arange(2.0, 5.25, 0.25)]
        excess = [toeplitz_excess_stddev(pair, horizon) for pair in pairs]
        if min(excess) <= EXCESS:
            return pairs[int(np.argmin(excess))]

    raise ValueError(f"horizon must be within reach of 32 buffers, got {horizon!r}")


@lru_cache(maxsize=64)
def _variance_table(horizon: int) -> Floats:
    """Return the noise variance of the first releases."""
    return _noise_variance(fit_toeplitz_buffers(horizon), np.arange(1, _TABLE_LENGTH + 1))


def toeplitz_excess_stddev(buffers: Buffers, horizon: int) -> float:
    """Return the largest relative excess of the noise's standard deviation, over the releases up to the horizon."""
    release = np.unique(np.round(np.geomspace(1, horizon, 64)).astype(np.int64))
    used = _squared_norm(buffers, np.asarray(horizon)) * _noise_variance(buffers, release)
    exact = toeplitz_norm(np.asarray(horizon)) * toeplitz_norm(release)
    return float(np.sqrt(np.max(used / exact)) - 1.0)


def _trapezoid(horizon: int, n_buffers: int, step: float) -> Buffers:
    """Make the pair from nodes `s` of the integral.

    The slowest node lies at the horizon and carries the tail.
    """
    s = step * np.arange(n_buffers) - math.log(horizon) - 2.0
    share = step / (2 * math.pi * np.cosh(s / 2))
    share[0] /= 1.0 - math.exp(
        -step / 2
    )  # all slower nodes decay as little as this one within the horizon
    decay = np.round(1.0 / (1.0 + np.exp(s)) / _GRID) * _GRID
    weight = np.round(share * decay / _GRID) * _GRID
    require(bool(np.all(weight > 0) and np.all(decay < 1)), "horizon", "be representable", horizon)

    return Buffers(decay, weight, *_inverse(decay, weight))


def _inverse(decay: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return rates and factors of `c(x) = 1 / ((1 - x) b(x))`, the coefficients of `C`.

    With `y = 1/x`, `b = 1 + v^T (y - D)^{-1} v` for `v = sqrt(weight)`, so
    `1/b = 1 - v^T (y - D + v v^T)^{-1} v`: the rates are the eigenvalues of `D - v v^T`.
    """
    v = np.sqrt(weight)
    rate, vectors = np.linalg.eigh(np.diag(decay) - np.outer(v, v))
    factor = (vectors.T @ v) ** 2 / (1.0 - rate)
    return np.append(rate, 1.0), np.append(factor, 1.0 - factor.sum())


def _noise_variance(buffers: Buffers, release: Ints) -> Floats:
    """Return `sum_{j < k} b_j**2`."""
    return 1.0 + _squared_sums(buffers.weight, buffers.decay, release - 1)


def _squared_norm(buffers: Buffers, n: Ints) -> Floats:
    """Return `sum_{j < n} c_j**2`."""
    return _squared_sums(buffers.left, buffers.rate, n)


def _squared_sums(factor: Floats, rate: Floats, n: Ints) -> Floats:
    """Return `sum_{j < n} (sum_m factor_m rate_m**j)**2` for each n, in closed form."""
    product = np.multiply.outer(rate, rate)
    terms = toeplitz_geometric(product, np.asarray(n)[..., None, None])
    total: Floats = (terms * np.multiply.outer(factor, factor)).sum((-1, -2))
    return total


def toeplitz_geometric(ratio: Floats, n: Ints) -> Floats:
    """Return `sum_{j < n} ratio**j` for ratios in (-1, 1].

    Examples
    --------
    >>> toeplitz_geometric(np.array([0.5, 1.0]), np.array([3])).tolist()
    [1.75, 3.0]
    """
    one = ratio == 1.0
    safe = np.where(one, 0.0, ratio)
    return np.where(one, n, (1.0 - safe**n) / (1.0 - safe))


def toeplitz_weighted(values: Floats, weight: Floats) -> Floats:
    """Sum the columns in a fixed order, so that a batch of rows gives the same floats as each row alone.

    Examples
    --------
    >>> toeplitz_weighted(np.array([[1.0, 2.0]]), np.array([3.0, 4.0])).tolist()
    [11.0]
    """
    total: Floats = values[:, 0] * weight[0]
    for m in range(1, len(weight)):
        total = total + values[:, m] * weight[m]

    return total
