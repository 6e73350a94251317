"""`meanstream run agents --runner`: the engine's answers, from a runner of Beam that is named."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meanstream.operators.limits import MAX_AGENTS
from meanstream.operators.validation import require
from meanstream.pipelines.beam.commands.run_on_beam import Command, Places, run_beam_command
from meanstream.pipelines.beam.commands.run_on_dataflow import DATAFLOW
from meanstream.pipelines.commands.run.checks import check_agents
from meanstream.pipelines.options.agents_options import PAIRWISE
from meanstream.pipelines.options.option_errors import refusing_options
from meanstream.pipelines.options.pairwise_options import pairwise_options

if TYPE_CHECKING:
    from meanstream.operators.agents.agents import AgentsSettings
    from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
    from meanstream.pipelines.options.agents_options import AgentsOptions


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

    agents = Command(name="agents", settings=check_agents, run=_run)
    run_beam_command(agents, options, runner)


def _run(
    settings: AgentsSettings, source: SourceLocation, places: Places, **more: Any
) -> dict[str, int]:
    from meanstream.pipelines.beam.agents.agents_from_files import run_agents_file

    return run_agents_file(settings, source, places, **more)


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

    def run(
        _: AgentsSettings, source: SourceLocation, places: Places, **more: Any
    ) -> dict[str, int]:
        from meanstream.pipelines.beam.agents.pairs.pairs_from_files import run_pairs_file

        return run_pairs_file(pairs.settings, source, places, **more)

    run_beam_command(Command(name="agents", settings=check_agents, run=run), chosen, runner)
