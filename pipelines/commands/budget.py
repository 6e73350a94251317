"""`meanstream budget`: what every agent has spent, and what remains."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.commands.options import BadOption, ConfigOption, JsonOption, print_json

if TYPE_CHECKING:
    from streaming.budget import AgentBudget, BudgetSummary


def budget(
    *,
    store: Annotated[Path, typer.Option(help="Store of `run agents`; an engine may be running on it.")],
    agent: Annotated[str | None, typer.Option(help="Show this agent only, without the summary.")] = None,
    as_of: Annotated[
        str | None, typer.Option(help="Count releases up to this event time only (ISO 8601, UTC unless it says else).")
    ] = None,
    config: ConfigOption = None,  # noqa: ARG001 - read before the other options
    as_json: JsonOption = False,
) -> None:
    """Show every agent's releases made and left: the horizon is the budget, and all of it costs (epsilon, delta) once.

    Every row of the ledger is compared with its hash chain on the way.

    \b
    Examples:
      meanstream budget --store state.db
      meanstream budget --store state.db --agent N14228 --as-of 2013-06-30T12:00:00Z
    """  # noqa: D301 - click reads the escape
    from streaming.budget import budgets
    from streaming.store import StoreError

    until = None if as_of is None else _seconds(as_of)
    try:
        found = budgets(store, as_of=until)
    except StoreError as error:
        raise BadOption(str(error)) from None
    rows = [row for row in found.agents if agent in (None, row.agent)]
    if agent is not None and not rows:
        raise BadOption(f"agent must be one of the store's, got {agent!r}")
    if as_json:
        summary = {} if agent is not None else {"summary": asdict(found.summary)}
        print_json({"agents": [asdict(row) for row in rows], **summary})
        return
    sys.stdout.writelines(_table(rows))
    if agent is None:
        sys.stdout.write(_sentence(found.summary))


def _table(rows: list[AgentBudget]) -> list[str]:
    lines = [f"{'agent':<24} {'spent':>7} {'remaining':>9} {'horizon':>7}  protected at\n"]
    lines += [
        f"{row.agent:<24} {row.spent:>7} {row.remaining:>9} {row.horizon:>7}  ({row.epsilon:g}, {row.delta:g})\n"
        for row in rows
    ]
    return lines


def _sentence(summary: BudgetSummary) -> str:
    refused = "" if summary.refused is None else f", {summary.refused:,} releases refused"
    return (
        f"{summary.agents:,} agents: at most {summary.spent_max:,} of {summary.horizon:,} releases spent, "
        f"{summary.at_horizon:,} at their horizon{refused}\n"
    )


def _seconds(text: str) -> float:
    """Read a time of the command line."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(f"as_of must be a time in ISO 8601, got {text!r}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
