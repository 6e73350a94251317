"""`meanstream run rounds --runner`: the same answers as the engine's, from a runner of Beam that is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.beam.command import Command, Places, run_command

if TYPE_CHECKING:
    from pipelines.beam.source import SourcePlace
    from pipelines.commands.rounds_options import RoundsOptions
    from streaming.rounds.settings import RoundsSettings

ELSEWHERE = dict.fromkeys(
    ("reports", "stages", "dead_letters", "notices", "reports_only", "from_reports", "metrics"), None
)
"""Options of the engine alone; a pipeline of one's own takes `ReportRounds` and `AnswerReports`."""


def run_on_beam(options: RoundsOptions, runner: str) -> None:
    """Run rounds as a pipeline: see `run_command`.

    The same source, settings and secret give the same bytes as the engine. Nothing is kept in the store: the budget
    of a user is enforced over the windows of this source. What goes to a topic is there at least once, the same each
    time: see `pipelines.beam.kafka.sink.WriteKafka`.
    """
    from pipelines.commands.run_rounds import column_mapping

    rounds = Command(
        name="rounds",
        elsewhere=ELSEWHERE,
        settings=lambda options: options.settings(),
        mapping=column_mapping,
        run=_run,
    )
    run_command(rounds, options, runner)


def _run(settings: RoundsSettings, source: SourcePlace, places: Places, **more: Any) -> dict[str, int]:
    from pipelines.beam.rounds.file import run_file

    return run_file(settings, source, places["means"], **more)
