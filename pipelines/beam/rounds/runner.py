"""`meanstream run rounds --runner`: the same answers as the engine's, from a runner of Beam that is named."""

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
    from pipelines.commands.rounds_options import RoundsOptions

ELSEWHERE = dict.fromkeys(
    ("reports", "stages", "dead_letters", "notices", "reports_only", "from_reports", "metrics"), None
)
"""Options of the engine alone; a pipeline of one's own takes `ReportRounds` and `AnswerReports`."""


def run_on_beam(options: RoundsOptions, runner: str) -> None:
    """Run rounds over a file, or ranges of a topic, on a runner of Beam, and say what was done.

    The same source, settings and secret give the same bytes as the engine. Nothing is kept in the store: the budget
    of a user is enforced over the windows of this source. What goes to a topic is there at least once, the same each
    time: see `pipelines.beam.kafka.sink.WriteKafka`.

    Raises
    ------
    BadOption
        Before any data is read: an unknown runner, an option that a pipeline does not have, a sink that is there.
    """
    if runner == "DataflowRunner":
        from pipelines.beam.template.command import run_on_dataflow

        run_on_dataflow("rounds", options, options.runner_arg or [])
        return
    from pipelines.commands.run_rounds import column_mapping

    with refusing():
        arguments = arguments_of(runner, options.runner_arg or [])
        refuse(options, ELSEWHERE)
        check_source(options)
        sinks, settings = sink_places(options.sinks), options.settings()
        require_beam()
        secret = secret_place(options.store, environment_of(options.secret_file))
        source = source_place(options, column_mapping(options))

    def run(places: Places) -> dict[str, int]:
        from pipelines.beam.rounds.file import run_file

        return run_file(
            settings,
            source,
            places["means"],
            secret=secret,
            engine_options=options.engine_options(),
            runner=runner,
            arguments=arguments,
        )

    tell(options, runner, run_to_places(sinks, run))
