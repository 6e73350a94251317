"""What `meanstream dlq` prints and writes: groups of dead letters, letters, and their records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from meanstream.operators.validation import closest_valid, printable
from meanstream.pipelines.commands.command_outputs import writing_output
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.streaming.kafka.connection.kafka_location import is_kafka_location
from meanstream.streaming.replay.dead_letters import (
    REASONS,
    DeadLetters,
    dead_letters_still_unused,
    read_dead_letters,
)
from meanstream.streaming.replay.raw_records import write_raw_records
from meanstream.streaming.replay.reopen import reopened_source_name, require_same_file
from meanstream.streaming.store.source_identity import ENGINES
from meanstream.streaming.store.state_store import Store, StoreError


def list_dead_letters(*, dead_letters: str, store: Path | None, as_json: bool) -> None:
    """Count dead letters by reason, source and partition."""
    letters = _read(dead_letters, store)
    groups = letters.groups()
    if as_json:
        print_options_json(
            {"records": len(letters), "unreadable": letters.unreadable, "groups": groups}
        )
        return

    columns = ("reason", "source", "partition", "records", "first", "last", "bytes")
    _print_table(columns, [{**group, "bytes": _sizes(group)} for group in groups])
    _print_unreadable(letters)


def show_dead_letters(
    *,
    dead_letters: str,
    reason: list[str] | None,
    partition: int | None,
    source: str | None,
    store: Path | None,
    limit: int,
    raw_to: Path | None,
    as_json: bool,
) -> None:
    """Show dead letters: reason, position and size; with --raw-to also the records, in a file."""
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
        print_options_json(
            {"records": len(found), "unreadable": letters.unreadable, "dead_letters": rows}
        )
        return

    _print_table(
        ("reason", "source", "partition", "position", "bytes"),
        [{**row, "bytes": row["size"]} for row in rows],
    )

    if len(found) > limit:
        sys.stderr.write(f"{len(found) - limit:,} more: see --limit\n")

    _print_unreadable(letters)


def _read(place: str, store: Path | None) -> DeadLetters:
    """Read dead letters; of a store, only of records that are unused so far."""
    with refusing_options():
        letters = read_dead_letters(place)

    if store is None:
        return letters

    with _reading(store) as opened:
        return dead_letters_still_unused(letters, opened)


@contextmanager
def _reading(path: Path) -> Iterator[Store]:
    try:
        with closing(Store.read(path)) as opened:
            yield opened
    except StoreError as error:
        raise BadOption(str(error)) from None


def _require_same_source(location: str, store: Path) -> None:
    """Refuse a file that has changed since a store has read it.

    A dead letter's place may hold another record.
    """
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
    for name in reasons or ():
        if name not in REASONS:
            raise BadOption(
                f"reason must be one of a dead letter's, got {name!r}{closest_valid(name, REASONS)}"
            )

    return reasons or []


def _source_name(location: str, letters: DeadLetters) -> str:
    """Find the name under which a source stands in dead letters."""
    name = reopened_source_name(location)
    if name not in letters.sources:
        hint = closest_valid(name, letters.sources, listed="they name")
        raise BadOption(f"source must be one that the dead letters name, got {location!r}{hint}")

    return name


def _write_raw(path: Path, source: str | None, letters: DeadLetters, store: Path | None) -> None:
    """Copy the records of dead letters out of their source, and say what that means."""
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
        sys.stderr.write(
            f"whether {source!r} is still the file that was read was not checked: see --store\n"
        )


def _sizes(group: dict[str, Any]) -> str | None:
    smallest = group["smallest"]
    largest = group["largest"]
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
    return "-" if value is None else printable(str(value))


def _print_unreadable(letters: DeadLetters) -> None:
    if letters.unreadable:
        sys.stderr.write(f"{letters.unreadable:,} entries are no dead letters and were left out\n")
