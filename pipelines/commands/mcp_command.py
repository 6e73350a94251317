"""`meanstream mcp`: public tools on a store for programs that ask."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

from meanstream.operators.rings import ring_module
from meanstream.pipelines.options.declaration import INPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption


def mcp(
    *,
    store: Annotated[
        Path,
        cli_option(
            "Store of `run agents` or `run rounds`, opened for reading; its engine may be running.",
            INPUT,
        ),
    ],
) -> None:
    """Serve the public side of a store to an assistant (Model Context Protocol).

    The tools explain the promise, plan, show budgets and public releases, fit the population, and audit the chain of
    the ledger. No tool reads a sample, a private estimate or a secret, and none spends budget.

    \b
    Example:
      meanstream mcp --store state.db
    """  # noqa: D301 - click reads the escape
    from meanstream.streaming.store.state_store import StoreError

    if importlib.util.find_spec("mcp") is None:
        raise BadOption("mcp must be installed: pip install 'meanstream[mcp]'")

    try:
        ring_module("integrations.mcp_server").serve_public_answers(store)
    except StoreError as error:
        raise BadOption(str(error)) from None
