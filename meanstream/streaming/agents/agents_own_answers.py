"""Which estimates and fitted populations a store has written: none of samples that its last commit does not know."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import msgspec

from meanstream.streaming.engine.own_events import Key, OwnEvents
from meanstream.streaming.store.state_store import Store


class _Estimate(msgspec.Struct):
    agent: str
    time: datetime
    n: int
    effective_class_size: float


class _Population(msgspec.Struct):
    time: datetime
    agents: int
    fitted: Any


_ESTIMATE, _POPULATION = msgspec.json.Decoder(_Estimate), msgspec.json.Decoder(_Population)


def _estimate_key(line: bytes) -> Key | None:
    """Tell time, agent and samples of a personal estimate; None if the line is none.

    Examples
    --------
    >>> _estimate_key(b'{"agent":"ann","time":"1970-01-01T00:00:07Z","n":3,"effective_class_size":2.5,"value":1}')
    (7.0, 'ann', 3)
    """
    try:
        found = _ESTIMATE.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return _seconds(found.time), found.agent, found.n


def _population_key(line: bytes) -> Key | None:
    """Tell time and agents of a fitted population; None if the line is none."""
    try:
        found = _POPULATION.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return _seconds(found.time), found.agents


def _seconds(time: datetime) -> float:
    return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()  # Parquet drops the zone


def _knows_estimates(store: Store, since: int, keys: set[Key]) -> bool:  # noqa: ARG001 - not in the ledger
    """Compare with the last commit: estimates are written after it, and written again of it after a crash."""
    counts: list[int] = [n for _, columns in store.chunks("agents") for n in columns["count"].tolist()]
    known = dict(zip(store.agents(), counts, strict=False))  # some may not have been counted yet
    time = _event_time(store)
    return all(at <= time and n <= known.get(agent, 0) for at, agent, n in keys)


def _knows_populations(store: Store, since: int, keys: set[Key]) -> bool:  # noqa: ARG001 - not in the ledger
    time, charged = _event_time(store), len(store.ledger.charges())
    return all(at <= time and agents <= charged for at, agents in keys)


def _event_time(store: Store) -> float:
    """Give the event time of the last commit, as an event of it says it: to the microsecond."""
    state = store.state("engine")
    time = None if state is None else state["event_time"]
    return -math.inf if time is None else round(time, 6) + 1e-6


OWN_ANSWERS = (
    OwnEvents(role="estimates", option="sink", key=_estimate_key, knows=_knows_estimates, named=False),
    OwnEvents(role="population", option="population", key=_population_key, knows=_knows_populations, named=False),
)
"""Of the sinks of agents, besides releases."""
