"""Samples in the order of their agents: stable, by radix where it is faster."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meanstream.operators.records import AnyInts, Ints

_RADIX_BITS = 16


class AgentOrder(NamedTuple):
    """The samples of a batch by agent.

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

    @property
    def ends(self) -> Ints:
        """Where the last sample of each agent stands."""
        return self.starts + self.added - 1


def order_by_agent(agent: AnyInts, n_agents: int) -> AgentOrder:
    """Sort samples by agent; NumPy sorts 16-bit integers by radix, so take 16 bits at a time.

    Parameters
    ----------
    agent : int array (n,)
        Indices from 0 up to `n_agents`, 1 of them at least.
    n_agents : int
        Number of agents; decides how many passes are needed.

    Examples
    --------
    >>> found = order_by_agent(np.array([70_000, 3, 70_000, 0]), 70_001)
    >>> found.order.tolist(), found.who.tolist(), found.starts.tolist(), found.added.tolist()
    ([3, 1, 0, 2], [0, 3, 70000], [0, 1, 2], [1, 1, 2])
    """
    least = np.uint8 if n_agents <= 2**8 else np.uint16
    order: Ints = np.argsort(agent.astype(least), kind="stable")
    for shift in range(_RADIX_BITS, max(n_agents - 1, 1).bit_length(), _RADIX_BITS):
        digit = (agent[order] >> shift).astype(np.uint16)
        order = order[np.argsort(digit, kind="stable")]
    if n_agents <= len(agent):
        per_agent = np.bincount(agent, minlength=n_agents)
        who = np.flatnonzero(per_agent)
        added = per_agent[who]
        return AgentOrder(order, who, np.cumsum(added) - added, added)
    sorted_agent = agent[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_agent[1:] != sorted_agent[:-1]]))
    who = sorted_agent[starts].astype(np.int64)
    return AgentOrder(order, who, starts, np.diff(starts, append=len(agent)))
