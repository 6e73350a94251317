"""The spread vote: how far pairs of an agent's own samples lie apart, counted in few bins and noised, for everyone.

What one sample varies by is needed wherever agents share means, and the noisy means say little
about it. So a part of the budget goes into a histogram of `|x - x'|` over disjoint pairs of an
agent's samples: of those that follow each other in event time, or by their content under a key.
Votes add up over hosts; `meanstream.operators.collaboration.variance.spread_law` reads the variance of one
sample off the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from meanstream.operators.agents.pairs_by_time import TimedPairs, timed_pairs_columns
from meanstream.operators.noise.distributions import GaussianNoise, LaplaceNoise
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
BY_TIME = "by_time"
BY_CONTENT = "by_content"
FACTOR = 3
"""A host votes again with the first release by which it has that many times the pairs of its last
vote: twice would be more votes, each with noise of its own."""
MOST_VOTES = 40
"""3**40 pairs are more than anyone has."""
PAIR_SENSITIVITY = {1: 2.0, 2: math.sqrt(2.0)}
"""By the norm. A replaced sample is in one pair, which leaves one bin and enters another: two
counts change by one each."""
PAIRS_OF_CONTENT = 2
"""Pairs by content that a replaced sample changes: the one that it leaves, the one that it
enters."""

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
    """Counts pairs of agents' samples and noises the counts when it is time.

    Parameters
    ----------
    span : int
        Width of the bounds in grid units.
    noise : GaussianNoise or LaplaceNoise
        Distribution of the noise of one bin of one vote.
    forgets : bool
        Whether releases say an effective number of samples, which may be less than those that were
        voted on.

    Notes
    -----
    **Privacy.** A sample is in one pair at most, which is counted in one vote: a replaced sample changes one vote, by
    one count less in one bin and one more in another, so by 2 (l1) and `sqrt(2)` (l2). Pairs by content are two that
    change, by 4 and `sqrt(8)` (`meanstream.operators.agents.pairs_by_content`). Every bin of a vote has a draw of its
    own, so all votes that a sample could be in are one mechanism of that sensitivity. Votes are cast with releases,
    when the public number of pairs has grown by `FACTOR`.

    `meanstream.operators.agents.host_votes` adds up the pairs of all agents of a host before they
    are noised; an agent alone is a host of one.
    """

    span: int
    noise: GaussianNoise | LaplaceNoise
    forgets: bool = False

    def possible(self, releases: ReleaseColumns, noise_variance: Floats) -> Bools:
        """Tell which releases carry votes that a host with these bounds and this budget may have cast.

        Parameters
        ----------
        releases : ReleaseColumns
            As they came from someone else.
        noise_variance : float array, shape (n,)
            What each says of its noise.

        Notes
        -----
        Nothing is told from a count that noise alone may give: ten standard deviations are. A vote
        is of all agents of its host, so that the samples of the one that carries it bound nothing.
        """
        number = releases.votes[:, 0]
        pairs = releases.votes[:, 1]
        counts = releases.votes[:, 2:]
        slack = 10 * np.sqrt(np.maximum(number, 0) * noise_variance) + 1
        possible = noise_variance == self.noise.variance
        possible &= number <= np.minimum(releases.index, MOST_VOTES)
        inside = (counts >= -slack[:, None]) & (counts <= (pairs + slack)[:, None])
        possible &= inside.all(axis=1)

        return np.asarray(possible & (number > 0) & (pairs >= number), np.bool_)

    def columns(self, n: int) -> dict[str, np.ndarray]:
        """State of `n` agents that have seen nothing: private but for `vote_noised`."""
        return {
            "vote_pairs": np.zeros((n, VOTE_BINS), np.int64),  # since the last vote
            "vote_since": np.zeros(n),  # how many they are, as public counts say
            "vote_noised": np.zeros((n, 2 + VOTE_BINS), np.int64),  # as `ReleaseColumns.votes`
            **timed_pairs_columns(n),
        }

    def pairs(self, rows: dict[str, np.ndarray], who: Ints, pairs: TimedPairs) -> SpreadPairs:
        """Put the pairs of a batch into bins.

        Parameters
        ----------
        rows : dict
            The agents' state.
        who : int array, shape (m,)
            Agents of the batch.
        pairs : TimedPairs
            Their pairs.
        """
        return SpreadPairs(
            counts=rows["vote_pairs"],
            who=who,
            bins=spread_vote_bins(pairs.difference, self.span),
            first=np.cumsum(pairs.number) - pairs.number,
            starts=pairs.starts,
            complete=pairs.complete,
            since=rows["vote_since"],
        )

    def due(self, since: Floats, before: Ints) -> Bools:
        """Tell who votes with a release: public numbers of pairs since the last vote and in votes."""
        return np.asarray((since >= 1) & (since >= (FACTOR - 1) * before), np.bool_)

    def version(self, pairs: Ints, version: Words, noise: KeyedNoise) -> Words:
        """Digest what is voted along with the rest of the input: other pairs meet other noise."""
        for counts in pairs.T:
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
        bound = 0.5 * (np.maximum(squares, 0.0) + noise) / pairs

        return np.asarray(
            np.where(votes[:, 1] > 0, np.minimum(bound, 0.25), 0.25) * float(self.span) ** 2
        )

    def cast(self, pairs: Ints, since: Floats, ids: NoiseIds, noise: KeyedNoise) -> Ints:
        """Noise pairs: one vote a row, as `ReleaseColumns.votes` has it."""
        ids = replace(ids, version=self.version(pairs, ids.version, noise))
        draws = [
            np.rint(self.noise.sample(noise.bits(ids, AGENT_VOTES.at(b)))).astype(np.int64)
            for b in range(VOTE_BINS)
        ]

        votes = np.empty((len(pairs), 2 + VOTE_BINS), np.int64)
        votes[:, 0] = 1
        votes[:, 1] = np.maximum(np.rint(since), 1)
        votes[:, 2:] = pairs + np.stack(draws, axis=1)

        return votes

    def cast_alone(
        self, rows: dict[str, np.ndarray], agent: Ints, ids: NoiseIds, noise: KeyedNoise
    ) -> None:
        """Have those agents vote whose pairs are enough, each with its own pairs alone."""
        due = np.flatnonzero(self.due(rows["vote_since"][agent], rows["vote_noised"][agent, 1]))
        if not len(due):
            return

        voters = agent[due]
        own = NoiseIds(owner=ids.owner[due], index=ids.index[due], version=ids.version[due])
        rows["vote_noised"][voters] += self.cast(
            rows["vote_pairs"][voters], rows["vote_since"][voters], own, noise
        )
        rows["vote_pairs"][voters] = 0
        rows["vote_since"][voters] = 0.0


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
    starts, complete : int array (m,) and (pairs,), optional
        Of pairs: where the samples of each agent begin, and with which of the samples each pair is
        complete. Without them samples are counted.
    since : float array (agents,), optional
        Where the number of pairs is counted.
    """

    counts: Ints
    who: Ints
    bins: AnyInts
    first: Ints
    starts: Ints | None = None
    complete: Ints | None = None
    since: Floats | None = None
    _begin: Ints = field(init=False)

    def __post_init__(self) -> None:
        self._begin = self.first.copy()

    def count(self, which: Ints, samples: Ints) -> None:
        """Count what the agents at the places `which` have with their first samples of the batch, up to that many."""
        if self.starts is None or self.complete is None:
            end = self.first[which] + samples
        else:
            end = np.searchsorted(self.complete, self.starts[which] + samples)

        begin = self._begin[which]
        lengths = end - begin
        offset = np.cumsum(lengths) - lengths
        at = np.arange(int(lengths.sum())) + np.repeat(begin - offset, lengths)
        cells = np.repeat(self.who[which] * self.counts.shape[1], lengths) + self.bins[at]
        np.add.at(np.reshape(self.counts, -1, copy=False), cells, 1)
        self._begin[which] = end

        if self.since is not None:
            self.since[self.who[which]] += lengths
