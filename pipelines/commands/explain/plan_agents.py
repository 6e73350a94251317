"""`meanstream plan agents`: what collaboration will bring, before any agent releases anything."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from meanstream.pipelines.commands.explain.covariates_explained import planned_with_covariates_line
from meanstream.pipelines.commands.explain.explain_unit import (
    explain_unit_facts,
    explain_unit_lines,
)
from meanstream.pipelines.commands.explain.plan_agents_options import PlanAgentsOptions
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.option_errors import refusing_options
from meanstream.pipelines.options.typer_commands import takes_options

if TYPE_CHECKING:
    from meanstream.operators.forecast.shares_forecast import SharesRow
    from meanstream.operators.forecast.together_forecast import AgentsForecast


@takes_options(
    PlanAgentsOptions,
    typed=(
        *(
            "config",
            "store",
            "agents",
            "epsilon",
            "delta",
            "sizes",
            "lower",
            "upper",
            "spread",
            "stddev",
        ),
        *(
            "target_half_width",
            "level",
            "memory",
            "quantiles",
            "exceeds",
            "mean",
            "covariates",
            "json",
        ),
    ),
    also=("agents_options:AgentsOptions",),
)
def plan_agents(options: PlanAgentsOptions) -> None:
    """Predict each agent's error alone and together, and the price of privacy.

    Errors are root mean squares in the unit of the value. The error together has two parts, whose squares add up:
    sampling, which remains with all data public, and privacy. The plan uses declared figures only and spends no
    privacy. Agents in classes of equal means gain more. Quantiles and exceedances are those of one release of all
    samples (with --horizon also by the schedule), for simulated agents with normal laws.

    \b
    Examples:
      meanstream plan agents --agents 4000 --sizes lognormal:80,1 --lower -30 --upper 120 --spread 6 --epsilon 1
      meanstream plan agents --sizes flights.csv:tailnum --lower -30 --upper 120 --spread 6 --stddev 35
        --epsilon 1 --target-half-width 8 --json
      meanstream plan agents --agents 4000 --sizes lognormal:80,1 --lower -30 --upper 120 --spread 6 --stddev 30
        --mean 10 --epsilon 1 --quantiles .5,.9 --exceeds 30
      meanstream plan agents --config run.yaml --agents 4000 --sizes lognormal:80,1 --spread 6
    """  # noqa: D301 - click reads the escape
    with refusing_options():
        settings = options.settings()
        found = options.forecast(settings)
        unit = explain_unit_facts(settings)
        shares = options.shares(settings)
        covariates = options.with_covariates(settings)

    if options.json:
        more: dict[str, Any] = {"shares": [asdict(row) for row in shares]} if shares else {}
        more |= {} if covariates is None else {"covariates": covariates}
        print_options_json(found.as_dict() | more | {"unit": unit})
    else:
        _print_tables(found)
        if shares:
            _print_shares(shares)

        if covariates is not None:
            typer.echo(planned_with_covariates_line(covariates))

        typer.echo("\n".join(explain_unit_lines(unit, settings.delta)))


def _print_tables(found: AgentsForecast) -> None:
    """Print what agents of some counts can expect, what epsilon buys, and the sentences."""
    from rich.console import Console
    from rich.table import Table

    title = f"{found.agents:,} agents, epsilon {found.epsilon:g}: predicted errors and {found.level:.0%} intervals"
    table = Table(title=title, title_justify="left")
    for name in (
        "agents up to",
        "samples",
        "error alone",
        "together",
        "of it sampling",
        "of it privacy",
    ):
        table.add_column(name, justify="right")

    table.add_column("interval alone", justify="right")
    table.add_column("together", justify="right")

    for row in found.rows:
        errors = (f"{x:.3g}" for x in (row.alone, row.together, row.sampling, row.privacy))
        intervals = (f"± {x:.3g}" for x in (row.half_width_alone, row.half_width))
        table.add_row(f"{row.quantile:.0%}", f"{row.samples:,}", *errors, *intervals)

    console = Console(width=120, highlight=False)
    console.print(table)
    # A title of its own line: one of the table is folded to the table's width.
    console.print(
        f"Error together by epsilon, for an agent of the median count, {found.rows[1].samples:,} samples"
    )
    bought = Table()
    bought.add_column("epsilon")

    for epsilon in found.by_epsilon:
        bought.add_column(f"{epsilon:g}", justify="right")

    bought.add_row("error", *(f"{error:.3g}" for error in found.by_epsilon.values()))
    console.print(bought)

    for line in (
        *found.sentences(),
        f"Squared errors are predicted within {found.stated_error:.0%} of alone.",
    ):
        console.print(line, markup=False)


def _print_shares(rows: list[SharesRow]) -> None:
    """Print what agents of some counts can expect of quantiles and exceedances."""
    from rich.console import Console
    from rich.table import Table

    from meanstream.operators.forecast.shares_forecast import STATED_ERROR

    table = Table()
    names = (
        "question",
        "agents up to",
        "samples",
        "error alone",
        "together",
        "interval",
        "released",
        "interval",
    )

    for name in names:
        table.add_column(name, justify="left" if name == "question" else "right")

    for row in rows:
        together, released = (f"± {x:.3g}" for x in (row.half_width, row.half_width_released))
        cells = (
            f"{row.alone:.3g}",
            f"{row.together:.3g}",
            together,
            f"{row.released:.3g}",
            released,
        )
        table.add_row(row.question, f"{row.quantile:.0%}", f"{row.samples:,}", *cells)

    console = Console(width=120, highlight=False)
    console.print("Quantiles and shares: together for an agent itself, released for everyone")
    console.print(table)
    console.print(
        f"Predicted within {STATED_ERROR:.0%} if samples are normal; one set of agents may differ from another by more."
    )
