"""What every agent has spent of its budget, read from a store."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meanstream.operators.records import Ints
from meanstream.streaming.store.audit import audited_rows
from meanstream.streaming.store.kind import OF_AGENTS, require_store_kind
from meanstream.streaming.store.store import Store


@dataclass(frozen=True, slots=True)
class AgentBudget:
    """Public: one agent's releases made and left; every one of its samples is protected at (epsilon, delta).

    `epsilon` and `delta` hold for all releases of the horizon together, so they do not grow as it is spent.
    """

    agent: str
    spent: int
    remaining: int
    horizon: int
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class BudgetSummary:
    """Public: all agents of a store together.

    Attributes
    ----------
    agents : int
        Agents with at least one sample.
    spent_max : int
        Releases of the agent that made most.
    horizon : int
        Releases that each may make.
    at_horizon : int
        Agents that made all of them.
    refused : int or None
        Releases that were refused, ever; None as of a time, because a refusal is no row of the ledger.
    """

    agents: int
    spent_max: int
    horizon: int
    at_horizon: int
    refused: int | None


@dataclass(frozen=True, slots=True)
class Budgets:
    """Public: the budget of every agent of a store, in the order in which they appeared."""

    agents: list[AgentBudget]
    summary: BudgetSummary


def budgets(store: Path, *, as_of: float | None = None) -> Budgets:
    """Count what every agent has spent; an engine may be running on the store. Every row of the ledger is checked.

    Parameters
    ----------
    store : Path
        The store's file.
    as_of : float, optional
        Count releases up to this event time only, in seconds.

    Raises
    ------
    StoreError
        If there is no store, it is one of another kind, or its ledger is not what was written.
    """
    opened = Store.read(store)
    try:
        names, identity = opened.agents(), opened.state("identity")
        spent = budget_charged_until(opened, len(names), math.inf if as_of is None else as_of)
        refused = opened.ledger.head().refused if as_of is None else None
    finally:
        opened.close()
    settings = {"horizon": 0, "epsilon": 0.0, "delta": 0.0} if identity is None else identity["settings"]
    require_store_kind(store, settings, OF_AGENTS)
    horizon, epsilon, delta = int(settings["horizon"]), float(settings["epsilon"]), float(settings["delta"])
    return Budgets(
        [
            AgentBudget(name, used, horizon - used, horizon, epsilon, delta)
            for name, used in zip(names, spent.tolist(), strict=True)
        ],
        BudgetSummary(
            agents=len(names),
            spent_max=int(spent.max(initial=0)),
            horizon=horizon,
            at_horizon=int(np.count_nonzero(spent >= horizon)),
            refused=refused,
        ),
    )


def budget_charged_until(store: Store, n_agents: int, until: float) -> Ints:
    """Count the rows of each agent up to an event time, to the microsecond as in the releases."""
    spent = np.zeros(n_agents, np.int64)
    for block in audited_rows(store):
        counted = np.rint(np.array(block.rows.time) * 1e6) <= np.rint(until * 1e6)
        spent += np.bincount(np.array(block.rows.agent, np.int64)[counted], minlength=n_agents)
    return spent
