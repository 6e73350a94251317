"""Which agents of a store live in it, and which it has given to another.

What `meanstream store move` leaves behind.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from meanstream.operators.records import Bools, Ints
from meanstream.streaming.sources.source_protocol import AgentsOfStore
from meanstream.streaming.store.state_store import Store

MOVES = "moves"
"""State of what was moved; the chunks of `GIVEN` and `RECEIVED` say which agents."""
GIVEN = "given"
RECEIVED = "received"


@dataclass(slots=True)
class Moves:
    """What was ever moved from or to a store.

    Attributes
    ----------
    number : int
        Of the newest move that it took part in; greater than that of all before, in either store.
    done : list of str
        Ids of the moves to it.
    given : list of int
        Partitions that another store reads now.
    former : dict
        Ids of the stores that had a partition before, by partition.
    """

    number: int = 0
    done: list[str] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    former: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store) -> Moves:
        """Read them."""
        return cls(**(store.state(MOVES) or {}))

    def save(self, store: Store) -> None:
        """Note them, within a transaction."""
        store.put_state(MOVES, asdict(self))


def departed_agents(store: Store) -> Bools:
    """Say for each agent that the store knows whether it lives in another one now."""
    gone = np.zeros(len(store.agents()), np.bool_)
    for _, columns in store.chunks(GIVEN):
        gone[columns["agent"]] = True

    return gone


def put_departed_agents(store: Store, gone: Bools) -> None:
    """Note it, within a transaction."""
    store.put_chunk(GIVEN, 0, {"agent": np.flatnonzero(gone)})


def received_moves(store: Store) -> Ints:
    """Give for each agent the number of the move that brought it, 0 where none did."""
    number = np.zeros(len(store.agents()), np.int64)
    for _, columns in store.chunks(RECEIVED):
        number[columns["agent"]] = columns["move"]

    return number


def agents_of_store(store: Store, most: int) -> AgentsOfStore:
    """Tell a source that is shared which agents live in the store."""
    names = store.agents()
    moves = Moves.of(store)
    gone = departed_agents(store)
    brought = received_moves(store)

    return AgentsOfStore(
        names=tuple(names),
        given=frozenset(names[i] for i in np.flatnonzero(gone).tolist()),
        moves={names[i]: int(brought[i]) for i in np.flatnonzero(brought).tolist()},
        departed_partitions=frozenset(moves.given),
        former_owners={int(partition): tuple(stores) for partition, stores in moves.former.items()},
        most=most,
    )


def moves_summary(store: Store) -> dict[str, Any] | None:
    """Public: say how many agents and which partitions were given away and received.

    None if none ever were.
    """
    moves = Moves.of(store)
    if not moves.number:
        return None
    return {
        "departed_partitions": moves.given,
        "departed_agents": int(departed_agents(store).sum()),
        "received_partitions": sorted(map(int, moves.former)),
        "received_agents": int((received_moves(store) > 0).sum()),
    }
