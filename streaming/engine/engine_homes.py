"""From which partition of its source each agent's newest sample came."""

from __future__ import annotations

import numpy as np

from meanstream.operators.records import Ints
from meanstream.streaming.store.state_store import Store

HOMES = "homes"
CHUNK = 1024
"""Agents that are saved together."""
UNKNOWN = -1


class Homes:
    """Follows it, for a source that has partitions which may be moved to another store.

    Examples
    --------
    >>> homes = Homes()
    >>> homes.note(3, np.array([0, 2, 0]), np.array([5, 6, 7]))
    >>> homes.partitions.tolist()
    [7, -1, 6]
    >>> homes.note(3, np.array([0, 2]), np.array([7, 5]))  # only one of them has moved
    >>> homes.partitions.tolist()
    [7, -1, 5]
    """

    def __init__(self) -> None:
        self.partitions: Ints = np.zeros(0, np.int64)
        self._changed: set[int] = set()

    def note(self, agents: int, agent: Ints, partition: Ints) -> None:
        """Take samples in the order of arrival, of that many agents."""
        missing = np.full(agents - len(self.partitions), UNKNOWN, np.int64)
        self.partitions = np.concatenate([self.partitions, missing])
        other = self.partitions[agent] != partition
        if other.any():
            self.partitions[agent[other]] = partition[other]
            self._changed.update(np.unique(agent[other] // CHUNK).tolist())

    def save(self, store: Store) -> None:
        """Write what changed, within a transaction."""
        for chunk in self._changed:
            part = self.partitions[chunk * CHUNK : (chunk + 1) * CHUNK]
            store.put_chunk(HOMES, chunk, {"partition": part.astype(np.int32)})

        self._changed.clear()

    def restore(self, store: Store) -> None:
        """Continue from what was saved."""
        self.partitions = home_partitions(store)


def home_partitions(store: Store) -> Ints:
    """Give it for each agent of a store, -1 where it is not known."""
    homes = np.full(len(store.agents()), UNKNOWN, np.int64)
    for chunk, columns in store.chunks(HOMES):
        homes[chunk * CHUNK : chunk * CHUNK + len(columns["partition"])] = columns["partition"]

    return homes


def put_home_partitions(store: Store, homes: Ints) -> None:
    """Write it again for all agents of a store, within a transaction."""
    for chunk in range(-(-len(homes) // CHUNK)):
        part = homes[chunk * CHUNK : (chunk + 1) * CHUNK]
        store.put_chunk(HOMES, chunk, {"partition": part.astype(np.int32)})
