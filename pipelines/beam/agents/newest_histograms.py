"""Everyone's newest histogram, as far as a prior is learned of it.

Of groups of agents, and of all of them.
"""

from __future__ import annotations

import math

import numpy as np

from meanstream.operators.agents.own_histogram import HistogramColumns
from meanstream.operators.collaboration.shares import shares_prior as prior
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
