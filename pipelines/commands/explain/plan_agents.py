"""`meanstream plan agents`: what collaboration will bring, before any agent releases anything."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meanstream.pipelines.options.base import ConfigOption, JsonOption, print_options_json
from meanstream.pipelines.options.declaration import INPUT, PRIVACY, cli_option
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.pipelines.options.shared_options import option_numbers
from meanstream.pipelines.options.store_settings import settings_of_agents_store
from meanstream.pipelines.options.typer_commands import takes_options

if TYPE_CHECKING:
    from meanstream.operators.agents.agents_settings import AgentsSettings
    from meanstream.operators.forecast.shares_forecast import SharesRow
    from meanstream.operators.forecast.together_forecast import AgentsForecast, Crowd


@dataclass(frozen=True, kw_only=True)
class PlanAgentsOptions:
    """What a user says about the agents that are planned for."""

    config: ConfigOption = None
    store: Annotated[
        Path | None,
        cli_option("Store of `run agents`, for its bounds, budget, schedule and memory.", INPUT),
    ] = None
    agents: Annotated[
        int | None,
        cli_option(
            "Number of agents; default: the names in --sizes FILE.csv:column.",
            INPUT,
            min=2,
            first=True,
        ),
    ] = None
    epsilon: Annotated[
        float | None,
        cli_option(
            "Privacy budget of one sample over the life of the stream.", PRIVACY, first=True
        ),
    ] = None
    delta: Annotated[
        float,
        cli_option(
            "Probability that the promise of epsilon fails; Gaussian noise needs one, such as 1e-6.",
            PRIVACY,
            first=True,
        ),
    ] = 0.0
    sizes: Annotated[
        str | None,
        cli_option(
            "Samples per agent: point:k, two:a,b,p, uniform:a,b, poisson:l, binomial:n,p, lognormal:mean,s or "
            "FILE.csv:column (rows per value).",
            INPUT,
            first=True,
        ),
    ] = None
    lower: Annotated[
        float | None,
        cli_option(
            "Lower bound of a value, declared without a look at the data.", PRIVACY, first=True
        ),
    ] = None
    upper: Annotated[
        float | None,
        cli_option(
            "Upper bound of a value, declared without a look at the data.", PRIVACY, first=True
        ),
    ] = None
    spread: Annotated[
        float | None,
        cli_option(
            "Standard deviation of the agents' own means, in the unit of the value.",
            INPUT,
            first=True,
        ),
    ] = None
    stddev: Annotated[
        float | None,
        cli_option(
            "Standard deviation of one sample around its agent's mean; default: a quarter of the width.",
            INPUT,
            first=True,
        ),
    ] = None
    target_half_width: Annotated[
        float | None,
        cli_option(
            "Desired half-width at the median count; prints the epsilon and the samples that it needs.",
            INPUT,
            first=True,
        ),
    ] = None
    level: Annotated[float, cli_option("Coverage of the intervals.", INPUT, first=True)] = 0.95
    schedule: Annotated[
        str,
        cli_option(
            "Times of releases: preferred:FIRST or geometric:FIRST,FACTOR in an agent's samples.",
            INPUT,
        ),
    ] = "preferred:10"
    horizon: Annotated[
        int | None,
        cli_option(
            "Largest number of releases of an agent; default 40, unlimited with --memory.", INPUT
        ),
    ] = None
    memory: Annotated[
        str,
        cli_option(
            "Weight of old samples, for means that stay: forever | half-life:SAMPLES | window:SAMPLES | auto.",
            INPUT,
        ),
    ] = "forever"
    per_person: Annotated[
        int | None,
        cli_option(
            "Samples of one person that are protected together; multiplies the variance of the noise by about K^2.",
            INPUT,
        ),
    ] = None
    spread_share: Annotated[
        float | None, cli_option("Share of the budget for votes; default 0.1.", INPUT)
    ] = None
    quantiles: Annotated[
        str | None,
        cli_option("Quantiles to plan, such as .5,.9.", INPUT),
    ] = None
    exceeds: Annotated[
        str | None,
        cli_option(
            "Thresholds to plan, such as 15,30: each agent's share of values above them.", INPUT
        ),
    ] = None
    histogram_share: Annotated[
        float | None,
        cli_option("Share of the budget for the histogram behind quantiles; default 0.1.", INPUT),
    ] = None
    mean: Annotated[
        float | None,
        cli_option(
            "Mean of the agents' means, for quantiles and exceedances; default: the middle of the bounds.",
            INPUT,
        ),
    ] = None
    covariates: Annotated[
        str | None,
        cli_option(
            "Public attributes of the agents, CSV or Parquet, keyed by the column of --sizes or agent: what "
            "they would bring.",
            INPUT,
        ),
    ] = None
    json: JsonOption = False

    def settings(self) -> AgentsSettings:
        """Check what agents would agree on."""
        from meanstream.operators.agents.agents_settings import AgentsSettings
        from meanstream.operators.agents.defaults import usual_histogram
        from meanstream.operators.agents.release_times import (
            parse_release_times,
            require_samples_counted,
        )

        agreed = ("epsilon", "lower", "upper")
        kept = self.store is not None and all(getattr(self, name) is None for name in agreed)
        given = {
            name: getattr(self, name) for name in ("epsilon", "sizes", "lower", "upper", "spread")
        }

        for name, value in given.items():
            if value is None and not (kept and name in agreed):
                raise BadOption(f"{name} must be given")

        if self.store is not None and kept:
            settings = settings_of_agents_store(self.store)
            require_samples_counted(settings.times, settings.schedule)
            return settings

        horizon: dict[str, Any] = {} if self.horizon is None else {"horizon": self.horizon}
        require_samples_counted(parse_release_times(self.schedule), self.schedule)
        asked, exceeds = self._questions()
        share = {} if self.histogram_share is None else {"histogram_share": self.histogram_share}
        spread: dict[str, Any] = {}

        if self.spread_share is not None:
            spread["spread_share"] = self.spread_share

        return AgentsSettings(
            lower=given["lower"],
            upper=given["upper"],
            epsilon=given["epsilon"],
            delta=self.delta,
            schedule=self.schedule,
            memory=self.memory,
            per_person=self.per_person,
            **horizon,
            **spread,
            **usual_histogram(asked, exceeds, share),
        )

    def _questions(self) -> tuple[tuple[float, ...], list[float]]:
        """Give the quantiles and the thresholds."""
        from meanstream.operators.collaboration.shares.shares_quantiles import valid_quantiles

        exceeds = option_numbers("exceeds", self.exceeds)
        return valid_quantiles(option_numbers("quantiles", self.quantiles)), exceeds

    def shares(self, settings: AgentsSettings) -> list[SharesRow]:
        """Predict what is requested of distributions; empty where nothing is."""
        from meanstream.operators.collaboration.shares.asked_shares import ShareQueries
        from meanstream.operators.forecast.shares_forecast import (
            forecast_shares,
            shares_release_settings,
        )

        if not settings.histogram_share:
            if self.mean is not None:
                raise BadOption(
                    f"mean must be left out without quantiles or exceeds, got {self.mean!r}"
                )

            return []

        asked = ShareQueries(
            shares_release_settings(settings, self.horizon), self._questions()[0], self.level
        )

        return forecast_shares(self._crowd(settings), asked, center=self.mean)

    def forecast(self, settings: AgentsSettings) -> AgentsForecast:
        """Check the rest and predict."""
        from meanstream.operators.forecast.together_forecast import forecast_together

        crowd = self._crowd(settings)
        return forecast_together(
            crowd, settings, level=self.level, target_half_width=self.target_half_width
        )

    def with_covariates(self, settings: AgentsSettings) -> dict[str, Any] | None:
        """Predict what public covariates would bring; None where there are none."""
        from dataclasses import replace

        from meanstream.operators.forecast.together_forecast import forecast_together
        from meanstream.pipelines.commands.explain.promise_facts import planned_with_covariates
        from meanstream.streaming.agents.declared_covariates import read_covariates_file

        if self.covariates is None:
            return None
        _, column, key = (self.sizes or "").rpartition(".csv:")
        declared = read_covariates_file(self.covariates, key if column else "agent")
        crowd = self._crowd(settings)

        def error(left: float) -> float:
            narrowed = replace(crowd, spread=left * crowd.spread)
            return forecast_together(narrowed, settings, level=self.level).rows[1].together

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
    from meanstream.pipelines.commands.explain.promise_facts import (
        explain_unit_facts,
        explain_unit_lines,
        planned_with_covariates_line,
    )

    with refusing_options():
        settings = options.settings()
        forecast = options.forecast(settings)
        unit = explain_unit_facts(settings)
        shares = options.shares(settings)
        covariates = options.with_covariates(settings)

    if options.json:
        further: dict[str, Any] = {"shares": [asdict(row) for row in shares]} if shares else {}
        further |= {} if covariates is None else {"covariates": covariates}
        print_options_json(forecast.as_dict() | further | {"unit": unit})
    else:
        _print_tables(forecast)
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
        errors = (f"{width:.3g}" for width in (row.alone, row.together, row.sampling, row.privacy))
        intervals = (f"± {width:.3g}" for width in (row.half_width_alone, row.half_width))
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
        together, released = (
            f"± {width:.3g}" for width in (row.half_width, row.half_width_released)
        )
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
