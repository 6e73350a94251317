"""The spread vote: how far pairs of an agent's own samples lie apart, counted in few bins and noised, for everyone.

What one sample varies by is needed wherever agents share means, and the noisy means say little
about it. So a part of the budget goes into a histogram of `|x - x'|` over disjoint pairs of an
agent's consecutive samples. Votes add up over agents;
`meanstream.operators.collaboration.spread_law` reads the variance of one sample off the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from meanstream.operators.agents.dependence.pairs import OwnPairs
from meanstream.operators.noise.distributions import GaussianNoise
from meanstream.operators.noise.draw_owners import AGENT_VOTES
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds
from meanstream.operators.records import (
    VOTE_BINS,
    AnyInts,
    Bools,
    Floats,
    Ints,
    ReleaseColumns,
    Words,
)

HALVINGS = (10, 8, 6, 5, 4, 3, 2, 1)
"""Inner edges, as powers of a half of the width of the bounds."""
FACTOR = 3
"""An agent votes again with the first release that comprises that many times the samples of its
last vote."""
MOST_VOTES = 40
"""2 * 3**40 samples are more than anyone has."""
PAIR_SENSITIVITY = math.sqrt(2.0)
"""A replaced sample is in one pair, which leaves one bin and enters another: two counts change by
one each."""

_EDGES = np.array([0.0, *(0.5**halving for halving in HALVINGS), 1.0])
_BIN_SQUARES = np.array([0.0, *((_EDGES[1:] ** 3 - _EDGES[:-1] ** 3) / (3 * np.diff(_EDGES))), 1.0])
"""Mean squared difference, in widths, where it is spread evenly within its bin."""


def spread_vote_bins(difference: Ints, span: int) -> AnyInts:
    """Put differences of two samples into bins.

    0, then by halvings of the width, and the whole width.

    Parameters
    ----------
    difference : int array
        Absolute differences in grid units, in 0..span.
    span : int
        Width of the bounds in grid units.

    Notes
    -----
    Bin 0 holds equal samples and bin 10 those at opposite bounds: the two bins of yes/no data. Bins 1 to 9 hold what
    lies between, with the upper edges 2**-10, 2**-8, 2**-6, 2**-5, ..., 1/2 of the width, and all below the width.

    Examples
    --------
    >>> spread_vote_bins(np.array([0, 1, 512, 513, 1023, 1024]), 1024).tolist()
    [0, 1, 8, 9, 9, 10]
    """
    bins = np.zeros(difference.shape, np.int8)
    for edge in (
        0,
        *(span >> halving for halving in HALVINGS),
        span - 1,
    ):  # few: faster than a search in them
        bins += difference > edge

    return bins


@dataclass(frozen=True, slots=True)
class SpreadVote:
    """Counts pairs of each agent's samples and noises them when it is time.

    Parameters
    ----------
    span : int
        Width of the bounds in grid units.
    noise : GaussianNoise
        Distribution of the noise of one bin of one vote.
    forgets : bool
        Whether releases say an effective number of samples, which may be less than those that were
        voted on.

    Notes
    -----
    **Privacy.** Samples 2i-1 and 2i of an agent make a pair, and a pair is counted in one vote: a replaced sample
    changes one vote of its agent, by one count less in one bin and one more in another, so by `sqrt(2)` (l2). Every bin
    of a vote has a draw of its own, so all votes of an agent are one Gaussian mechanism of that sensitivity. Votes are
    cast with releases, at counts that follow from the public counts alone.
    """

    span: int
    noise: GaussianNoise
    forgets: bool = False

    def possible(self, releases: ReleaseColumns, noise_variance: Floats) -> Bools:
        """Tell which releases carry votes that an agent with these bounds and this budget may have cast.

        Parameters
        ----------
        releases : ReleaseColumns
            As they came from someone else.
        noise_variance : float array, shape (n,)
            What each says of its noise.

        Notes
        -----
        Nothing is told from a count that noise alone may give: ten standard deviations are.
        """
        number = releases.votes[:, 0]
        pairs = releases.votes[:, 1]
        counts = releases.votes[:, 2:]
        slack = 10 * np.sqrt(number * noise_variance) + 1
        found = noise_variance == self.noise.variance
        found &= number <= np.minimum(releases.index, MOST_VOTES)
        found &= (pairs <= releases.count // 2) | self.forgets
        found &= np.all((counts >= -slack[:, None]) & (counts <= (pairs + slack)[:, None]), axis=1)

        return np.asarray(found & (number > 0) & (pairs >= number), np.bool_)

    def columns(self, n: int) -> dict[str, Ints]:
        """State of `n` agents that have seen nothing: private but for `vote_noised`."""
        return {
            "vote_count": np.zeros(n, np.int64),  # samples at the last vote
            "vote_pairs": np.zeros((n, VOTE_BINS), np.int64),  # since the last vote
            "vote_noised": np.zeros((n, 2 + VOTE_BINS), np.int64),  # as `ReleaseColumns.votes`
        }

    def pairs(self, rows: dict[str, np.ndarray], who: Ints, pairs: OwnPairs) -> SpreadPairs:
        """Put the pairs of a batch into bins.

        Parameters
        ----------
        rows : dict
            The agents' state.
        who : int array, shape (m,)
            Agents of the batch.
        pairs : OwnPairs
            Their pairs.
        """
        bins = spread_vote_bins(pairs.difference, self.span)
        begin = np.cumsum(pairs.number) - pairs.number
        return SpreadPairs(
            counts=rows["vote_pairs"], who=who, bins=bins, first=begin, waits=pairs.waits
        )

    def due(self, rows: dict[str, np.ndarray], agent: Ints, count: Ints) -> Bools:
        """Tell which agents vote with their release after `count` samples."""
        return (count >= 2) & (count // FACTOR >= rows["vote_count"][agent])

    def version(
        self, rows: dict[str, np.ndarray], agent: Ints, version: Words, noise: KeyedNoise
    ) -> Words:
        """Digest what is voted along with the rest of the input: other pairs meet other noise."""
        for counts in rows["vote_pairs"][agent].T:
            version = noise.version_of(version.view(np.int64), counts)

        return version

    def variance_bound(self, votes: Ints) -> Floats:
        """Public: what a sample of an agent varies by at most, as its own votes say.

        In squared grid units.

        Half of the mean squared difference of a pair, spread evenly within bins, and one standard
        deviation of the noise more; a quarter of the squared width (Popoviciu) where that is less,
        or nothing was voted yet.

        Parameters
        ----------
        votes : int array, shape (n, 2 + VOTE_BINS)
            As `ReleaseColumns.votes`.
        """
        pairs = np.maximum(votes[:, 1], 1).astype(np.float64)
        squares = np.zeros(len(votes))

        for b, square in enumerate(_BIN_SQUARES):  # in a fixed order, whatever the batch
            squares += votes[:, 2 + b] * square

        noise = math.sqrt(self.noise.variance * float((_BIN_SQUARES**2).sum())) * np.sqrt(
            votes[:, 0]
        )
        found = 0.5 * (np.maximum(squares, 0.0) + noise) / pairs

        return np.asarray(
            np.where(votes[:, 1] > 0, np.minimum(found, 0.25), 0.25) * float(self.span) ** 2
        )

    def cast(
        self,
        rows: dict[str, np.ndarray],
        agent: Ints,
        count: Ints,
        ids: NoiseIds,
        noise: KeyedNoise,
    ) -> None:
        """Noise the pairs since each agent's last vote, and add them to its released sum."""
        pairs = rows["vote_pairs"][agent]
        draws = [
            np.rint(self.noise.sample(noise.bits(ids, AGENT_VOTES.at(b)))).astype(np.int64)
            for b in range(VOTE_BINS)
        ]

        votes = np.concatenate(
            [np.ones((len(agent), 1), np.int64), pairs.sum(axis=1, keepdims=True), pairs], axis=1
        )
        votes[:, 2:] += np.stack(draws, axis=1)
        rows["vote_noised"][agent] += votes
        rows["vote_pairs"][agent] = 0
        rows["vote_count"][agent] = count


@dataclass(slots=True)
class SpreadPairs:
    """Private: the pairs or the samples of a batch, counted as far as a release asks for them.

    Parameters
    ----------
    counts : int array (agents, bins)
        Where they are counted.
    who, first : int array (m,)
        Agents of the batch, and where the pairs or samples of each begin.
    bins : int array
        Of each pair or sample, in the order of the agents.
    waits : int array (m,), optional
        Of pairs: 1 where the first sample of one came before the batch. Without it samples are
        counted.
    """

    counts: Ints
    who: Ints
    bins: AnyInts
    first: Ints
    waits: Ints | None = None
    _begin: Ints = field(init=False)

    def __post_init__(self) -> None:
        self._begin = self.first.copy()

    def count(self, which: Ints, samples: Ints) -> None:
        """Count what the agents at the places `which` have with their first samples of the batch, up to that many."""
        here = samples if self.waits is None else (self.waits[which] + samples) // 2
        end = self.first[which] + here
        begin = self._begin[which]
        lengths = end - begin
        offset = np.cumsum(lengths) - lengths
        at = np.arange(int(lengths.sum())) + np.repeat(begin - offset, lengths)
        cells = np.repeat(self.who[which] * self.counts.shape[1], lengths) + self.bins[at]
        np.add.at(np.reshape(self.counts, -1, copy=False), cells, 1)
        self._begin[which] = end
