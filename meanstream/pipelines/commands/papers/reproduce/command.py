"""`meanstream reproduce colme`: the figures of the paper, as numbers beside the reference and as a picture.

The group `reproduce` also has `dame`, `kent`, `cummings` and `drift`; see
`reproduce.reproduce_dame`, `reproduce.reproduce_kent`,
`reproduce.cummings_figures` and `reproduce.reproduce_drift`.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meanstream.pipelines.commands.papers.reproduce.colme_figures import (
    FIGURES,
    REFERENCE_STEPS,
    STEPS,
    ColmeCurve,
    ColmeFigure,
    ColmePanel,
)
from meanstream.pipelines.commands.papers.reproduce.cummings_figures import reproduce_cummings_figures
from meanstream.pipelines.commands.papers.reproduce.reproduce_dame import reproduce_dame
from meanstream.pipelines.commands.papers.reproduce.reproduce_drift import reproduce_drift
from meanstream.pipelines.commands.papers.reproduce.reproduce_kent import reproduce_kent
from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.declared import INPUT, OUTPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

if TYPE_CHECKING:
    from meanstream.operators.papers.simulation.config import SimulationConfig

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def reproduce() -> None:
    """Reproduce the figures of a paper, or of moving means."""


@app.command("colme")
def reproduce_command_colme(
    figure: Annotated[int, cli_option("Figure: 2, 3 or 4.", INPUT)] = 2,
    runs: Annotated[int | None, cli_option("Independent repetitions (default: the paper's).", INPUT)] = None,
    seed: Annotated[int, cli_option("Seed; run r depends on it and on r only.", INPUT)] = 1,
    out: Annotated[Path, cli_option("Folder for colme-figure-N.png.", OUTPUT)] = Path(),
    json: JsonOption = False,
) -> None:
    """Reproduce figures 2 to 4 of "Differentially-private collaborative online personalized mean estimation".

    Runs the simulations, writes a PNG like the paper's, and prints our numbers next to reference values.

    \b
    Example:
      meanstream reproduce colme --figure 2 --out figures
    """  # noqa: D301 - click reads the escape
    if figure not in FIGURES:
        raise BadOption(f"figure must be one of {', '.join(map(str, FIGURES))}, got {figure!r}")
    chosen = FIGURES[figure]
    runs = chosen.runs if runs is None else runs
    with refusing_options():
        _configuration(chosen.panels[0], chosen.panels[0].curves[0], runs, seed)
    from meanstream.pipelines.commands.plots import (
        draw_plot,
        plots_picture_place,
        require_matplotlib_for_plots,
        say_duration,
    )

    require_matplotlib_for_plots()
    picture = plots_picture_place(out, f"colme-figure-{figure}.png")
    say_duration(str(figure), chosen.seconds * runs, quiet=json)
    result = _measure(figure, chosen, runs, seed, progress=not json)
    draw_plot(result, picture)
    result["png"] = str(picture)
    if json:
        print_options_json(result)
    else:
        sys.stdout.write(reproduce_command_text(result))


app.command("cummings")(reproduce_cummings_figures)
app.command("dame")(reproduce_dame)
app.command("drift")(reproduce_drift)
app.command("kent")(reproduce_kent)


def _measure(number: int, figure: ColmeFigure, runs: int, seed: int, *, progress: bool) -> dict[str, Any]:
    """Run every panel; panels that share a curve share its simulation."""
    panels = []
    for panel in figure.panels:
        curves = []
        for curve in panel.curves:
            if progress:
                sys.stderr.write(f"figure {number}: {panel.title}: {curve.label}\n")
            config = _configuration(panel, curve, runs, seed)
            curves.append(_described(curve) | (_expected(config) if panel.theory else _simulated(config)))
        panels.append(
            {
                "title": panel.title,
                "agents": panel.agents,
                "steps": panel.steps,
                "measure": panel.measure,
                "curves": curves,
            }
        )
    return {"figure": number, "runs": runs, "seed": seed, "note": figure.note, "panels": panels}


def _configuration(panel: ColmePanel, curve: ColmeCurve, runs: int, seed: int) -> SimulationConfig:
    """Return the configuration of one curve."""
    from meanstream.operators.papers.simulation.config import SimulationConfig

    return SimulationConfig.from_options(
        mode="paper",
        agents=panel.agents,
        steps=STEPS,
        runs=runs,
        seed=seed,
        checkpoints=_times(),
        **curve.options,
    )


def _times() -> tuple[int, ...]:
    """Log-spaced steps, with those that have reference values."""
    import numpy as np

    spaced = np.unique(np.geomspace(1, STEPS, 120).round().astype(int)).tolist()
    return tuple(sorted({*spaced, *REFERENCE_STEPS}))


@lru_cache(maxsize=8)
def _simulated(config: SimulationConfig) -> dict[str, Any]:
    from meanstream.operators.papers.simulation.simulated_pairwise import simulate_pairwise

    result = simulate_pairwise(config)
    shown = ("checkpoints", "mse", "stderr", "local", "ideal", "oracle", "coverage", "type1")
    return {name: getattr(result, name) for name in shown}


def _expected(config: SimulationConfig) -> dict[str, Any]:
    from meanstream.pipelines.commands.papers.simulate.theory_command import theory_facts

    table = theory_facts(config)
    return {
        "checkpoints": table["checkpoints"],
        "mse": table["oracle"],
        "local": table["local"],
        "ideal": table["ideal"],
    }


def _described(curve: ColmeCurve) -> dict[str, Any]:
    reference = [{"step": step, "mse": value} for step, value in curve.reference.items()]
    return {
        "label": curve.label,
        "options": curve.options,
        "color": curve.color,
        "line": curve.line,
        "reference": reference,
    }


def reproduce_command_text(result: dict[str, Any]) -> str:
    """Lay out our errors beside the reference."""
    lines = [f"figure {result['figure']}, {result['runs']} runs; mean squared error (standard error)"]
    for panel in result["panels"]:
        lines.append(f"\n{panel['title']}")
        for curve in panel["curves"]:
            ours = dict(zip(curve["checkpoints"], curve[panel.get("measure", "mse")], strict=True))
            error = dict(zip(curve["checkpoints"], curve.get("stderr") or [], strict=bool(curve.get("stderr"))))
            error = {} if panel.get("measure") == "type1" else error
            reference = {entry["step"]: entry["mse"] for entry in curve["reference"]}
            shown = {} if panel.get("measure") == "type1" else reference
            cells = [
                f"{step}: {_number(ours[step])}{_give_or_take(error.get(step))}{_beside(shown.get(step))}"
                for step in REFERENCE_STEPS
            ]
            lines.append(f"  {curve['label']:<28}" + "   ".join(cells))
    return "\n".join([*lines, "", result["note"], f"picture: {result['png']}"]) + "\n"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _give_or_take(stderr: float | None) -> str:
    """Show a standard error, where there is one."""
    return "" if stderr is None else f" ({stderr:.0e})"


def _beside(reference: float | None) -> str:
    return "" if reference is None else f" (reference {reference:.3g})"
