"""`meanstream run agents --runner`: the engine's answers, from a runner of Beam that is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.beam.command import (
    Places,
    check_source,
    refuse,
    require_beam,
    run_to_places,
    sink_places,
    source_place,
    tell,
)
from pipelines.beam.runners import arguments_of, secret_place
from pipelines.commands.options import environment_of, refusing

if TYPE_CHECKING:
    from pipelines.commands.agents_options import AgentsOptions

ELSEWHERE = {
    "refresh": None,
    "dead_letters": None,
    "metrics": None,
    "page": None,
    "page_remote": False,
    "dry_run": False,
}
"""Options of the engine alone, and what they are when they are left out; a pipeline of one's own has `refresh`."""


def run_on_beam(options: AgentsOptions, runner: str) -> None:
    """Run agents over a file, or ranges of a topic, on a runner of Beam, and say what was done.

    The same source, settings and secret give the same releases as the engine, and the same estimates up to rounding.
    The store's file is not made: the ledger is the state of the pipeline. What goes to a topic is there at least once,
    the same each time: see `pipelines.beam.kafka.sink.WriteKafka`.

    Raises
    ------
    BadOption
        Before any data is read: an unknown runner, an option that a pipeline does not have, a sink that is there.
    """
    if runner == "DataflowRunner":
        from pipelines.beam.template.command import run_on_dataflow

        run_on_dataflow("agents", options, options.runner_arg or [])
        return
    from pipelines.commands.hosting import check_options, column_mapping

    with refusing():
        arguments = arguments_of(runner, options.runner_arg or [])
        refuse(options, ELSEWHERE)
        check_source(options)
        sinks = sink_places(options.sinks)
        settings = check_options(options)
        require_beam()
        secret = secret_place(options.store, environment_of(options.secret_file))
        source = source_place(options, column_mapping(options))

    def run(places: Places) -> dict[str, int]:
        from pipelines.beam.agents.file import run_agents_file

        return run_agents_file(
            settings,
            source,
            places,
            secret=secret,
            engine_options=options.engine_options(),
            runner=runner,
            arguments=arguments,
        )

    tell(options, runner, run_to_places(sinks, run))
