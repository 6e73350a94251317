"""Which agents of a store are forgotten: their samples are rejected from then on."""

from __future__ import annotations

import numpy as np

from meanstream.operators.records import Ints
from meanstream.streaming.store.state_store import Store

FORGOTTEN = "forgotten"


def forgotten_agents(store: Store) -> Ints:
    """Give the numbers of the agents that are forgotten, in order."""
    found = [columns["agent"] for _, columns in store.chunks(FORGOTTEN)]
    return np.concatenate([np.zeros(0, np.int64), *found])


def add_forgotten_agent(store: Store, number: int) -> None:
    """Note one more, within a transaction."""
    store.put_chunk(
        FORGOTTEN, 0, {"agent": np.union1d(forgotten_agents(store), [number]).astype(np.int64)}
    )
