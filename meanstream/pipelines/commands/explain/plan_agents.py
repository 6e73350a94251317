"""`meanstream plan agents`: what collaboration will bring, before any agent releases anything."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meanstream.pipelines.commands.explain.covariates_explained import (
    planned_with_covariates,
    planned_with_covariates_line,
)
from meanstream.pipelines.commands.explain.explain_unit import explain_unit_facts, explain_unit_lines
from meanstream.pipelines.options.base import ConfigOption, JsonOption, print_options_json, takes_options
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.pipelines.options.shared_options import option_numbers

if TYPE_CHECKING:
    from meanstream.operators.agents.agents_settings import AgentsSettings
    from meanstream.operators.forecast.shares_forecast import SharesRow
    from meanstream.operators.forecast.together_forecast import Crowd
    from meanstream.operators.forecast.together_records import AgentsForecast


@dataclass(frozen=True, kw_only=True)
class PlanAgentsOptions:
    """What a user says about the agents that are planned for."""

    config: ConfigOption = None
    agents: Annotated[
        int | None,
        typer.Option(help="Number of agents; default: the names in --sizes FILE.csv:column.", min=2),
    ] = None
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget of one sample over the life of the stream.")] = (
        None
    )
    delta: Annotated[float, typer.Option(help="Privacy budget of one sample over the life of the stream.")] = 1e-6
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Samples per agent: point:k, two:a,b,p, uniform:a,b, poisson:l, binomial:n,p, lognormal:mean,s or "
            "FILE.csv:column (rows per value)."
        ),
    ] = None
    lower: Annotated[
        float | None, typer.Option(help="Lower bound of a value, declared without a look at the data.")
    ] = None
    upper: Annotated[
        float | None, typer.Option(help="Upper bound of a value, declared without a look at the data.")
    ] = None
    spread: Annotated[
        float | None, typer.Option(help="Standard deviation of the agents' own means, in the unit of the value.")
    ] = None
    stddev: Annotated[
        float | None,
        typer.Option(help="Standard deviation of one sample around its agent's mean; default: a quarter of the width."),
    ] = None
    target_half_width: Annotated[
        float | None,
        typer.Option(help="Desired half-width at the median count; prints the epsilon and the samples that it needs."),
    ] = None
    level: Annotated[float, typer.Option(help="Coverage of the intervals.")] = 0.95
    schedule: Annotated[
        str, typer.Option(help="Times of releases: preferred:FIRST or geometric:FIRST,FACTOR in an agent's samples.")
    ] = "preferred:10"
    horizon: Annotated[
        int | None, typer.Option(help="Largest number of releases of an agent; default 40, unlimited with --memory.")
    ] = None
    memory: Annotated[
        str,
        typer.Option(
            help="Weight of old samples, for means that stay: forever | half-life:SAMPLES | window:SAMPLES | auto."
        ),
    ] = "forever"
    per_person: Annotated[
        int | None,
        typer.Option(
            help="Samples of one person that are protected together; multiplies the variance of the noise by about K^2."
        ),
    ] = None
    spread_share: Annotated[float | None, typer.Option(help="Share of the budget for votes; default 0.1.")] = None
    quantiles: Annotated[
        str | None,
        typer.Option(help="Quantiles to plan, such as .5,.9."),
    ] = None
    exceeds: Annotated[
        str | None, typer.Option(help="Thresholds to plan, such as 15,30: each agent's share of values above them.")
    ] = None
    histogram_share: Annotated[
        float | None, typer.Option(help="Share of the budget for the histogram behind quantiles; default 0.1.")
    ] = None
    mean: Annotated[
        float | None,
        typer.Option(
            help="Mean of the agents' means, for quantiles and exceedances; default: the middle of the bounds."
        ),
    ] = None
    covariates: Annotated[
        str | None,
        typer.Option(
            help="Public attributes of the agents, CSV or Parquet, keyed by the column of --sizes or agent: what "
            "they would bring."
        ),
    ] = None
    json: JsonOption = False

    def settings(self) -> AgentsSettings:
        """Check what agents would agree on.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from meanstream.operators.agents.agents_settings import AgentsSettings
        from meanstream.operators.agents.release_times import parse_release_times, require_samples_counted
        from meanstream.operators.agents.usual import SPREAD_SHARE, usual_histogram

        given = {name: getattr(self, name) for name in ("epsilon", "sizes", "lower", "upper", "spread")}
        for name, value in given.items():
            if value is None:
                raise BadOption(f"{name} must be given")
        horizon: dict[str, Any] = {} if self.horizon is None else {"horizon": self.horizon}
        require_samples_counted(parse_release_times(self.schedule), self.schedule)
        asked, exceeds = self._asked()
        share = {} if self.histogram_share is None else {"histogram_share": self.histogram_share}
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
            **usual_histogram(asked, exceeds, share),
        )

    def _asked(self) -> tuple[tuple[float, ...], list[float]]:
        """Give the quantiles and the thresholds."""
        from meanstream.operators.collaboration.shares.shares_quantiles import valid_quantiles

        exceeds = option_numbers("exceeds", self.exceeds)
        return valid_quantiles(option_numbers("quantiles", self.quantiles)), exceeds

    def shares(self, settings: AgentsSettings) -> list[SharesRow]:
        """Predict what is asked of distributions; empty where nothing is.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from meanstream.operators.collaboration.shares.asked_shares import AskedShares
        from meanstream.operators.forecast.shares_forecast import forecast_shares, shares_release_settings

        if not settings.histogram_share:
            if self.mean is not None:
                raise BadOption(f"mean must be left out without quantiles or exceeds, got {self.mean!r}")
            return []
        asked = AskedShares(shares_release_settings(settings, self.horizon), self._asked()[0], self.level)
        return forecast_shares(self._crowd(settings), asked, center=self.mean)

    def forecast(self, settings: AgentsSettings) -> AgentsForecast:
        """Check the rest and predict.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from meanstream.operators.forecast.together_forecast import forecast_together

        crowd = self._crowd(settings)
        return forecast_together(crowd, settings, level=self.level, target_half_width=self.target_half_width)

    def with_covariates(self, settings: AgentsSettings) -> dict[str, Any] | None:
        """Predict what public covariates would bring; None where there are none.

        Raises
        ------
        ValueError
            Naming the option, the rule and the value.
        """
        from dataclasses import replace

        from meanstream.operators.forecast.together_forecast import forecast_together
        from meanstream.streaming.agents.covariates_file import read_covariates_file

        if self.covariates is None:
            return None
        _, column, key = (self.sizes or "").rpartition(".csv:")
        declared, crowd = read_covariates_file(self.covariates, key if column else "agent"), self._crowd(settings)

        def error(left: float) -> float:
            part = replace(crowd, spread=left * crowd.spread)
            return forecast_together(part, settings, level=self.level).rows[1].together

        return planned_with_covariates(declared, error)

    def _crowd(self, settings: AgentsSettings) -> Crowd:
        """Say who takes part."""
        from meanstream.operators.forecast.together_forecast import Crowd
        from meanstream.streaming.rounds.sizes_file import read_sizes_of

        given = {name: getattr(self, name) for name in ("sizes", "spread")}
        quarter = (settings.upper - settings.lower) / 4
        sizes, agents = read_sizes_of(given["sizes"], self.agents, who="agents")
        stddev = quarter if self.stddev is None else self.stddev
        return Crowd(agents=agents, sizes=sizes, spread=given["spread"], stddev=stddev)


@takes_options(PlanAgentsOptions)
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
    """  # noqa: D301 - click reads the escape
    with refusing_options():
        settings = options.settings()
        found, unit = options.forecast(settings), explain_unit_facts(settings)
        shares, covariates = options.shares(settings), options.with_covariates(settings)
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
    console.print(f"Error together by epsilon, for an agent of the median count, {found.rows[1].samples:,} samples")
    bought = Table()
    bought.add_column("epsilon")
    for epsilon in found.by_epsilon:
        bought.add_column(f"{epsilon:g}", justify="right")
    bought.add_row("error", *(f"{error:.3g}" for error in found.by_epsilon.values()))
    console.print(bought)
    for line in (*found.sentences(), f"Squared errors are predicted within {found.stated_error:.0%} of alone."):
        console.print(line, markup=False)


def _print_shares(rows: list[SharesRow]) -> None:
    """Print what agents of some counts can expect of quantiles and exceedances."""
    from rich.console import Console
    from rich.table import Table

    from meanstream.operators.forecast.shares_forecast import STATED_ERROR

    table = Table()
    names = ("asked", "agents up to", "samples", "error alone", "together", "interval", "released", "interval")
    for name in names:
        table.add_column(name, justify="left" if name == "asked" else "right")
    for row in rows:
        together, released = (f"± {x:.3g}" for x in (row.half_width, row.half_width_released))
        cells = (f"{row.alone:.3g}", f"{row.together:.3g}", together, f"{row.released:.3g}", released)
        table.add_row(row.asked, f"{row.quantile:.0%}", f"{row.samples:,}", *cells)
    console = Console(width=120, highlight=False)
    console.print("Quantiles and shares: together for an agent itself, released for everyone")
    console.print(table)
    console.print(
        f"Predicted within {STATED_ERROR:.0%} if samples are normal; one set of agents may differ from another by more."
    )
