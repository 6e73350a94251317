"""Exponentially decayed prefix sums: noise of one size for a stream without end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from meanstream.operators.counters.base import Counter, State, counter_rows
from meanstream.operators.counters.toeplitz import (
    Buffers,
    fit_toeplitz_buffers,
    toeplitz_geometric,
    toeplitz_weighted,
)
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require

GRID = 2.0**-40
"""Decays are multiples of it: every machine multiplies by the same floats, so noise is the same on
replay."""
LARGEST_DECAY = 1.0 - 2.0**-30


@dataclass(frozen=True)
class Decayed(Counter):
    """Noise of the sum in which each increment weighs `decay` times as much at each later release.

    The `k`-th sum is `sum_{e <= k} (D_{e+1} ... D_k) x_e`, where `D_k` is what the `k`-th release
    multiplies the past by: `early` for the second release and those after it, then `decay` for
    ever, less where a row has waited.

    Parameters
    ----------
    horizon : int
        Largest number of releases of one row; `ENDLESS` for no end: the sensitivity has a limit.
    decay : float
        What a release multiplies the past by, in (0, 1), on a grid of 2**-40
        (`decay_of_half_life`).
    early : tuple of float
        The decays of the first releases after the first one, where these are closer together.

    Notes
    -----
    **Privacy.** Gaussian noise only. `C = B^{-1} A` has the entries `c_{k-e} D_{e+1} ... D_k`, with `c` the strategy of
    the buffered square root (`toeplitz.py`). A sample lies in one increment; the largest norm of a column of `C` is
    summed in closed form over all releases to come, so the budget holds for the stream without end. A row that has
    waited (`wait`) has smaller products, hence shorter columns.

    The variance of the noise tends to a limit; with exact coefficients
    `binomial(2j, j) / 4**j decay**j` its product with the squared sensitivity is
    `((2 / pi) K(decay))**2` of a single release, and within 1 % with the buffers.

    Examples
    --------
    >>> import numpy as np
    >>> from meanstream.operators.counters.base import ENDLESS
    >>> counter = Decayed(ENDLESS, decay=decay_of_half_life(1.0, 6.58))
    >>> (counter.l2_sensitivity**2 * counter.noise_variance(np.array([1, 10, 10**9]))).round(2).tolist()
    [1.47, 2.09, 2.11]

    References
    ----------
    Bolot, Fawaz, Muthukrishnan, Nikolov, Taft (2013), "Private decayed predicate sums on streams", for the workload.
    Andersson, Pagh (2024), arXiv 2406.03802, for square roots of such workloads.
    """

    name: ClassVar[str] = "decayed"
    public: ClassVar[frozenset[str]] = frozenset({"shared", "variance"})
    forgets: ClassVar[bool] = True
    decay: float = 0.5**0.125 // GRID * GRID
    early: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        Counter.__post_init__(self)
        for value in (self.decay, *self.early):
            require(0 < value <= LARGEST_DECAY, "decay", f"lie in (0, {LARGEST_DECAY!r}]", value)
            require(value % GRID == 0, "decay", "be a multiple of 2**-40", value)

    @cached_property
    def buffers(self) -> Buffers:
        """Pair of the square root, whose slowest buffer lasts as long as two decays."""
        return fit_toeplitz_buffers(max(2, math.ceil(2.0 / (1.0 - self.decay))))

    @cached_property
    def l2_sensitivity(self) -> float:
        """Largest norm of a column of `C`, over all releases up to the horizon."""
        return math.sqrt(
            max(self._squared_norm(e) for e in range(min(len(self.early), self.horizon - 1) + 1))
        )

    @property
    def l1_sensitivity(self) -> float:
        """Refuse: Laplace noise needs a column of few entries, this one has as many as there are releases."""
        raise ValueError("noise must be gaussian for the decayed counter, got 'laplace'")

    @property
    def reach(self) -> int:
        """Number of releases whose noised numbers a sample moves by more than 2**-96 of the sensitivity."""
        return min(
            self.horizon, len(self.early) + math.ceil(96 * math.log(2) / -math.log(self.decay))
        )

    def workload(self, n: int) -> Floats:
        """Return the decays between releases, lower triangular."""
        steps = np.cumprod(np.concatenate([[1.0], self._decays(np.arange(2, n + 1))]))
        return np.tril(steps[:, None] / steps)

    def matrix(self, n: int) -> Floats:
        """Return `b_{k-e}` times the decay from release `e` to release `k`."""
        buffers = self.buffers
        lag = np.subtract.outer(np.arange(n), np.arange(n))
        later = (buffers.weight * buffers.decay ** np.arange(max(n - 1, 0))[:, None]).sum(-1)
        return np.append(1.0, later)[np.maximum(lag, 0)] * self.workload(n)

    def noise_variance(self, release: Ints) -> Floats:
        """Return the variance for rows that have not waited; it grows towards its limit."""
        return self._variance(self._held(np.asarray(release)))

    def increment_variance(self, release: Ints) -> Floats:
        """Return the variance of `noise_k - noise_{k-1}`, for rows that have not waited."""
        release, buffers = np.asarray(release), self.buffers
        decay = self._decays(release)
        change = buffers.weight * (decay[..., None] * buffers.decay - 1.0)
        before = self._held(np.maximum(release - 1, 1))
        varies = (decay * buffers.weight.sum() - 1.0) ** 2
        varies = varies + np.einsum("...m,...mn,...n->...", change, before, change)

        return np.where(release > 1, 1.0 + varies, 1.0)

    def init(self, n_rows: int) -> State:
        """Return empty buffers, and the variance that they have."""
        size = len(self.buffers.decay)
        return {
            "buffers": np.zeros((n_rows, size)),
            "shared": np.zeros((n_rows, size, size)),
            "variance": np.zeros(n_rows),
        }

    def wait(self, state: State, rows: Ints, turns: Ints) -> Floats:
        """Let turns pass in which these rows did not release.

        Return what that multiplies their past by.

        **Privacy.** Who releases at which turn is public.
        """
        decay = self.waited(turns)
        waited = np.flatnonzero(turns)
        if len(waited):
            state["buffers"][rows[waited]] *= decay[waited, None]
            state["shared"][rows[waited]] *= (decay * decay)[waited, None, None]

        return decay

    def waited(self, turns: Ints) -> Floats:
        """Return what that many turns without a release multiply the past by."""
        decay = np.ones(turns.shape)
        waited = np.flatnonzero(turns)
        decay[waited] = np.rint(self.decay ** turns[waited].astype(np.float64) / GRID) * GRID
        return decay

    def _step(self, state: State, rows: Ints | slice, release: Ints, fresh: Floats) -> Floats:
        rows = counter_rows(rows)
        buffers = self.buffers
        decay = self._decays(release)
        held = state["buffers"][rows] * decay[:, None]
        shared = state["shared"][rows] * (decay * decay)[:, None, None]
        noise = fresh + toeplitz_weighted(held, buffers.weight)
        state["buffers"][rows] = held * buffers.decay + fresh[:, None]
        state["variance"][rows] = self._variance(shared)
        state["shared"][rows] = shared * np.multiply.outer(buffers.decay, buffers.decay) + 1.0

        return noise

    def init_past(self, n_rows: int) -> State:
        """Return the covariance of no releases with the buffers."""
        return {"past": np.zeros((n_rows, len(self.buffers.decay)))}

    def covariance_with_past(
        self, state: State, rows: Ints, release: Ints, coefficient: Floats
    ) -> Floats:
        """Return the covariance of this noise with the weighted sum of the earlier ones, through the buffers."""
        buffers = self.buffers
        past = state["past"][rows] * self._decays(release)[:, None]
        own = 1.0 + buffers.decay * (self._held(release) * buffers.weight).sum(-1)
        state["past"][rows] = past * buffers.decay + coefficient[:, None] * own

        return toeplitz_weighted(past, buffers.weight)

    def decays(self, release: Ints) -> Floats:
        """Return what each release multiplies the past by, for rows that have not waited."""
        return self._decays(np.asarray(release))

    def _decays(self, release: Ints) -> Floats:
        table = np.array([self.decay, *self.early, self.decay])
        return table[np.clip(release - 1, 0, len(self.early) + 1)]

    def _variance(self, held: Floats) -> Floats:
        weight = self.buffers.weight
        total = np.ones(held.shape[:-2])
        for m in range(len(weight)):  # in a fixed order, whatever the batch
            for n in range(len(weight)):
                total = total + held[..., m, n] * (weight[m] * weight[n])

        return total

    def _held(self, release: Ints) -> Floats:
        """Covariance of the buffers at each release, after its decay and before its draw.

        Shape (..., m, m).
        """
        early = self._early_held
        after = np.maximum(release - len(early), 0)[..., None, None]
        ratio = self.decay**2 * np.multiply.outer(self.buffers.decay, self.buffers.decay)
        later = early[-1] * ratio**after + self.decay**2 * toeplitz_geometric(ratio, after)
        first = early[np.minimum(release, len(early)) - 1]

        return np.asarray(np.where(after > 0, later, first))

    @cached_property
    def _early_held(self) -> Floats:
        """Of `_held` the releases that have decays of their own."""
        product = np.multiply.outer(self.buffers.decay, self.buffers.decay)
        early = [np.zeros_like(product)]
        for decay in self.early:
            early.append(decay**2 * (early[-1] * product + 1.0))

        return np.stack(early)

    def _squared_norm(self, column: int) -> float:
        """Squared norm of a column of `C`: its early entries, then the geometric rest."""
        left = self.buffers.left
        rate = self.buffers.rate
        early = np.array(self.early[column : self.horizon - 1])
        past = np.cumprod(np.append(1.0, early))
        explicit = ((left * rate ** np.arange(len(past))[:, None]).sum(-1) * past) ** 2
        rest = max(self.horizon - column - len(past), 0)
        rate_now = rate * self.decay
        start = left * rate ** (len(past) - 1) * past[-1] * rate_now
        ratio = np.multiply.outer(rate_now, rate_now)
        tail = (np.multiply.outer(start, start) * toeplitz_geometric(ratio, np.asarray(rest))).sum()

        return float(explicit.sum() + tail)


def decay_of_half_life(turn: float, half_life: float) -> float:
    """Return what a turn multiplies the past by, on the grid of decays.

    Parameters
    ----------
    turn, half_life : float
        Length of a turn and the time in which a weight halves, in one unit.

    Examples
    --------
    >>> decay_of_half_life(1.0, 1.0), round(decay_of_half_life(1.0, 10.0), 3)
    (0.5, 0.933)
    """
    return float(np.rint(0.5 ** (turn / half_life) / GRID) * GRID)
