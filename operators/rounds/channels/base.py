"""What a local channel is.

A number on [-1, 1] goes in, one random integer comes out, unbiased and private.
"""

from __future__ import annotations

from typing import Protocol

import numpy.typing as npt

from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools, Floats, Ints


class Mechanism(Protocol):
    """A channel on [-1, 1]: `step * report` is an unbiased estimate of the value.

    Attributes
    ----------
    name : str
        Key of `meanstream.operators.rounds.channels.registry.CHANNELS`.
    epsilon : float
        Privacy of one report, for any two values.
    low, high : int
        Smallest and largest report.
    step : float
        Worth of one unit of a report.
    draws : int
        How many draws of random bits one report takes.
    """

    name: str
    epsilon: float
    low: int
    high: int
    step: float
    draws: int

    def randomize(self, x: npt.ArrayLike, words: RandomWords, first_draw: int = 0) -> Ints:
        """Private to public: one integer for each value, which is cut to [-1, 1].

        Uses draws from `first_draw`.
        """
        ...

    def valid(self, reports: Ints) -> Bools:
        """Public: tell which integers can be reports."""
        ...

    def bias(self, x: npt.ArrayLike) -> Floats:
        """How far the expectation of `step * report` is from the value."""
        ...

    def variance(self, x: npt.ArrayLike) -> Floats:
        """Variance of `step * report` for each value."""
        ...

    @property
    def moments(self) -> tuple[float, float]:
        """Two numbers (c0, c1) such that the second moment of `step * report` is at most `c0 + c1 * x**2`."""
        ...

    def spend(self) -> float:
        """Privacy of one report: what the ledger is charged."""
        ...
