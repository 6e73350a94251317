"""`meanstream plan agents`: what collaboration will bring, before any agent releases anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meanstream.pipelines.commands.explain.unit import explain_unit_facts, explain_unit_lines
from meanstream.pipelines.options.base import ConfigOption, JsonOption, print_options_json, takes_options
from meanstream.pipelines.options.errors import BadOption, refusing_options

if TYPE_CHECKING:
    from meanstream.operators.agents.settings import AgentsSettings
    from meanstream.operators.forecast.together_records import AgentsForecast


@dataclass(frozen=True, kw_only=True)
class PlanAgentsOptions:
    """What a user says about the agents that are planned for."""

    config: ConfigOption = None
    agents: Annotated[
        int | None,
        typer.Option(help="How many agents take part; default: as many as --sizes FILE.csv:column has names.", min=2),
    ] = None
    epsilon: Annotated[float | None, typer.Option(help="Of one sample's value, over the life of the stream.")] = None
    delta: Annotated[float, typer.Option(help="Of one sample's value, over the life of the stream.")] = 1e-6
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Samples per agent: point:k, two:a,b,p, uniform:a,b, poisson:l, binomial:n,p, lognormal:mean,s or "
            "FILE.csv:column (how often each value of the column occurs)."
        ),
    ] = None
    lower: Annotated[float | None, typer.Option(help="Declared lower bound of a value.")] = None
    upper: Annotated[float | None, typer.Option(help="Declared upper bound of a value.")] = None
    spread: Annotated[
        float | None, typer.Option(help="Standard deviation of the agents' own means, in the value's unit.")
    ] = None
    stddev: Annotated[
        float | None,
        typer.Option(help="Standard deviation of one sample around its agent's mean; default: a quarter of the width."),
    ] = None
    target_half_width: Annotated[
        float | None,
        typer.Option(help="Half-width wanted at the median count: which epsilon, how many samples does it need?"),
    ] = None
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95
    schedule: Annotated[str, typer.Option(help="preferred:FIRST or geometric:FIRST,FACTOR of an agent's samples.")] = (
        "preferred:10"
    )
    horizon: Annotated[
        int | None, typer.Option(help="Releases an agent may ever make: its budget; default 40, no end with --memory.")
    ] = None
    memory: Annotated[
        str, typer.Option(help="forever, half-life:SAMPLES, window:SAMPLES or auto, as of run agents; means stay.")
    ] = "forever"
    per_person: Annotated[
        int | None,
        typer.Option(help="Samples of one person that are protected together: about K^2 times the variance."),
    ] = None
    spread_share: Annotated[float | None, typer.Option(help="Part of the budget for votes; default 0.1.")] = None
    json: JsonOption = False

    def settings(self) -> AgentsSettings:
        """Check what agents would agree on.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from meanstream.operators.agents.release_times import parse_release_times, require_samples_counted
        from meanstream.operators.agents.settings import AgentsSettings
        from meanstream.operators.agents.usual import SPREAD_SHARE

        given = {name: getattr(self, name) for name in ("epsilon", "sizes", "lower", "upper", "spread")}
        for name, value in given.items():
            if value is None:
                raise BadOption(f"{name} must be given")
        horizon: dict[str, Any] = {} if self.horizon is None else {"horizon": self.horizon}
        require_samples_counted(parse_release_times(self.schedule), self.schedule)
        return AgentsSettings(
            lower=given["lower"],
            upper=given["upper"],
            epsilon=given["epsilon"],
            delta=self.delta,
            schedule=self.schedule,
            memory=self.memory,
            per_person=self.per_person,
            **horizon,
            spread_share=SPREAD_SHARE if self.spread_share is None else self.spread_share,
        )

    def forecast(self, settings: AgentsSettings) -> AgentsForecast:
        """Check the rest and predict.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from meanstream.operators.forecast.together import Crowd, forecast_together
        from meanstream.streaming.rounds.sizes_file import read_sizes_of

        given = {name: getattr(self, name) for name in ("sizes", "spread")}
        quarter = (settings.upper - settings.lower) / 4
        sizes, agents = read_sizes_of(given["sizes"], self.agents, who="agents")
        stddev = quarter if self.stddev is None else self.stddev
        crowd = Crowd(agents=agents, sizes=sizes, spread=given["spread"], stddev=stddev)
        return forecast_together(crowd, settings, level=self.level, target_half_width=self.target_half_width)


@takes_options(PlanAgentsOptions)
def plan_agents(options: PlanAgentsOptions) -> None:
    """Predict each agent's error alone and together, what privacy costs of it, and when collaboration will not pay.

    Errors are root mean squares in the value's unit; that together is the root of the sum of the squares of its two
    parts, sampling (what is left with all data public) and privacy. Computed from what is declared; no privacy is
    spent. Agents that fall into classes of equal means gain more.

    \b
    Examples:
      meanstream plan agents --agents 4000 --sizes lognormal:80,1 --lower -30 --upper 120 --spread 6 --epsilon 1
      meanstream plan agents --sizes flights.csv:tailnum --lower -30 --upper 120 --spread 6 --stddev 35
        --epsilon 1 --target-half-width 8 --json
    """  # noqa: D301 - click reads the escape
    with refusing_options():
        settings = options.settings()
        found, unit = options.forecast(settings), explain_unit_facts(settings)
    if options.json:
        print_options_json(found.as_dict() | {"unit": unit})
    else:
        _print_tables(found)
        typer.echo("\n".join(explain_unit_lines(unit, settings.delta)))


def _print_tables(found: AgentsForecast) -> None:
    """Print what agents of some counts can expect, what epsilon buys, and the sentences."""
    from rich.console import Console
    from rich.table import Table

    title = f"{found.agents:,} agents, epsilon {found.epsilon:g}: predicted errors and {found.level:.0%} intervals"
    table = Table(title=title, title_justify="left")
    for name in ("agents up to", "samples", "error alone", "together", "of it sampling", "of it privacy"):
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
        f"What epsilon buys: error together of an agent of the median count, {found.rows[1].samples:,} samples"
    )
    bought = Table()
    bought.add_column("epsilon")
    for epsilon in found.by_epsilon:
        bought.add_column(f"{epsilon:g}", justify="right")
    bought.add_row("error", *(f"{error:.3g}" for error in found.by_epsilon.values()))
    console.print(bought)
    for line in (*found.sentences(), f"Squared errors are predicted within {found.stated_error:.0%} of alone."):
        console.print(line, markup=False)
