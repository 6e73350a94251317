"""`meanstream run`: streams of samples to private means, on the embedded engine."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Protocol

import typer

from meanstream.operators.rings import ring_module
from meanstream.pipelines.commands.run.run_logs import LOGGER, logging_to_stderr
from meanstream.pipelines.commands.run.signals import resume_collection
from meanstream.pipelines.options.option_errors import BadOption
from meanstream.pipelines.options.typer_commands import takes_options

if TYPE_CHECKING:
    from meanstream.pipelines.options.agent_side import AgentSideOptions
    from meanstream.pipelines.options.agents_options import AgentsOptions
    from meanstream.pipelines.options.collaborate_options import CollaborateOptions
    from meanstream.pipelines.options.rounds_options import RoundsOptions

_log = logging.getLogger(f"{LOGGER}.run")


class _Logged(Protocol):
    """Options that say how a run logs."""

    @property
    def log_format(self) -> str: ...


def warn_of_unknown_variables(context: Any, options: _Logged) -> None:
    """Warn of each `MEANSTREAM_*` variable that is no option of the command, naming the one that may be meant."""
    from meanstream.pipelines.options.help_text import unknown_variables

    lines = unknown_variables(context, os.environ)
    if not lines:
        return

    with logging_to_stderr(options.log_format, quiet=True):
        for line in lines:
            _log.warning(line)


app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def run() -> None:
    """Estimate from a stream of events."""


@app.command("agents")
@takes_options("agents_options:AgentsOptions", beforehand=warn_of_unknown_variables)
def run_agents_command(options: AgentsOptions) -> None:
    """Estimate a private mean with an interval for each agent. A killed run continues when it is started again.

    \b
    Example:
      meanstream run agents --source flights.csv --agent tailnum --value dep_delay --time time_hour \\
        --lower -30 --upper 120 --epsilon 1 --delta 1e-6 \\
        --store state.db --sink estimates.jsonl --releases releases.jsonl
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.run.run_agents import host_agents

    if options.runner_arg and options.runner is None:
        raise BadOption("runner_arg must come with --runner")
    if options.offsets is not None and options.runner is None:
        raise BadOption(
            "offsets must come with --runner, since the engine continues from its store"
        )

    if options.runner is None:
        host_agents(options)
        return

    resume_collection()
    ring_module("pipelines.beam.commands.run_on_beam").run_agents_on_beam(options, options.runner)


@app.command("agent-side")
@takes_options("agent_side:AgentSideOptions", beforehand=warn_of_unknown_variables)
def run_agent_side_command(options: AgentSideOptions) -> None:
    """Run an organization's private side alone: raw samples in, only releases out (federated deployment).

    `run collaborate` makes the estimates of its agents, from all releases and this store.

    \b
    Example:
      meanstream run agent-side --source kafka://127.0.0.1:9092/samples \\
        --lower -30 --upper 120 --epsilon 1 --delta 1e-6 \\
        --store state.db --releases 'kafka://shared:9092/releases?config=shared.yaml'
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.run.run_agents import host_agents

    if options.releases is None:
        raise BadOption("releases must be given")
    host_agents(options)


@app.command("collaborate")
@takes_options("collaborate_options:CollaborateOptions", beforehand=warn_of_unknown_variables)
def run_collaborate_command(options: CollaborateOptions) -> None:
    """Estimate the means of a store's agents from all releases and their own samples (federated deployment).

    Spends no budget, and sends nothing out. `run agent-side` owns the store, and may be running.

    \b
    Example:
      meanstream run collaborate --releases kafka://127.0.0.1:9092/releases --store state.db --sink estimates.jsonl
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.run.run_collaborate import host_collaboration

    host_collaboration(options)


@app.command("rounds")
@takes_options("rounds_options:RoundsOptions", beforehand=warn_of_unknown_variables)
def run_rounds_command(options: RoundsOptions) -> None:
    """Estimate the population's private mean per time window, with an interval. A killed run continues.

    \b
    Examples:
      meanstream run rounds --source flights.csv --user tailnum --value dep_delay --time time_hour \\
        --lower -30 --upper 120 --window 7d --epsilon 1 --sink means.jsonl
      meanstream run rounds --reports-only reports.jsonl --stages stages.jsonl --source flights.csv ...
      meanstream run rounds --from-reports reports.jsonl --stages stages.jsonl --store statistician.db \\
        --lower -30 --upper 120 --window 7d --epsilon 1 --sink means.jsonl
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.run.run_rounds import host_rounds

    host_rounds(options)
