"""`meanstream demo`: a year of real flights, of agents and of rounds. What runs is imported where a command begins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meanstream.lab.demo.flights import demo_flights
from meanstream.pipelines.options.base import JsonOption
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, PRIVACY, cli_option
from meanstream.pipelines.options.option_errors import BadOption

SeedOption = Annotated[int, cli_option("Seed of the noise.", INPUT)]
OutOption = Annotated[
    Path, cli_option("Folder for events and chart: a new one, or that of a demo.", OUTPUT)
]
QuietOption = Annotated[bool, cli_option("No progress lines.", OUTPUT, "--quiet")]
PageAddressOption = Annotated[
    str, cli_option("Address of --page; port 0 takes a free one.", OUTPUT)
]

app = typer.Typer(rich_markup_mode=None)
app.command("flights")(demo_flights)


@app.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    *,
    epsilon: Annotated[
        float, cli_option("Privacy budget of one flight's delay over the whole year.", PRIVACY)
    ] = 1.0,
    delta: Annotated[
        float, cli_option("Privacy budget of one flight's delay over the whole year.", PRIVACY)
    ] = 1e-6,
    seed: SeedOption = 0,
    out: OutOption = Path("out/demo"),
    quiet: QuietOption = False,
    page: Annotated[
        bool, cli_option("Live page of the default method's run in the browser.", OUTPUT, "--page")
    ] = False,
    page_address: PageAddressOption = "127.0.0.1:0",
    as_json: JsonOption = False,
) -> None:
    """Replay flights of 2013: a private mean delay per aircraft.

    Every second flight of an aircraft is held back as truth. The noise is seeded and so not private: this is a
    demo.

    \b
    Examples:
      meanstream demo
      meanstream demo --page        # watch it in the browser
      meanstream demo rounds        # one private mean over all aircraft per week
    """  # noqa: D301 - click reads the escape
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return

    from meanstream.lab.demo.agents_demo import replay_flights

    address = page_address if page else None
    replay_flights(
        epsilon=epsilon, delta=delta, seed=seed, out=out, page=address, quiet=quiet, as_json=as_json
    )


@app.command("rounds")
def demo_rounds(
    *,
    epsilon: Annotated[
        float, cli_option("Privacy budget of all flights of one aircraft within a window.", PRIVACY)
    ] = 1.0,
    window: Annotated[str, cli_option("Length of a window.", INPUT)] = "7d",
    seed: SeedOption = 0,
    out: OutOption = Path("out/demo-rounds"),
    quiet: QuietOption = False,
    page: Annotated[bool, cli_option("Live page in the browser.", OUTPUT, "--page")] = False,
    page_address: PageAddressOption = "127.0.0.1:0",
    as_json: JsonOption = False,
) -> None:
    """Replay the flights of New York in 2013, with one private mean delay over all aircraft per week.

    Each aircraft sends one randomized number per week, and nothing else. Only the demo knows the true mean next to
    the answer. The noise is seeded and so not private.

    \b
    Examples:
      meanstream demo rounds
      meanstream demo rounds --page      # watch it in the browser
    """  # noqa: D301 - click reads the escape
    from meanstream.lab.demo.rounds_demo import replay_rounds

    address = page_address if page else None
    replay_rounds(
        epsilon=epsilon,
        window=window,
        seed=seed,
        out=out,
        page=address,
        quiet=quiet,
        as_json=as_json,
    )


def _refuse_options(context: typer.Context) -> None:
    """Refuse options of this demo before the name of another one, where they would do nothing."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise BadOption(f"{name} must come after {context.invoked_subcommand!r}")
