"""`meanstream run agents --runner`: the engine's answers, from a runner of Beam that is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meanstream.pipelines.beam.commands.run_on_beam import Command, Places, run_beam_command
from meanstream.pipelines.commands.run.checks import check_agents

if TYPE_CHECKING:
    from meanstream.operators.agents.agents import AgentsSettings
    from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
    from meanstream.pipelines.options.agents_options import AgentsOptions


def run_agents_on_beam(options: AgentsOptions, runner: str) -> None:
    """Run agents as a pipeline: see `run_beam_command`.

    The same source, settings and secret give the same releases as the engine, and the same estimates up to rounding.
    The store's file is not made: the ledger is the state of the pipeline. What goes to a topic is there at least once,
    the same each time: see `meanstream.pipelines.beam.kafka.write_kafka.WriteKafka`.
    """
    agents = Command(name="agents", settings=check_agents, run=_run)
    run_beam_command(agents, options, runner)


def _run(settings: AgentsSettings, source: SourceLocation, places: Places, **more: Any) -> dict[str, int]:
    from meanstream.pipelines.beam.agents.agents_from_files import run_agents_file

    return run_agents_file(settings, source, places, **more)
