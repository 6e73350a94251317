"""`meanstream budget`: what every agent has spent, and what remains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from meanstream.pipelines.options.base import JsonOption
from meanstream.pipelines.options.declaration import INPUT, cli_option


def budget(
    *,
    store: Annotated[
        Path,
        cli_option(
            "Store of `run agents` or `run rounds`, or a folder of shards; it may be running.",
            INPUT,
        ),
    ],
    agent: Annotated[
        str | None, cli_option("One agent (or user) to show, without the summary.", INPUT)
    ] = None,
    as_of: Annotated[
        str | None,
        cli_option("Event time up to which releases count (ISO 8601, default UTC).", INPUT),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the budget of each agent: spent, left, when it ends.

    `ends` is the time of the agent's last release, at the rate between its first and its newest one. For rounds:
    each user's reports, with epsilon each, and the rest of the user's budget. For agents that
    query each other: each agent's readers, and what epsilon becomes if they pool. Every row of the
    ledger is checked against its hash chain.

    \b
    Examples:
      meanstream budget --store state.db
      meanstream budget --store state.db --agent N14228 --as-of 2013-06-30T12:00:00Z
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.state.budget_tables import show_budget

    show_budget(store=store, agent=agent, as_of=as_of, as_json=as_json)
