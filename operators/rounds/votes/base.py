"""What randomised votes have in common: shares of the bins from how often each was named."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.rounds.round_records import Reports
from meanstream.operators.validation import require, require_positive

MAX_BINS = 1000


class Votes(Protocol):
    """A private vote for one of some bins, or for none of them.

    Attributes
    ----------
    name : str
        Key of `meanstream.operators.rounds.votes.registry.VOTES`.
    epsilon : float
        Privacy of one report.
    bins : int
        Number of bins.
    width : int
        Number of integers of one report.
    """

    name: str
    epsilon: float
    bins: int
    width: int

    def randomize(self, row: Any, words: RandomWords, first_draw: int = 0) -> Reports:
        """Private to public: one report (a row) for each vote, a bin from 0 or -1 for none.

        Or for each row of bits.
        """
        ...

    def valid(self, reports: Reports) -> Bools:
        """Public: tell which rows can be reports."""
        ...

    def counts(self, reports: Reports) -> tuple[int, ...]:
        """Public: how many reports name each bin."""
        ...

    def shares(self, counts: Sequence[int], n: int) -> Floats:
        """Public: unbiased estimates of the share of voters for each bin."""
        ...

    def share_variance(self, share: npt.ArrayLike, n: float) -> Floats:
        """Variance of `shares` for bins with this share."""
        ...

    @property
    def z_score(self) -> float:
        """How clearly one voter tells its own bin from another one."""
        ...

    def spend(self) -> float:
        """Privacy of one report."""
        ...


class VotesBase:
    """Debiasing shared by all votes.

    A report names the voter's bin with probability p, any other bin with q.

    Subclasses set `likely` (p) and `unlikely` (q) as they are really used, quotients of integers.
    """

    name: ClassVar[str]
    options: ClassVar[frozenset[str]] = frozenset()
    likely: float
    unlikely: float

    def __init__(self, epsilon: float, bins: int) -> None:
        require_positive(epsilon=epsilon)
        require(1 <= bins <= MAX_BINS, "bins", f"lie between 1 and {MAX_BINS}", bins)
        self.epsilon = epsilon
        self.bins = bins

    def shares(self, counts: Sequence[int], n: int) -> Floats:
        """Public: unbiased estimates of the share of voters for each bin; 0 without any report.

        Parameters
        ----------
        counts : sequence of int, one per bin
            From `counts`, added up over all reports.
        n : int
            Number of reports.
        """
        if n == 0:
            return np.zeros(self.bins)
        named = np.array([count / n for count in counts], dtype=np.float64)
        return np.asarray((named - self.unlikely) / (self.likely - self.unlikely))

    def share_variance(self, share: npt.ArrayLike, n: float) -> Floats:
        """Variance of `shares` over the drawing of the n voters and their reports.

        Infinite without any.

        Parameters
        ----------
        share : float array
            Share of the population that votes for a bin, in [0, 1].
        n : float
            Number of reports, or how many are expected.
        """
        signal = self.likely - self.unlikely
        named = self.unlikely + signal * np.clip(np.asarray(share, dtype=np.float64), 0.0, 1.0)

        if n:
            return np.asarray(named * (1.0 - named) / signal**2 / n)
        return np.full(np.shape(share), math.inf)

    @property
    def z_score(self) -> float:
        """Mean of one voter's (own bin named - other bin named), in standard deviations.

        Times sqrt(n) for n voters.
        """
        signal = self.likely - self.unlikely
        second = self.likely + self.unlikely - 2.0 * self._both()
        return signal / math.sqrt(second - signal**2)

    def _both(self) -> float:
        """Probability that a report names both the voter's bin and a given other one."""
        return self.likely * self.unlikely

    def spend(self) -> float:
        """Privacy of one report."""
        return self.epsilon

    def _check_rows(self, row: Ints, least: int) -> None:
        n_bad = int(np.count_nonzero((row < least) | (row >= self.bins)))
        require(
            n_bad == 0, "row", f"hold bins from {least} to {self.bins - 1}", f"{n_bad} that are not"
        )
