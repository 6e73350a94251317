"""Sorting agents: stable, by radix where it is faster."""

from __future__ import annotations

import numpy as np

from meanstream.operators.records import AnyInts, Ints

_RADIX_BITS = 16


def order_by_agent(agent: AnyInts, n_agents: int) -> Ints:
    """Order that sorts indices of agents stably; NumPy sorts 16-bit integers by radix, so take 16 bits at a time.

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
