"""`meanstream run rounds --runner`: the same answers as the engine's, from a runner of Beam that is named.

Nothing of Beam is loaded before the options are found to be good.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from operators.validation import require
from pipelines.beam.runners import arguments_of, held_now, quiet, secret_place
from pipelines.commands.options import BadOption, environment_of, print_json, refusing
from streaming.kafka.location import KafkaLocation, is_kafka

if TYPE_CHECKING:
    from pipelines.commands.rounds_options import RoundsOptions
    from streaming.mapping import ColumnMapping
    from streaming.rounds.settings import RoundsSettings

ELSEWHERE = ("reports", "stages", "dead_letters", "notices", "reports_only", "from_reports")
"""Options of the engine alone; a pipeline of one's own takes `ReportRounds` and `AnswerReports`."""


def run_on_beam(options: RoundsOptions, runner: str, runner_args: Sequence[str] = ()) -> None:
    """Run rounds over a file, or what a topic holds now, on a runner of Beam, and say what was done.

    The same source, settings and secret give the same bytes as the engine. Nothing is kept in the store: the budget
    of a user is enforced over the windows of this file. What goes to a topic is there at least once, the same each
    time: see `pipelines.beam.kafka.sink.WriteKafka`.

    Raises
    ------
    BadOption
        Before any data is read: an unknown runner, an option that a pipeline does not have, a sink that is there.
    """
    with refusing():
        arguments = arguments_of(runner, runner_args)
        settings, location, mapping, sink = _checked(options)
        if importlib.util.find_spec("apache_beam") is None:
            raise BadOption("runner needs apache-beam: pip install 'meanstream[beam]'")
        secret = secret_place(options.store, environment_of(options.secret_file))
        ranges = held_now(location) if is_kafka(location) else ()
    with tempfile.TemporaryDirectory() as folder, quiet():
        from pipelines.beam.rounds.file import run_file
        from pipelines.beam.source import SourcePlace

        path = Path(folder, "means.jsonl") if sink is None else sink
        counters = run_file(
            settings,
            SourcePlace(location=location, mapping=mapping, sort=options.sort, ranges=ranges),
            path,
            secret=secret,
            engine_options=options.engine_options(),
            runner=runner,
            arguments=arguments,
        )
        if isinstance(path, Path) and sink is None and path.exists():
            sys.stdout.buffer.write(path.read_bytes())
            sys.stdout.flush()
    if options.json:
        print_json({"runner": runner, **counters})
    elif not options.quiet:
        sys.stderr.write(", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counters.items()) + "\n")


def _checked(options: RoundsOptions) -> tuple[RoundsSettings, str, ColumnMapping, Path | str | None]:
    """Refuse what a pipeline over a file or a topic does not have."""
    from pipelines.commands.run_rounds import column_mapping

    for name in ELSEWHERE:
        given = getattr(options, name)
        require(given is None, name, "be left out with --runner", None if given is None else str(given))
    source = str(options.source)
    if is_kafka(source):
        place = KafkaLocation.parse(source)
        require(options.until_end, "until_end", "be given with --runner and a topic", options.until_end)
        require(place.gap == "refuse", "gap", "be 'refuse' with --runner", place.gap)
    else:
        source = str(Path(source).resolve())
    sink = None if options.sink == "-" else Path(options.sink)
    if is_kafka(options.sink):
        return options.settings(), source, column_mapping(options), options.sink
    if sink is not None:
        rule = "be a .jsonl file in an existing folder, a topic, or '-', with --runner"
        require(sink.suffix == ".jsonl" and sink.parent.is_dir(), "sink", rule, options.sink)
        require(not sink.exists() or not sink.stat().st_size, "sink", "be a new file with --runner", options.sink)
    return options.settings(), source, column_mapping(options), None if sink is None else sink.resolve()
