"""Sorting agents: stable, by radix where it is faster; the samples of a batch by agent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meanstream.operators.records import AnyInts, Ints

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
