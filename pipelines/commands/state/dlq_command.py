"""`meanstream dlq`: records that were not used: which and why, and counting them after all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meanstream.pipelines.options.base import JsonOption
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, cli_option
from meanstream.pipelines.options.typer_commands import takes_options

if TYPE_CHECKING:
    from meanstream.pipelines.options.store_agents_options import ReplayOptions

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

LettersOption = Annotated[
    str, cli_option("Dead letters: .jsonl, .parquet or kafka://...", INPUT, "--dead-letters")
]
ReasonOption = Annotated[list[str] | None, cli_option("Reason to select; may be repeated.", INPUT)]
StoreOption = Annotated[
    Path | None,
    cli_option("Store of the run, to leave out records that a replay has counted since.", INPUT),
]


@app.callback()
def dlq() -> None:
    """List, show and replay dead letters (rejected records)."""


@app.command("list")
def dlq_list(
    *,
    dead_letters: LettersOption,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count dead letters by reason, source and partition.

    A record counts once, with its last reason, however often a replay rejected it again. Dead
    letters never contain the record itself.

    Example: meanstream dlq list --dead-letters dead_letters.jsonl
    """
    from meanstream.pipelines.commands.state.dlq_tables import list_dead_letters

    list_dead_letters(dead_letters=dead_letters, store=store, as_json=as_json)


@app.command("show")
def dlq_show(
    *,
    dead_letters: LettersOption,
    reason: ReasonOption = None,
    partition: Annotated[int | None, cli_option("Partition to select.", INPUT)] = None,
    source: Annotated[
        str | None, cli_option("Source to select and to read; required by --raw-to.", INPUT)
    ] = None,
    store: StoreOption = None,
    limit: Annotated[int, cli_option("Largest number of records to show.", INPUT, min=1)] = 100,
    raw_to: Annotated[
        Path | None, cli_option("New private file for the records themselves (mode 0600).", OUTPUT)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show dead letters: reason, position and size; with --raw-to also the records, in a file.

    The file of --raw-to has the records as they are in the source (Parquet: as JSON objects), in the order shown.
    After corrections, read it as another source; do not also replay the same records from their first source. With
    --store, a file that has changed since it was read is refused: its positions may hold records that were counted.

    Example: meanstream dlq show --dead-letters dead_letters.jsonl --reason late --limit 20
    """
    from meanstream.pipelines.commands.state.dlq_tables import show_dead_letters

    show_dead_letters(
        dead_letters=dead_letters,
        reason=reason,
        partition=partition,
        source=source,
        store=store,
        limit=limit,
        raw_to=raw_to,
        as_json=as_json,
    )


@app.command("replay")
@takes_options(
    "store_agents_options:ReplayOptions",
    typed=(
        *("config", "store", "source", "from_", "reason", "dead_letters", "sink", "secret_file"),
        *("dry_run", "json", "quiet"),
    ),
)
def dlq_replay_again(options: ReplayOptions) -> None:
    """Count rejected records that are valid now, with the options of the run, on its store, each once.

    A record may become valid: a column name was corrected, a schema version is known, bounds clip, or its time has
    come. A late record counts from now on. Other records get a new dead letter. Stop the run on the store first,
    and start it again afterwards. With --store alone, settings and columns are those of the store.

    \b
    Example:
      meanstream dlq replay --config run.yaml --from dead_letters.jsonl --reason late
      meanstream dlq replay --store state.db --source flights.csv --from dead_letters.jsonl
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.state.dlq_replay import replay_dead_letters

    replay_dead_letters(options)
