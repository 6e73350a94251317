"""`meanstream reproduce colme`: the figures of the paper, as numbers next to the reference and as a picture.

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

from meanstream.lab.reproduce.colme_figures import (
    FIGURES,
    LADDER,
    LADDER_STEPS,
    REFERENCE_STEPS,
    STEPS,
    ColmeCurve,
    ColmeFigure,
    ColmePanel,
)
from meanstream.lab.reproduce.cummings_figures import reproduce_cummings_figures
from meanstream.lab.reproduce.reproduce_dame import reproduce_dame
from meanstream.lab.reproduce.reproduce_drift import reproduce_drift
from meanstream.lab.reproduce.reproduce_kent import reproduce_kent
from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

if TYPE_CHECKING:
    from meanstream.lab.simulation.config import SimulationConfig

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def reproduce() -> None:
    """Reproduce the figures of a paper, or of moving means."""


@app.command("colme")
def reproduce_command_colme(
    figure: Annotated[int, cli_option("Figure: 2, 3 or 4.", INPUT)] = 2,
    runs: Annotated[
        int | None, cli_option("Independent repetitions (default: the paper's).", INPUT)
    ] = None,
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
    _reproduce(
        str(figure), FIGURES[figure], runs, seed, out / f"colme-figure-{figure}.png", as_json=json
    )


@app.command("ladder")
def reproduce_command_ladder(
    runs: Annotated[int | None, cli_option("Independent repetitions (default: 20).", INPUT)] = None,
    seed: Annotated[int, cli_option("Seed; run r depends on it and on r only.", INPUT)] = 1,
    out: Annotated[Path, cli_option("Folder for ladder.png.", OUTPUT)] = Path(),
    json: JsonOption = False,
) -> None:
    """Measure what each step from the paper's algorithm to Meanstream's default gains, in the setting of Fig. 2.

    The steps: one stream for all, the optimal counter, all releases, and the learned prior. Prints squared errors,
    and what remains of them after each step; draws them by time.

    \b
    Example:
      meanstream reproduce ladder --runs 5 --out figures
    """  # noqa: D301 - click reads the escape
    _reproduce("ladder", LADDER, runs, seed, out / "ladder.png", as_json=json)


def _reproduce(
    name: str, chosen: ColmeFigure, runs: int | None, seed: int, place: Path, *, as_json: bool
) -> None:
    runs = chosen.runs if runs is None else runs
    with refusing_options():
        _configuration(chosen.panels[0], chosen.panels[0].curves[0], runs, seed)

    from meanstream.pipelines.commands.plots import (
        draw_plot,
        plot_path,
        require_matplotlib_for_plots,
        say_duration,
    )

    require_matplotlib_for_plots()
    picture = plot_path(place.parent, place.name)
    say_duration(name, chosen.seconds * runs, quiet=as_json)
    result = _measure(name, chosen, runs, seed, progress=not as_json)
    draw_plot(result, picture)
    result["png"] = str(picture)

    if as_json:
        print_options_json(result)
    else:
        sys.stdout.write(
            reproduce_ladder_text(result) if chosen is LADDER else reproduce_command_text(result)
        )


app.command("cummings")(reproduce_cummings_figures)
app.command("dame")(reproduce_dame)
app.command("drift")(reproduce_drift)
app.command("kent")(reproduce_kent)


def _measure(
    name: str, figure: ColmeFigure, runs: int, seed: int, *, progress: bool
) -> dict[str, Any]:
    """Run every panel; panels that share a curve share its simulation."""
    panels = []
    for panel in figure.panels:
        curves = []
        for curve in panel.curves:
            if progress:
                sys.stderr.write(f"{name}: {panel.title}: {curve.label}\n")

            config = _configuration(panel, curve, runs, seed)
            curves.append(
                _described(curve) | (_expected(config) if panel.theory else _simulated(config))
            )

        panels.append(
            {
                "title": panel.title,
                "agents": panel.agents,
                "steps": panel.steps,
                "measure": panel.measure,
                "curves": curves,
            }
        )

    title = figure.title.format(figure=name)
    return {
        "figure": name,
        "title": title,
        "runs": runs,
        "seed": seed,
        "note": figure.note,
        "panels": panels,
    }


def _configuration(panel: ColmePanel, curve: ColmeCurve, runs: int, seed: int) -> SimulationConfig:
    """Return the configuration of one curve."""
    from meanstream.lab.simulation.config import SimulationConfig

    options = {
        "mode": "paper",
        "agents": panel.agents,
        "checkpoints": _times(curve.points),
        **curve.options,
    }

    return SimulationConfig.from_options(steps=STEPS, runs=runs, seed=seed, **options)


def _times(points: int) -> tuple[int, ...]:
    """Log-spaced steps, with those that have reference values."""
    import numpy as np

    spaced = np.unique(np.geomspace(1, STEPS, points).round().astype(int)).tolist()
    return tuple(sorted({*spaced, *REFERENCE_STEPS, *LADDER_STEPS}))


@lru_cache(maxsize=8)
def _simulated(config: SimulationConfig) -> dict[str, Any]:
    from meanstream.lab.simulation.simulate_agents import simulate

    result = simulate(config)
    shown = ("checkpoints", "mse", "stderr", "local", "ideal", "oracle", "coverage", "type1")
    return {name: getattr(result, name) for name in shown}


def _expected(config: SimulationConfig) -> dict[str, Any]:
    from meanstream.lab.simulate.theory_command import theory_facts

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
    """Lay out our errors next to the reference."""
    lines = [
        f"figure {result['figure']}, {result['runs']} runs; mean squared error (standard error)"
    ]
    for panel in result["panels"]:
        lines.append(f"\n{panel['title']}")
        for curve in panel["curves"]:
            ours = dict(zip(curve["checkpoints"], curve[panel.get("measure", "mse")], strict=True))
            error = dict(
                zip(
                    curve["checkpoints"],
                    curve.get("stderr") or [],
                    strict=bool(curve.get("stderr")),
                )
            )
            error = {} if panel.get("measure") == "type1" else error

            reference = {entry["step"]: entry["mse"] for entry in curve["reference"]}
            shown = {} if panel.get("measure") == "type1" else reference
            cells = [
                f"{step}: {_number(ours[step])}{_give_or_take(error.get(step))}{_reference_text(shown.get(step))}"
                for step in REFERENCE_STEPS
            ]
            lines.append(f"  {curve['label']:<28}" + "   ".join(cells))

    return "\n".join([*lines, "", result["note"], f"picture: {result['png']}"]) + "\n"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}"


def _give_or_take(stderr: float | None) -> str:
    """Show a standard error, where there is one."""
    if stderr is None:
        return ""
    return f" ({stderr:.0e})"


def reproduce_ladder_text(result: dict[str, Any]) -> str:
    """Lay out the squared errors, and what each step leaves of those of the step before it."""
    lines = [
        f"squared error by number of samples of each agent, {result['runs']} runs, seed {result['seed']}; in brackets "
        "relative to the step before",
        f"{'':<32}" + "".join(f"{step:>18,}" for step in LADDER_STEPS),
    ]
    curves = result["panels"][0]["curves"]
    errors = [dict(zip(curve["checkpoints"], curve["mse"], strict=True)) for curve in curves]

    for curve, before, ours in zip(curves, [None, *errors], errors, strict=False):
        cells = (
            f"{ours[at]:.2e}" + (f" ({ours[at] / before[at]:.2f})" if before else "")
            for at in LADDER_STEPS
        )
        lines.append(f"{curve['label']:<32}" + "".join(f"{cell:>18}" for cell in cells))

    left = (f"({errors[-1][at] / errors[0][at]:.2f})" for at in LADDER_STEPS)
    lines.append(f"{'all steps':<32}" + "".join(f"{cell:>18}" for cell in left))
    return "\n".join([*lines, "", result["note"], f"picture: {result['png']}"]) + "\n"


def _reference_text(reference: float | None) -> str:
    if reference is None:
        return ""
    return f" (reference {reference:.3g})"
