"""What every agent has spent of its budget, read from a store."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meanstream.operators.agents.release_times import parse_release_times
from meanstream.operators.counters.base import counter_limit
from meanstream.operators.records import Ints
from meanstream.streaming.agents.budget_forecast import BudgetForecast, ForecastSummary
from meanstream.streaming.agents.moves.agents_homes import departed_agents
from meanstream.streaming.store.kind import OF_AGENTS, require_store_kind
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_audit import audited_rows


@dataclass(frozen=True, slots=True)
class AgentBudget:
    """Public: one agent's releases made and left.

    Every one of its samples is protected at (epsilon, delta).

    `epsilon` and `delta` hold for all releases of the horizon together, so they do not grow as it
    is spent. Where releases have no end, `remaining` and `horizon` are None.
    """

    agent: str
    spent: int
    remaining: int | None
    horizon: int | None
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
        Releases that each may make; None where there is no end.
    at_horizon : int
        Agents that made all of them.
    refused : int or None
        Releases that were refused, ever; None as of a time, because a refusal is no row of the
        ledger.
    """

    agents: int
    spent_max: int
    horizon: int | None
    at_horizon: int
    refused: int | None


@dataclass(frozen=True, slots=True)
class Budgets:
    """Public: the budget of every agent that lives in a store, in the order in which they appeared."""

    agents: list[AgentBudget]
    summary: BudgetSummary
    ends: list[float | None] | None = None
    forecast: ForecastSummary | None = None
    """With `foretell`: event time of each agent's last release, None where it is not known; and all
    agents together."""


def agents_budgets(store: Path, *, as_of: float | None = None, foretell: bool = False) -> Budgets:
    """Count what every agent has spent; an engine may be running on the store.

    Every row of the ledger is checked.
    """
    opened = Store.read(store)
    try:
        names = opened.agents()
        identity = opened.state("identity")
        settings = (
            {"horizon": 0, "epsilon": 0.0, "delta": 0.0}
            if identity is None
            else identity["settings"]
        )
        require_store_kind(store, settings, OF_AGENTS)

        horizon = counter_limit(int(settings["horizon"]))
        known = foretell and identity is not None
        forecast = BudgetForecast(len(names), horizon) if known and horizon is not None else None
        spent = budget_charged_until(
            opened, len(names), math.inf if as_of is None else as_of, forecast
        )
        here = ~departed_agents(opened)
        refused = opened.ledger.head().refused if as_of is None else None
    finally:
        opened.close()

    ends = (
        None if forecast is None else forecast.ends(parse_release_times(str(settings["schedule"])))
    )
    epsilon = float(settings["epsilon"])
    delta = float(settings["delta"])

    return Budgets(
        [
            AgentBudget(
                name, used, None if horizon is None else horizon - used, horizon, epsilon, delta
            )
            for name, used, lives in zip(names, spent.tolist(), here.tolist(), strict=True)
            if lives
        ],
        BudgetSummary(
            agents=int(here.sum()),
            spent_max=int(spent[here].max(initial=0)),
            horizon=horizon,
            at_horizon=0 if horizon is None else int(np.count_nonzero(spent[here] >= horizon)),
            refused=refused,
        ),
        None
        if ends is None
        else [end if math.isfinite(end) else None for end in ends[here].tolist()],
        None
        if ends is None or forecast is None
        else forecast.summary(np.where(here, ends, np.nan), names),
    )


def budget_charged_until(
    store: Store, n_agents: int, until: float, forecast: BudgetForecast | None = None
) -> Ints:
    """Count the rows of each agent up to an event time, to the microsecond as in the releases."""
    spent = np.zeros(n_agents, np.int64)
    for block in audited_rows(store):
        counted = np.rint(np.array(block.rows.time) * 1e6) <= np.rint(until * 1e6)
        agent = np.array(block.rows.agent, np.int64)[counted]
        spent += np.bincount(agent, minlength=n_agents)

        if forecast is not None:
            lines = [
                line
                for line, counts in zip(block.rows.output, counted.tolist(), strict=True)
                if counts
            ]
            forecast.follow(agent, np.array(block.rows.time, np.float64)[counted], lines)

    return spent
