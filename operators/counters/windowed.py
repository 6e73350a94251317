"""Sums of the newest increments: noise of one size for a sliding window that never ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from meanstream.operators.counters.base import Counter, State, counter_rows
from meanstream.operators.counters.toeplitz import lower_toeplitz
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require

LONGEST_WINDOW = 128
"""Increments in a window: a row keeps three numbers for each."""
_WINDOWS = 3
_SETTLED = 64
GRID = 2.0**-40


class WindowFactors(NamedTuple):
    """The strategy `c`, the noise `b = a / c` for the window `a`, and the noise of one increment `1 / c`."""

    strategy: Floats
    noise: Floats
    increment: Floats


@dataclass(frozen=True)
class Windowed(Counter):
    """Noise of the sum of the newest `window` increments.

    Parameters
    ----------
    horizon : int
        Largest number of releases of one row; `ENDLESS` for no end.
    window : int
        Increments in each sum, in 1..128.

    Notes
    -----
    **Privacy.** Gaussian noise only. A column of `C` has `3 * window` entries and no more: the square root
    `((1 - x**W) / (1 - x))**(1/2)` of the window, cut off there, and `B = A C^{-1}` is what belongs to it. So a sample
    meets that many releases, and the sensitivity is a finite sum, exact for the stream without end. Cutting costs
    accuracy, never privacy: half a percent of the variance.

    Examples
    --------
    >>> import numpy as np
    >>> from meanstream.operators.counters.base import ENDLESS
    >>> counter = Windowed(ENDLESS, window=7)
    >>> (counter.l2_sensitivity**2 * counter.noise_variance(np.array([1, 7, 10**9]))).round(2).tolist()
    [1.77, 2.97, 3.17]

    References
    ----------
    Bolot, Fawaz, Muthukrishnan, Nikolov, Taft (2013), "Private decayed predicate sums on streams", for windows.
    """

    name: ClassVar[str] = "windowed"
    forgets: ClassVar[bool] = True
    window: int = 8

    def __post_init__(self) -> None:
        Counter.__post_init__(self)
        require(
            1 <= self.window <= LONGEST_WINDOW,
            "window",
            f"lie in 1..{LONGEST_WINDOW} increments",
            self.window,
        )

    @property
    def l2_sensitivity(self) -> float:
        """Norm of the first column of `C`, which has no other kind."""
        return math.sqrt(float((self._factors.strategy[: self.horizon] ** 2).sum()))

    @property
    def l1_sensitivity(self) -> float:
        """Refuse: square roots are made for Gaussian noise."""
        raise ValueError(f"noise must be gaussian for the {self.name} counter, got 'laplace'")

    @property
    def reach(self) -> int:
        """Number of releases that a sample meets."""
        return min(self.horizon, len(self._factors.strategy))

    def workload(self, n: int) -> Floats:
        """Return the band of ones."""
        return np.tri(n) - np.tri(n, k=-self.window)

    def matrix(self, n: int) -> Floats:
        """Return the lower-triangular Toeplitz matrix of `b`."""
        column = _padded(self._factors.noise, n)
        return lower_toeplitz(column)

    def noise_variance(self, release: Ints) -> Floats:
        """Return `sum_{j < k} b_j**2`."""
        return _running(self._factors.noise**2, release)

    def increment_variance(self, release: Ints) -> Floats:
        """Return `sum_{j < k} (b_j - b_{j-1})**2`."""
        return _running(np.diff(self._factors.noise, prepend=0.0) ** 2, release)

    def init(self, n_rows: int) -> State:
        """Return the noise of no increments."""
        return {"increments": np.zeros((n_rows, self._kept))}

    def increment(self, state: State, rows: Ints, fresh: Floats) -> Floats:
        """Return the noise of each row's next increment alone and update the state in place, as `step` does."""
        past = state["increments"][rows]
        strategy = self._factors.strategy
        newest = fresh
        for j in range(
            1, len(strategy)
        ):  # one after the other: a batch gives the same floats as each row alone
            newest = newest - strategy[j] * past[:, -j]

        if self._kept:
            state["increments"][rows] = np.concatenate([past[:, 1:], newest[:, None]], axis=1)

        return newest

    def _step(self, state: State, rows: Ints | slice, release: Ints, fresh: Floats) -> Floats:  # noqa: ARG002
        rows = counter_rows(rows)
        past = state["increments"][rows]
        noise = self.increment(state, rows, fresh)
        for j in range(1, self.window):
            noise = noise + past[:, -j]

        return noise

    def init_past(self, n_rows: int) -> State:
        """Return the covariance of no releases with the noises of the newest increments."""
        return {"past": np.zeros((n_rows, self._kept))}

    def covariance_with_past(
        self, state: State, rows: Ints, release: Ints, coefficient: Floats
    ) -> Floats:
        """Return the covariance with the weighted sum of the earlier ones, through the noises of the increments."""
        past = state["past"][rows]
        factors = self._factors
        newest = -(factors.strategy[:0:-1] * past).sum(axis=1)
        found = newest + past[:, self._kept - self.window + 1 :].sum(axis=1)

        if self._kept:
            lags = np.arange(self._kept - 1, -1, -1)  # of the increments that will be kept
            until = np.clip(release[:, None] - lags, 0, settled_steps(self.window))
            own = _shared_table(self._factorize, self.window)[lags, until]
            kept = np.concatenate([past[:, 1:], newest[:, None]], axis=1)
            state["past"][rows] = kept + coefficient[:, None] * own

        return np.asarray(found)

    @property
    def _kept(self) -> int:
        return len(self._factors.strategy) - 1

    @property
    def _factors(self) -> WindowFactors:
        return self._factorize(self.window)

    @property
    def _factorize(self) -> Callable[[int], WindowFactors]:
        """What finds the pair of a window."""
        return factorize_window


@lru_cache(maxsize=64)
def factorize_window(window: int) -> WindowFactors:
    """Find the pair; arrays are shared, and cannot be changed.

    The strategy is on a grid: the same on every machine.
    """
    n = 1 if window == 1 else _WINDOWS * window
    of_ones = np.append(1.0, np.cumprod(1.0 - 0.5 / np.arange(1, max(n, 2))))[:n]  # (1 - x)^(-1/2)
    strategy = of_ones.copy()
    coefficient = 1.0

    for k in range(1, -(-n // window)):
        coefficient *= (k - 1.5) / k  # of x^(k W) in (1 - x^W)^(1/2)
        strategy[k * window :] += coefficient * of_ones[: n - k * window]

    return factor_pair(strategy, window)


def factor_pair(strategy: Floats, window: int) -> WindowFactors:
    """Put a strategy on the grid, and find the noise that belongs to it.

    Arrays are shared, and cannot be changed.
    """
    from scipy.signal import lfilter  # noqa: PLC0415 - half a second of every start, where no one asks for a window

    strategy = np.rint(strategy / GRID) * GRID
    one = np.append(1.0, np.zeros(settled_steps(window) - 1))
    increment = lfilter([1.0], strategy, one)
    noise = lfilter(np.ones(window), strategy, one)

    for array in (strategy, noise, increment):
        array.flags.writeable = False

    return WindowFactors(strategy, noise, increment)


def settled_steps(window: int) -> int:
    """So many releases the noise needs to settle, to the last digits."""
    return _SETTLED * window


@lru_cache(maxsize=16)
def _shared_table(factorize: Callable[[int], WindowFactors], window: int) -> Floats:
    """Covariance of the noise of a sum and of the increment `lag` before, by lag and by the releases up to that."""
    factors = factorize(window)
    lags = len(factors.strategy) - 1
    steps = settled_steps(window)
    table = np.zeros((lags, steps + 1))

    for lag in range(lags):
        product = factors.increment[: steps - lag] * factors.noise[lag:]
        table[lag, 1 : len(product) + 1] = np.cumsum(product)
        table[lag, len(product) + 1 :] = table[lag, len(product)]

    return table


def _running(squares: Floats, release: Ints) -> Floats:
    return np.asarray(np.cumsum(squares)[np.minimum(np.asarray(release), len(squares)) - 1])


def _padded(values: Floats, n: int) -> Floats:
    return np.append(values, np.zeros(max(n - len(values), 0)))[:n]


_SHARED = 1024


@dataclass(frozen=True)
class Sliding(Windowed):
    """Noise of sums of the newest increments, up to about `window` of them.

    `Windowed` has the least noise where each sum has exactly `window` increments, and up to twice
    as much where one has fewer. Here a sum of fewer increments has less noise, and one of `window`
    a seventh more than there.

    Parameters
    ----------
    horizon : int
        Largest number of releases of one row; `ENDLESS` for no end.
    window : int
        Increments in a sum, in 1..128; of those of `matrix` and `noise_variance` exactly that many.

    Notes
    -----
    **Privacy.** Gaussian noise only. The strategy is `(1 - r x)**(-1/2)` with `r = exp(-1 / W)`, cut off after `3 W`
    entries. The noise of increment `e` is `(C^{-1} fresh)_e`, so any sum of increments with their noise is a function
    of `C x + fresh`, whichever increments public facts choose; a sample meets `3 W` releases, and the sensitivity is a
    finite sum, exact for the stream without end.

    Examples
    --------
    >>> from meanstream.operators.counters.base import ENDLESS
    >>> counter = Sliding(ENDLESS, window=8)
    >>> late = np.array([10**9])
    >>> products = [counter.l2_sensitivity**2 * counter.part_covariance(w, w, late)[0] for w in (1, 4, 8, 16)]
    >>> np.round(products, 2).tolist()
    [1.7, 2.97, 3.86, 5.28]

    References
    ----------
    Andersson, Pagh (2024), arXiv 2406.03802, for square roots of decayed sums.
    """

    name: ClassVar[str] = "sliding"

    def part_covariance(self, first: int, second: int, release: Ints) -> Floats:
        """Return the covariance of the noises of the newest `first` and `second` increments, at these releases.

        For fresh draws of variance 1; each number of increments is at most that of the releases so
        far.
        """
        table = _covariances(self.window, min(first, second), max(first, second))
        return np.asarray(table[np.minimum(np.asarray(release), len(table)) - 1])

    @property
    def _factorize(self) -> Callable[[int], WindowFactors]:
        return factorize_sliding


@lru_cache(maxsize=64)
def factorize_sliding(window: int) -> WindowFactors:
    """Find the pair; arrays are shared, and cannot be changed."""
    n = 1 if window == 1 else 3 * window
    ratio = round(math.exp(-1 / window) / GRID) * GRID
    return factor_pair(
        np.append(1.0, np.cumprod((1.0 - 0.5 / np.arange(1, max(n, 2))) * ratio))[:n], window
    )


@lru_cache(maxsize=_SHARED)
def _covariances(window: int, first: int, second: int) -> Floats:
    """Sum up the products of what the draws weigh in both sums, by the number of draws."""
    length = settled_steps(window) + second
    products = np.cumsum(_weights(window, first, length) * _weights(window, second, length))
    products.flags.writeable = False
    return products


def _weights(window: int, number: int, length: int) -> Floats:
    """Weight of each draw, newest first, in the noise of the newest increments."""
    increment = np.zeros(length)
    known = factorize_sliding(window).increment
    increment[: len(known)] = known  # it has settled at nothing
    until = np.cumsum(increment)
    until[number:] -= until[:-number].copy()

    return until
