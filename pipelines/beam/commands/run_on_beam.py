"""`run agents --runner` and `run rounds --runner`.

Checked before anything runs, run in silence, and told.

Nothing of Beam is loaded before the options are found to be good.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.operators.limits import MAX_AGENTS
from meanstream.operators.validation import require
from meanstream.pipelines.beam.beam_runners import (
    quiet_runner,
    require_beam_of_runners,
    runner_arguments,
    runner_offset_ranges,
    runner_offsets_held_now,
    runner_secret_location,
)
from meanstream.pipelines.beam.commands.run_on_dataflow import DATAFLOW, submit_to_dataflow
from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
from meanstream.pipelines.beam.worker.worker_secret import require_beam_secret_named
from meanstream.pipelines.commands.run.checks import (
    check_agents,
    check_apart,
    check_rounds,
    check_store_path,
)
from meanstream.pipelines.options.agents_options import PAIRWISE
from meanstream.pipelines.options.base import OPTION_OF, option_environment, print_options_json
from meanstream.pipelines.options.declaration import options_of_host
from meanstream.pipelines.options.option_errors import Refusals, refusing_options
from meanstream.pipelines.options.pairwise_options import pairwise_options
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation, is_kafka_location

if TYPE_CHECKING:
    from meanstream.operators.agents.agents import AgentsSettings
    from meanstream.pipelines.options.agents_options import AgentsOptions
    from meanstream.pipelines.options.rounds_options import RoundsOptions
    from meanstream.streaming.sources.mapping import ColumnMapping

Places = Mapping[str, Path | str]
"""A file or a topic for each role."""


def run_beam_command(
    options: AgentsOptions | RoundsOptions,
    runner: str,
    check: Callable[[Any], Any],
    run_file: Callable[..., dict[str, int]],
) -> None:
    """Run it over a file, or ranges of a topic, on a runner of Beam, and say what was done."""
    if runner == DATAFLOW:
        submit_to_dataflow(options)
        return

    _refuse_together(options, runner)
    with refusing_options():
        arguments = runner_arguments(runner, options.runner_arg or [])
        sinks = _sink_locations(options.sinks)
        settings = check(options)
        secret = runner_secret_location(options.store, option_environment(options.secret_file))
        source = _source_location(options, options.column_mapping())
        more = options.engine_options()

    def run(places: Places) -> dict[str, int]:
        return run_file(
            settings,
            source,
            places,
            secret=secret,
            engine_options=more,
            runner=runner,
            arguments=arguments,
        )

    _print_counters(options, runner, _run_to_sinks(sinks, run))


def _refuse_together(options: AgentsOptions | RoundsOptions, runner: str) -> None:
    """Refuse, in one line, all that can be refused without asking a broker."""
    refusals = Refusals()
    with refusals.collecting():
        runner_arguments(runner, options.runner_arg or [])

    engine_only = options_of_host(type(options), "engine")
    for field in fields(options):
        given = getattr(options, field.name)
        if field.name in engine_only and given != field.default:
            with refusals.collecting():
                require(False, field.name, "be left out with --runner", str(given))

    with refusals.collecting():
        _check_source_ends(options)

    with refusals.collecting():
        check_store_path(options.store)
        check_apart(options, options.store)

    with refusals.collecting():
        _sink_locations(options.sinks)

    with refusals.collecting():
        require_beam_of_runners()

    with refusals.collecting():
        require_beam_secret_named(options)

    with refusals.collecting():
        options.settings()

    with refusals.collecting():
        options.engine_options()

    refusals.end()


def _check_source_ends(options: AgentsOptions | RoundsOptions) -> None:
    """Refuse a topic whose end is not said: a pipeline of the command line ends."""
    source = str(options.source)
    offsets = options.offsets
    if not is_kafka_location(source):
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
    runner_offset_ranges(offsets)


def _source_location(
    options: AgentsOptions | RoundsOptions, mapping: ColumnMapping
) -> SourceLocation:
    """Say what workers read.

    A file by its whole path, for they may stand elsewhere; of a topic, ranges decided now.
    """
    source = str(options.source)
    if is_kafka_location(source):
        ranges = None if options.offsets is None else runner_offset_ranges(options.offsets)
        return SourceLocation(
            location=source, mapping=mapping, ranges=runner_offsets_held_now(source, ranges)
        )

    location = str(Path(source).resolve()) if Path(source).is_file() else source
    return SourceLocation(location=location, mapping=mapping, sort=options.sort)


def _sink_locations(sinks: Mapping[str, str]) -> dict[str, Path | str | None]:
    """Give the file or the topic of each role, None for the terminal.

    Files that hold something are refused.
    """
    places: dict[str, Path | str | None] = {}
    for role, place in sinks.items():
        if is_kafka_location(place) or place == "-":
            places[role] = None if place == "-" else place
            continue

        name = OPTION_OF.get(role, role)
        path = Path(place)
        rule = "be a .jsonl file in an existing folder, a topic, or '-', with --runner"
        require(path.suffix == ".jsonl" and path.parent.is_dir(), name, rule, place)
        require(
            not path.exists() or not path.stat().st_size, name, "be a new file with --runner", place
        )
        places[role] = path.resolve()

    return places


def _run_to_sinks(
    sinks: Mapping[str, Path | str | None], run: Callable[[Places], dict[str, int]]
) -> dict[str, int]:
    """Run a pipeline in silence, then show what goes to the terminal.

    Return the pipeline's counters.
    """
    with tempfile.TemporaryDirectory() as folder, quiet_runner():
        files = {role: Path(folder, f"{role}.jsonl") for role in sinks}
        counters = run(
            {role: files[role] if place is None else place for role, place in sinks.items()}
        )

        for role, place in sinks.items():
            if place is None and files[role].exists():
                sys.stdout.buffer.write(files[role].read_bytes())
                sys.stdout.flush()

    return counters


def _print_counters(
    options: AgentsOptions | RoundsOptions, runner: str, counters: Mapping[str, int]
) -> None:
    """Say what was done."""
    if options.json:
        print_options_json({"runner": runner, **counters})
    elif not options.quiet:
        sys.stderr.write(
            ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counters.items())
            + "\n"
        )


def run_agents_on_beam(options: AgentsOptions, runner: str) -> None:
    """Run agents as a pipeline: see `run_beam_command`.

    The same source, settings and secret give the same releases as the engine, and the same
    estimates up to rounding. The store's file is not made: the ledger is the state of the pipeline.
    What goes to a topic is there at least once, the same each time: see
    `meanstream.pipelines.beam.kafka.write_kafka.WriteKafka`.
    """
    if options.schedule in PAIRWISE:
        _run_pairs_on_beam(options, runner)
        return

    run_beam_command(options, runner, check_agents, _run_agents_file)


def _run_agents_file(*given: Any, **more: Any) -> dict[str, int]:
    from meanstream.pipelines.beam.agents.agents_from_files import run_agents_file

    return run_agents_file(*given, **more)


def _run_pairs_on_beam(options: AgentsOptions, runner: str) -> None:
    """Run agents that query each other as a pipeline.

    The same file, settings and secret give the engine's answers.
    """
    with refusing_options():
        rule = f"be of another kind with {DATAFLOW}, which has no pairs"
        require(runner != DATAFLOW, "schedule", rule, options.schedule)
        require(not options.members, "members", "be left out with --runner", options.members)
        pairs = pairwise_options(options)
        most = pairs.settings.most_agents
        given = options.max_agents

        if most is not None:  # of 1 GiB; the state of a key is a quarter of that
            rule = f"be at most {most // 2} with --runner, or come with --partners"
            require(given <= most // 2 or given == MAX_AGENTS, "max_agents", rule, given)
            given = min(given, most // 2)

    chosen = replace(pairs.options, max_agents=given)

    def run_file(_: AgentsSettings, *given: Any, **more: Any) -> dict[str, int]:
        from meanstream.pipelines.beam.agents.pairwise_turns import run_pairs_file

        return run_pairs_file(pairs.settings, *given, **more)

    run_beam_command(chosen, runner, check_agents, run_file)


def run_rounds_on_beam(options: RoundsOptions, runner: str) -> None:
    """Run rounds as a pipeline: see `run_beam_command`.

    The same source, settings and secret give the same bytes as the engine. Nothing is kept in the
    store: the budget of a user is enforced over the windows of this source. What goes to a topic is
    there at least once, the same each time: see
    `meanstream.pipelines.beam.kafka.write_kafka.WriteKafka`.
    """
    run_beam_command(options, runner, check_rounds, _run_rounds_file)


def _run_rounds_file(*given: Any, **more: Any) -> dict[str, int]:
    from meanstream.pipelines.beam.rounds.rounds_from_files import run_rounds_file

    settings, source, places = given
    return run_rounds_file(settings, source, places["means"], **more)
