"""What every agent has spent of its budget, read from a store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streaming.store import Store


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


def budgets(store: Path) -> list[AgentBudget]:
    """Budget of every agent of a store, in the order in which they appeared; an engine may be running on it.

    Raises
    ------
    StoreError
        If there is no store.
    """
    opened = Store.read(store)
    try:
        names, settings = opened.agents(), _settings(opened)
        spent = np.zeros(len(names), np.int64)
        for agent, charge in opened.ledger.charges():
            spent[agent] = charge
    finally:
        opened.close()
    horizon, epsilon, delta = int(settings["horizon"]), float(settings["epsilon"]), float(settings["delta"])
    return [
        AgentBudget(name, used, horizon - used, horizon, epsilon, delta)
        for name, used in zip(names, spent.tolist(), strict=True)
    ]


def _settings(store: Store) -> dict[str, Any]:
    identity = store.state("identity")
    return dict(identity["settings"]) if identity is not None else {"horizon": 0, "epsilon": 0.0, "delta": 0.0}
