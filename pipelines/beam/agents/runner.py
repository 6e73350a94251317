"""`meanstream run agents --runner`: the engine's answers, from a runner of Beam that is named.

Nothing of Beam is loaded before the options are found to be good.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from operators.validation import require
from pipelines.beam.runners import arguments_of, quiet, secret_place
from pipelines.commands.options import BadOption, environment_of, print_json, refusing

if TYPE_CHECKING:
    from pipelines.commands.agents_options import AgentsOptions

ELSEWHERE = {
    "refresh": None,
    "dead_letters": None,
    "metrics": None,
    "page": None,
    "page_remote": False,
    "until_end": False,
    "dry_run": False,
}
"""Options of the engine alone, and what they are when they are left out; a pipeline of one's own has `refresh`."""


def run_on_beam(options: AgentsOptions, runner: str) -> None:
    """Run agents over a file on a runner of Beam, and say what was done.

    The same source, settings and secret give the same releases as the engine, and the same estimates up to rounding.
    The store's file is not made: the ledger is the state of the pipeline.

    Raises
    ------
    BadOption
        Before any data is read: an unknown runner, an option that a pipeline does not have, a sink that is there.
    """
    from pipelines.commands.hosting import check_options, column_mapping

    with refusing():
        arguments = arguments_of(runner, options.runner_arg or [])
        sinks = _checked(options)
        settings = check_options(options)
        if importlib.util.find_spec("apache_beam") is None:
            raise BadOption("runner needs apache-beam: pip install 'meanstream[beam]'")
        secret = secret_place(options.store, environment_of(options.secret_file))
    with tempfile.TemporaryDirectory() as folder, quiet():
        from pipelines.beam.agents.file import run_agents_file
        from pipelines.beam.source import SourcePlace

        places = {role: path or Path(folder, f"{role}.jsonl") for role, path in sinks.items()}
        counters = run_agents_file(
            settings,
            SourcePlace(location=_location(options), mapping=column_mapping(options), sort=options.sort),
            places,
            secret=secret,
            engine_options=options.engine_options(),
            runner=runner,
            arguments=arguments,
        )
        for role, path in sinks.items():
            if path is None:
                sys.stdout.buffer.write(places[role].read_bytes())
                sys.stdout.flush()
    if options.json:
        print_json({"runner": runner, **counters})
    elif not options.quiet:
        sys.stderr.write(", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counters.items()) + "\n")


def _checked(options: AgentsOptions) -> dict[str, Path | None]:
    """Refuse what a pipeline over a file does not have; give the file of each role, None for the terminal."""
    from streaming.kafka.location import is_kafka

    for name, left_out in ELSEWHERE.items():
        given = getattr(options, name)
        require(given == left_out, name, "be left out with --runner", None if given is None else str(given))
    require(options.source is not None and not is_kafka(options.source), "source", "be a file", options.source)
    files: dict[str, Path | None] = {}
    for role, place in options.sinks.items():
        name = {"estimates": "sink"}.get(role, role)
        path = None if place == "-" else Path(place)
        if path is not None:
            rule = "be a .jsonl file in an existing folder, or '-', with --runner"
            require(path.suffix == ".jsonl" and path.parent.is_dir(), name, rule, place)
            require(not path.exists() or not path.stat().st_size, name, "be a new file with --runner", place)
        files[role] = None if path is None else path.resolve()
    return files


def _location(options: AgentsOptions) -> str:
    """Workers may stand elsewhere: a file by its whole path."""
    source = str(options.source)
    return str(Path(source).resolve()) if Path(source).is_file() else source
