"""`meanstream run rounds --runner`.

The same answers as the engine's, from a runner of Beam that is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meanstream.pipelines.beam.commands.run_on_beam import Command, Places, run_beam_command
from meanstream.pipelines.commands.run.checks import check_rounds

if TYPE_CHECKING:
    from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
    from meanstream.pipelines.options.rounds_options import RoundsOptions
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings


def run_rounds_on_beam(options: RoundsOptions, runner: str) -> None:
    """Run rounds as a pipeline: see `run_beam_command`.

    The same source, settings and secret give the same bytes as the engine. Nothing is kept in the
    store: the budget of a user is enforced over the windows of this source. What goes to a topic is
    there at least once, the same each time: see
    `meanstream.pipelines.beam.kafka.write_kafka.WriteKafka`.
    """
    rounds = Command(name="rounds", settings=check_rounds, run=_run)
    run_beam_command(rounds, options, runner)


def _run(
    settings: RoundsSettings, source: SourceLocation, places: Places, **more: Any
) -> dict[str, int]:
    from meanstream.pipelines.beam.rounds.rounds_from_files import run_rounds_file

    return run_rounds_file(settings, source, places["means"], **more)
