"""PM-I, the simple counter: every increment gets its own draw and the draws add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from meanstream.operators.counters.base import Counter, State
from meanstream.operators.records import Floats, Ints


@dataclass(frozen=True)
class Pm1(Counter):
    """Noise of the `k`-th prefix sum: the sum of the first `k` draws (privacy mechanism I).

    Parameters
    ----------
    horizon : int
        Largest number of releases of one row. The noise does not depend on it.

    Notes
    -----
    **Privacy.** A sample lies in one increment and an increment meets one draw: both sensitivities are 1, for any
    number of releases. The price is a variance that grows like the number of releases.

    Examples
    --------
    >>> import numpy as np
    >>> counter = Pm1(horizon=3)
    >>> state = counter.init(1)
    >>> [counter.step(state, np.array([0]), np.array([k]), np.array([1.0])).item() for k in (1, 2, 3)]
    [1.0, 2.0, 3.0]

    References
    ----------
    Yakimenka, Weng, Lin, Rosnes, Kliewer, "Differentially-private collaborative online personalized mean estimation",
    section IV-A. Chan, Shi, Song (2011), "Private and continual release of statistics", simple counting mechanism II.
    """

    name: ClassVar[str] = "pm1"

    @property
    def l2_sensitivity(self) -> float:
        """Largest l2 norm of a column of `C`, the identity."""
        return 1.0

    @property
    def l1_sensitivity(self) -> float:
        """Largest l1 norm of a column of `C`, the identity."""
        return 1.0

    def matrix(self, n: int) -> Floats:
        """Return the lower triangle of ones."""
        return np.tri(n)

    def lagged_covariance(self, n: int, lags: int) -> Floats:
        """Return the number of the earlier release: they share its draws."""
        return np.asarray(
            np.maximum(np.arange(1, n + 1) - np.arange(lags)[:, None], 0), dtype=np.float64
        )

    def noise_variance(self, release: Ints) -> Floats:
        """Return the number of the release."""
        return np.asarray(release, dtype=np.float64)

    def increment_variance(self, release: Ints) -> Floats:
        """Return 1: one fresh draw."""
        return np.ones(np.shape(release))

    def init(self, n_rows: int) -> State:
        """Return the sum of no draws."""
        return {"noise": np.zeros(n_rows)}

    def _step(self, state: State, rows: Ints | slice, release: Ints, fresh: Floats) -> Floats:  # noqa: ARG002
        noise: Floats = state["noise"][rows] + fresh
        state["noise"][rows] = noise
        return noise

    def init_past(self, n_rows: int) -> State:
        """Return the sum of no coefficients."""
        return {"past": np.zeros(n_rows)}

    def covariance_with_past(
        self, state: State, rows: Ints, release: Ints, coefficient: Floats
    ) -> Floats:
        """Return `sum_{i < k} i c_i`: release `i` shares its `i` draws with every later one."""
        past: Floats = state["past"][rows]
        state["past"][rows] = past + release * coefficient
        return past
