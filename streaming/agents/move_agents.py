"""Which agents of a store live in it, and which it has given to another.

What `meanstream store move` leaves behind.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.records import Bools, Ints
from meanstream.streaming.agents.copied_agents import copy_agents, drop_agents
from meanstream.streaming.engine.engine_homes import home_partitions
from meanstream.streaming.sources.source_protocol import AgentsOfStore
from meanstream.streaming.store.deployment_store import saved_deployment_settings
from meanstream.streaming.store.source_identity import source_identity_of
from meanstream.streaming.store.state_store import Store, StoreError
from meanstream.streaming.store.store_identity import OF_AGENTS

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


MOVING = "moving"
"""State of a giver between its note and the end of the move."""

AfterStep = Callable[[str], None]


def _nothing_after_step(step: str) -> None:
    """Go on; a test raises here."""


def move_partition(
    giver: Store, taker: Store, partition: int, *, after: AfterStep = _nothing_after_step
) -> dict[str, Any]:
    """Move a partition with its agents; both stores are at rest and open for writing.

    Returns
    -------
    dict
        How many agents and ledger rows were moved, how many agents stay because it is not known
        where they live, and event time in both stores.

    Notes
    -----
    **Privacy.** The ledger rows of the agents are appended to the taker's ledger, so that their
    budgets and the indexes of their noise go on; in the giver they stay, as what it has released.
    Samples that wait are moved, too; those that lie behind the taker's event time count as of that
    time.
    """
    settle_move(giver)
    settings = _require_fit(giver, taker, partition)
    settle_move(taker)
    move = secrets.token_hex(8)

    with giver.transaction():
        where = {"to": str(taker.path.resolve()), "store": taker.public_id()}
        giver.put_state(MOVING, {"id": move, "partition": partition, **where})

    taker.keep()  # whatever happens from here on, it is not taken away again
    after("noted")
    facts = _take(giver, taker, settings, partition, move)
    after("taken")
    _drop(giver, settings, partition)
    after("dropped")

    return facts


def settle_move(store: Store) -> None:
    """End a move that was interrupted: as the taker says, it happened or it did not."""
    note = store.state(MOVING)
    if not note:
        return

    try:
        taker = Store.read(Path(note["to"]))
    except StoreError as error:
        raise StoreError(
            f"store must be settled before it goes on, got one that was giving partition {note['partition']} to "
            f"{note['to']!r}, which cannot be read ({error}): put that store back there"
        ) from None

    try:
        if taker.public_id() != note["store"]:
            raise StoreError(
                f"store must find the one that it was giving to, got another in {note['to']!r}"
            )

        happened = note["id"] in Moves.of(taker).done
    finally:
        taker.close()

    if happened:
        _drop(store, saved_deployment_settings(store.settings() or {}), note["partition"])
    else:
        with store.transaction():
            store.put_state(MOVING, None)


def _moved_numbers(store: Store, partition: int) -> Ints:
    """Give the agents of a store that live in a partition, by number."""
    homes = home_partitions(store)
    return np.flatnonzero((homes == partition) & ~departed_agents(store))


def _require_fit(giver: Store, taker: Store, partition: int) -> AgentsSettings:
    """Refuse stores that do not belong together, or are not at rest."""
    # Both stores must be at rest, of one deployment and one source.
    settings, others = (_settings_at_rest(store) for store in (giver, taker))
    if giver.public_id() == taker.public_id():
        raise StoreError(f"to must be another store than from, got {str(taker.path)!r}")

    if settings.name is None or settings != others:
        raise StoreError(
            f"to must be a store of the same deployment, with the same name and settings; got {str(taker.path)!r}, "
            f"named {others.name!r} and not {settings.name!r}, or with other settings"
        )

    sources = source_identity_of(giver), source_identity_of(taker)
    if sources[0] is None or (sources[1] is not None and sources[0] != sources[1]):
        raise StoreError(
            f"to must be a store of the same source, got {sources[1]} and not {sources[0]}"
        )

    # Only partitions that were read have agents here.
    places = _positions(giver, sources[0]["source"])
    if str(partition) not in places:
        has = ", ".join(sorted(places)) or "none"
        raise StoreError(
            f"partition must be one that the store has read, got {partition}; it has {has}"
        )

    return settings


def _settings_at_rest(store: Store) -> AgentsSettings:
    """Give the settings of a store of agents that has delivered what it committed."""
    apart = "their pairs live in one store; --partners FILE lets each query fewer"
    saved = store.begun_settings(OF_AGENTS, with_pairs=apart)
    _require_delivered(store)

    return saved_deployment_settings(saved)


def _positions(store: Store, source: str) -> dict[str, Any]:
    state = store.state("engine") or {"positions": {}}
    position = state["positions"].get(source, {})
    if "topic_id" not in position and position:
        raise StoreError(
            f"from must be a store that reads one topic, got one that reads {source!r}: several are read whole by one "
            "store, in which all of their agents live, and no other can have a partition of them"
        )

    return dict(position.get("partitions", {}))


def _require_delivered(store: Store) -> None:
    note = store.state("delivered")
    waiting = store.outbox()

    # A store that has done nothing has nothing to deliver.
    if note is None and not store.ledger.rows() and not waiting:
        return

    if (
        note is None
        or note["ledger"] != store.ledger.rows()
        or any(seq > note["outbox"] for seq, _, _ in waiting)
    ):
        raise StoreError(
            f"store must have delivered what it committed, got {str(store.path)!r} with something left: run its engine "
            "until it is delivered"
        )


def _take(
    giver: Store, taker: Store, settings: AgentsSettings, partition: int, move: str
) -> dict[str, Any]:
    """Take the agents into the taker, in one transaction: from then on they live there."""
    number = _moved_numbers(giver, partition)
    moves = Moves.of(taker)
    others = Moves.of(giver)

    # Moves are numbered over both stores, so that the newest one decides.
    moves.number = max(moves.number, others.number) + 1

    # One transaction: the agents live in the taker, or they do not.
    with taker.transaction():
        taken_numbers, facts = copy_agents(giver, taker, settings, partition, number)
        gone = departed_agents(taker)
        brought = received_moves(taker)
        gone[taken_numbers] = False
        brought[taken_numbers] = moves.number
        put_departed_agents(taker, gone)

        # Which move brought each agent here.
        some = np.flatnonzero(brought)
        taker.put_chunk("received", 0, {"agent": some, "move": brought[some]})

        # Who had the partition before may be asked for by its readers.
        former = [*others.former.get(str(partition), []), giver.public_id()]
        moves.former[str(partition)] = [
            store_id for store_id in former if store_id != taker.public_id()
        ]
        moves.given = [store_id for store_id in moves.given if store_id != partition]
        moves.done = [*moves.done, move]
        moves.save(taker)

    unknown = int(np.count_nonzero((home_partitions(giver) < 0) & ~departed_agents(giver)))
    return {
        "partition": partition,
        "agents": len(number),
        **facts,
        "agents_of_unknown_partition": unknown,
    }


def _drop(giver: Store, settings: AgentsSettings, partition: int) -> None:
    """Drop what lives in the taker now, and remember that it does."""
    moves = Moves.of(giver)
    note = giver.state(MOVING)
    number = _moved_numbers(giver, partition)
    with Store.read(Path(note["to"])) as taker:
        moves.number = max(moves.number, Moves.of(taker).number)

    # Their samples leave; that they have left stays.
    with giver.transaction():
        drop_agents(giver, settings, partition, number)
        gone = departed_agents(giver)
        gone[number] = True
        put_departed_agents(giver, gone)
        moves.given = sorted({*moves.given, partition})
        moves.former.pop(str(partition), None)
        moves.save(giver)
        giver.put_state(MOVING, None)
