"""What everyone's releases become, from shards to the population of all.

Public, made of releases alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from meanstream.operators.agents.own_histogram import HistogramColumns
from meanstream.operators.collaboration.registry import FittedPopulation, ReleaseSummary
from meanstream.operators.collaboration.shares import shares_prior as prior
from meanstream.operators.collaboration.shares.shares_prior import SharesPrior
from meanstream.operators.collaboration.variance.pooled_variance import PooledVariance
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.records import Ints, ReleaseColumns


def newest_histograms(releases: ReleaseColumns, agents: Ints, groups: int) -> HistogramColumns:
    """Public: the histograms of a group of agents, as far as a prior of all groups needs them.

    Parameters
    ----------
    releases : ReleaseColumns
        At most one of each agent, whose number is the hash of its name. Those without a histogram
        stay, with counts of nothing: they may take the place of others.
    agents : int array
        Hashes of all agents of the group who have released, increasing.
    groups : int
        Into how many groups the agents are split, by another hash.

    Notes
    -----
    Of the `MOST_LOOKED_AT` least hashes a group has its part, give or take: it tells of that many
    that those of all groups are among them but for once in 1e14, and of few where there are many
    groups.
    """
    part = prior.MOST_LOOKED_AT / groups
    least = agents[: math.ceil(part + 8 * math.sqrt(part)) + 16]
    found = releases.take(releases.agent <= least.max(initial=-1))
    return HistogramColumns(
        found.agent, found.histogram[:, 0], found.histogram[:, 1], found.histogram[:, 2:]
    )


def newest_histograms_together(known: HistogramColumns, told: HistogramColumns) -> HistogramColumns:
    """Public: put later histograms in place of earlier ones of the same agents.

    Examples
    --------
    >>> def found(agent, counts):
    ...     number = np.ones(len(agent), np.int64)
    ...     return HistogramColumns(np.array(agent), number, 3 * number, np.array(counts))
    >>> both = newest_histograms_together(found([9, 4], [[3], [2]]), found([5, 9], [[1], [7]]))
    >>> both.agent.tolist(), both.counts.tolist()
    ([4, 5, 9], [[2], [1], [7]])
    """
    columns = HistogramColumns(*(np.concatenate(pair) for pair in zip(known, told, strict=True)))
    backwards: Ints = np.unique(columns.agent[::-1], return_index=True)[1]
    newest = columns.take(len(columns.agent) - 1 - backwards)
    return newest.take(prior.sampled_histograms(newest.agent))


_NO_ROWS: Ints = np.zeros(0, np.int64)


@dataclass(slots=True, kw_only=True, eq=False)
class PartialReleases:
    """Public: what a fit reads of everyone's newest release.

    Of all shards, or what has changed in one.

    Attributes
    ----------
    summary : ReleaseSummary
        Of the newest release of each agent; of a change, of those who have released.
    pools : dict of int to PooledVariance
        By shard: of one sample, read off all releases so far. They are sums of floats, so they stay
        apart until all are there and can be added in one order.
    turns : dict of int to int
        By shard: how many changes it has told.
    before : ReleaseSummary or None
        Of a change: the releases that it takes the place of.
    number : int
        Of a change: the window at whose end it was told.
    histograms : HistogramColumns or None
        The newest histograms of those that a prior of shares is learned of, or, of a change, of
        those of them who have released; an agent's number is the hash of its name. None where there
        are no histograms.
    """

    summary: ReleaseSummary
    pools: dict[int, PooledVariance]
    turns: dict[int, int]
    before: ReleaseSummary | None = None
    number: int = 0
    histograms: HistogramColumns | None = None

    def take(self, changes: Iterable[PartialReleases]) -> list[PartialReleases]:
        """Take changes of shards in, each once, a shard's in their order.

        Give those whose turn has not come.

        In whatever order they come: the same, to the last bit.
        """
        rest: list[PartialReleases] = []
        for change in sorted(changes, key=lambda one: next(iter(one.turns.items()))[::-1]):
            ((shard, turn),) = change.turns.items()
            known = self.turns.get(shard, 0)
            if turn > known + 1:
                rest.append(change)

            if turn != known + 1:
                continue

            if change.before is not None:
                self.summary.subtract(change.before)

            self.summary.merge(change.summary)
            self._take_histograms(change.histograms)
            self.pools[shard] = change.pools[shard]
            self.turns[shard] = turn

        return rest

    def _take_histograms(self, told: HistogramColumns | None) -> None:
        known = self.histograms
        if told is not None:
            self.histograms = newest_histograms_together(
                told.take(_NO_ROWS) if known is None else known, told
            )

    def pool(self) -> PooledVariance:
        """Add up the pools, in the order of the shards."""
        first, *rest = (self.pools[shard] for shard in sorted(self.pools))
        pooled = PooledVariance.restore(first.snapshot())
        for part in rest:
            pooled.merge(part)

        return pooled


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedReleases:
    """Public: the population that was fitted to everyone's newest release.

    Attributes
    ----------
    number : int
        Of the window.
    newest : float
        Event time up to which there are samples.
    agents : int
        How many have released.
    pool : VariancePosterior
        What is known of the variance of one sample.
    fitted : FittedPopulation
    shares : SharesPrior or None
        What the agents' distributions are like; None where there are no histograms.
    overtaken : int
        How many earlier windows have no population of their own: they had ended, too, when this one
        was fitted.
    shards : bytes
        Which shards have agents to answer, as `tick_bits` writes them.
    """

    number: int
    newest: float
    agents: int
    pool: VariancePosterior
    fitted: FittedPopulation
    shares: SharesPrior | None = None
    overtaken: int = 0
    shards: bytes = b""
