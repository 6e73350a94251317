"""`meanstream store`: whose a store is, what it is filled from, and the recorded way to change the latter."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meanstream.pipelines.options.base import JsonOption
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, PRIVACY, cli_option

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

StoreOption = Annotated[Path, cli_option("Store of an engine.", INPUT)]


@app.callback()
def store() -> None:
    """Inspect, rename, merge and split stores, or erase an agent."""


@app.command("show")
def store_show(
    *,
    store: StoreOption,
    as_json: JsonOption = False,
) -> None:
    """Print the name of the deployment, schema version, source and adoptions of the store.

    \b
    Example:
      meanstream store show --store state.db
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.state.store_notes import show_store

    show_store(store=store, as_json=as_json)


@app.command("adopt")
def store_adopt(
    *,
    store: StoreOption,
    source: Annotated[
        str | None, cli_option("Additional file or topic of the same data.", INPUT)
    ] = None,
    agent: Annotated[str | None, cli_option("Column of the agent.", INPUT)] = None,
    user: Annotated[str | None, cli_option("Column of the user, for rounds.", INPUT)] = None,
    value: Annotated[str | None, cli_option("Column of the value.", INPUT)] = None,
    time: Annotated[str | None, cli_option("Column of the event time.", INPUT)] = None,
    id: Annotated[str | None, cli_option("Column of the id.", INPUT)] = None,  # noqa: A002
    person: Annotated[
        str | None, cli_option("Column of the person within an agent.", INPUT)
    ] = None,
    lateness: Annotated[
        str | None, cli_option("Largest delay of a sample, for agents.", INPUT)
    ] = None,
    allowed_lateness: Annotated[
        str | None, cli_option("Time from the end of a window to its close, for rounds.", INPUT)
    ] = None,
    older_copy: Annotated[
        bool,
        cli_option(
            "Confirmation that this is an older copy, on the input that it had read.",
            INPUT,
            "--older-copy",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Record that a store's data continue under another name, for good.

    Use it for the same data: the file or topic in which they continue, or a renamed column. Other data are another
    deployment, with its own store. A topic or file of another name is read from its beginning.

    \b
    Examples:
      meanstream store adopt --store state.db --source kafka://broker:9092/delays-v2
      meanstream store adopt --store state.db --value departure_delay --lateness 2h
      meanstream store adopt --store state.db --older-copy   # the next run may write its releases again
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.state.store_notes import adopt_in_store

    columns = {
        "agent": agent,
        "user": user,
        "value": value,
        "time": time,
        "id": id,
        "person": person,
    }
    delays = {"lateness": lateness, "allowed_lateness": allowed_lateness}
    adopt_in_store(
        store, columns | {"source": source} | delays, older_copy=older_copy, as_json=as_json
    )


@app.command("move")
def move(
    *,
    from_: Annotated[Path, cli_option("Store that reads the partition now.", INPUT, "--from")],
    to: Annotated[
        Path, cli_option("Store of the same deployment; created if it is missing.", OUTPUT)
    ],
    partition: Annotated[int, cli_option("Partition of the topic.", INPUT, min=0)],
    secret_file: Annotated[
        Path | None, cli_option("Key of both stores; default: the file next to them.", PRIVACY)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Move a partition with its agents to another store; stop both engines first.

    Moves the agents whose newest sample came from the partition, with their sums, waiting samples, ledger rows and
    indexes of noise. Start the engines with other `partitions=` afterwards. If the command is killed, run it or an
    engine again.

    \b
    Example:
      meanstream store move --from a.db --to b.db --partition 1
      # then: --store a.db --source '...?partitions=0' and --store b.db --source '...?partitions=1'
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.state.partition_moves import move_agents_of_partition

    move_agents_of_partition(
        from_=from_, to=to, partition=partition, secret_file=secret_file, as_json=as_json
    )


@app.command("forget")
def forget(
    agent: Annotated[
        str, typer.Argument(help="Name of the agent, or of the user of rounds.", metavar="AGENT")
    ],
    *,
    store: Annotated[
        Path, cli_option("Store of an engine, which is stopped, or a folder of shards.", INPUT)
    ],
    as_json: JsonOption = False,
) -> None:
    """Erase all that is private of an agent from a store, for good; its further samples are rejected.

    Sums, waiting samples and everything computed from them leave the file and later backups. Releases were public and
    stay public, and the budget that they spent stays spent. Estimates already written stay in their sinks, and older
    backups keep what they hold: delete these yourself. Of a user of rounds the sums of open windows leave and reports
    stay. Samples that come later count again within what is left of the budget.
    What others have received of an agent that they query stays with them, and in their estimates.

    \b
    Example:
      meanstream store forget N24211 --store state.db
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.state.store_notes import forget_in_store

    forget_in_store(agent=agent, store=store, as_json=as_json)
