"""What every user has spent in rounds, read from a store."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meanstream.streaming.agents.agents_budget import budget_charged_until
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_identity import (
    OF_AGENTS,
    OF_USERS,
    SIDE,
    require_store_kind,
    store_kind,
)


@dataclass(frozen=True, slots=True)
class UserBudget:
    """Public: the rounds that a user has paid for, and their total epsilon.

    `remaining` is None without a budget.

    `reports` counts the user's reports, or the answers of a trusted curator that it was charged
    for; only these can have a `delta`, in total. Where windows share a budget it is spent with the
    first of them, and `windows_left` more are paid for.
    """

    user: str
    reports: int
    spent: float
    remaining: float | None
    delta: float = 0.0
    windows_left: int | None = None


@dataclass(frozen=True, slots=True)
class RoundsBudgetSummary:
    """Public: all users of a store together.

    Attributes
    ----------
    users : int
        Users who have been charged.
    reports : int
        Reports that were charged.
    spent_max : float
        Total epsilon of the user that spent most.
    epsilon : float
        Of one report; with `user_windows`, of that many of a user together.
    user_budget : float or None
        Greatest total epsilon of a user.
    at_budget : int
        Users whose budget does not pay for another report.
    trust : str
        "local" or "central".
    delta : float
        Of one report or charge; with `user_windows`, of that many of a user together.
    user_windows : int or None
        Windows of a user that share one budget.
    """

    users: int
    reports: int
    spent_max: float
    epsilon: float
    user_budget: float | None
    at_budget: int
    trust: str = "local"
    delta: float = 0.0
    user_windows: int | None = None


@dataclass(frozen=True, slots=True)
class RoundsBudgets:
    """Public: the budget of every user of a store who has been charged, in the order of their names."""

    users: list[UserBudget]
    summary: RoundsBudgetSummary


def has_rounds_budget(store: Path) -> bool:
    """Tell whether a store is that of the users' side of rounds."""
    with Store.read(store) as opened:
        identity = opened.state("identity")

    if identity is None:
        return False
    public = "`meanstream report` has what everyone may know of it"
    require_store_kind(store, identity["settings"], OF_AGENTS, OF_USERS, with_pairs=public)
    return store_kind(identity["settings"]) == OF_USERS


def rounds_budgets(store: Path, *, as_of: float | None = None) -> RoundsBudgets:
    """Count what every user has spent; an engine may be running on the store.

    Every row of the ledger is checked.
    """
    with Store.read(store) as opened:
        names = opened.agents()
        settings = opened.state("identity")["settings"]
        reports = budget_charged_until(opened, len(names), math.inf if as_of is None else as_of)

    agreed = RoundsSettings.of_plain(
        {name: value for name, value in settings.items() if name != SIDE}
    )
    order = sorted(np.flatnonzero(reports).tolist(), key=names.__getitem__)
    names, reports = [names[number] for number in order], reports[order]
    delta = agreed.delta

    epsilon = float(settings["epsilon"])
    shared = agreed.user_windows
    budget = settings["user_budget"] if shared is None else epsilon
    spent = agreed.spent_epsilon(reports)
    left = None if budget is None else np.maximum(budget - spent, 0.0)
    rows = [
        UserBudget(
            name,
            n,
            s,
            None if left is None else float(left[i]),
            (n if shared is None else min(n, 1)) * delta,
            None if shared is None else shared - n,
        )
        for i, (name, n, s) in enumerate(zip(names, reports.tolist(), spent.tolist(), strict=True))
    ]

    # Whoever cannot pay for another window: by what is left, or by the windows that share it.
    out = None if left is None else left < epsilon * (1 - 1e-9)
    out = out if shared is None else reports >= shared
    spent_out = 0 if out is None else int(np.count_nonzero(out))

    return RoundsBudgets(
        rows,
        RoundsBudgetSummary(
            users=len(names),
            reports=int(reports.sum()),
            spent_max=float(spent.max(initial=0.0)),
            epsilon=epsilon,
            user_budget=None if budget is None else float(budget),
            at_budget=spent_out,
            trust="central" if agreed.central else "local",
            delta=delta,
            user_windows=shared,
        ),
    )
