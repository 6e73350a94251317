"""`meanstream budget`: what every agent has spent, and what remains."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pipelines.commands.options import BadOption, ConfigOption, JsonOption, print_json


def budget(
    *,
    store: Annotated[Path, typer.Option(help="Store of `run agents`; an engine may be running on it.")],
    agent: Annotated[str | None, typer.Option(help="Show this agent only.")] = None,
    config: ConfigOption = None,  # noqa: ARG001 - read before the other options
    as_json: JsonOption = False,
) -> None:
    """Show every agent's releases made and left: the horizon is the budget, and all of it costs (epsilon, delta) once.

    Example: meanstream budget --store state.db
    """
    from streaming.budget import budgets
    from streaming.store import StoreError

    try:
        rows = budgets(store)
    except StoreError as error:
        raise BadOption(str(error)) from None
    if agent is not None:
        rows = [row for row in rows if row.agent == agent]
        if not rows:
            raise BadOption(f"agent must be one of the store's, got {agent!r}")
    if as_json:
        print_json({"agents": [asdict(row) for row in rows]})
        return
    sys.stdout.write(f"{'agent':<24} {'spent':>7} {'remaining':>9} {'horizon':>7}  protected at\n")
    for row in rows:
        sys.stdout.write(
            f"{row.agent:<24} {row.spent:>7} {row.remaining:>9} {row.horizon:>7}  ({row.epsilon:g}, {row.delta:g})\n"
        )
