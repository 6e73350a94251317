"""`meanstream dlq`: records that were not used: which and why, and counting them after all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meanstream.pipelines.commands.command_outputs import writing_output
from meanstream.pipelines.commands.state.dlq_replay import replay_dead_letters
from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.declared import INPUT, OUTPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.pipelines.options.taken import takes_options

if TYPE_CHECKING:
    from meanstream.pipelines.options.asked_replay import ReplayOptions
    from meanstream.streaming.replay.dead_letters import DeadLetters
    from meanstream.streaming.store.state_store import Store

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

PlaceOption = Annotated[str, cli_option("Dead letters: .jsonl, .parquet or kafka://...", INPUT, "--dead-letters")]
ReasonOption = Annotated[list[str] | None, cli_option("Reason to select; may be repeated.", INPUT)]
StoreOption = Annotated[
    Path | None, cli_option("Store of the run, to leave out records that a replay has counted since.", INPUT)
]


@app.callback()
def dlq() -> None:
    """List, show and replay dead letters (rejected records)."""


@app.command("list")
def dlq_list(
    *,
    dead_letters: PlaceOption,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count dead letters by reason, source and partition.

    A record counts once, with its last reason, however often a replay rejected it again. Dead letters never contain
    the record itself.

    Example: meanstream dlq list --dead-letters dead_letters.jsonl
    """
    letters = _read(dead_letters, store)
    groups = letters.groups()
    if as_json:
        print_options_json({"records": len(letters), "unreadable": letters.unreadable, "groups": groups})
        return
    columns = ("reason", "source", "partition", "records", "first", "last", "bytes")
    _print_table(columns, [{**group, "bytes": _sizes(group)} for group in groups])
    _tell_unreadable(letters)


@app.command("show")
def dlq_show(
    *,
    dead_letters: PlaceOption,
    reason: ReasonOption = None,
    partition: Annotated[int | None, cli_option("Partition to select.", INPUT)] = None,
    source: Annotated[str | None, cli_option("Source to select and to read; required by --raw-to.", INPUT)] = None,
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
    letters = _read(dead_letters, store)
    with refusing_options():
        found = letters.of(
            source=None if source is None else _source_name(source, letters),
            reasons=_known_reasons(reason),
            partition=partition,
        )
        shown = found.take(slice(0, limit))
        if raw_to is not None:
            _write_raw(raw_to, source, shown, store)
    rows = list(shown.rows())
    if as_json:
        print_options_json({"records": len(found), "unreadable": letters.unreadable, "dead_letters": rows})
        return
    _print_table(
        ("reason", "source", "partition", "position", "bytes"), [{**row, "bytes": row["size"]} for row in rows]
    )
    if len(found) > limit:
        sys.stderr.write(f"{len(found) - limit:,} more: see --limit\n")
    _tell_unreadable(letters)


@app.command("replay")
@takes_options(
    "asked_replay:ReplayOptions",
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
    replay_dead_letters(options)


def _read(place: str, store: Path | None) -> DeadLetters:
    """Read dead letters; of a store, only of records that are unused so far."""
    from meanstream.streaming.replay.dead_letters import dead_letters_still_unused, read_dead_letters

    with refusing_options():
        letters = read_dead_letters(place)
    if store is None:
        return letters
    with _reading(store) as opened:
        return dead_letters_still_unused(letters, opened)


@contextmanager
def _reading(path: Path) -> Iterator[Store]:
    from meanstream.streaming.store.state_store import Store, StoreError

    try:
        with closing(Store.read(path)) as opened:
            yield opened
    except StoreError as error:
        raise BadOption(str(error)) from None


def _require_same_source(location: str, store: Path) -> None:
    """Refuse a file that has changed since a store has read it: a dead letter's place may hold another record."""
    from meanstream.streaming.kafka.connection.kafka_location import is_kafka_location
    from meanstream.streaming.replay.reopen import reopened_source_name
    from meanstream.streaming.replay.same_file import require_same_file
    from meanstream.streaming.store.source_identity import ENGINES

    if is_kafka_location(location):
        return
    name = reopened_source_name(location)
    with _reading(store) as opened:
        for kind in ENGINES:
            positions = (opened.state(kind) or {}).get("positions", {})
            if name in positions:
                require_same_file(Path(location.removeprefix("follow:")), positions[name])


def _known_reasons(reasons: list[str] | None) -> list[str]:
    """Check the names of reasons."""
    from meanstream.operators.validation import closest_valid
    from meanstream.streaming.replay.dead_letters import REASONS

    for name in reasons or ():
        if name not in REASONS:
            raise BadOption(f"reason must be one of a dead letter's, got {name!r}{closest_valid(name, REASONS)}")
    return reasons or []


def _source_name(location: str, letters: DeadLetters) -> str:
    """Find the name under which a source stands in dead letters."""
    from meanstream.operators.validation import closest_valid
    from meanstream.streaming.replay.reopen import reopened_source_name

    name = reopened_source_name(location)
    if name not in letters.sources:
        hint = closest_valid(name, letters.sources, listed="they name")
        raise BadOption(f"source must be one that the dead letters name, got {location!r}{hint}")
    return name


def _write_raw(path: Path, source: str | None, letters: DeadLetters, store: Path | None) -> None:
    """Copy the records of dead letters out of their source, and say what that means."""
    from meanstream.streaming.replay.raw_records import write_raw_records

    if source is None:
        raise BadOption("source must be given with raw_to")
    if store is not None:
        _require_same_source(source, store)
    largest = max(letters.size.tolist(), default=0)
    with writing_output("raw_to", path):
        written = write_raw_records(path, source, letters.position, max_record_bytes=largest)
    missing = len(letters) - written
    sys.stderr.write(
        f"{str(path)!r} holds RAW DATA of {written:,} records: keep it inside the trust domain, remove it after use\n"
    )
    if missing:
        sys.stderr.write(f"{missing:,} records are not in the source any more\n")
    if store is None and "://" not in source:
        sys.stderr.write(f"whether {source!r} is still the file that was read was not checked: see --store\n")


def _sizes(group: dict[str, Any]) -> str | None:
    smallest, largest = group["smallest"], group["largest"]
    return smallest if smallest == largest else f"{smallest}-{largest}"


def _print_table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """Print columns, words to the left and numbers to the right."""
    table = [[_cell(row[name]) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *table, strict=True)]
    left = {"reason", "source"}
    for cells in [list(columns), *table]:
        padded = [
            cell.ljust(width) if name in left else cell.rjust(width)
            for name, cell, width in zip(columns, cells, widths, strict=True)
        ]
        sys.stdout.write("  ".join(padded).rstrip() + "\n")


def _cell(value: Any) -> str:
    from meanstream.operators.validation import printable

    return "-" if value is None else printable(str(value))


def _tell_unreadable(letters: DeadLetters) -> None:
    if letters.unreadable:
        sys.stderr.write(f"{letters.unreadable:,} entries are no dead letters and were left out\n")
