"""`meanstream reproduce kent`.

Figures of the paper, as numbers next to the reference and as pictures.
"""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from meanstream.lab.reproduce.kent_curves import Curve, Panel, Point
from meanstream.lab.reproduce.kent_figures import FIGURES
from meanstream.lab.reproduce.kent_notes import NOTES, SECONDS
from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

if TYPE_CHECKING:
    from meanstream.lab.simulation.vector_rounds import VectorConfig, VectorResult

RUNS = 100
OWN = "4"
"""The figure whose data is a file of one's own."""
PHASE_RUNS = 10
"""Repetitions of a point of Fig. 5 for each of `--runs`: a wrong bin is rare there, and they are
cheap."""
MOST_SHOWN = 30
"""Points of a curve in the text."""


def reproduce_kent(  # noqa: PLR0917 - options of a command
    figure: Annotated[str, cli_option("Figure: 1 to 12; 4 with --file.", INPUT)] = "2",
    runs: Annotated[int, cli_option("Independent repetitions of each point.", INPUT)] = RUNS,
    seed: Annotated[int, cli_option("Seed; run r depends on it and on r only.", INPUT)] = 1,
    file: Annotated[Path | None, cli_option("CSV file of your own, for figure 4.", INPUT)] = None,
    user: Annotated[str | None, cli_option("Column of the user in --file (user).", INPUT)] = None,
    value: Annotated[
        str | None, cli_option("Column of the category in --file (value).", INPUT)
    ] = None,
    samples: Annotated[
        int | None,
        cli_option(
            "Samples of a user in --file, at most (100); users with less are left out.", INPUT
        ),
    ] = None,
    out: Annotated[Path, cli_option("Folder for kent-figure-N.png.", OUTPUT)] = Path(),
    json: JsonOption = False,
) -> None:
    """Reproduce a figure of "Rate optimality and phase transition for user-level local differential privacy".

    Runs the simulations, writes a PNG, and prints our numbers next to reference
    values.

    \b
    Example:
      meanstream reproduce kent --figure 2 --runs 50 --out figures
      meanstream reproduce kent --figure 4 --file stops.csv --user officer --value race
    """  # noqa: D301 - click reads the escape
    if (figure == OWN) != (file is not None):
        raise BadOption(f"file must be given with --figure {OWN}, and only then, got {file}")

    if file is not None:
        columns = (file, user or "user", value or "value")
        _reproduce_own_file(
            columns, 100 if samples is None else samples, runs, seed, out, as_json=json
        )

        return

    for name, given in {"user": user, "value": value, "samples": samples}.items():
        if given is not None:
            raise BadOption(f"{name} must be left out without --file, got {given!r}")

    if figure not in FIGURES:
        raise BadOption(
            f"figure must be one of {', '.join(sorted([*FIGURES, OWN], key=int))}, got {figure!r}"
        )

    panels = FIGURES[figure]()
    with refusing_options():
        for curve in panels[0].curves:
            if curve.points and _some(curve.points[0])[0].get("estimator", "kent") != "kent":
                reproduce_kent_configuration(_some(curve.points[0])[0], runs, seed)

    from meanstream.lab.reproduce.kent_plots import draw_kent
    from meanstream.pipelines.commands.plots import (
        plot_path,
        require_matplotlib_for_plots,
        say_duration,
    )

    require_matplotlib_for_plots()
    picture = plot_path(out, f"kent-figure-{figure}.png")
    say_duration(figure, SECONDS[figure] * runs, quiet=json)
    measured = Measured(runs, seed)
    shown = []

    for panel in panels:
        if not json:
            sys.stderr.write(f"figure {figure}: {panel.title}\n")

        shown.append(_panel(panel, measured))

    # A figure of formulas has no runs.
    simulated = any(curve.points for panel in panels for curve in panel.curves)
    result: dict[str, Any] = {
        "figure": figure,
        "runs": runs if simulated else None,
        "seed": seed,
        "panels": shown,
    }
    draw_kent(result, picture)
    result |= {"note": NOTES[figure], "png": str(picture)}
    if json:
        print_options_json(result)
    else:
        sys.stdout.write(_as_text(result))


def _reproduce_own_file(
    columns: tuple[Path, str, str], samples: int, runs: int, seed: int, out: Path, *, as_json: bool
) -> None:
    """Measure Fig. 4 on a file of one's own."""
    from meanstream.lab.reproduce.kent_own_file import own_file_panels
    from meanstream.lab.reproduce.kent_plots import draw_kent
    from meanstream.operators.validation import require
    from meanstream.pipelines.commands.plots import plot_path, require_matplotlib_for_plots

    require_matplotlib_for_plots()
    picture = plot_path(out, f"kent-figure-{OWN}.png")

    with refusing_options():
        require(samples >= 2, "samples", "be at least 2", samples)
        require(runs >= 1, "runs", "be at least 1", runs)
        panels, note = own_file_panels(*columns, samples=samples, runs=runs, seed=seed)

    result: dict[str, Any] = {"figure": OWN, "runs": runs, "seed": seed, "panels": panels}
    draw_kent(result, picture)
    result |= {"note": note, "png": str(picture)}
    if as_json:
        print_options_json(result)
    else:
        sys.stdout.write(_as_text(result))


class Measured:
    """Simulations by their options: curves of the same components share them."""

    def __init__(self, runs: int, seed: int) -> None:
        self._runs = runs
        self._seed = seed
        self._known: dict[str, Any] = {}

    def __call__(self, point: Point) -> Any:
        """Simulate a point, once: one mean, with bins of any width or not, or several numbers."""
        name = json_text.dumps(point, sort_keys=True)
        if name not in self._known:
            self._known[name] = self._simulate(point)

        return self._known[name]

    def _simulate(self, point: Point) -> Any:
        from meanstream.lab.simulation.phase_transition import phase_transition_error
        from meanstream.lab.simulation.simulated_rounds import RoundsConfig, simulate_rounds
        from meanstream.lab.simulation.vector_rounds import simulate_vectors

        if "half_width" in point:
            return phase_transition_error(**point, runs=PHASE_RUNS * self._runs, seed=self._seed)
        if point["estimator"] == "kent":
            return simulate_rounds(
                RoundsConfig(**point, mode="paper", runs=self._runs, seed=self._seed)
            )

        return simulate_vectors(reproduce_kent_configuration(point, self._runs, self._seed))


def reproduce_kent_configuration(point: Point, runs: int, seed: int) -> VectorConfig:
    """Return the configuration of one point."""
    from meanstream.lab.simulation.vector_rounds import VectorConfig

    return VectorConfig(**point, mode="paper", runs=runs, seed=seed)


def _some(point: Point | Sequence[Point]) -> Sequence[Point]:
    if isinstance(point, dict):
        return (point,)
    return point


def _panel(panel: Panel, measured: Measured) -> dict[str, Any]:
    return {
        "title": panel.title,
        "axis": panel.axis,
        "quantity": panel.quantity,
        "log": [panel.log_x, panel.log_y],
        "names": list(panel.names),
        "curves": [_curve(curve, measured) for curve in panel.curves],
    }


def _curve(curve: Curve, measured: Measured) -> dict[str, Any]:
    found: list[tuple[float, float | None]] = [(y, None) for y in curve.y]
    if curve.points:
        found = [
            measure_reproduced_kent(curve, [measured(one) for one in _some(point)])
            for point in curve.points
        ]

    scale = curve.divide or (1.0,) * len(curve.x)
    return {
        "label": curve.label,
        "color": curve.color,
        "line": curve.line,
        "x": list(curve.x),
        "y": [y / one for (y, _), one in zip(found, scale, strict=True)],
        "bar": [
            None if bar is None else bar / one for (_, bar), one in zip(found, scale, strict=True)
        ],
        "reference": [{"x": x, "y": y} for x, y in curve.reference.items()],
    }


def measure_reproduced_kent(
    curve: Curve, results: Sequence[VectorResult]
) -> tuple[float, float | None]:
    """Give what a curve shows of its simulations, and its bar.

    Two standard errors; one deviation, for a component.
    """
    import numpy as np

    best = min(results, key=lambda result: result.mse)
    if curve.measure.startswith("component"):
        which = int(curve.measure.split()[1])
        return best.mean[which], best.deviation[which]

    if curve.measure == "found":
        signals = np.count_nonzero(best.theta)
        share = (np.array(best.found)[:, :signals] != 0.0).mean(axis=1)
        return float(share.mean()), 2.0 * float(share.std()) / len(share) ** 0.5

    return best.mse, None if best.stderr is None else 2.0 * best.stderr


def _heading(result: dict[str, Any]) -> str:
    """Say what the figures are of: runs with bars, or formulas."""
    name = f"figure {result['figure']}"
    if result["runs"] is None:
        return f"{name}, of formulas: no runs"

    bars = [bar for panel in result["panels"] for curve in panel["curves"] for bar in curve["bar"]]
    drawn = "; +- are the bars of the picture" if any(bar is not None for bar in bars) else ""

    return f"{name}, {result['runs']} runs{drawn}"


def _as_text(result: dict[str, Any]) -> str:
    """Lay out our numbers next to the reference."""
    lines = [_heading(result)]
    for panel in result["panels"]:
        lines.append(f"\n{panel['title']}: {panel['quantity']} ({panel['axis']})")
        for curve in panel["curves"]:
            reference = {entry["x"]: entry["y"] for entry in curve["reference"]}
            cells = []
            points = list(enumerate(zip(curve["x"], curve["y"], strict=True)))
            for number, (x, y) in points[:: 1 + len(points) // MOST_SHOWN]:
                name = panel["names"][number] if panel["names"] else f"{x:.3g}"
                bar = curve["bar"][number]
                give = "" if bar is None else f" +- {bar:.1g}"
                cells.append(
                    f"{name}: {y:.3g}{give}"
                    + (f" (reference {reference[x]:.3g})" if x in reference else "")
                )

            lines.append(f"  {curve['label']:<36} " + "   ".join(cells))

    return "\n".join([*lines, "", result["note"], f"picture: {result['png']}"]) + "\n"
