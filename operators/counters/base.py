"""The base class of the continual counters.

Noisy prefix sums whose noise is linear in fresh draws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require

State = dict[str, npt.NDArray[Any]]
"""Plain arrays whose leading dimension is the number of rows (agents, or pairs of agents)."""


ENDLESS = 2**62
"""The horizon of a counter whose sensitivity has a limit, where there is no end to its releases."""


def counter_limit(horizon: int | None) -> int | None:
    """Return how many releases a row may make; None where there is no end.

    Examples
    --------
    >>> counter_limit(40), counter_limit(ENDLESS)
    (40, None)
    """
    if horizon == ENDLESS:
        return None
    return horizon


class HorizonReached(ValueError):  # noqa: N818 - an end of the budget, named like StopIteration
    """A release was requested past the number of releases that the noise was calibrated for."""


@dataclass(frozen=True)
class Counter(ABC):
    """A continual counter.

    One fresh draw per release, noise that is a fixed linear function of the draws.

    The `k`-th noisy prefix sum of a row is
    `sum of the first k increments + sum_{e <= k} B[k, e] fresh_e`, with independent, identically
    distributed draws `fresh_e`. A counter is plain numbers; the noise that past draws still
    contribute is in a `State`, which is mutated by `step` and is snapshotted by copying its arrays.

    Parameters
    ----------
    horizon : int
        Largest number of releases of one row. It is part of the privacy calibration: past it `step`
        refuses.

    Notes
    -----
    **Privacy.** Neighboring streams differ in the value of one sample (replace-one), so in one increment by at most
    the sensitivity `s`. The releases are `B (C x + fresh)` with `C = B^{-1} A`, `A` the matrix of prefix sums, `x` the
    increments: everything published is post-processing of `C x + fresh`, whose l2 (l1) sensitivity is `s` times the
    largest l2 (l1) norm of a column of `C`. When and how often a row releases is public and must not depend on values.
    """

    name: ClassVar[str]
    by_release: ClassVar[frozenset[str]] = frozenset()
    """Columns of its state with an entry for each release; those of later releases are 0, and may
    be left out."""
    public: ClassVar[frozenset[str]] = frozenset()
    """Columns of its state that follow from when a row released; the others have noise in them."""
    forgets: ClassVar[bool] = False
    """Whether its sums are no prefix sums: older increments weigh less in them, or nothing."""
    horizon: int

    def __post_init__(self) -> None:
        require(self.horizon >= 1, "horizon", "be at least 1", self.horizon)

    @property
    @abstractmethod
    def l2_sensitivity(self) -> float:
        """Largest l2 norm of a column of `C`.

        What one unit of one increment moves the noised vector by.
        """

    @property
    @abstractmethod
    def l1_sensitivity(self) -> float:
        """Largest l1 norm of a column of `C`, for Laplace noise."""

    @property
    def reach(self) -> int:
        """Number of releases whose noised numbers a sample moves by more than 2**-96 of the sensitivity."""
        return self.horizon

    @property
    def parts(self) -> int:
        """Number of separately noised sums that one sample can meet.

        The divisor of basic composition.
        """
        return 1

    def workload(self, n: int) -> Floats:
        """Return `A`, shape (n, n).

        What of each increment is in each sum; for prefix sums all up to it.
        """
        return np.tri(n)

    @abstractmethod
    def matrix(self, n: int) -> Floats:
        """Return `B`, shape (n, n): the dense form of what `step` does."""

    @abstractmethod
    def noise_variance(self, release: Ints) -> Floats:
        """Return the variance of the noise in the given noisy prefix sums, for fresh draws of variance 1."""

    @abstractmethod
    def increment_variance(self, release: Ints) -> Floats:
        """Return the variance of `noise_k - noise_{k-1}`, for fresh draws of variance 1."""

    def covariance(self, n: int) -> Floats:
        """Return `B B^T`, shape (n, n).

        The covariance of the first `n` noises, for fresh draws of variance 1.
        """
        matrix = self.matrix(n)
        return matrix @ matrix.T

    def lagged_covariance(self, n: int, lags: int) -> Floats:
        """Return `Cov(noise_k, noise_{k - d})` for `d < lags` and `k <= n`, shape (lags, n), for draws of variance 1.

        0 where there is no release `k - d`. Unlike `covariance`, the same bits whatever `n` is.

        Examples
        --------
        >>> from meanstream.operators.counters.pm1 import Pm1
        >>> Pm1(3).lagged_covariance(3, 2).tolist()
        [[1.0, 2.0, 3.0], [0.0, 1.0, 2.0]]
        """
        matrix = self.matrix(n)
        covariance = np.zeros((lags, n))
        for lag in range(min(lags, n)):
            # Added up one after the other: zeros at the end change nothing.
            covariance[lag, lag:] = np.cumsum(matrix[lag:] * matrix[: n - lag], axis=1)[:, -1]

        return covariance

    @abstractmethod
    def init(self, n_rows: int) -> State:
        """Return the state of `n_rows` rows before their first release."""

    def step(self, state: State, rows: Ints | slice, release: Ints, fresh: Floats) -> Floats:
        """Return the noise of each row's next noisy prefix sum and update the state in place.

        Parameters
        ----------
        state : State
            From `init`, or a copy of an earlier state.
        rows : int array, shape (m,), or slice
            Distinct rows that release now; m consecutive ones may be a slice.
        release : int array, shape (m,)
            Number of that release within its row, from 1; each row counts up by one.
        fresh : float array, shape (m,)
            One independent draw per row.

        Raises
        ------
        HorizonReached
            If a release is past the horizon; the state is unchanged.
        """
        self._within_horizon(release)
        return self._step(state, rows, release, fresh)

    @abstractmethod
    def _step(self, state: State, rows: Ints | slice, release: Ints, fresh: Floats) -> Floats:
        """Do what `step` says, for releases within the horizon."""

    @abstractmethod
    def init_past(self, n_rows: int) -> State:
        """Return the state of `covariance_with_past` before a row's first release."""

    @abstractmethod
    def covariance_with_past(
        self, state: State, rows: Ints, release: Ints, coefficient: Floats
    ) -> Floats:
        """Return `Cov(noise_k, sum_{i < k} c_i noise_i)` for fresh draws of variance 1, and add `c_k` to the state.

        This is what the variance of a running weighted sum of releases needs, in the memory of
        `step`. Setting a row of the state to zero forgets the earlier coefficients: the sum starts
        again.
        """

    def _within_horizon(self, release: Ints) -> None:
        last = int(np.max(release, initial=0))
        if last > self.horizon:
            raise HorizonReached(
                f"{self.name}: release {last} is past the horizon of {self.horizon} releases"
            )


def counter_rows(rows: Ints | slice) -> Ints:
    """Return consecutive rows as numbers.

    Examples
    --------
    >>> counter_rows(slice(2, 4)).tolist()
    [2, 3]
    """
    if isinstance(rows, slice):
        return np.arange(rows.start, rows.stop)
    return rows


def counter_lowest_bit(release: Ints) -> Ints:
    """Return `v2(k)`, the exponent of 2 in each positive integer.

    Examples
    --------
    >>> import numpy as np
    >>> counter_lowest_bit(np.array([1, 2, 3, 4, 12])).tolist()
    [0, 1, 0, 2, 2]
    """
    exponent: Ints = np.bitwise_count((release & -release) - 1).astype(np.int64)
    return exponent
