"""Votes as a row of bits, one for each bin, every bit randomised on its own."""

from __future__ import annotations

import numpy as np

from meanstream.operators.noise.random_bits import (
    UNIT_32,
    RandomWords,
    random_bits_32,
    random_flip_threshold,
)
from meanstream.operators.records import Bools, Ints
from meanstream.operators.rounds.round_records import Reports
from meanstream.operators.rounds.votes.base import VotesBase
from meanstream.operators.rounds.votes.vote_packing import (
    pack_votes,
    packed_column_sums,
    packed_columns,
    packing_fits,
)
from meanstream.operators.validation import require


class UnaryVotes(VotesBase):
    """One bit for each bin: set with probability p for the voter's bin, and q for all others.

    Notes
    -----
    The probabilities are the integers `set_own` and `set_other` divided by 2**32.
    """

    set_own: int
    set_other: int

    def __init__(self, epsilon: float, bins: int) -> None:
        super().__init__(epsilon, bins)
        self.width = packed_columns(bins)

    @property
    def likely(self) -> float:  # type: ignore[override]
        """Probability that a report names the voter's bin."""
        return self.set_own / UNIT_32

    @property
    def unlikely(self) -> float:  # type: ignore[override]
        """Probability that a report names another bin."""
        return self.set_other / UNIT_32

    def randomize(self, row: Ints, words: RandomWords, first_draw: int = 0) -> Reports:
        """Private to public: one report for each vote, a bin from 0 or -1 for none of them.

        Parameters
        ----------
        row : int array (n,)
            Bin of each voter; -1 sends a row of the same length in which no bit is the voter's.
        words : RandomWords
            Takes one draw for every four bins.

        Returns
        -------
        int64 array (n, width)
        """
        self._check_rows(row, -1)
        bits = np.empty((len(row), self.bins), np.bool_)
        for block, first in enumerate(range(0, self.bins, 4)):
            number = random_bits_32(words, first_draw + block)[:, : self.bins - first]
            bits[:, first : first + 4] = number < np.uint32(self.set_other)
            mine = np.flatnonzero((row >= first) & (row < first + number.shape[1]))
            bits[mine, row[mine]] = number[mine, row[mine] - first] < np.uint32(self.set_own)

        return pack_votes(bits)

    def valid(self, reports: Reports) -> Bools:
        """Public: tell which rows can be reports: those without a bit beyond the last bin."""
        return packing_fits(reports, self.bins)

    def counts(self, reports: Reports) -> tuple[int, ...]:
        """Public: how many reports name each bin."""
        return packed_column_sums(reports, self.bins)


class SymmetricVotes(UnaryVotes):
    """Every bit is flipped with the same probability.

    Symmetric unary encoding, also called basic RAPPOR.

    Parameters
    ----------
    epsilon : float
        Privacy of one report.
    bins : int
        Number of bins, 1 to 1000.

    Notes
    -----
    **Privacy.** Local, pure epsilon, for one report. A voter sets at most one bit, so two rows differ in at most two
    bits, each of which is flipped with probability `1 / (exp(epsilon / 2) + 1)` or a little more. That a user votes for
    no bin is protected as well: its row is as long as the others.

    References
    ----------
    T. Wang et al., Locally Differentially Private Protocols for Frequency Estimation, USENIX Security 2017,
    Section 4.2.

    Examples
    --------
    >>> from meanstream.lab.random_words import SeededWords
    >>> votes = SymmetricVotes(2.0, bins=5)
    >>> row = np.repeat([0, 3, -1], [300, 600, 100])
    >>> reports = votes.randomize(row, SeededWords(np.random.default_rng(1), 1000))
    >>> votes.shares(votes.counts(reports), len(reports)).round(2)
    array([ 0.25, -0.  ,  0.01,  0.61,  0.01])
    """

    name = "sue"

    def __init__(self, epsilon: float, bins: int) -> None:
        super().__init__(epsilon, bins)
        self.set_other = random_flip_threshold(0.5 * epsilon, UNIT_32)
        self.set_own = UNIT_32 - self.set_other


class OptimizedVotes(UnaryVotes):
    """The voter's bit is reported by a fair coin, the zeros almost as they are.

    Optimized unary encoding.

    Parameters
    ----------
    epsilon : float
        Privacy of one report.
    bins : int
        Number of bins, 1 to 1000.

    Notes
    -----
    **Privacy.** Local, pure epsilon, for one report: moving the voter's bit changes the likelihood by at most
    `(1 / 2) / q` for one bit and `(1 - q) / (1 / 2)` for the other, exp(epsilon) together. The variance of the shares
    of rare bins is the least of all unary encodings; the winner's is not, so `SymmetricVotes` finds a maximum better.

    References
    ----------
    T. Wang et al., Locally Differentially Private Protocols for Frequency Estimation, USENIX Security 2017,
    Section 4.3.

    Examples
    --------
    >>> votes = OptimizedVotes(1.0, bins=64)
    >>> round(votes.likely, 3), round(votes.unlikely, 3)
    (0.5, 0.269)
    """

    name = "oue"

    def __init__(self, epsilon: float, bins: int) -> None:
        super().__init__(epsilon, bins)
        self.set_other = random_flip_threshold(epsilon, UNIT_32)
        self.set_own = UNIT_32 // 2


class BinaryVotes(UnaryVotes):
    """Randomised response on rows in which several bits may be set: the vote of DAME.

    Parameters
    ----------
    epsilon : float
        Privacy of one report.
    bins : int
        Number of bins, 1 to 1000.
    bits : int, default min(6, bins)
        In how many places the rows of any two users can differ; DAME's rows are a bin and its two
        neighbors.

    Notes
    -----
    **Privacy.** Local, pure epsilon, for one report, provided that every row that any user can have is within `bits`
    places of every other; each bit is flipped with probability `1 / (exp(epsilon / bits) + 1)` or a little more.
    `randomize` refuses rows of which two could be farther apart by the number of their bits.

    Examples
    --------
    >>> from meanstream.lab.random_words import SeededWords
    >>> votes = BinaryVotes(6.0, bins=8)
    >>> rows = np.zeros((1000, 8), np.bool_)
    >>> rows[:, 2:5] = True
    >>> reports = votes.randomize(rows, SeededWords(np.random.default_rng(1), 1000))
    >>> votes.shares(votes.counts(reports), len(reports)).round(1)
    array([-0.1, -0. ,  1. ,  0.9,  1. , -0. , -0. ,  0. ])
    """

    name = "binary"
    options = frozenset({"bits"})

    def __init__(self, epsilon: float, bins: int, *, bits: int | None = None) -> None:
        super().__init__(epsilon, bins)
        self.bits = min(6, bins) if bits is None else bits
        require(1 <= self.bits <= bins, "bits", f"lie between 1 and {bins}", self.bits)
        self.set_other = random_flip_threshold(epsilon / self.bits, UNIT_32)
        self.set_own = UNIT_32 - self.set_other

    def randomize(self, rows: Bools, words: RandomWords, first_draw: int = 0) -> Reports:  # type: ignore[override]
        """Private to public: one report for each row of bits.

        Parameters
        ----------
        rows : bool array (n, bins)
            True bits of each user; users who vote for nothing have a row of zeros.
        words : RandomWords
            Takes one draw for every four bins.

        Returns
        -------
        int64 array (n, width)
        """
        require(rows.shape[1:] == (self.bins,), "rows", f"have {self.bins} columns", rows.shape)
        if self.bits < self.bins:
            n_bad = int(np.count_nonzero(rows.sum(axis=1) > self.bits // 2))
            require(
                n_bad == 0,
                "rows",
                f"have at most {self.bits // 2} bits set",
                f"{n_bad} that have more",
            )

        bits = np.empty(rows.shape, np.bool_)
        for block, first in enumerate(range(0, self.bins, 4)):
            number = random_bits_32(words, first_draw + block)[:, : self.bins - first]
            bits[:, first : first + 4] = rows[:, first : first + 4] ^ (
                number < np.uint32(self.set_other)
            )

        return pack_votes(bits)
