"""`meanstream run rounds --runner`: the same answers as the engine's, from a runner of Beam that is named.

Nothing of Beam is loaded before the options are found to be good.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from operators.validation import require
from pipelines.beam_secret import SecretPlace
from pipelines.commands.options import BadOption, print_json, refusing
from streaming.kafka.location import KafkaLocation, is_kafka
from streaming.secret import SECRET_FILE_VARIABLE, SECRET_VARIABLE, load_secret, secret_path

if TYPE_CHECKING:
    from pipelines.commands.rounds_options import RoundsOptions
    from streaming.mapping import ColumnMapping
    from streaming.rounds.settings import RoundsSettings

RUNNERS = ("FnApiRunner", "PrismRunner", "FlinkRunner", "DataflowRunner")
ELSEWHERE = ("reports", "stages", "dead_letters", "notices", "reports_only", "from_reports")
"""Options of the engine alone; a pipeline of one's own takes `ReportRounds` and `AnswerReports`."""


def run_on_beam(options: RoundsOptions, runner: str, runner_args: Sequence[str] = ()) -> None:
    """Run rounds over a file, or what a topic holds now, on a runner of Beam, and say what was done.

    The same source, settings and secret give the same bytes as the engine. Nothing is kept in the store: the budget
    of a user is enforced over the windows of this file. What goes to a topic is there at least once, the same each
    time: see `pipelines.beam_kafka_sink.WriteKafka`.

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
        secret = _secret_place(options)
        ranges = _held_now(location) if is_kafka(location) else ()
    with tempfile.TemporaryDirectory() as folder, _quiet():
        from pipelines.beam_file import run_file
        from pipelines.beam_source import SourcePlace

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


def arguments_of(runner: str, arguments: Sequence[str]) -> list[str]:
    """Check a runner's name and its options, and add where Prism is, if it is where `make servers` puts it.

    Raises
    ------
    ValueError
        If the runner is none of `RUNNERS`, or cannot be used here, with the reason.

    Examples
    --------
    >>> arguments_of("DirectRunner", ())
    Traceback (most recent call last):
    ValueError: runner must be one of FnApiRunner, PrismRunner, FlinkRunner, DataflowRunner, got 'DirectRunner' (it \
may run a pipeline again on another runner without saying so)
    """
    if runner not in RUNNERS:
        why = " (it may run a pipeline again on another runner without saying so)" if runner == "DirectRunner" else ""
        raise ValueError(f"runner must be one of {', '.join(RUNNERS)}, got {runner!r}{why}")
    given = list(arguments)
    if runner == "PrismRunner" and not any(a.startswith("--prism_location") for a in given):
        binary = prism_binary()
        require(binary is not None, "prism_location", "be the Prism binary (make servers builds it)", None)
        given.append(f"--prism_location={binary}")
    if runner == "FlinkRunner":
        there = any(a.startswith("--flink_master") for a in given)
        require(there, "flink_master", "be given with FlinkRunner, as HOST:PORT", None)
    if runner == "DataflowRunner":
        require(_has("google.cloud.dataflow_v1beta3"), "runner", "be installed (apache-beam[gcp])", runner)
    return given


def prism_binary() -> Path | None:
    """Find Prism: on the path, or where `make servers` puts it."""
    servers = Path(os.environ.get("MEANSTREAM_SERVERS") or Path.home() / ".cache" / "meanstream-servers")
    found = shutil.which("prism", path=os.pathsep.join([str(servers / "prism"), os.environ.get("PATH", "")]))
    return Path(found) if found else None


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@contextmanager
def _quiet() -> Iterator[None]:
    """Beam tells on the root logger, as it is loaded, what it could do with more packages; keep it to errors."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


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


def _held_now(location: str) -> tuple[tuple[int, int, int], ...]:
    """Ask what a topic holds: decided once, so that what is executed again reads the same."""
    from pipelines.beam_kafka_read import planned
    from streaming.kafka.partition import PartitionReader

    place = KafkaLocation.parse(location)
    with closing(PartitionReader(place)) as reader:
        return tuple(planned(reader, place, None, until_end=True))


def _secret_place(options: RoundsOptions) -> SecretPlace:
    """Find the secret as the engine does, or make it; tell workers the place."""
    from pipelines.commands.run_rounds import environment_of

    environment = environment_of(options)
    load_secret(options.store, environment=environment)
    if environment.get(SECRET_VARIABLE):
        return SecretPlace(variable=SECRET_VARIABLE)
    named = environment.get(SECRET_FILE_VARIABLE)
    return SecretPlace(file=str((Path(named) if named else secret_path(options.store)).resolve()))
