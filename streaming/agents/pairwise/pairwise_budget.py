"""What the agents of a pairwise store have spent, reader by reader, read from its ledger."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.streaming.agents.pairwise.pairwise_deployment import (
    pooled_epsilon,
    saved_pairwise_settings,
)
from meanstream.streaming.store.database import StoreError
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_audit import audited_rows
from meanstream.streaming.store.store_identity import OF_PAIRS, require_store_kind


@dataclass(frozen=True, slots=True)
class ReaderBudget:
    """Private: releases of one agent to one reader, made and left."""

    reader: str
    spent: int
    remaining: int
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class PairedAgentBudget:
    """Private: what one agent has spent.

    Attributes
    ----------
    agent : str
    readers : int
        Agents that have received a release of it.
    spent, remaining, horizon : int
        Releases to the reader that has most, what is left of them, and how many each reader may
        get.
    epsilon, delta : float
        Of each of its samples, towards any one reader, for all releases of the horizon.
    epsilon_of_all_readers : float
        What epsilon becomes, at the same delta, if all its readers pool what they received.
    """

    agent: str
    readers: int
    spent: int
    remaining: int
    horizon: int
    epsilon: float
    delta: float
    epsilon_of_all_readers: float


@dataclass(frozen=True, slots=True)
class PairsSummary:
    """Private: all pairs of a store together; those `at_horizon` can exchange nothing more."""

    agents: int
    pairs: int
    releases: int
    spent_max: int
    horizon: int
    at_horizon: int
    epsilon_of_all_readers: float


@dataclass(frozen=True, slots=True)
class PairBudgets:
    """Private: the budget of every agent of a pairwise store, in the order in which they appeared.

    **Privacy.** Under restricted_round_robin who queried whom depends on values, so that all of
    this is for the operator: `public` says whether it is a function of the times of samples alone.
    """

    agents: list[PairedAgentBudget]
    readers: dict[str, list[ReaderBudget]]
    summary: PairsSummary
    public: bool


class _Told(msgspec.Struct):
    reader: str


_TOLD = msgspec.json.Decoder(_Told)


def pair_budgets(path: Path, *, as_of: float | None = None) -> PairBudgets:
    """Count what every agent has released to each reader; an engine may be running on the store.

    Every row of the ledger is checked.
    """
    with Store.read(path) as store:
        saved = store.begun_settings()
        require_store_kind(path, saved, OF_PAIRS)
        names = store.agents()
        spent = _spent(store, math.inf if as_of is None else as_of)

    settings = saved_pairwise_settings(saved)
    horizon = settings.release.horizon
    readers = _by_reader(names, spent, settings.release)

    # All readers of an agent, pooled, are a coalition.
    pooled = {
        number: pooled_epsilon(settings, number)
        for number in {len(rows) for rows in readers.values()}
    }
    agents = [_of_agent(name, rows, settings.release, pooled) for name, rows in readers.items()]

    used = np.array(list(spent.values()), np.int64)
    summary = PairsSummary(
        agents=len(agents),
        pairs=len(spent),
        releases=int(used.sum()),
        spent_max=int(used.max(initial=0)),
        horizon=horizon,
        at_horizon=int(np.count_nonzero(used >= horizon)),
        epsilon_of_all_readers=max(pooled.values(), default=settings.release.epsilon),
    )

    return PairBudgets(agents, readers, summary, public=settings.schedule == "round_robin")


def _by_reader(
    names: list[str], spent: Counter[tuple[int, str]], release: AgentsSettings
) -> dict[str, list[ReaderBudget]]:
    """List the readers of each agent."""
    readers: dict[str, list[ReaderBudget]] = {name: [] for name in names}
    for (number, reader), used in spent.items():
        left = release.horizon - used
        row = ReaderBudget(reader, used, left, release.epsilon, release.delta)
        readers[names[number]].append(row)

    return readers


def _of_agent(
    name: str, rows: list[ReaderBudget], release: AgentsSettings, pooled: dict[int, float]
) -> PairedAgentBudget:
    most = max((row.spent for row in rows), default=0)
    return PairedAgentBudget(
        agent=name,
        readers=len(rows),
        spent=most,
        remaining=release.horizon - most,
        horizon=release.horizon,
        epsilon=release.epsilon,
        delta=release.delta,
        epsilon_of_all_readers=pooled[len(rows)],
    )


def _spent(store: Store, until: float) -> Counter[tuple[int, str]]:
    """Count the rows of each agent and reader up to an event time, to the microsecond."""
    spent: Counter[tuple[int, str]] = Counter()
    for block in audited_rows(store):
        counted = np.rint(np.array(block.rows.time) * 1e6) <= np.rint(until * 1e6)
        pairs = zip(block.rows.agent, block.rows.output, counted.tolist(), strict=True)
        spent.update((number, _reader(line)) for number, line, counts in pairs if counts)

    return spent


def _reader(line: bytes) -> str:
    try:
        return _TOLD.decode(line).reader
    except msgspec.MsgspecError:  # a foreign row: the chain is of whoever wrote it
        raise StoreError("ledger must name a reader in each row, got a row without one") from None
