"""`meanstream dlq replay`.

Records that were not used, given once more to the engine of the same store.
"""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meanstream.operators.validation import closest_valid
from meanstream.pipelines.commands.run.agents_dry_run import dry_run_agents
from meanstream.pipelines.commands.run.progress_line import log_progress_summary
from meanstream.pipelines.commands.run.run_agents import (
    agents_summary,
    agents_summary_line,
    run_agents_engine,
)
from meanstream.pipelines.commands.run.run_engine import Input
from meanstream.pipelines.commands.run.run_logs import logging_to_stderr
from meanstream.pipelines.options.base import option_location, print_options_json
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.streaming.engine.unused_records import COUNTED, FINAL
from meanstream.streaming.replay.dead_letters import REASONS, DeadLetters, read_dead_letters
from meanstream.streaming.replay.reopen import reopened_source_name, reopening
from meanstream.streaming.replay.replay_letters import Replay, prepare_replay
from meanstream.streaming.store.source_identity import source_identity_of
from meanstream.streaming.store.state_store import Store, StoreError

if TYPE_CHECKING:
    from meanstream.pipelines.options.store_agents_options import ReplayOptions
    from meanstream.streaming.store.deployment_store import Deployment


COLUMNS = ("agent", "value", "time", "id", "person", "layout", "numbers_in_text")
_TOLD = {
    "dead_letters": "records with dead letters",
    "replayed": "replayed",
    "settled": "settled before or of another store",
    "missing": "not in the source any more",
    "repeated": "with the id of another one, for the next replay",
    "uncertain": "late, and copies of them may be gone from the source",
}


def replay_dead_letters(options: ReplayOptions) -> None:
    """Run the engine on the records, and say what became of them."""
    options = _with_columns_of_store(options)
    letters = _letters(options)

    if options.dry_run:
        dry_run_agents(options)
        return

    prepared: list[Replay] = []

    def open_input(options: ReplayOptions, deployment: Deployment) -> Input:
        prepared.append(_prepare(options, deployment, letters))
        engine_options = replace(options.engine_options(), late="accept")
        return Input(prepared[0].source, engine_options, prepared[0].records, prepared[0].done)

    with logging_to_stderr(options.log_format, quiet=options.quiet):
        stats = run_agents_engine(options, open_input)
        if options.log_format == "json":
            log_progress_summary(stats)

    facts = _facts(prepared[0])
    if options.json:
        print_options_json({**facts, **agents_summary(stats)})
    elif options.log_format == "text" and not options.quiet:
        told = ", ".join(
            f"{facts[name]:,} {what}"
            for name, what in _TOLD.items()
            if facts[name] or name == "replayed"
        )
        sys.stderr.write(f"{told}; {agents_summary_line(stats)}\n")


def _letters(options: ReplayOptions) -> DeadLetters:
    """Read the dead letters that are requested."""
    for reason in options.reason or ():
        if reason == COUNTED:
            raise BadOption(
                f"reason must be one that can pass, got {reason!r}: the sample that it repeats was counted"
            )
        if reason in FINAL:
            raise BadOption(
                f"reason must be one that can pass, got {reason!r}: it was decided for good"
            )

        if reason not in REASONS:
            raise BadOption(
                f"reason must be one of a dead letter's, got {reason!r}{closest_valid(reason, REASONS)}"
            )

    location = options.from_ or options.dead_letters
    if location is None:
        raise BadOption("from must be given, or dead_letters")

    with refusing_options():
        letters = read_dead_letters(location)

    if letters.unreadable:
        sys.stderr.write(f"{letters.unreadable:,} entries are no dead letters and were left out\n")

    return letters.of(
        reasons=options.reason or [reason for reason in REASONS if reason not in FINAL]
    )


def _with_columns_of_store(options: ReplayOptions) -> ReplayOptions:
    """Fill in the columns that the store is filled from, where a store is named and no columns are given."""
    if not options.of_store:
        return options

    try:
        with closing(Store.read(options.store)) as store:
            identity = source_identity_of(store) or {}
    except StoreError as error:
        raise BadOption(str(error)) from None

    return replace(
        options,
        **{
            name: identity[name]
            for name in COLUMNS
            if name in identity and name not in options.said
        },
    )


def _prepare(options: ReplayOptions, deployment: Deployment, letters: DeadLetters) -> Replay:
    location = option_location(options.source)
    reopen = reopening(location, options.column_mapping(), id_key=deployment.id_key)
    return prepare_replay(
        deployment.store, reopened_source_name(location), reopen, letters, sort=options.sort
    )


def _facts(replayed: Replay) -> dict[str, Any]:
    """Count the records of dead letters by what was done with them."""
    source = replayed.source
    return {
        "dead_letters": replayed.letters,
        "replayed": replayed.chosen - source.missing - source.repeated - source.uncertain,
        "settled": replayed.letters - replayed.chosen,
        "missing": source.missing,
        "repeated": source.repeated,
        "uncertain": source.uncertain,
    }
