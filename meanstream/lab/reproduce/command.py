"""`meanstream reproduce`: the figures of the papers, as numbers next to the reference and as pictures."""

from __future__ import annotations

import typer

from meanstream.lab.reproduce.colme_figures import reproduce_colme, reproduce_ladder
from meanstream.lab.reproduce.cummings_figures import reproduce_cummings
from meanstream.lab.reproduce.dame_figures import reproduce_dame
from meanstream.lab.reproduce.drift_figure import reproduce_drift
from meanstream.lab.reproduce.reproduce_kent import reproduce_kent

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def reproduce() -> None:
    """Reproduce the figures of a paper, or of moving means."""


app.command("colme")(reproduce_colme)
app.command("ladder")(reproduce_ladder)
app.command("cummings")(reproduce_cummings)
app.command("dame")(reproduce_dame)
app.command("drift")(reproduce_drift)
app.command("kent")(reproduce_kent)
