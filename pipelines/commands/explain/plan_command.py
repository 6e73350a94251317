"""`meanstream plan` and `plan rounds`: what to expect of each estimator, before any user is queried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperGroup

from meanstream.operators.validation import require
from meanstream.pipelines.commands.explain.plan_agents import plan_agents
from meanstream.pipelines.commands.explain.plan_thresholds import (
    Threshold,
    best_threshold,
    threshold_lines,
)
from meanstream.pipelines.options.base import ConfigOption, JsonOption, print_options_json
from meanstream.pipelines.options.declaration import INPUT, PRIVACY, cli_option
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.pipelines.options.store_settings import settings_of_rounds_store
from meanstream.pipelines.options.typer_commands import takes_options

if TYPE_CHECKING:
    from rich.table import Table

    from meanstream.operators.forecast.family_forecast import FamilyForecast
    from meanstream.operators.forecast.rounds_forecast import Forecast
    from meanstream.operators.rounds.user_sizes import SizeDistribution

FAMILY = ("dimension", "sparsity", "radius", "density", "smoothness", "components")
"""Options of vectors, densities and mixtures."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """What a user says about the round that is planned."""

    config: ConfigOption = None
    store: Annotated[
        Path | None, cli_option("Store of `run rounds`, for its bounds, epsilon and sizes.", INPUT)
    ] = None
    users: Annotated[
        int | None,
        cli_option(
            "Number of users; default: the names in --sizes FILE.csv:column.",
            INPUT,
            min=1,
            first=True,
        ),
    ] = None
    epsilon: Annotated[
        float | None,
        cli_option("Privacy budget of one user's window of samples.", PRIVACY, first=True),
    ] = None
    user_epsilons: Annotated[
        str | None,
        cli_option(
            "Public table of the largest epsilon that each user accepts, FILE.csv:COLUMN with a "
            "row for each user: says which epsilon to announce, and how many users that leaves.",
            PRIVACY,
        ),
    ] = None
    sizes: Annotated[
        str | None,
        cli_option(
            "Samples per user: point:k, two:a,b,p, uniform:a,b, poisson:l, binomial:n,p, lognormal:mean,s or "
            "FILE.csv:column (rows per value).",
            INPUT,
            first=True,
        ),
    ] = None
    lower: Annotated[
        float,
        cli_option(
            "Lower bound of a value, declared without a look at the data.", PRIVACY, first=True
        ),
    ] = -1.0
    upper: Annotated[
        float,
        cli_option(
            "Upper bound of a value, declared without a look at the data.", PRIVACY, first=True
        ),
    ] = 1.0
    between_users: Annotated[
        float | None,
        cli_option(
            "Declared bound on the standard deviation of users' own means, in the value's unit; 0 if all users "
            "draw from one law. Default: no assumption.",
            INPUT,
            first=True,
        ),
    ] = None
    tails: Annotated[
        str | None,
        cli_option(
            "Declared tails of users' means: exponential (few lie far from the others); default: no assumption.",
            INPUT,
            first=True,
        ),
    ] = None
    user_windows: Annotated[
        int | None,
        cli_option(
            "Windows of a user that --epsilon and --delta pay for together, with the noise of least "
            "variance. Default: each window costs epsilon.",
            PRIVACY,
        ),
    ] = None
    delta: Annotated[
        float, cli_option("Privacy budget delta of the windows of --user-windows.", PRIVACY)
    ] = 0.0
    target_half_width: Annotated[
        float | None,
        cli_option(
            "Desired half-width of the interval; prints the users and the epsilon that it needs.",
            INPUT,
            first=True,
        ),
    ] = None
    level: Annotated[float, cli_option("Coverage of the interval.", INPUT, first=True)] = 0.95
    dimension: Annotated[
        int | None, cli_option("Coordinates of a vector, to plan its mean.", INPUT, min=1)
    ] = None
    sparsity: Annotated[
        int | None,
        cli_option(
            "Largest number of coordinates that differ from the middle of the bounds.", INPUT, min=1
        ),
    ] = None
    radius: Annotated[
        float | None,
        cli_option(
            "Radius of a ball around the middle that holds all vectors, in the unit of the value.",
            INPUT,
        ),
    ] = None
    density: Annotated[
        bool, cli_option("Plan of the density of the samples.", INPUT, "--density")
    ] = False
    smoothness: Annotated[
        int | None, cli_option("Number of derivatives of that density (default 2).", INPUT, min=1)
    ] = None
    components: Annotated[
        int | None, cli_option("Components of a mixture, to plan their means.", INPUT, min=1)
    ] = None
    json: JsonOption = False


class _RoundsUnlessSaid(TyperGroup):
    """`plan --users ...` is `plan rounds --users ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the command where none is named."""
        if args[:1] not in [[name] for name in (*self.commands, "--help")]:
            args = ["rounds", *args]

        return super().parse_args(ctx, args)


app = typer.Typer(cls=_RoundsUnlessSaid, rich_markup_mode=None)


@app.callback()
def plan() -> None:
    """Predict errors of agents or rounds before anything runs."""


app.command("agents")(plan_agents)


@app.command("rounds")
@takes_options(
    PlanOptions,
    typed=(
        *(
            "config",
            "store",
            "users",
            "epsilon",
            "sizes",
            "lower",
            "upper",
            "between_users",
            "tails",
            "level",
        ),
        *(
            "user_epsilons",
            "user_windows",
            "delta",
            "target_half_width",
            "dimension",
            "sparsity",
            "radius",
            "density",
            "smoothness",
            "components",
            "json",
        ),
    ),
    also=("rounds_options:RoundsOptions",),
)
def plan_rounds(options: PlanOptions) -> None:
    """Predict the error of each estimator of a population's mean, and recommend one.

    --dimension, --density and --components plan vectors, a density, and the components of a mixture. The plan uses
    declared figures only and spends no privacy. If you count sizes in a file of private data, the plan is as
    private as that file.

    \b
    Examples:
      meanstream plan rounds --users 4000 --epsilon 1 --sizes uniform:1,199 --lower -30 --upper 120
      meanstream plan rounds --config rounds.yaml --users 4000 --sizes uniform:1,199
      meanstream plan rounds --epsilon 1 --sizes flights.csv:tailnum --target-half-width 0.02 --json
      meanstream plan rounds --users 4000 --epsilon 1 --delta 1e-6 --user-windows 52 --sizes point:9
      meanstream plan rounds --user-epsilons limits.csv:epsilon --sizes point:9
      meanstream plan rounds --users 20000 --epsilon 1 --sizes point:100 --dimension 20 --radius 1
      meanstream plan rounds --users 20000 --epsilon 1 --sizes point:100 --dimension 200 --sparsity 4
      meanstream plan rounds --users 20000 --epsilon 1 --sizes point:100 --density --smoothness 2
    """  # noqa: D301 - click reads the escape
    from meanstream.streaming.rounds.sizes_file import read_sizes_of

    # Options of a store, where one is given.
    options = plan_options_with_store(options)
    needed = ("sizes",) if options.user_epsilons is not None else ("epsilon", "sizes")
    for name in needed:
        if getattr(options, name) is None:
            raise BadOption(f"{name} must be given")

    forecast: Forecast | FamilyForecast
    thresholds: Sequence[Threshold] = ()
    with refusing_options():
        if options.user_epsilons is not None:
            sizes, forecast, thresholds = _with_thresholds(options)
        else:
            sizes, users = read_sizes_of(str(options.sizes), options.users, who="users")
            forecast = forecast_of_plan(options, sizes, users)

    from meanstream.operators.forecast.rounds_forecast import Forecast

    if options.json:
        told = forecast.as_dict() | {"sizes": sizes.describe()}
        compared = {"thresholds": [asdict(one) for one in thresholds]} if thresholds else {}
        print_options_json(told | compared)
    elif isinstance(forecast, Forecast):
        _print_table(forecast)
        for line in threshold_lines(forecast, thresholds):
            typer.echo(line)
    else:
        _print_family(forecast)


def _with_thresholds(
    options: PlanOptions,
) -> tuple[SizeDistribution, Forecast, Sequence[Threshold]]:
    """Predict one mean for the best epsilon of a table of what users accept."""
    from meanstream.streaming.rounds.sizes_file import read_sizes_of

    rule = "be left out with --user-epsilons: the table has a row for each user"
    require(options.users is None, "users", rule, options.users)
    for name in FAMILY:
        wanted = getattr(options, name)
        require(wanted in (None, False), name, "be left out with --user-epsilons", wanted)

    sizes, _ = read_sizes_of(str(options.sizes), 1, who="users")

    def forecast(epsilon: float, users: int) -> Forecast:
        return cast("Forecast", forecast_of_plan(replace(options, epsilon=epsilon), sizes, users))

    best, thresholds = best_threshold(str(options.user_epsilons), options.epsilon, forecast)
    return sizes, best, thresholds


def plan_options_with_store(options: PlanOptions) -> PlanOptions:
    """Fill in the settings of a store, where they are not given."""
    if options.store is None:
        return options

    # Only what was left at its default is taken from the store.
    settings = settings_of_rounds_store(options.store)
    default = {field.name: field.default for field in fields(PlanOptions)}
    names = ("epsilon", "lower", "upper", "sizes", "users", "between_users", "tails", "level")
    left = [name for name in names if getattr(options, name) == default[name]]

    # Windows that share a budget do so with their epsilon and delta, or not at all.
    shared: dict[str, Any] = {
        "user_windows": settings.user_windows,
        "delta": settings.user_delta,
    }
    if "epsilon" not in left or any(getattr(options, name) != default[name] for name in shared):
        shared = {}

    with refusing_options():
        for name in ("lower", "upper"):
            require(
                isinstance(getattr(settings, name), float),
                "store",
                "be one of a single mean",
                str(options.store),
            )

    return replace(options, **{name: getattr(settings, name) for name in left}, **shared)


def forecast_of_plan(
    options: PlanOptions, sizes: SizeDistribution, users: int
) -> Forecast | FamilyForecast:
    """Predict: of one mean, if nothing else is requested."""
    from meanstream.operators.forecast.family_forecast import FamilyAsk, forecast_family
    from meanstream.operators.forecast.rounds_forecast import forecast_rounds

    common: dict[str, Any] = {
        name: getattr(options, name)
        for name in ("epsilon", "lower", "upper", "level", "between_users", "target_half_width")
    }
    family = {name: getattr(options, name) for name in FAMILY}

    # Without a question of the family it is one mean.
    if all(value in (None, False) for value in family.values()):
        return forecast_rounds(
            users=users,
            sizes=sizes,
            tails=options.tails,
            user_windows=options.user_windows,
            delta=options.delta,
            **common,
        )

    if options.user_windows is not None or options.delta:
        raise BadOption("user_windows must be left out for a vector, a density or a mixture")
    if options.tails is not None:
        raise BadOption("tails must be left out for a vector, a density or a mixture")

    return forecast_family(FamilyAsk(users=users, sizes=sizes, **common, **family))


def _title(found: Forecast) -> str:
    """Say what is predicted, for whom, at which budget."""
    of = ""
    budget = f"epsilon {found.epsilon:g}"
    if found.user_windows is not None:
        of = " of one window"
        delta = f", delta {found.delta:g}" if found.delta else ""
        budget += f"{delta} for {found.user_windows:,} windows together"

    return f"{found.users:,} users, {budget}: predicted {found.level:.0%} intervals{of}"


def _print_table(found: Forecast) -> None:
    """Print the candidates, best first, and the sentences below them."""
    from rich.console import Console
    from rich.table import Table

    # The best first; those that were taken are bold.
    title = _title(found)
    table = Table(title=title, title_justify="left")
    table.add_column("estimator")

    for name in ("mse on [-1, 1]", "half-width", "of privacy"):
        table.add_column(name, justify="right")

    if found.target_half_width is not None:
        table.add_column(f"users for {found.target_half_width:g}", justify="right")

    table.add_column("assumes of the users")
    table.add_column("who sees samples")
    chosen = {found.recommended, found.curator.name}
    for candidate in (*found.candidates, *found.curators):
        name = f"{candidate.name} ({candidate.kind})" if candidate.kind else candidate.name
        row = [f"[bold]{name}[/bold]" if candidate.name in chosen else name, f"{candidate.mse:.2e}"]
        weighs = (
            candidate.half_width < found.sampling_half_width
        )  # users by size, hence another sampling error
        row += [
            f"{candidate.half_width:.3g}",
            "-" if weighs else f"{candidate.privacy_half_width:.3g}",
        ]

        if found.target_half_width is not None:
            row.append("-" if candidate.users_needed is None else f"{candidate.users_needed:,}")

        table.add_row(
            *row, candidate.assumes, "no one" if candidate.trust == "local" else "the curator"
        )

    console = Console(width=120, highlight=False)

    # The sentences below say what the table means.
    console.print(table)
    # A title of its own line: one of the table is folded to the table's width.
    console.print("Half-width of the interval by epsilon")
    console.print(_bought(found))

    for line in (
        found.sentence,
        found.carried_sentence,
        found.curator_sentence,
        found.budget_sentence,
        *_error_lines(found),
        found.warning,
    ):
        if line:
            console.print(line, markup=False)


def _bought(found: Forecast) -> Table:
    """Lay out what epsilon buys: the half-width of the recommended ones by epsilon."""
    from rich.table import Table

    table = Table()
    table.add_column("epsilon")

    # Epsilons of all candidates; where one has no design there is a dash.
    epsilons = sorted({epsilon for errors in found.by_epsilon.values() for epsilon in errors})
    for epsilon in epsilons:
        table.add_column(f"{epsilon:g}", justify="right")

    for name, errors in found.by_epsilon.items():
        table.add_row(name, *(f"{errors[e]:.3g}" if e in errors else "-" for e in epsilons))

    return table


def _error_lines(found: Forecast) -> list[str]:
    """Say what is sampling and what privacy, and which epsilon the target needs with as many users."""
    lines = [
        f"Without privacy the half-width would be {found.sampling_half_width:.3g}, from sampling alone."
    ]
    if found.target_half_width is not None:
        needs = [
            f"epsilon {'beyond 20' if epsilon is None else format(epsilon, 'g')} with {name}"
            for name, epsilon in found.epsilon_needed.items()
        ]
        lines.append(
            f"With {found.users:,} users a half-width of {found.target_half_width:g} needs {', '.join(needs)}."
        )

    return lines


def _print_family(found: FamilyForecast) -> None:
    """Print the same of vectors, a density or a mixture."""
    from rich.console import Console
    from rich.table import Table

    # A density has one error; a vector has one for each coordinate.
    summed = "integrated" if found.wanted == "density" else "summed"
    title = f"{found.wanted}: {found.users:,} users, epsilon {found.epsilon:g}: predicted {found.level:.0%} intervals"
    table = Table(title=title, title_justify="left")
    table.add_column("estimator")
    table.add_column(f"mse, {summed}", justify="right")

    if found.wanted != "density":
        table.add_column("half-width of each", justify="right")

    if found.target_half_width is not None:
        table.add_column(f"users for {found.target_half_width:g}", justify="right")

    table.add_column("assumes")
    for candidate in found.candidates:
        row = [
            f"[bold]{candidate.name}[/bold]"
            if candidate.name == found.recommended
            else candidate.name,
            f"{candidate.mse:.2e}",
        ]

        if candidate.half_width is not None:
            row.append(f"{candidate.half_width:.3g}")

        if found.target_half_width is not None:
            row.append("-" if candidate.users_needed is None else f"{candidate.users_needed:,}")

        table.add_row(*row, candidate.assumes)

    console = Console(width=120, highlight=False)
    console.print(table)

    for line in (
        found.sentence,
        found.warning,
        *(f"{name}: {why}." for name, why in found.refused.items()),
    ):
        console.print(line, markup=False)
