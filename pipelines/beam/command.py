"""`run agents --runner` and `run rounds --runner`: checked before anything runs, run in silence, and told.

Nothing of Beam is loaded before the options are found to be good.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operators.validation import require
from pipelines.beam.runners import arguments_of, held_now, quiet, ranges_of, secret_place
from pipelines.beam.source import SourcePlace
from pipelines.commands.hosting import OPTION_OF
from pipelines.commands.options import BadOption, environment_of, print_json, refusing
from streaming.kafka.location import KafkaLocation, is_kafka

if TYPE_CHECKING:
    from pipelines.commands.agents_options import AgentsOptions
    from pipelines.commands.rounds_options import RoundsOptions
    from streaming.mapping import ColumnMapping

Places = Mapping[str, Path | str]
"""A file or a topic for each role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What one of the two does in its own way.

    Attributes
    ----------
    name : str
        "agents" or "rounds".
    elsewhere : mapping of str to object
        Options of the engine alone, and what they are when they are left out.
    settings, mapping : callable
        From options: what is agreed on, and which column means what.
    run : callable
        `run(settings, source, places, **more)` runs the pipeline and gives its counters.
    """

    name: str
    elsewhere: Mapping[str, object]
    settings: Callable[[Any], Any]
    mapping: Callable[[Any], ColumnMapping]
    run: Callable[..., dict[str, int]]


def run_command(command: Command, options: AgentsOptions | RoundsOptions, runner: str) -> None:
    """Run it over a file, or ranges of a topic, on a runner of Beam, and say what was done.

    Raises
    ------
    BadOption
        Before any data is read: an unknown runner, an option that a pipeline does not have, a sink that is there.
    """
    if runner == "DataflowRunner":
        from pipelines.beam.template.command import run_on_dataflow

        run_on_dataflow(command.name, options, options.runner_arg or [])
        return
    with refusing():
        arguments = arguments_of(runner, options.runner_arg or [])
        refuse(options, command.elsewhere)
        check_source(options)
        sinks, settings = sink_places(options.sinks), command.settings(options)
        require_beam()
        secret = secret_place(options.store, environment_of(options.secret_file))
        source, more = source_place(options, command.mapping(options)), options.engine_options()

    def run(places: Places) -> dict[str, int]:
        return command.run(
            settings, source, places, secret=secret, engine_options=more, runner=runner, arguments=arguments
        )

    tell(options, runner, run_to_places(sinks, run))


def require_beam() -> None:
    """Refuse where Beam is not there, naming the extra.

    Raises
    ------
    BadOption
        In one line.
    """
    if importlib.util.find_spec("apache_beam") is None:
        raise BadOption("runner needs apache-beam: pip install 'meanstream[beam]'")


def refuse(options: Any, left_out: Mapping[str, object]) -> None:
    """Refuse options that a pipeline does not have, unless they are what they are when they are left out."""
    for name, value in left_out.items():
        given = getattr(options, name)
        require(given == value, name, "be left out with --runner", None if given is None else str(given))


def check_source(options: AgentsOptions | RoundsOptions) -> None:
    """Refuse a topic whose end is not said: a pipeline of the command line ends."""
    source, offsets = str(options.source), options.offsets
    if not is_kafka(source):
        require(offsets is None, "offsets", "be left out where the source is no topic", offsets)
        return
    place = KafkaLocation.parse(source)
    require(place.gap == "refuse", "gap", "be 'refuse' with --runner", place.gap)
    if offsets is None:
        rule = "be given with --runner and a topic, or else offsets"
        require(options.until_end, "until_end", rule, options.until_end)
        return
    require(not options.until_end, "until_end", "be left out with offsets", options.until_end)
    require(place.partitions is None, "partitions", "be left out with offsets", place.partitions)
    ranges_of(offsets)


def source_place(options: AgentsOptions | RoundsOptions, mapping: ColumnMapping) -> SourcePlace:
    """Say what workers read: a file by its whole path, for they may stand elsewhere; of a topic, ranges decided now.

    Raises
    ------
    ValueError
        If the topic cannot be read, or does not hold every offset that is asked for.
    """
    source = str(options.source)
    if is_kafka(source):
        ranges = None if options.offsets is None else ranges_of(options.offsets)
        return SourcePlace(location=source, mapping=mapping, ranges=held_now(source, ranges))
    location = str(Path(source).resolve()) if Path(source).is_file() else source
    return SourcePlace(location=location, mapping=mapping, sort=options.sort)


def sink_places(sinks: Mapping[str, str]) -> dict[str, Path | str | None]:
    """Give the file or the topic of each role, None for the terminal; files that hold something are refused."""
    places: dict[str, Path | str | None] = {}
    for role, place in sinks.items():
        if is_kafka(place) or place == "-":
            places[role] = None if place == "-" else place
            continue
        name, path = OPTION_OF.get(role, role), Path(place)
        rule = "be a .jsonl file in an existing folder, a topic, or '-', with --runner"
        require(path.suffix == ".jsonl" and path.parent.is_dir(), name, rule, place)
        require(not path.exists() or not path.stat().st_size, name, "be a new file with --runner", place)
        places[role] = path.resolve()
    return places


def run_to_places(sinks: Mapping[str, Path | str | None], run: Callable[[Places], dict[str, int]]) -> dict[str, int]:
    """Run a pipeline in silence, then show what goes to the terminal; return the pipeline's counters."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        files = {role: Path(folder, f"{role}.jsonl") for role in sinks}
        counters = run({role: files[role] if place is None else place for role, place in sinks.items()})
        for role, place in sinks.items():
            if place is None and files[role].exists():
                sys.stdout.buffer.write(files[role].read_bytes())
                sys.stdout.flush()
    return counters


def tell(options: AgentsOptions | RoundsOptions, runner: str, counters: Mapping[str, int]) -> None:
    """Say what was done."""
    if options.json:
        print_json({"runner": runner, **counters})
    elif not options.quiet:
        sys.stderr.write(", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counters.items()) + "\n")
