"""What anyone may learn of a store: its promise, plans, budgets, releases, population and chain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from meanstream.operators.collaboration.followed_releases import FollowedReleases, NewestReleases
from meanstream.operators.records import ReleaseColumns
from meanstream.pipelines.commands.explain.agents_facts import explain_command_privacy
from meanstream.pipelines.commands.explain.explain_rounds import explain_rounds_facts
from meanstream.pipelines.commands.explain.plan_agents import PlanAgentsOptions
from meanstream.pipelines.commands.explain.plan_command import (
    PlanOptions,
    forecast_of_plan,
    plan_options_with_store,
)
from meanstream.pipelines.options.store_settings import (
    settings_of_agents_store,
    settings_of_rounds_store,
)
from meanstream.streaming.agents.agents_budget import agents_budgets
from meanstream.streaming.agents.agents_releases import releases_of_ledger
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.rounds.rounds_budget import has_rounds_budget, rounds_budgets
from meanstream.streaming.rounds.sizes_file import read_sizes_of
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_audit import audit_ledger

MOST_ROWS = 1000
"""Rows of one answer."""
_NAME = Annotated[str, Field(max_length=1000)]
_SIZES = Annotated[
    str,
    Field(
        max_length=100,
        pattern=r"^(point|two|uniform|poisson|binomial|lognormal):[0-9.,e+-]+$",
        description="Declared law of the number of samples, such as uniform:1,199. No file is read.",
    ),
]
_POSITIVE = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Arguments(BaseModel):
    """Arguments of a tool: no others are taken."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NoArguments(_Arguments):
    """A tool without arguments."""


class BudgetArguments(_Arguments):
    """Of `budget`."""

    name: _NAME | None = Field(None, description="One agent or user; default: the first ones.")
    limit: int = Field(100, ge=1, le=MOST_ROWS)


class ReleasesArguments(_Arguments):
    """Of `releases`."""

    name: _NAME | None = Field(None, description="One agent or user; default: all.")
    after: int = Field(
        0,
        ge=0,
        le=2**62,
        description="Row of the ledger after which to begin: `next` of an answer.",
    )
    limit: int = Field(100, ge=1, le=MOST_ROWS)


class PopulationArguments(_Arguments):
    """Of `population`."""

    method: Literal["learned_prior", "pooled_prior", "james_stein"] = "learned_prior"


class PlanAgentsArguments(_Arguments):
    """Of `plan`, of a store of agents; the budget and the bounds are the store's."""

    agents: int = Field(ge=2, le=10**7)
    sizes: _SIZES
    spread: _POSITIVE = Field(
        description="Standard deviation of the agents' own means, in the unit of the value."
    )
    stddev: _POSITIVE | None = Field(
        None, description="Standard deviation of a sample around its agent's mean."
    )
    target_half_width: _POSITIVE | None = None


class PlanRoundsArguments(_Arguments):
    """Of `plan`, of a store of rounds; the budget and the bounds are the store's."""

    users: int = Field(ge=1, le=10**8)
    sizes: _SIZES
    between_users: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    target_half_width: _POSITIVE | None = None


class PublicAnswers:
    """Public answers from a store that another process may be writing.

    **Privacy.** Every answer is a function of settings and of rows of the ledger, which were charged before they left.
    The store is opened for reading, no secret is read, and nothing is spent.

    Parameters
    ----------
    store : Path
        Store of `run agents` or `run rounds`.

    Raises
    ------
    StoreError
        If it is no such store.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._of_rounds = has_rounds_budget(store)

    @property
    def tools(self) -> dict[str, tuple[type[_Arguments], str]]:
        """Give the arguments of each tool, and what it answers.

        The tool is the method of its name.
        """
        whose = "user" if self._of_rounds else "agent"
        found: dict[str, tuple[type[_Arguments], str]] = {
            "explain": (
                NoArguments,
                "What the deployment protects, against whom, how much, and who sees what.",
            ),
            "plan": (
                PlanRoundsArguments if self._of_rounds else PlanAgentsArguments,
                "Predicted errors under the store's budget and bounds, from declared figures. Spends nothing.",
            ),
            "budget": (
                BudgetArguments,
                f"What each {whose} has spent and what remains. It cannot be spent from here.",
            ),
            "releases": (ReleasesArguments, "Public rows of the ledger, as they were released."),
            "audit": (
                NoArguments,
                "Compares every row of the ledger with its hash chain; gives rows and head.",
            ),
        }

        if not self._of_rounds:
            found["population"] = (
                PopulationArguments,
                "The population that the public releases show.",
            )

        return found

    def answer(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one call.

        Raises
        ------
        KeyError
            If there is no such tool.
        ValueError, BadOption, StoreError
            If the arguments break a rule, or the store is damaged.
        """
        kind, _ = self.tools[tool]
        found: dict[str, Any] = getattr(self, f"_{tool}")(kind(**arguments))
        return found

    def _explain(self, _: NoArguments) -> dict[str, Any]:
        if self._of_rounds:
            return explain_rounds_facts(settings_of_rounds_store(self._store))

        return explain_command_privacy(settings_of_agents_store(self._store))

    def _plan(self, given: PlanAgentsArguments | PlanRoundsArguments) -> dict[str, Any]:
        if isinstance(given, PlanRoundsArguments):
            options = plan_options_with_store(PlanOptions(store=self._store, **given.model_dump()))
            return forecast_of_plan(
                options, *read_sizes_of(given.sizes, given.users, who="users")
            ).as_dict()

        planned = PlanAgentsOptions(store=self._store, **given.model_dump())
        return planned.forecast(planned.settings()).as_dict()

    def _budget(self, given: BudgetArguments) -> dict[str, Any]:

        rows: list[Any]
        if self._of_rounds:
            of_users = rounds_budgets(self._store)
            rows = [row for row in of_users.users if given.name in (None, row.user)]
            summary = of_users.summary
            return {
                "users": [asdict(row) for row in rows[: given.limit]],
                "summary": asdict(summary),
            }

        of_agents = agents_budgets(self._store)
        rows = [row for row in of_agents.agents if given.name in (None, row.agent)]
        return {
            "agents": [asdict(row) for row in rows[: given.limit]],
            "summary": asdict(of_agents.summary),
        }

    def _releases(self, given: ReleasesArguments) -> dict[str, Any]:
        found: list[Any] = []
        last = given.after
        with closing(Store.read(self._store)) as store:
            names = store.agents()
            who = (
                None
                if given.name is None
                else names.index(given.name)
                if given.name in names
                else -1
            )

            if last >= store.ledger.head().rows:
                return {"releases": [], "next": last}

            for block in store.ledger.verified(given.after):
                for seq, agent, output in zip(
                    block.rows.seq, block.rows.agent, block.rows.output, strict=True
                ):
                    if len(found) == given.limit:
                        return {"releases": found, "next": last}
                    last = seq

                    if who in (None, agent):
                        found.append(json.loads(output))

        return {"releases": found, "next": last}

    def _population(self, given: PopulationArguments) -> dict[str, Any]:

        settings = settings_of_agents_store(self._store)
        with closing(Store.read(self._store)) as store:
            releases = ReleaseColumns.joined(list(releases_of_ledger(store.ledger)))
            names = store.agents()

        if not len(releases):
            return {"agents": 0, "method": given.method, "fitted": None}
        followed = FollowedReleases(settings)
        followed.observe(releases, NewestReleases().replaced(releases))
        newest = np.unique(releases.agent[::-1], return_index=True)[1]
        latest = followed.combined(releases.take(len(releases) - 1 - newest))
        estimates = PersonalEstimates(settings, EngineOptions(collaboration=given.method))
        fitted = estimates.public_population(latest, followed.posterior, names)

        return {"agents": len(latest), "method": given.method, "fitted": fitted.description}

    def _audit(self, _: NoArguments) -> dict[str, Any]:

        found = audit_ledger(self._store)
        return {"rows": found.rows, "agents": found.agents, "head": found.head.hex()}
