"""`meanstream plan`: what to expect of each estimator, before any user is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.commands.options import BadOption, ConfigOption, JsonOption, print_json, refusing, takes

if TYPE_CHECKING:
    from operators.planner_records import Forecast


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """What a user says about the round that is planned."""

    config: ConfigOption = None
    users: Annotated[int | None, typer.Option(help="How many users take part.", min=1)] = None
    epsilon: Annotated[float | None, typer.Option(help="Privacy of one user's whole window of samples.")] = None
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Samples per user: point:k, two:a,b,p, uniform:a,b, poisson:l, binomial:n,p, lognormal:mean,s or "
            "FILE.csv:column (how often each value of the column occurs)."
        ),
    ] = None
    lower: Annotated[float, typer.Option(help="Declared lower bound of a value.")] = -1.0
    upper: Annotated[float, typer.Option(help="Declared upper bound of a value.")] = 1.0
    between_users: Annotated[
        float | None,
        typer.Option(
            help="Declared bound on the standard deviation of users' own means, in the value's unit; 0 if all users "
            "draw from one law. Left out: nothing is assumed."
        ),
    ] = None
    target_half_width: Annotated[
        float | None, typer.Option(help="Half-width of the interval that is wanted: how many users does it need?")
    ] = None
    level: Annotated[float, typer.Option(help="Level of the interval.")] = 0.95
    json: JsonOption = False


@takes(PlanOptions)
def plan(options: PlanOptions) -> None:
    """Predict the error of each estimator of a population's mean, and say which one to take.

    Everything is computed from what is declared; no privacy is spent. Sizes counted in a file of private data are
    private themselves: the forecast is then for the eyes of those who may see the file.

    \b
    Examples:
      meanstream plan --users 4000 --epsilon 1 --sizes uniform:1,199 --lower -30 --upper 120
      meanstream plan --users 4043 --epsilon 1 --sizes flights.csv:tailnum --target-half-width 0.02 --json
    """  # noqa: D301 - click reads the escape
    from operators.planner import forecast
    from streaming.sizes_file import read_sizes

    for name in ("users", "epsilon", "sizes"):
        if getattr(options, name) is None:
            raise BadOption(f"{name} must be given")
    assert options.users is not None  # noqa: S101 - just checked
    assert options.epsilon is not None  # noqa: S101
    assert options.sizes is not None  # noqa: S101
    with refusing():
        sizes = read_sizes(options.sizes)
        found = forecast(
            users=options.users,
            epsilon=options.epsilon,
            sizes=sizes,
            lower=options.lower,
            upper=options.upper,
            level=options.level,
            between_users=options.between_users,
            target_half_width=options.target_half_width,
        )
    if options.json:
        print_json(found.as_dict() | {"sizes": sizes.describe()})
        return
    _print_table(found)


def _print_table(found: Forecast) -> None:
    """Print the candidates, best first, and the sentences below them."""
    from rich.console import Console
    from rich.table import Table

    title = f"{found.users:,} users, epsilon {found.epsilon:g}: predicted {found.level:.0%} intervals"
    table = Table(title=title, title_justify="left")
    table.add_column("estimator")
    for name in ("mse on [-1, 1]", "half-width"):
        table.add_column(name, justify="right")
    if found.target_half_width is not None:
        table.add_column(f"users for {found.target_half_width:g}", justify="right")
    table.add_column("assumes of the users")
    for one in found.candidates:
        name = f"{one.name} ({one.kind})" if one.kind else one.name
        row = [f"[bold]{name}[/bold]" if one.name == found.recommended else name, f"{one.mse:.2e}"]
        row.append(f"{one.half_width:.3g}")
        if found.target_half_width is not None:
            row.append("-" if one.users_needed is None else f"{one.users_needed:,}")
        table.add_row(*row, one.assumes)
    console = Console(width=120, highlight=False)
    console.print(table)
    for line in (found.sentence, found.curator_sentence, found.warning):
        if line:
            console.print(line, markup=False)
