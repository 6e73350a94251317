"""Samples of one batch in the order of event time, asked what every agent had at the time of each of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from meanstream.operators.records import Floats, Ints


class SamplesInOrder:
    """Private: samples in the order of event time, and prefix counts and sums of every agent at each of them.

    Parameters
    ----------
    node : int array (n,)
        Number of the agent within the federation.
    columns : int array (n, c)
        What is added up of each sample.
    time : float array (n,)
        Never decreasing.
    count, sums : int array (agents,), (agents, c)
        Samples and exact sums of each agent before the batch, by number.
    present : int
        Agents that had a sample before the batch.

    Examples
    --------
    >>> zero = np.zeros(2, np.int64)
    >>> node, point, time = np.array([0, 1, 0]), np.array([[5], [7], [9]]), np.array([1.0, 1.0, 2.0])
    >>> samples = SamplesInOrder(node, point, time, zero, np.zeros((2, 1), np.int64), present=0)
    >>> [which.tolist() for which in samples.turns()]
    [[0, 1], [2]]
    >>> [one.tolist() for one in samples.behind(np.array([1, 0, 1]), np.array([0, 1, 2]))]
    [[1, 1, 1], [[7], [5], [7]]]
    """

    def __init__(
        self, node: Ints, columns: Ints, time: Floats, count: Ints, sums: Ints, *, present: int
    ) -> None:
        n = len(node)
        self.node = node
        self.columns = columns
        self.time = time
        self._count = count.copy()
        self._before = sums.copy()
        self._end = np.searchsorted(time, time, "right")

        order = np.argsort(node, kind="stable")
        self._key = node[order] * max(n, 1) + order
        self._sums = np.concatenate(
            [np.zeros((1, columns.shape[1]), np.int64), np.cumsum(columns[order], axis=0)]
        )
        starts = np.searchsorted(node[order], node[order])
        self._rank = np.zeros(n, np.int64)
        self._rank[order] = np.arange(n) - starts
        self._present = present
        self._joined = np.sort(np.unique(node[node >= present], return_index=True)[1])
        self._joined = np.flatnonzero(node >= present)[self._joined]

    def turns(self) -> Iterator[Ints]:
        """Give the samples in groups with at most one of each agent.

        Everyone's first, everyone's second, ...
        """
        order = np.argsort(self._rank, kind="stable")
        yield from (
            np.split(order, np.flatnonzero(np.diff(self._rank[order])) + 1) if len(order) else ()
        )

    def behind(self, node: Ints, which: Ints) -> tuple[Ints, Ints]:
        """Count and add up the samples of agents up to the event time of some samples, that time included."""
        n = max(len(self.node), 1)
        first = np.searchsorted(self._key, node * n)
        until = np.searchsorted(self._key, node * n + self._end[which])
        count: Ints = self._count[node] + until - first

        return count, self._before[node] + self._sums[until] - self._sums[first]

    def present_at(self, which: Ints) -> Ints:
        """Count the agents that have a sample by the event time of some samples."""
        return self._present + np.searchsorted(self._joined, self._end[which])

    def totals(self) -> tuple[Ints, Ints]:
        """Return the agents of the batch, each once, and the exact sums of their columns."""
        found, place = np.unique(self.node, return_inverse=True)
        sums = np.zeros((len(found), self.columns.shape[1]), np.int64)
        np.add.at(sums, place, self.columns)
        return found, sums


def numbered_within(group: Ints, before: Ints) -> Ints:
    """Count the members of each group from `before[group] + 1` on, in their order.

    Examples
    --------
    >>> numbered_within(np.array([2, 0, 2]), np.array([4, 0, 9])).tolist()
    [10, 5, 11]
    """
    order = np.argsort(group, kind="stable")
    rank = np.zeros(len(group), np.int64)
    rank[order] = np.arange(len(group)) - np.searchsorted(group[order], group[order])
    number: Ints = before[group] + rank + 1

    return number
