"""`meanstream explain`: what a configuration protects, with which mechanism, and who sees what."""

from __future__ import annotations

from dataclasses import dataclass

import typer

from meanstream.pipelines.commands.explain.explain_registry import (
    RegistryOption,
)
from meanstream.pipelines.commands.explain.plan_together import explain_together
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.options.base import takes_options
from meanstream.pipelines.options.rounds_options import RoundsOptions

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def explain() -> None:
    """Show what a configuration protects, before anything runs."""


@dataclass(frozen=True, kw_only=True)
class ExplainAgentsOptions(AgentsOptions):
    """What `run agents` takes, and for whom it is explained."""

    registry: RegistryOption = False


@dataclass(frozen=True, kw_only=True)
class ExplainRoundsOptions(RoundsOptions):
    """What `run rounds` takes, and for whom it is explained."""

    registry: RegistryOption = False


@app.command("agents")
@takes_options(ExplainAgentsOptions, required=("lower", "upper", "epsilon", "delta"))
def explain_agents_command(options: ExplainAgentsOptions) -> None:
    """Explain agents: who is protected against whom and how much, the mechanisms and their noise, who sees what.

    Also prints the error for several values of epsilon. --registry writes a draft for the registry of deployments.

    \b
    Examples:
      meanstream explain agents --lower -30 --upper 120 --epsilon 1 --delta 1e-6
      meanstream explain agents --config run.yaml --registry
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.explain.agents_facts import explain_agents

    explain_agents(options, registry=options.registry)


app.command("together")(explain_together)


@app.command("rounds")
@takes_options(ExplainRoundsOptions, required=("lower", "upper", "epsilon"))
def explain_rounds_command(options: ExplainRoundsOptions) -> None:
    """Explain rounds: who is protected against whom and how much, the mechanisms, who sees what, coverage.

    Also prints the error for several values of epsilon. --registry writes a draft for the registry of deployments.

    \b
    Examples:
      meanstream explain rounds --lower -30 --upper 120 --epsilon 1 --window 7d --users 4000 --sizes uniform:1,199
      meanstream explain rounds --config rounds.yaml
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.explain.explain_rounds import explain_rounds

    explain_rounds(options, registry=options.registry)
