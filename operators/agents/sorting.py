"""Stable orders of agents; the samples of a batch by agent, and their sums."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from meanstream.operators.agents.own_moments import SQUARES_BASE, SumsNow
from meanstream.operators.agents.state_columns import Columns
from meanstream.operators.records import AnyInts, Floats, Ints

_RADIX_BITS = 16


def order_by_agent(agent: AnyInts, n_agents: int) -> Ints:
    """Order that sorts indices of agents stably.

    NumPy sorts 16-bit integers by radix, so take 16 bits at a time.

    Parameters
    ----------
    agent : int array
        Indices from 0 up to `n_agents`.
    n_agents : int
        Number of agents; decides how many passes are needed.

    Examples
    --------
    >>> order_by_agent(np.array([70_000, 3, 70_000, 0]), 70_001).tolist()
    [3, 1, 0, 2]
    """
    least = np.uint8 if n_agents <= 2**8 else np.uint16
    order: Ints = np.argsort(agent.astype(least), kind="stable")
    for shift in range(_RADIX_BITS, max(n_agents - 1, 1).bit_length(), _RADIX_BITS):
        digit = (agent[order] >> shift).astype(np.uint16)
        order = order[np.argsort(digit, kind="stable")]

    return order


def last_of_each(agent: AnyInts) -> Ints:
    """Give the place of each agent's last entry, in the order of the agents.

    Examples
    --------
    >>> last_of_each(np.array([7, 3, 7, 0])).tolist()
    [3, 1, 2]
    """
    if not len(agent):
        return np.zeros(0, np.int64)
    order = order_by_agent(agent, int(agent.max()) + 1)
    ordered = agent[order]

    return np.asarray(order[np.append(ordered[1:] != ordered[:-1], np.True_)])


class AgentOrder(NamedTuple):
    """The samples of a batch in the order of their agents.

    Attributes
    ----------
    order : int array (n,)
        Sorts the samples by agent; those of one agent stay in their order.
    who, starts, added : int array (m,)
        Agents of the batch, where the samples of each begin in that order, and how many there are.
    """

    order: Ints
    who: Ints
    starts: Ints
    added: Ints


def samples_by_agent(agent: AnyInts, n_agents: int) -> AgentOrder:
    """Sort samples by agent.

    Parameters
    ----------
    agent : int array (n,)
        Indices from 0 up to `n_agents`, 1 of them at least.
    n_agents : int
        Number of agents; where there are no more than samples, these are counted instead of
        compared.

    Examples
    --------
    >>> found = samples_by_agent(np.array([2, 0, 2, 1]), 3)
    >>> found.order.tolist(), found.who.tolist(), found.starts.tolist(), found.added.tolist()
    ([1, 3, 0, 2], [0, 1, 2], [0, 1, 2], [1, 1, 2])
    """
    order = order_by_agent(agent, n_agents)
    if n_agents <= len(agent):
        per_agent = np.bincount(agent, minlength=n_agents)
        who = np.flatnonzero(per_agent)
        added = per_agent[who]
        return AgentOrder(order, who, np.cumsum(added) - added, added)

    in_order = agent[order]
    starts = np.flatnonzero(np.concatenate([[True], in_order[1:] != in_order[:-1]]))
    return AgentOrder(
        order, in_order[starts].astype(np.int64), starts, np.diff(starts, append=len(agent))
    )


class SortedSamples:
    """Private: the samples of a batch by agent, and the sums that they lead to.

    A place is the place of an agent in the batch. The state is that before the batch.

    Attributes
    ----------
    order : int array (n,)
        Sorts the samples by agent.
    who, starts, added, ends : int array (m,)
        Agents of the batch, where the samples of each begin, how many there are, which is the last.
    point, time : array (n,)
        The samples in grid units and their event times, by agent.
    prefix, squares : int array (n,)
        Sum of all samples of the batch up to each of them; squares around the middle of the grid.
    before : SumsNow
        What each agent had before the batch.
    count : int array (m,)
        How many samples each agent has after the batch.
    """

    def __init__(
        self,
        rows: Columns,
        agent: AnyInts,
        point: AnyInts,
        time: Floats,
        *,
        n_agents: int,
        middle: int,
    ) -> None:
        self.order, self.who, self.starts, self.added = samples_by_agent(agent, n_agents)
        self.ends = self.starts + self.added - 1
        self.point = point.take(self.order).astype(np.int64, copy=False)
        self.time = time.take(self.order)
        self.prefix = np.cumsum(self.point)
        self.squares = self.point - middle
        self.squares *= self.squares
        self.before = SumsNow.of(rows, self.who)
        self.count = self.before.number + self.added
        self._base = self.before.total - self.prefix[self.starts] + self.point[self.starts]

    @cached_property
    def _squares_to(self) -> tuple[Ints, Ints]:
        """Sum of all squares up to each sample, and what to add to it for each agent."""
        sums = np.cumsum(self.squares)
        base = self.before.squares_low - sums[self.starts] + self.squares[self.starts]
        return sums, base

    @cached_property
    def _ends_of_times(self) -> Ints:
        """Samples that the next one is not simultaneous with."""
        return np.flatnonzero(np.append(self.time[1:] != self.time[:-1], True))

    def to_the_end_of_its_time(self, place: Ints, count: Ints) -> Ints:
        """Give the count of some agents at the last sample of the time that `count` is in."""
        sample = self._sample(place, count)
        agents_last = self.ends[place]
        goes_on = (sample < agents_last) & (
            self.time[np.minimum(sample + 1, agents_last)] == self.time[sample]
        )
        if not goes_on.any():
            return count

        end = self._ends_of_times[np.searchsorted(self._ends_of_times, sample)]
        return np.asarray(count + np.minimum(end, agents_last) - sample, np.int64)

    def reached(
        self, place: Ints, count: Ints, *, with_squares: bool = True
    ) -> tuple[SumsNow, Ints]:
        """Give what some agents have at these counts, and which of the samples completes each.

        Without squares those of before the batch stand in their place.
        """
        sample = self._sample(place, count)
        low = self.before.squares_low[place]
        if with_squares:
            sums, base = self._squares_to
            low = base[place] + sums[sample]

        high = self.before.squares_high[place]
        now = SumsNow(count, self.total(place, count), high, low, self.time[sample])
        return now, sample

    def total(self, place: Ints, count: Ints) -> Ints:
        """Exact sums of all samples of some agents at these counts."""
        return self._base[place] + self.prefix[self._sample(place, count)]

    def _sample(self, place: Ints, count: Ints) -> Ints:
        """The sample with which some agents have that many."""
        return np.asarray(self.starts[place] + (count - self.before.number[place]) - 1, np.int64)

    def add_to(self, rows: Columns) -> None:
        """Add the samples and their squares to the sums of their agents."""
        # Two integers of 64 bits hold the sum exactly, so that no order of batches changes it.
        low = self.before.squares_low + np.add.reduceat(self.squares, self.starts)
        rows["squares_low"][self.who] = low % SQUARES_BASE
        rows["squares_high"][self.who] += low // SQUARES_BASE
        rows["total"][self.who] = self._base + self.prefix[self.ends]
        rows["count"][self.who] = self.count
        rows["seen"][self.who] = self.time[self.ends]
