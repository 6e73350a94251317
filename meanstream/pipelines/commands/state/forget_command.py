"""`meanstream store forget`: erase what is private of an agent from a store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.declared import INPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption


def forget(
    agent: Annotated[str, typer.Argument(help="Name of the agent.", metavar="AGENT")],
    *,
    store: Annotated[Path, cli_option("Store of an engine of agents, which is stopped.", INPUT)],
    as_json: JsonOption = False,
) -> None:
    """Erase all that is private of an agent from a store, for good; its further samples are rejected.

    Sums, waiting samples and everything computed from them leave the file and later backups. Releases were public and
    stay public, and the budget that they spent stays spent. Estimates already written stay in their sinks, and older
    backups keep what they hold: delete these yourself.

    \b
    Example:
      meanstream store forget N24211 --store state.db
    """  # noqa: D301 - click reads the escape
    from meanstream.streaming.agents.forget_agent import forget_agent
    from meanstream.streaming.store.state_store import Store, StoreError

    try:
        opened = Store.amend(store)
        try:
            gone = forget_agent(opened, agent)
        finally:
            opened.close()
    except StoreError as error:
        raise BadOption(str(error)) from None
    if as_json:
        print_options_json(asdict(gone))
        return
    kept = (
        f"{gone.releases:,} releases stay public, and stay spent in the ledger"
        if gone.name_kept
        else "it had released nothing, and its name is gone, too"
    )
    typer.echo(f"{agent!r} is forgotten, with {gone.samples_waiting:,} samples that waited; {kept}")
    typer.echo("estimates already written stay in their sinks, and older backups keep what they hold")
