"""PM-II, the binary counter: draws on sums over 1, 2, 4, ...

Increments; few of them in any prefix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from meanstream.operators.counters.base import Counter, State, counter_lowest_bit
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require


@dataclass(frozen=True)
class Pm2(Counter):
    """Noise of the `k`-th prefix sum.

    One draw per one in the binary representation of `k` (privacy mechanism II).

    Release `e` creates one new partial sum, over the last `2**v2(e)` increments; its draw is used
    by the releases `e .. e + 2**v2(e) - 1` and by no other.

    Parameters
    ----------
    horizon : int
        Largest number of releases of one row: needed in advance, because a sample meets one more
        partial sum each time the number of releases doubles.
    levels : int, optional
        Number of partial sums that the budget is divided by. Default `floor(log2 horizon) + 1`, the
        number that a sample can really meet; the paper divides by `floor(log2 t_max) + 1`, which is
        never smaller.

    Notes
    -----
    **Privacy.** A sample meets at most `levels` partial sums, each with its own draw: the l1 sensitivity is `levels`,
    the l2 sensitivity its square root.

    Examples
    --------
    >>> import numpy as np
    >>> counter = Pm2(horizon=7)
    >>> counter.levels, counter.noise_variance(np.array([1, 3, 4, 7])).tolist()
    (3, [1.0, 2.0, 1.0, 3.0])

    References
    ----------
    Yakimenka et al., section IV-B and equation (21), whose inner sum is corrected here (see `statistic`).
    Chan, Shi, Song (2011), binary counting mechanism.
    """

    name: ClassVar[str] = "pm2"
    levels: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        needed = self.horizon.bit_length()
        if self.levels == 0:
            object.__setattr__(self, "levels", needed)

        require(
            self.levels >= needed,
            "levels",
            f"be at least {needed} for {self.horizon} releases",
            self.levels,
        )

    @property
    def l2_sensitivity(self) -> float:
        """Square root of the number of partial sums that a sample may meet."""
        return math.sqrt(self.levels)

    @property
    def l1_sensitivity(self) -> float:
        """Number of partial sums that a sample may meet."""
        return float(self.levels)

    @property
    def parts(self) -> int:
        """Number of separately noised sums that one sample can meet.

        The divisor of basic composition.
        """
        return self.levels

    def matrix(self, n: int) -> Floats:
        """Return `B[k, e] = 1` if and only if `e <= k < e + 2**v2(e)`."""
        number = np.arange(1, n + 1)
        last = number + (1 << counter_lowest_bit(number)) - 1
        release = number[:, None]
        return ((number <= release) & (release <= last)).astype(np.float64)

    def lagged_covariance(self, n: int, lags: int) -> Floats:
        """Return the number of partial sums that both use.

        The ones that their binary representations begin with.
        """
        later = np.arange(1, n + 1)
        earlier = np.maximum(later - np.arange(lags)[:, None], 0)
        _, differing = np.frexp((later ^ earlier).astype(np.float64))
        return np.asarray(np.bitwise_count(later >> differing.astype(np.int64)), dtype=np.float64)

    def noise_variance(self, release: Ints) -> Floats:
        """Return the number of ones in the binary representation of the release."""
        return np.bitwise_count(np.asarray(release)).astype(np.float64)

    def increment_variance(self, release: Ints) -> Floats:
        """Return `1 + v2(k)`: one partial sum is new and `v2(k)` older ones are dropped."""
        return 1.0 + counter_lowest_bit(np.asarray(release)).astype(np.float64)

    def init(self, n_rows: int) -> State:
        """Return the draws of no partial sums.

        Column `l` is that of the current sum over `2**l` increments.
        """
        return {"noise": np.zeros((n_rows, self.horizon.bit_length()))}

    def _step(self, state: State, rows: Ints | slice, release: Ints, fresh: Floats) -> Floats:
        level = counter_lowest_bit(release)
        noise = state["noise"][rows]
        noise[np.arange(noise.shape[1]) < level[:, None]] = 0.0  # joined into the new partial sum
        noise[np.arange(len(fresh)), level] = fresh
        state["noise"][rows] = noise

        return _sum_levels(noise)

    def init_past(self, n_rows: int) -> State:
        """Return, per level, the sum of no coefficients."""
        return {"past": np.zeros((n_rows, self.horizon.bit_length()))}

    def covariance_with_past(
        self, state: State, rows: Ints, release: Ints, coefficient: Floats
    ) -> Floats:
        """Return the sum, over the partial sums in use, of the coefficients of the earlier releases that used them."""
        past = state["past"][rows]
        level = np.arange(past.shape[1])
        past[level <= counter_lowest_bit(release)[:, None]] = (
            0.0  # dropped, or created by this release
        )
        used = (release[:, None] >> level) & 1
        state["past"][rows] = past + used * coefficient[:, None]

        return _sum_levels(past * used)


def _sum_levels(values: Floats) -> Floats:
    """Sum over the levels in a fixed order, so that a batch of rows gives the same floats as each row alone."""
    total = values[:, 0].copy()
    for level in range(1, values.shape[1]):
        total += values[:, level]

    return total
