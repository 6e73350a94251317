"""Blocks of increments: noise of integers for more releases than single increments are good for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from meanstream.operators.counters.base import Counter, State
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require


@dataclass(frozen=True)
class TwoLevel(Counter):
    """Noise of the `k`-th prefix sum: a draw for each whole block, one for each increment after it.

    Each release makes one draw. That of a release which completes a block is of the sum of the
    whole block, all others of their own increment; the last increment of a block needs none.

    Parameters
    ----------
    horizon : int
        Largest number of releases of one row.
    block : int, optional
        Increments of a block, at least 2. Default: the length of least mean variance over the
        horizon, about its square root.

    Notes
    -----
    **Privacy.** A sample lies in one increment and in one block, so it moves two draws at most, each by what it moves
    the sum: the l1 sensitivity is 2. Halves of epsilon are the best split: where blocks and increments have a and b
    draws on average, `a b` is fixed by the horizon alone, and the least of `a / x^2 + b / (1 - x)^2` over both is at
    a = b, x = 1/2.

    Examples
    --------
    >>> import numpy as np
    >>> counter = TwoLevel(horizon=100)
    >>> counter.block, counter.noise_variance(np.array([1, 9, 10, 99, 100])).tolist()
    (10, [1.0, 9.0, 1.0, 18.0, 10.0])

    References
    ----------
    Chan, Shi, Song (2011), "Private and continual release of statistics", the two-level counting mechanism.
    """

    name: ClassVar[str] = "two_level"
    block: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block == 0:
            object.__setattr__(self, "block", _least_block(self.horizon))

        require(self.block >= 2, "block", "be at least 2", self.block)

    @property
    def l2_sensitivity(self) -> float:
        """Square root of the number of draws that a sample may move."""
        return math.sqrt(self.parts)

    @property
    def l1_sensitivity(self) -> float:
        """Number of draws that a sample may move."""
        return float(self.parts)

    @property
    def parts(self) -> int:
        """Number of separately noised sums that one sample can meet: its increment and its block."""
        if self.horizon >= self.block:
            return 2
        return 1

    def matrix(self, n: int) -> Floats:
        """Return ones for the blocks that are whole, and for the increments since."""
        draw = np.arange(1, n + 1)
        release = draw[:, None]
        of_block = draw % self.block == 0
        since = draw > release // self.block * self.block

        return np.asarray((draw <= release) & (of_block | since), dtype=np.float64)

    def lagged_covariance(self, n: int, lags: int) -> Floats:
        """Return the number of draws that both use: blocks, and increments where both are in one block."""
        later = np.arange(1, n + 1)
        earlier = np.maximum(later - np.arange(lags)[:, None], 0)
        blocks, since = np.divmod(earlier, self.block)
        return np.asarray(blocks + since * (blocks == later // self.block), dtype=np.float64)

    def noise_variance(self, release: Ints) -> Floats:
        """Return the number of whole blocks and of increments after them."""
        blocks, since = np.divmod(np.asarray(release), self.block)
        return np.asarray(blocks + since, dtype=np.float64)

    def increment_variance(self, release: Ints) -> Floats:
        """Return 1 within a block; at its end its draw comes and those of its increments go."""
        ends = np.asarray(release) % self.block == 0
        return np.where(ends, float(self.block), 1.0)

    def init(self, n_rows: int) -> State:
        """Return the sums of no draws: of whole blocks, and of the increments after them."""
        return {"noise": np.zeros((n_rows, 2))}

    def _step(self, state: State, rows: Ints | slice, release: Ints, fresh: Floats) -> Floats:
        noise = state["noise"][rows]
        ends = np.asarray(release) % self.block == 0
        blocks = noise[:, 0] + np.where(ends, fresh, 0.0)
        since = np.where(ends, 0.0, noise[:, 1] + fresh)
        state["noise"][rows] = np.column_stack([blocks, since])

        return np.asarray(blocks + since)

    def init_past(self, n_rows: int) -> State:
        """Return sums of no coefficients: over all releases, and over those of the block."""
        return {"past": np.zeros((n_rows, 2))}

    def covariance_with_past(
        self, state: State, rows: Ints, release: Ints, coefficient: Floats
    ) -> Floats:
        """Return what earlier releases share: all their blocks, and the increments of those of this block."""
        past = state["past"][rows]
        blocks, since = np.divmod(np.asarray(release), self.block)
        of_block = np.where(since == 0, 0.0, past[:, 1])
        found = past[:, 0] + of_block
        state["past"][rows] = np.column_stack(
            [past[:, 0] + coefficient * blocks, of_block + coefficient * since]
        )

        return np.asarray(found)


@lru_cache(maxsize=64)
def _least_block(horizon: int) -> int:
    """Length of blocks with the fewest draws in all prefix sums up to the horizon together."""
    longest = max(2, 2 * math.isqrt(horizon))
    return min(range(2, longest + 1), key=lambda block: _draws(horizon, block))


def _draws(horizon: int, block: int) -> int:
    """Sum of `k // block + k % block` over the releases k up to the horizon."""
    whole, rest = divmod(horizon, block)
    blocks = block * whole * (whole - 1) // 2 + whole * (rest + 1)
    increments = whole * (block * (block - 1) // 2) + rest * (rest + 1) // 2
    return blocks + increments
