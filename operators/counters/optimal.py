"""The optimal lower-triangular factorization for a schedule of few releases.

Less noise than the square root.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from meanstream.operators.counters.base import Counter, State, counter_rows
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require

LONGEST = 128
"""Releases that a row may have: each keeps all its draws, and the factorization costs the cube."""
_GRID = 2.0**-40
_ROUNDS = 6
_ROOT_STEPS = 80
_CLOSE = 1e-6
_NOMINAL_VARIANCE = 1 / 16
_NOMINAL_NOISE = 18.0
_MOST_SAMPLING = 1e4
_TOGETHER = 40
"""Terms of a product that are computed at once."""


class Factors(NamedTuple):
    """A pair `B C = A` of the prefix sums.

    Noise, strategy, and the largest norm of a column of the strategy.

    `variance` and `change` are the variances of each noise, and of its difference to the one
    before.
    """

    noise: Floats
    strategy: Floats
    norm: float
    variance: Floats
    change: Floats


@dataclass(frozen=True)
class Optimal(Counter):
    """Noise of the `k`-th prefix sum.

    `sum_{e <= k} B[k, e] fresh_e` with `B` optimal for what the releases are for.

    Parameters
    ----------
    horizon : int
        Largest number of releases of one row, at most `LONGEST`.
    sampling : tuple of float
        Variance of the samples in each released sum, in units of a draw whose strategy has columns
        of norm 1 (`optimal_counter_sampling`); the default, all 0, makes the noise alone small.

    Notes
    -----
    **Privacy.** Gaussian noise only. `C x + fresh` is one Gaussian mechanism; a sample lies in one increment.
    `l2_sensitivity` is the largest norm of a column of `C = B^{-1} A` for the rounded `B` that is really used, by
    forward substitution: what the optimization leaves to be desired costs accuracy, never privacy.

    It minimizes `sum_k log(sampling_k + (B B^T)_kk)` over pairs whose `C` has columns of norm 1:
    equal relative accuracy of all releases, those of many samples counting less, as noise is little
    of what they err by. For given weights `W` the optimal `X = C^T C` solves
    `X = v^{-1/2} (v^{1/2} A^T W A v^{1/2})^{1/2} v^{-1/2}` where `v` makes its diagonal 1; weights
    and `v` are updated together, and after 6 rounds within 1e-4 of where they end.

    The same bits on every machine: only elementwise additions, multiplications, divisions and
    square roots, which IEEE 754 rounds in one way, in a fixed order; no BLAS, no LAPACK, no sum
    whose order the processor chooses. `B` is then rounded to multiples of 2**-40, so the noise of
    stored streams goes on.

    Examples
    --------
    >>> import numpy as np
    >>> from meanstream.operators.counters.toeplitz import Toeplitz
    >>> release = np.array([1, 10, 40])
    >>> [(c.l2_sensitivity**2 * c.noise_variance(release)).round(2).tolist() for c in (Optimal(40), Toeplitz(40))]
    [[2.63, 3.63, 4.8], [2.25, 3.95, 5.02]]

    References
    ----------
    Denisov, McMahan, Rush, Smith, Thakurta (2022), "Improved differential privacy for SGD via optimal private linear
    operators on adaptive streams", for the fixed point. Higham (2008), "Functions of Matrices", for the root.
    """

    name: ClassVar[str] = "optimal"
    by_release: ClassVar[frozenset[str]] = frozenset({"draws"})
    sampling: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        Counter.__post_init__(self)
        require(
            self.horizon <= LONGEST,
            "horizon",
            f"be at most {LONGEST} for the optimal counter",
            self.horizon,
        )

        right = len(self.sampling) in (0, self.horizon) and all(
            0 <= s < math.inf for s in self.sampling
        )
        require(
            right,
            "sampling",
            f"be {self.horizon} finite numbers that are not negative",
            self.sampling,
        )

    @property
    def factors(self) -> Factors:
        """The pair in use."""
        return factorize_optimal_counter(self.sampling or (0.0,) * self.horizon)

    @property
    def l2_sensitivity(self) -> float:
        """Largest norm of a column of `C` of the pair in use."""
        return self.factors.norm

    @property
    def l1_sensitivity(self) -> float:
        """Refuse: Laplace noise needs a column of few entries, this one has as many as there are releases."""
        raise ValueError("noise must be gaussian for the optimal counter, got 'laplace'")

    def matrix(self, n: int) -> Floats:
        """Return the leading part of `B`."""
        return self.factors.noise[:n, :n].copy()

    def noise_variance(self, release: Ints) -> Floats:
        """Return `sum_e B[k, e]**2`."""
        return self.factors.variance[np.asarray(release) - 1]

    def increment_variance(self, release: Ints) -> Floats:
        """Return `sum_e (B[k, e] - B[k-1, e])**2`."""
        return self.factors.change[np.asarray(release) - 1]

    def init(self, n_rows: int) -> State:
        """Return no draws."""
        return {"draws": np.zeros((n_rows, self.horizon))}

    def _step(self, state: State, rows: Ints | slice, release: Ints, fresh: Floats) -> Floats:
        rows = counter_rows(rows)
        state["draws"][rows, release - 1] = fresh
        noise = np.zeros(len(rows))
        row_of = self.factors.noise[release - 1]

        # One draw after the other: a batch of rows gives the same floats as each row alone.
        for e in range(int(np.max(release, initial=0))):
            noise = noise + row_of[:, e] * state["draws"][rows, e]

        return noise

    def init_past(self, n_rows: int) -> State:
        """Return a weighted sum of no releases."""
        return {"past": np.zeros((n_rows, self.horizon))}

    def covariance_with_past(
        self, state: State, rows: Ints, release: Ints, coefficient: Floats
    ) -> Floats:
        """Return the covariance with the earlier ones through what each draw contributes to their weighted sum."""
        row_of = self.factors.noise[release - 1]
        past = state["past"][rows]
        state["past"][rows] = past + coefficient[:, None] * row_of
        return np.asarray((past * row_of).sum(axis=1))


def optimal_counter_sampling(
    times: Ints, epsilon: float, *, units: float = 1.0
) -> tuple[float, ...]:
    """Give the variance of the samples in released sums, in units of a draw, for a nominal variance and delta.

    Parameters
    ----------
    times : int array, shape (n,)
        Samples in each released sum.
    epsilon : float
        Of all releases together.
    units : float
        Sensitivity in widths of the bounds.

    Notes
    -----
    A sample varies by a sixteenth of the squared width, a draw by `18 / epsilon^2` of it (delta 1e-6): a choice of
    weights, no calibration. It is not made of the true values, whose logarithms machines round differently.

    Examples
    --------
    >>> [round(s, 2) for s in optimal_counter_sampling(np.array([288, 2880]), 1.0)]
    [1.0, 10.0]
    """
    scale = _NOMINAL_VARIANCE * epsilon * epsilon / (_NOMINAL_NOISE * units * units)
    return tuple(min(scale * time, _MOST_SAMPLING) for time in np.asarray(times).tolist())


@lru_cache(maxsize=64)
def factorize_optimal_counter(sampling: tuple[float, ...]) -> Factors:
    """Find the pair; the arrays are shared, and cannot be changed."""
    n = len(sampling)
    more = np.array(sampling)
    later = np.maximum.outer(np.arange(n), np.arange(n))
    variance = np.ones(n)
    v = None

    for _ in range(_ROUNDS):
        tail = np.cumsum((1.0 / (more + variance))[::-1])[::-1]
        v = np.sqrt(tail) if v is None else v
        scale = np.sqrt(v)
        root = _root(scale[:, None] * tail[later] * scale)
        v = np.diag(root).copy()  # X has the diagonal 1 where v is that of the root
        size = np.sqrt(v)
        noise = _noise_of(root / (size[:, None] * size))
        variance = _row_squares(noise)

    noise = np.rint(noise / noise[0, 0] / _GRID) * _GRID
    strategy = _strategy_of(noise)
    norm = math.sqrt(float(_row_squares(strategy.T).max()))
    change = _row_squares(np.diff(noise, axis=0, prepend=0.0))
    factors = Factors(noise, strategy, norm, _row_squares(noise), change)

    for array in (noise, strategy, factors.variance, change):
        array.flags.writeable = False

    return factors


def _root(matrix: Floats) -> Floats:
    """Return the square root of a positive definite matrix, by Newton and Schulz."""
    n = len(matrix)
    norm = math.fsum(np.diag(matrix).tolist())  # no eigenvalue is larger
    root = matrix / norm
    inverse = np.eye(n)

    for _ in range(_ROOT_STEPS):
        product = _product(inverse, root)
        step = 0.5 * (3.0 * np.eye(n) - product)
        root, inverse = _symmetric(_product(root, step)), _symmetric(_product(step, inverse))

        if float(np.abs(product - np.eye(n)).max()) < _CLOSE:
            break

    return root * math.sqrt(norm)


def _noise_of(gram: Floats) -> Floats:
    """Return `B = A C^{-1}` for the lower-triangular `C` with `C^T C` as given.

    Cholesky from the last row on.
    """
    n = len(gram)
    remainder = gram.copy()
    strategy = np.zeros((n, n))
    for k in range(n - 1, -1, -1):
        strategy[k] = remainder[k] / math.sqrt(float(remainder[k, k]))
        strategy[k, k + 1 :] = 0.0
        remainder = remainder - strategy[k][:, None] * strategy[k]

    noise = np.zeros((n, n))
    left = np.tri(n)
    for k in range(n - 1, -1, -1):
        noise[:, k] = left[:, k] / strategy[k, k]
        left = left - noise[:, k][:, None] * strategy[k]

    return noise


def _strategy_of(noise: Floats) -> Floats:
    """Return `C = B^{-1} A` by forward substitution."""
    n = len(noise)
    left = np.tri(len(noise))
    strategy = np.zeros((n, n))
    for k in range(n):
        strategy[k] = left[k] / noise[k, k]
        left = left - noise[:, k][:, None] * strategy[k]

    return strategy


def _product(a: Floats, b: Floats) -> Floats:
    """Multiply matrices in one order of additions, which a library for linear algebra chooses by the machine.

    Sums over the first axis are made term by term, whatever the processor: only those along rows
    are in pairs.
    """
    columns = np.ascontiguousarray(a.T)
    total = np.zeros_like(a)
    for k in range(0, len(b), _TOGETHER):
        terms = columns[k : k + _TOGETHER, :, None] * b[k : k + _TOGETHER, None, :]
        terms[0] += total
        total = np.add.reduce(terms, axis=0)

    return np.asarray(total)


def _symmetric(matrix: Floats) -> Floats:
    return 0.5 * (matrix + matrix.T)


def _row_squares(matrix: Floats) -> Floats:
    """Sum the squares of each row, one column after the other."""
    total = np.zeros(len(matrix))
    for k in range(matrix.shape[1]):
        total = total + matrix[:, k] * matrix[:, k]

    return total
