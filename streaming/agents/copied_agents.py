"""What of a store belongs to some of its agents.

Copied into another store, dropped from its own; in a transaction.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meanstream.operators.agents.admission import MAX_PERSONS, PersonCounts
from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.followed_releases import FollowedReleases, NewestReleases
from meanstream.operators.records import Ints
from meanstream.streaming.agents.agents_releases import releases_of_ledger
from meanstream.streaming.agents.saved_agents import agents_at_rest, noise_of_copy
from meanstream.streaming.engine.engine_homes import home_partitions, put_home_partitions
from meanstream.streaming.events.event_columns import column_partitions
from meanstream.streaming.events.times import iso_time
from meanstream.streaming.store.source_identity import keep_source_identity_in, source_identity_of
from meanstream.streaming.store.spend_ledger import LedgerRows
from meanstream.streaming.store.state_snapshot import Columns
from meanstream.streaming.store.state_store import Store, StoreError

OWN_RELEASES = "own releases"
PENDING = "pending"
PERSONS = "persons"
SEEN = ("agent ids", "ids")


def copy_agents(
    giver: Store, taker: Store, settings: AgentsSettings, partition: int, number: Ints
) -> tuple[Ints, dict[str, Any]]:
    """Copy agents of a partition, the partition's place in the source, and what waits.

    Give their numbers there.
    """
    names = giver.agents()
    numbers = {name: i for i, name in enumerate(taker.agents())}
    fresh = [names[i] for i in number.tolist() if names[i] not in numbers]
    taker.add_agents(len(numbers), fresh)
    numbers |= {name: i for i, name in enumerate(fresh, len(numbers))}
    taken_numbers = np.array([numbers[names[i]] for i in number.tolist()], np.int64)
    agents, saved = agents_at_rest(taker, settings)
    agents.put_rows(taken_numbers, agents_at_rest(giver, settings)[0].rows(number))
    saved.save_whole(taker, agents)

    homes = home_partitions(taker)
    homes[taken_numbers] = partition
    put_home_partitions(taker, homes)
    _copy_persons(giver, taker, settings)
    rows = _copy_ledger(giver, taker, number, taken_numbers)
    times = _copy_state(giver, taker, settings, partition)
    waiting = _copy_pending(
        giver, taker, dict(zip(number.tolist(), taken_numbers.tolist(), strict=True)), times
    )

    for kind in SEEN:
        after = 1 + max((chunk for chunk, _ in taker.chunks(kind)), default=-1)
        for i, (_, columns) in enumerate(list(giver.chunks(kind))):
            taker.put_chunk(kind, after + i, columns)

    _copy_unused(giver, taker, partition)
    event_times = {
        f"event_time_{who}": iso_time(time) for who, time in zip(("from", "to"), times, strict=True)
    }

    return taken_numbers, {"ledger_rows": rows, "samples_waiting": waiting, **event_times}


def drop_agents(giver: Store, settings: AgentsSettings, partition: int, number: Ints) -> None:
    """Forget the state of agents that live elsewhere.

    Their names and ledger rows stay, as what was released here.
    """
    agents, saved = agents_at_rest(giver, settings)
    fresh = Agents(settings, noise_of_copy())
    fresh.add_agents([agents.names[i] for i in number.tolist()])
    agents.put_rows(number, fresh.rows(np.arange(len(number))))  # as if they had sent nothing
    saved.save_whole(giver, agents)
    homes = home_partitions(giver)
    homes[number] = -1
    put_home_partitions(giver, homes)
    state = giver.state("engine")
    (source,) = {str((source_identity_of(giver) or {})["source"])}
    state["positions"][source]["partitions"].pop(str(partition))

    for what in ("newest", "leading"):
        if isinstance(state["intake"].get(what), dict):
            state["intake"][what].pop(str(partition), None)

    giver.put_state("engine", state)
    reached = _reached(state)
    for chunk, columns in list(giver.chunks(PENDING)):
        kept = ~np.isin(columns["agent"], number) & (columns["time"] >= reached)
        replace_chunk_rows(giver, PENDING, chunk, columns, kept)

    kind = f"unused {source}"
    for chunk, columns in list(giver.chunks(kind)):
        replace_chunk_rows(
            giver, kind, chunk, columns, column_partitions(columns["position"]) != partition
        )


def replace_chunk_rows(
    store: Store, kind: str, chunk: int, columns: Columns, kept: np.ndarray
) -> None:
    """Keep some rows of a chunk."""
    if kept.all():
        return

    if kept.any():
        store.put_chunk(kind, chunk, {name: column[kept] for name, column in columns.items()})
    else:
        store.drop_chunks(kind, [chunk])


def _copy_ledger(giver: Store, taker: Store, number: Ints, here: Ints) -> int:
    """Append the rows of the agents that the taker does not have, each after its agent's last one."""
    new_number = np.full(len(giver.agents()), -1, np.int64)
    new_number[number] = here
    names = taker.agents()
    before = taker.ledger.rows()
    spent = np.zeros(len(names), np.int64)
    charged = taker.ledger.spent()[: len(names)]
    spent[: len(charged)] = charged

    for block in giver.ledger.verified():
        agent = np.array(block.rows.agent, np.int64)
        index = np.array(block.rows.release_index, np.int64)
        which = np.flatnonzero(
            (new_number[agent] >= 0)
            & (index > np.where(new_number[agent] >= 0, spent[new_number[agent]], 0))
        )

        if not len(which):
            continue
        to, index = new_number[agent[which]].tolist(), index[which].tolist()
        new = LedgerRows(
            agent=to,
            release_index=index,
            **{
                name: [getattr(block.rows, name)[i] for i in which.tolist()]
                for name in ("input_version", "time", "output")
            },
        )
        taker.ledger.charge(new)

    return taker.ledger.rows() - before


def _copy_persons(giver: Store, taker: Store, settings: AgentsSettings) -> None:
    """Let the taker know how many samples of each person count already.

    A hash tells a person of an agent, and no one whose it is: those of the agents that stay are
    copied, too, and do nothing there. Should their agents follow, what was counted since is
    counted, and nothing twice.
    """
    if settings.per_person is None:
        return
    counted = PersonCounts(settings.per_person)
    others = PersonCounts(settings.per_person)

    for store, counts in ((taker, counted), (giver, others)):
        for number, columns in store.chunks(PERSONS):
            counts.restore(number, columns)

    counted.count_at_least(others.whole())
    if len(counted) > MAX_PERSONS:
        raise StoreError(
            f"to must have room for all persons of both stores, at most {MAX_PERSONS}, got {len(counted)}"
        )

    new, dropped = counted.changes()
    for number, columns in new.items():
        taker.put_chunk(PERSONS, number, columns)

    taker.drop_chunks(PERSONS, dropped)


def _copy_state(
    giver: Store, taker: Store, settings: AgentsSettings, partition: int
) -> tuple[float, float]:
    """Let the taker go on reading the partition, and know all releases.

    Give the event time of each.
    """
    source = source_identity_of(giver)
    assert source is not None  # noqa: S101 - it was requested
    keep_source_identity_in(taker, source)
    giver_state = giver.state("engine")
    name = source["source"]
    position = giver_state["positions"][name]
    offset = {str(partition): position["partitions"][str(partition)]}

    # A taker that has never run begins as a new store does.
    state = taker.state("engine") or {
        "positions": {},
        "intake": {"watermark": None, "newest": {}},
        "ended": False,
        "event_time": None,
    }
    taker_position = state["positions"].get(name, {**position, "partitions": {}})
    state["positions"][name] = {
        **taker_position,
        "partitions": {**taker_position["partitions"], **offset},
    }

    # Event time goes on from the later of both, or a sample could count a second time.
    times = _reached(giver_state), _reached(state)
    state["intake"]["watermark"] = max(times) if math.isfinite(max(times)) else None

    for what in ("newest", "leading"):
        of_partition = giver_state["intake"].get(what, {}).get(str(partition))
        if of_partition is not None:
            state["intake"].setdefault(what, {})[str(partition)] = of_partition

    # The newest event of both; a taker goes on even if it had ended.
    events = [time for time in (giver_state["event_time"], state["event_time"]) if time is not None]
    state |= {"event_time": max(events, default=None), "ended": False}
    followed = FollowedReleases(settings)
    before = NewestReleases()

    # What releases said of each other is computed anew from the whole ledger.
    for releases in releases_of_ledger(taker.ledger):
        followed.observe(releases, before.replaced(releases))

    for chunk, columns in followed.own.changes():
        taker.put_chunk(OWN_RELEASES, chunk, columns)

    taker.put_state("engine", {**state, "variance": followed.snapshot()})
    note = taker.state("delivered") or {
        "outbox": 0,
        "sinks": {},
        "refresh_time": None,
        "final": False,
    }
    taker.put_state("delivered", {**note, "ledger": taker.ledger.rows(), "final": False})

    return times


def _copy_pending(
    giver: Store, taker: Store, to: dict[int, int], times: tuple[float, float]
) -> int:
    """Let the samples of the agents wait in the taker.

    Nothing that waits in either lies behind its event time then.
    """
    reached = max(times)
    count = 0

    # Samples of the taker that would be late under the common event time go out with the next
    # ones.
    after = 1 + max((chunk for chunk, _ in taker.chunks(PENDING)), default=-1)
    for chunk, columns in list(taker.chunks(PENDING)):
        waits = columns["time"] >= times[1]
        if not waits.all() or (columns["time"] < reached).any():
            _put_pending(
                taker, chunk, {name: column[waits] for name, column in columns.items()}, reached
            )

    # Samples of the agents that move, under their new numbers.
    for _, columns in list(giver.chunks(PENDING)):
        some = np.flatnonzero((columns["time"] >= times[0]) & np.isin(columns["agent"], list(to)))
        if len(some):
            moved = {name: column[some] for name, column in columns.items()}
            moved["agent"] = np.array([to[agent] for agent in moved["agent"].tolist()], np.int64)
            _put_pending(taker, after, moved, reached)
            after, count = after + 1, count + len(some)

    return count


def _put_pending(store: Store, chunk: int, columns: Columns, reached: float) -> None:
    """Save samples that wait, none before an event time, in the order of time."""
    if not len(columns["time"]):
        store.drop_chunks(PENDING, [chunk])
        return

    # None before the event time that both have reached.
    time = np.maximum(columns["time"], reached)
    order = np.argsort(time, kind="stable")
    store.put_chunk(
        PENDING,
        chunk,
        {**{name: column[order] for name, column in columns.items()}, "time": time[order]},
    )


def _copy_unused(giver: Store, taker: Store, partition: int) -> None:
    """Let the taker know which records of the partition were not used."""
    kind = f"unused {(source_identity_of(giver) or {})['source']}"
    piece = taker.state(kind) or 0

    # Positions of records are of partitions: only those of this one move.
    for _, columns in list(giver.chunks(kind)):
        some = columns["position"][column_partitions(columns["position"]) == partition]
        if len(some):
            taker.put_chunk(kind, piece, {"position": some})
            piece += 1

    if piece:
        taker.put_state(kind, piece)


def _reached(state: dict[str, Any]) -> float:
    time = state["intake"]["watermark"]

    if time is None:
        return -math.inf
    return float(time)
