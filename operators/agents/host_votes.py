"""The vote of a host: the pairs of all its agents, added up and noised together.

Readers need the spread of all agents together. So a host that holds the samples of many agents
adds up their pairs before the noise, and draws one noise instead of one for each agent. A replaced
sample still moves two counts by one.

A vote leaves with a release, which it is charged and committed with, and belongs to the agent of
that release from then on: so votes of releases add up over agents as they always do, and the state
of the agents is all that a host has.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meanstream.operators.agents.released_rows import PendingReleases
from meanstream.operators.agents.state import AgentRows
from meanstream.operators.agents.vote_of_spread import SpreadVote, TimedPairs, spread_vote_bins
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds
from meanstream.operators.records import VOTE_BINS, AnyInts, Floats, Ints


class HostPairs(NamedTuple):
    """Private: pairs of a batch.

    Attributes
    ----------
    agent, bins, moment : int array (p,)
        Whose each is, its bin, and with which sample of the batch it is complete.
    """

    agent: Ints
    bins: AnyInts
    moment: Ints

    def take(self, which: Ints | slice) -> HostPairs:
        """Select some of them."""
        return HostPairs(self.agent[which], self.bins[which], self.moment[which])


_NO_AGENTS: Ints = np.zeros(0, np.int64)
NO_PAIRS = HostPairs(_NO_AGENTS, _NO_AGENTS, _NO_AGENTS)
"""Of no one."""
_DENSE = 8
"""From a pair for so many agents on all of them are counted: that is faster."""


class HostVotes:
    """Casts one vote for all agents of a host.

    Parameters
    ----------
    vote : SpreadVote
        Bins and noise.
    noise : KeyedNoise
        Of the agents' releases.
    state : AgentRows
        Of the agents.

    Notes
    -----
    **Privacy.** A pair is in exactly one vote, and a vote has noise of its own, whose key is the release that it leaves
    with and all that it counts. When votes are cast follows from public numbers of pairs: with the first release by
    which the host has one pair, then `FACTOR` times those of its last vote. That release's place among the samples
    decides, so batches change nothing.
    """

    def __init__(self, vote: SpreadVote, noise: KeyedNoise, state: AgentRows) -> None:
        self._vote = vote
        self._noise = noise
        self._state = state
        self._known: tuple[float, int] | None = None
        self._replaced = 0

    def of_batch(self, who: Ints, pairs: TimedPairs, order: AnyInts) -> HostPairs:
        """Put the pairs of a batch into bins; `order` are the places of its samples, by agent."""
        return HostPairs(
            np.repeat(who, pairs.number),
            spread_vote_bins(pairs.difference, self._vote.span),
            order[pairs.complete].astype(np.int64, copy=False),
        )

    def count(self, pairs: HostPairs, number: Floats | None = None) -> None:
        """Count pairs; how many each of them stands for is public, and one by default."""
        if not len(pairs.agent) and number is None:
            return
        rows = self._state.columns
        cells = pairs.agent * VOTE_BINS + pairs.bins
        np.add.at(np.reshape(rows["vote_pairs"], -1, copy=False), cells, 1)
        since, before = self._sums()

        if number is None:
            if _DENSE * len(pairs.agent) > len(rows["vote_since"]):
                rows["vote_since"] += np.bincount(pairs.agent, minlength=len(rows["vote_since"]))
            else:
                np.add.at(rows["vote_since"], pairs.agent, 1.0)

            self._known = (since + len(pairs.agent), before)
        else:
            rows["vote_since"][: len(number)] += number
            self._state.touch(np.flatnonzero(number))
            self._known = None

    def cast(
        self, pairs: HostPairs, moments: list[Ints], pending: PendingReleases, begun: int
    ) -> None:
        """Count the pairs of a batch, and add votes to those of its releases that are due to have one.

        Parameters
        ----------
        pairs : HostPairs
            Of the batch.
        moments : list of int array
            The sample of the batch that each of its releases comes with.
        pending : PendingReleases
            Releases; those of the batch are the pieces from `begun` on.
        """
        if not moments:
            self.count(pairs)
            return

        moment = np.concatenate(moments)
        order = np.argsort(moment, kind="stable")
        by_moment, complete = order_of_pairs(pairs, int(moment.max(initial=0)) + 1)
        arrived = complete[moment[order]]
        done = 0

        while True:
            since, before = self._sums()
            waiting = np.asarray(since + arrived - done, np.float64)
            due = self._vote.due(waiting, np.full(len(order), before))
            due &= arrived >= done

            if not due.any():
                break

            i = int(np.argmax(due))
            self.count(pairs.take(by_moment[done : arrived[i]]))
            done = int(arrived[i])
            self._leave_with(int(order[i]), pending, begun)

        self.count(pairs.take(by_moment[done:]) if done else pairs)

    def _leave_with(self, place: int, pending: PendingReleases, begun: int) -> None:
        """Noise all that was counted, and let it leave with a release of the batch."""
        rows = self._state.columns
        agent, index, version = (
            pending.column(name, begun)[place : place + 1] for name in ("agent", "index", "version")
        )
        voters = np.flatnonzero(rows["vote_since"])

        vote = self._vote.cast(
            rows["vote_pairs"][voters].sum(axis=0, keepdims=True),
            rows["vote_since"][voters].sum(keepdims=True),
            NoiseIds(owner=self._state.owner[agent], index=index, version=version),
            self._noise,
        )

        rows["vote_pairs"][voters] = 0
        rows["vote_since"][voters] = 0.0
        rows["vote_noised"][agent] += vote
        self._state.touch(voters)
        self._state.touch(agent)
        self._known = None

        for piece in pending.pieces[begun:]:
            later = (piece.agent == agent) & (piece.index >= index)
            piece.votes[later] += vote

    def _sums(self) -> tuple[float, int]:
        """Give the public number of pairs since the last vote, and of those in votes."""
        # Rows that were put in place of others add up to something else.
        if self._known is None or self._replaced != self._state.replaced:
            self._replaced = self._state.replaced
            rows = self._state.columns
            self._known = (
                float(rows["vote_since"].sum()),
                int(rows["vote_noised"][:, 1].sum()),
            )

        return self._known


def order_of_pairs(pairs: HostPairs, moments: int) -> tuple[Ints, Ints]:
    """Give the order in which pairs are complete, and how many are with each sample of a batch.

    A sample completes one pair at most, so that its place is found without a sort.
    """
    size = max(moments, int(pairs.moment.max(initial=-1)) + 1)
    pair = np.full(size, -1)
    pair[pairs.moment] = np.arange(len(pairs.moment))
    completes = pair >= 0

    return pair[completes], np.cumsum(completes)
