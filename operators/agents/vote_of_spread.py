"""The spread vote: distances of pairs of an agent's own samples, in few bins and noised.

What one sample varies by is needed wherever agents share means, and the noisy means say little
about it. So a part of the budget goes into a histogram of `|x - x'|` over disjoint pairs of an
agent's samples. Votes add up over hosts; `meanstream.operators.collaboration.variance.spread_law` reads the
variance of one sample off the sum.

The order of rows is an input like their values: a file may come sorted by them. So pairs by time
are of samples that share their event time with no other one of their agent, and pairs by content
are chosen by a key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import betainc

from meanstream.operators.agents.own_blocks import neighbors
from meanstream.operators.agents.state_columns import PRIVATE, PUBLIC, Column, Columns, Table
from meanstream.operators.noise.distributions import GaussianNoise, LaplaceNoise
from meanstream.operators.noise.draw_owners import AGENT_VOTES
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds, NoiseSource
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


TIMED_PAIR_COLUMNS = (
    Column("vote_first", np.int64, privacy=PRIVATE, of="votes"),
    Column("vote_waits", np.uint8, privacy=PUBLIC, of="votes"),
    Column("vote_time", np.float64, start=-np.inf, privacy=PUBLIC, of="votes"),
)
"""The sample that waits for its partner, whether there is one, and the time of the last sample."""
VOTE_NOISED = Column(
    "vote_noised", np.int64, (2 + VOTE_BINS,), privacy=PUBLIC, of="votes", kept=True
)
"""As `ReleaseColumns.votes`."""
VOTE_COLUMNS: Table = (
    Column(
        "vote_pairs", np.int64, (VOTE_BINS,), privacy=PRIVATE, of="votes"
    ),  # since the last vote
    Column("vote_since", np.float64, privacy=PUBLIC, of="votes"),  # how many they are
    VOTE_NOISED,
    *TIMED_PAIR_COLUMNS,
)


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
    change, by 4 and `sqrt(8)` (`meanstream.operators.agents.vote_of_spread`). Every bin of a vote has a draw of its
    own, so all votes that a sample could be in are one mechanism of that sensitivity. Votes are cast with releases,
    when the public number of pairs has grown by `FACTOR`.

    `meanstream.operators.agents.host_votes` adds up the pairs of all agents of a host before they
    are noised; an agent alone is a host of one.
    """

    span: int
    noise: GaussianNoise | LaplaceNoise
    forgets: bool = False
    columns: ClassVar[Table] = VOTE_COLUMNS

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

    def pairs(self, rows: Columns, who: Ints, pairs: TimedPairs) -> SpreadPairs:
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
        # Every bin has bits of its own; the law is taken of all of them in one call.
        bits = np.concatenate([noise.bits(ids, AGENT_VOTES.at(b)) for b in range(VOTE_BINS)])
        draws = np.rint(self.noise.sample(bits)).astype(np.int64).reshape(VOTE_BINS, -1)

        votes = np.empty((len(pairs), 2 + VOTE_BINS), np.int64)
        votes[:, 0] = 1
        votes[:, 1] = np.maximum(np.rint(since), 1)
        votes[:, 2:] = pairs + draws.T

        return votes

    def cast_alone(self, rows: Columns, agent: Ints, ids: NoiseIds, noise: KeyedNoise) -> None:
        """Have those agents vote whose pairs are enough, each with its own pairs alone."""
        due = np.flatnonzero(self.due(rows["vote_since"][agent], rows["vote_noised"][agent, 1]))
        if not len(due):
            return

        voters = agent[due]
        rows["vote_noised"][voters] += self.cast(
            rows["vote_pairs"][voters], rows["vote_since"][voters], ids.take(due), noise
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
        pairs = np.arange(int(lengths.sum())) + np.repeat(begin - offset, lengths)
        cells = np.repeat(self.who[which] * self.counts.shape[1], lengths) + self.bins[pairs]
        np.add.at(np.reshape(self.counts, -1, copy=False), cells, 1)
        self._begin[which] = end

        if self.since is not None:
            self.since[self.who[which]] += lengths


class TimedPairs(NamedTuple):
    """Private: pairs of the agents of a batch, in the order of their agents.

    Attributes
    ----------
    number : int array (m,)
        How many pairs each agent of the batch completes.
    starts : int array (m,)
        Where the samples of each agent begin.
    difference : int array (p,)
        Absolute difference of the two samples, in grid units.
    complete : int array (p,)
        With which of the samples of the batch, in the order of their agents, each is complete.
    """

    number: Ints
    starts: Ints
    difference: Ints
    complete: Ints


def timed_pairs(  # noqa: PLR0917
    rows: Columns, who: Ints, point: Ints, time: Floats, starts: Ints, added: Ints
) -> TimedPairs:
    """Pair the samples of a batch; the sample without a partner is put into the state.

    Parameters
    ----------
    rows : dict
        The agents' state.
    who, starts, added : int array, shape (m,)
        Agents of the batch, where the samples of each begin, and how many there are.
    point, time : array, shape (n,)
        The samples, in grid units, and their event times, by agent in the order of time. Samples of
        one agent and event time are in one batch.

    Examples
    --------
    >>> from meanstream.operators.agents.state_columns import empty_columns
    >>> rows = empty_columns(TIMED_PAIR_COLUMNS, 1)
    >>> zero, five = np.zeros(1, np.int64), np.array([5])
    >>> time = np.array([0.0, 1.0, 1.0, 2.0, 3.0])
    >>> timed_pairs(rows, zero, np.array([3, 9, 8, 7, 1]), time, zero, five).difference.tolist()
    [4]
    >>> rows["vote_first"].tolist(), rows["vote_waits"].tolist()
    ([1], [1])
    """
    fits = _alone_at_their_time(rows, who, time, starts, added)
    fitting = np.flatnonzero(fits)
    fit = np.add.reduceat(fits, starts, dtype=np.int64)
    begin = np.cumsum(fit) - fit
    alone = point[fitting]

    waits = rows["vote_waits"][who].astype(np.int64)
    pairs = neighbors(alone, begin, fit, waits, rows["vote_first"][who])
    left = (waits + fit) % 2
    newest = np.flatnonzero((left == 1) & (fit > 0))
    rows["vote_first"][who[newest]] = alone[(begin + fit - 1)[newest]]
    rows["vote_first"][who[left == 0]] = 0
    rows["vote_waits"][who] = left

    return TimedPairs(pairs.number, starts, pairs.difference, fitting[pairs.second])


def _alone_at_their_time(
    rows: Columns, who: Ints, time: Floats, starts: Ints, added: Ints
) -> np.ndarray:
    """Tell which samples share their event time with no other sample of their agent."""
    ends = starts + added - 1
    tied = np.zeros(len(time) + 1, np.bool_)  # with the one before
    np.equal(time[1:], time[:-1], out=tied[1:-1])
    tied[starts] = time[starts] == rows["vote_time"][who]
    rows["vote_time"][who] = time[ends]

    after = tied[1:].copy()  # with the one after
    after[ends] = False

    return ~(tied[:-1] | after)


ROWS_OF_BUCKET = 4
"""Rows of an agent for each of its buckets: one bucket in eleven has no pair, then."""
KEYS = 1 << 16
MOST_KEYS = 1 << 20
"""More tell nothing that noise leaves to be seen, and take time."""

_LAST = np.uint64(KEYS - 1)
_HALF = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class ContentPairs:
    """Private but for `number`: pairs of rows of agents.

    Attributes
    ----------
    agent, difference : int array (p,)
        Whose each is, and how far apart the two rows are, in grid units.
    number : float array (agents,)
        Public: how many pairs an agent with that many rows is expected to have.
    """

    agent: Ints
    difference: Ints
    number: Floats


def content_pairs(
    agent: AnyInts, point: Ints, span: int, owner: Words, noise: NoiseSource
) -> ContentPairs:
    """Pair the rows of each agent by keyed hashes of what they hold.

    Parameters
    ----------
    agent, point : int array (n,)
        Whose each row is, and its value in grid units; in any order, which changes nothing.
    span : int
        Width of the bounds in grid units.
    owner : uint64 array (agents, 2)
        Hash of each agent's name.
    noise : NoiseSource
        Its key decides which rows are a pair.

    Notes
    -----
    The key of a row is its value and its number among the rows of its agent with that value. Hashes
    put an agent's n keys into `max(1, n // 4)` buckets; the two least hashes of each bucket that
    has two are a pair. Of more than a million keys those are used whose hashes are small.

    **Privacy.** A replaced row takes one key away and adds another, so at most two buckets have another pair: four
    counts change by one, by 4 (l1) and at most `sqrt(8)` (l2). How many buckets have a pair follows from the values, so
    the number that is expected, a function of the numbers of rows, is told in its place.

    Examples
    --------
    >>> from meanstream.operators.noise.keyed import KeyedNoise, keyed_owner_words
    >>> noise = KeyedNoise(bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="doc", purpose="p")
    >>> owner = keyed_owner_words(["a", "b"])
    >>> pairs = content_pairs(np.array([0, 0, 1]), np.array([7, 3, 1]), 8, owner, noise)
    >>> pairs.difference.tolist(), pairs.number.tolist()
    ([4], [1.0, 0.0])
    """
    rows = np.bincount(agent, minlength=len(owner))
    share = _share_of_keys(len(agent))
    buckets = _buckets(rows, share)
    agent, point, hashes = _kept_keys(agent, point, span, owner, noise, share)

    spread = (hashes >> np.uint64(16)) & _HALF
    bucket = (spread * buckets[agent].astype(np.uint64) >> np.uint64(32)).astype(np.int64)
    bucket += (np.cumsum(buckets) - buckets)[agent]
    order = np.lexsort(((hashes >> np.uint64(48) << np.uint64(16)) | (hashes & _LAST), bucket))

    ordered = bucket[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(begins[:-1] & ~begins[1:])
    left = order[starts]
    right = order[starts + 1]

    return ContentPairs(
        agent[left], np.abs(point[left] - point[right]), expected_pairs(rows, share)
    )


def expected_pairs(rows: Ints, share: int = KEYS) -> Floats:
    """Public: the expected number of pairs of agents with so many rows.

    Of their keys, `share` of 65,536 are used.

    Examples
    --------
    >>> expected_pairs(np.array([0, 1, 2, 7, 8, 4000])).round(2).tolist()
    [0.0, 0.0, 1.0, 1.0, 1.93, 908.53]
    """
    sizes, inverse = np.unique(rows, return_inverse=True)
    buckets = _buckets(sizes, share)
    # That a bucket has two keys or more, as a binomial law says it.
    full = betainc(2.0, np.maximum(sizes - 1.0, 1.0), share / (KEYS * buckets))
    pairs = buckets * np.where(sizes > 1, full, 0.0)

    return np.asarray(pairs[inverse], np.float64)


def _share_of_keys(rows: int) -> int:
    """Public: how many of 65,536 keys are used, by their hashes: about a million of them are enough."""
    return min(MOST_KEYS * KEYS // max(rows, 1), KEYS)


def _buckets(rows: Ints, share: int) -> Ints:
    return np.maximum(rows * share // (KEYS * ROWS_OF_BUCKET), 1)


def _kept_keys(  # noqa: PLR0917
    agent: AnyInts, point: Ints, span: int, owner: Words, noise: NoiseSource, share: int
) -> tuple[Ints, Ints, Words]:
    """Hash the keys of all rows, in an order that they alone decide; give those that are used."""
    agent, point = _sorted_by_content(agent, point, span)
    new = np.ones(len(point), np.bool_)
    new[1:] = (agent[1:] != agent[:-1]) | (point[1:] != point[:-1])
    position = np.arange(len(point))
    key = np.maximum.accumulate(np.where(new, position, 0))
    np.subtract(position, key, out=key)  # number among rows of that value
    key *= span + 1
    key += point

    words = noise.version_of(owner[:, 0].view(np.int64), owner[:, 1].view(np.int64))
    hashes = noise.version_of(words.view(np.int64)[agent], key)
    if share == KEYS:
        return agent, point, hashes

    used = np.flatnonzero((hashes & _LAST) < np.uint64(share))
    return agent[used], point[used], hashes[used]


def _sorted_by_content(agent: AnyInts, point: Ints, span: int) -> tuple[Ints, Ints]:
    """Sort rows by agent and value: as one number for each, where there is room for it."""
    number = agent.astype(np.int64)
    if (int(number.max(initial=0)) + 1) * (span + 1) >= 2**62:
        order = np.lexsort((point, number))
        return number[order], point[order]

    packed = number * (span + 1) + point
    packed.sort()
    sorted_agent = packed // (span + 1)
    packed -= sorted_agent * (span + 1)

    return sorted_agent, packed
