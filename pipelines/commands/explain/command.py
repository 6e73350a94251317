"""`meanstream explain`: what a configuration protects, with which mechanism, and who sees what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meanstream.pipelines.commands.explain.plan_together import explain_together
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption
from meanstream.pipelines.options.shared_options import ASKED
from meanstream.pipelines.options.typer_commands import takes_options

ASKED_ROUNDS = (
    *("config", "store", "lower", "upper", "epsilon", "window", "json"),
    *("estimator", "option", "users", "sizes", "registry", "user_windows", "delta"),
)
"""Options of a command line that asks about rounds; a file and the environment may give all
others."""

if TYPE_CHECKING:
    from meanstream.pipelines.options.rounds_options import ExplainRoundsOptions
    from meanstream.pipelines.options.store_agents_options import ExplainAgentsOptions

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback(invoke_without_command=True)
def explain(
    context: typer.Context,
    diff: Annotated[
        tuple[Path, Path] | None,
        cli_option(
            "Two configuration files of runs, to list each promise that the second weakens or strengthens; exit code 1 "
            "if any is weaker.",
            INPUT,
            "--diff",
            environment=False,
            unit="old new",
        ),
    ] = None,
    as_json: Annotated[
        bool, cli_option("Differences as one JSON object.", OUTPUT, "--json", environment=False)
    ] = False,
) -> None:
    """Show what a configuration protects, before anything runs; or compare two.

    \b
    Example:
      meanstream explain --diff old.yaml new.yaml
    """  # noqa: D301 - click reads the escape
    if context.invoked_subcommand is not None:
        given = "diff" if diff else "json" if as_json else None
        if given is not None:
            raise BadOption(
                f"{given} must be given without a command, got {context.invoked_subcommand!r}"
            )

        return

    if diff is None:
        raise BadOption("diff must be two files, got None: add --diff OLD NEW")
    from meanstream.pipelines.commands.explain.explain_diff import explain_diff

    raise typer.Exit(int(explain_diff(*diff, as_json=as_json)))


@app.command("agents")
@takes_options(
    "store_agents_options:ExplainAgentsOptions", typed=(*ASKED, "memory", "quantiles", "registry")
)
def explain_agents_command(options: ExplainAgentsOptions) -> None:
    """Explain agents: who is protected against whom and how much, the mechanisms and their noise, who sees what.

    Also prints the error for several values of epsilon. --registry writes a draft for the registry of deployments.
    --config takes the file of a run, with all of its options; --store takes the settings of a store.

    \b
    Examples:
      meanstream explain agents --lower -30 --upper 120 --epsilon 1 --delta 1e-6
      meanstream explain agents --config run.yaml --registry
      meanstream explain agents --store state.db
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.explain.agents_facts import explain_agents

    explain_agents(options, registry=options.registry)


app.command("together")(explain_together)


@app.command("rounds")
@takes_options("rounds_options:ExplainRoundsOptions", typed=ASKED_ROUNDS)
def explain_rounds_command(options: ExplainRoundsOptions) -> None:
    """Explain rounds: who is protected against whom and how much, the mechanisms, who sees what, coverage.

    Also prints the error for several values of epsilon. --registry writes a draft for the registry of deployments.
    --config takes the file of a run, with all of its options; --store takes the settings of a store.

    \b
    Examples:
      meanstream explain rounds --lower -30 --upper 120 --epsilon 1 --window 7d --users 4000 --sizes uniform:1,199
      meanstream explain rounds --config rounds.yaml
      meanstream explain rounds --store meanstream-rounds.db --users 4000
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.explain.explain_rounds import explain_rounds

    explain_rounds(options, registry=options.registry)
