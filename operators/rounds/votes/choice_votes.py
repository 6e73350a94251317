"""Votes as a choice: one bin (k-ary randomised response), or a set of bins (subset selection)."""

from __future__ import annotations

import math

import numpy as np

from meanstream.operators.noise.random_bits import (
    UNIT_53,
    UNIT_63,
    RandomWords,
    random_bits_53,
    random_bits_63,
    random_share_threshold,
)
from meanstream.operators.records import Bools, Ints
from meanstream.operators.rounds.round_records import Reports
from meanstream.operators.rounds.votes.base import VotesBase
from meanstream.operators.rounds.votes.vote_packing import (
    pack_votes,
    packed_column_sums,
    packed_columns,
    packing_fits,
    unpack_votes,
)
from meanstream.operators.validation import require


class ChoiceVotes(VotesBase):
    """Votes that treat "none of the bins" as one more category, so that no one learns who voted for nothing."""

    options = frozenset({"zero_row"})

    def __init__(self, epsilon: float, bins: int, *, zero_row: bool = True) -> None:
        super().__init__(epsilon, bins)
        self.zero_row = zero_row
        self.categories = bins + zero_row
        require(self.categories >= 2, "bins", "be at least 2 if all users vote", bins)

    def category(self, row: Ints) -> Ints:
        """Category of each vote: a vote for none is the last one."""
        self._check_rows(row, -1 if self.zero_row else 0)
        return np.where(row < 0, self.bins, row).astype(np.int64)


class RandomizedResponseVotes(ChoiceVotes):
    """One category: the voter's, or with a small probability any other: k-ary randomised response.

    Parameters
    ----------
    epsilon : float
        Privacy of one report.
    bins : int
        Number of bins, 1 to 1000.
    zero_row : bool, default True
        Whether users may vote for none of the bins; it is then one more category.

    Notes
    -----
    **Privacy.** Local, pure epsilon, for one report. The probabilities are `likely_mass` and `unlikely_mass` divided by
    2**63, and their ratio is at most exp(epsilon).

    References
    ----------
    P. Kairouz, K. Bonawitz, D. Ramage, Discrete Distribution Estimation under Local Privacy, ICML 2016.

    Examples
    --------
    >>> from meanstream.lab.random_words import SeededWords
    >>> votes = RandomizedResponseVotes(3.0, bins=4)
    >>> reports = votes.randomize(np.array([2, 2, 2, -1]), SeededWords(np.random.default_rng(1), 4))
    >>> reports.ravel(), votes.counts(reports)
    (array([2, 2, 2, 4]), (0, 0, 3, 0))
    """

    name = "krr"
    width = 1

    def __init__(self, epsilon: float, bins: int, *, zero_row: bool = True) -> None:
        super().__init__(epsilon, bins, zero_row=zero_row)
        others = self.categories - 1
        self.unlikely_mass = random_share_threshold(others, epsilon, UNIT_63)
        self.likely_mass = UNIT_63 - others * self.unlikely_mass

        require(
            self.likely_mass > self.unlikely_mass,
            "epsilon",
            f"be large enough for {bins} bins",
            epsilon,
        )
        self.likely = self.likely_mass / UNIT_63
        self.unlikely = self.unlikely_mass / UNIT_63

    def randomize(self, row: Ints, words: RandomWords, first_draw: int = 0) -> Reports:
        """Private to public: one category for each vote, a bin from 0 or -1 for none.

        Shape (n, 1).
        """
        category = self.category(row)
        jump = (random_bits_63(words(first_draw), 0) // np.uint64(self.unlikely_mass)).astype(
            np.int64
        )
        # A jump to one of the others counts on from the voter's category; whatever lies beyond
        # stays there.
        jump = np.where(jump < self.categories - 1, jump + 1, 0)

        return ((category + jump) % self.categories)[:, None]

    def valid(self, reports: Reports) -> Bools:
        """Public: tell which rows can be reports."""
        return np.asarray(((reports >= 0) & (reports < self.categories)).all(axis=1))

    def counts(self, reports: Reports) -> tuple[int, ...]:
        """Public: how many reports name each bin."""
        return tuple(np.bincount(reports[:, 0], minlength=self.categories)[: self.bins].tolist())

    def _both(self) -> float:
        return 0.0


class SubsetVotes(ChoiceVotes):
    """A random set of bins of fixed size that likely holds the voter's: subset selection.

    Parameters
    ----------
    epsilon : float
        Privacy of one report; above 1e-6.
    bins : int
        Number of bins, 1 to 1000.
    zero_row : bool, default True
        Whether users may vote for none of the bins; it is then one more category.

    Notes
    -----
    The set has about `categories / (exp(epsilon) + 1)` members.

    **Privacy.** Local, pure epsilon, for one report. The voter's category is a member with the probability
    `1 - out_mass / 2**53`; the other members are drawn one category after the other with probabilities that are
    rounded to multiples of 2**-53. That makes two sets' probabilities differ by a factor of at most
    `exp(2 k**2 / 2**53)` for k categories, which `out_mass` allows for.

    References
    ----------
    M. Ye, A. Barg, Optimal Schemes for Discrete Distribution Estimation under Locally Differential Privacy, 2018.

    Examples
    --------
    >>> from meanstream.lab.random_words import SeededWords
    >>> votes = SubsetVotes(1.0, bins=64)
    >>> reports = votes.randomize(np.full(10, 7), SeededWords(np.random.default_rng(1), 10))
    >>> votes.members, votes.counts(reports)[7]
    (17, 5)
    """

    name = "subset"

    def __init__(self, epsilon: float, bins: int, *, zero_row: bool = True) -> None:
        super().__init__(epsilon, bins, zero_row=zero_row)
        k = self.categories
        self.width = packed_columns(k)
        self.members = min(k - 1, max(1, round(k / (math.exp(min(epsilon, 60.0)) + 1.0))))

        inner = epsilon - 4.0 * k * k / UNIT_53
        require(
            inner > 0.0, "epsilon", f"be above {4.0 * k * k / UNIT_53:.1g} for {bins} bins", epsilon
        )
        self.out_mass = random_share_threshold(
            1.0, inner, UNIT_53, weight=self.members / (k - self.members)
        )
        out = self.out_mass / UNIT_53
        self.likely = 1.0 - out
        self.unlikely = (self.likely * (self.members - 1) + out * self.members) / (k - 1)

    def randomize(self, row: Ints, words: RandomWords, first_draw: int = 0) -> Reports:
        """Private to public: a set of categories for each vote, as bits.

        One draw for every two categories.

        Parameters
        ----------
        row : int array (n,)
            Bin of each voter, or -1 for none of them.

        Returns
        -------
        int64 array (n, width)
        """
        category = self.category(row)
        bits = words(first_draw)
        is_in = random_bits_53(bits, 0) >= self.out_mass
        missing = self.members - is_in.astype(np.int64)
        others = np.empty((len(row), self.categories - 1), np.bool_)

        for i in range(self.categories - 1):
            if i % 2 == 0:
                bits = words(first_draw + 1 + i // 2)

            left = self.categories - 1 - i
            # Taken with probability missing / left: exact sampling of a set, one candidate after
            # the other.
            number = random_bits_53(bits, i % 2)
            others[:, i] = number < -(-(missing * UNIT_53) // left)
            missing = missing - others[:, i]

        chosen = np.zeros((len(row), self.categories), np.bool_)
        own = np.arange(self.categories) == category[:, None]
        chosen[own] = is_in
        chosen[~own] = others.ravel()

        return pack_votes(chosen)

    def valid(self, reports: Reports) -> Bools:
        """Public: tell which rows can be reports: sets of the right size."""
        right = unpack_votes(reports, self.categories).sum(axis=1, dtype=np.int64) == self.members
        return np.asarray(packing_fits(reports, self.categories) & right)

    def counts(self, reports: Reports) -> tuple[int, ...]:
        """Public: how many reports name each bin."""
        return packed_column_sums(reports, self.categories)[: self.bins]

    def _both(self) -> float:
        return self.likely * (self.members - 1) / (self.categories - 1)
