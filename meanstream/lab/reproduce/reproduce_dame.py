"""`meanstream reproduce dame`.

Figure 1 of the paper, as numbers next to the reference and as a picture.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from meanstream.lab.reproduce.dame_figures import (
    BOUNDS,
    ESTIMATED,
    FIGURES,
    INFORMATION,
    NOTES,
    RUNS,
    SHARES,
    Bounds,
    Estimated,
)
from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

GRID = 100
"""Points of a curve of Fig. 1a, as in the paper."""
SECONDS = 0.3
"""Of one run of Fig. 1b, on one core."""


def reproduce_dame(
    figure: Annotated[str, cli_option("Figure: 1a or 1b.", INPUT)] = "1b",
    runs: Annotated[
        int, cli_option("Figure 1b: independent repetitions of each point.", INPUT)
    ] = RUNS,
    seed: Annotated[int, cli_option("Seed; run r depends on it and on r only.", INPUT)] = 1,
    out: Annotated[Path, cli_option("Folder for dame-figure-N.png.", OUTPUT)] = Path(),
    json: JsonOption = False,
) -> None:
    """Reproduce figure 1a or 1b of "Distribution-aware mean estimation under user-level local differential privacy".

    Computes the bounds (1a) or runs the simulations (1b), writes a PNG, and prints our numbers next
    to reference values.

    \b
    Example:
      meanstream reproduce dame --figure 1b --runs 100 --out figures
    """  # noqa: D301 - click reads the escape
    if figure not in FIGURES:
        raise BadOption(f"figure must be one of {', '.join(FIGURES)}, got {figure!r}")

    with refusing_options():
        _configuration(ESTIMATED[0], SHARES[0], runs, seed)

    from meanstream.lab.reproduce.dame_plots import draw_dame
    from meanstream.pipelines.commands.plots import (
        plot_path,
        require_matplotlib_for_plots,
        say_duration,
    )

    require_matplotlib_for_plots()
    picture = plot_path(out, f"dame-figure-{figure}.png")
    say_duration(figure, SECONDS * runs if figure == "1b" else 1.0, quiet=json)

    panels = _bounds() if figure == "1a" else _errors(runs, seed, progress=not json)
    result = {
        "figure": figure,
        "runs": runs if figure == "1b" else None,
        "seed": seed,
        "panels": panels,
    }
    draw_dame(result, picture)
    order = dame_order(panels[0]["curves"]) if figure == "1b" else ""
    result |= {"note": NOTES[figure] + order, "png": str(picture)}

    if json:
        print_options_json(result)
    else:
        sys.stdout.write(reproduce_dame_text(result))


def dame_order(curves: list[dict[str, Any]]) -> str:
    """Say how DAME's error compares with the least of the others, which the paper says is larger.

    Examples
    --------
    >>> curves = [{"label": "DAME", "x": [0.5], "y": [4e-5], "stderr": [3e-6]},
    ...           {"label": "Kent et al., T = min", "x": [0.5], "y": [1e-5], "stderr": [1e-6]}]
    >>> dame_order(curves)
    ' Share 0.50: DAME 4e-05 (s.e. 3e-06), Kent et al., T = min 1e-05 (s.e. 1e-06): 4 times.'
    """
    dame, *others = curves
    said = ""

    for place in {len(dame["x"]) // 2, len(dame["x"]) - 2} if len(dame["x"]) > 2 else {0}:
        share = dame["x"][place]
        least = min(
            (curve for curve in others if share in curve["x"]),
            key=lambda one: one["y"][one["x"].index(share)],
        )
        at = least["x"].index(share)

        y = dame["y"][place]
        other = least["y"][at]
        said += (
            f" Share {share:.2f}: DAME {y:.2g}{_give(dame['stderr'][place])}, {least['label']} "
            f"{other:.2g}{_give(least['stderr'][at])}: {y / other:.3g} times."
        )

    return said


def _errors(runs: int, seed: int, *, progress: bool) -> list[dict[str, Any]]:
    """Simulate the one panel of Fig. 1b."""
    from meanstream.lab.simulation.simulated_rounds import simulate_rounds

    curves = []
    for estimated in ESTIMATED:
        if progress:
            sys.stderr.write(f"figure 1b: {estimated.label}\n")

        # Forcing a size that no one has is no estimator.
        shares = [
            share for share in SHARES if share > 0 or "effective_size" not in estimated.options
        ]
        found = [simulate_rounds(_configuration(estimated, share, runs, seed)) for share in shares]
        curves.append(
            {
                "label": estimated.label,
                "color": estimated.color,
                "line": estimated.line,
                "x": shares,
                "y": [result.mse for result in found],
                "stderr": [result.stderr for result in found],
                "predicted": [result.predicted_mse for result in found],
                "reference": [
                    {"x": SHARES[place], "y": y} for place, y in estimated.reference.items()
                ],
            }
        )

    return [
        {
            "title": "sizes 1e5 and 1e6",
            "axis": "share of users with the larger size",
            "curves": curves,
        }
    ]


def _configuration(estimated: Estimated, share: float, runs: int, seed: int) -> Any:
    from meanstream.lab.simulation.simulated_rounds import RoundsConfig

    return RoundsConfig(**estimated.configuration(share), runs=runs, seed=seed)


def _bounds() -> list[dict[str, Any]]:
    """Compute the panels of Fig. 1a."""
    return [
        {"title": panel.title, "axis": panel.axis, "curves": _bound_curves(panel)}
        for panel in BOUNDS
    ]


def _bound_curves(panel: Bounds) -> list[dict[str, Any]]:
    import numpy as np

    from meanstream.lab.papers.dame.dame_bounds import (
        C3,
        C3_PRINTED,
        C5,
        dame_bounds_lower,
        dame_bounds_upper,
    )
    from meanstream.operators.rounds.user_sizes import SizeDistribution

    start, end = (INFORMATION, 1e6) if panel.along_information else (2, 900)
    x = sorted({*np.geomspace(start, end, GRID).round().tolist(), *panel.upper, *panel.lower})
    sizes = [SizeDistribution.parse(_sizes(panel, at)) for at in x]
    # Only users * epsilon**2 matters: one user whose epsilon is its root stands for them.
    roots = [at**0.5 if panel.along_information else INFORMATION**0.5 for at in x]
    uppers = (
        ("upper bound", "-", C3, C5),
        ("upper bound, c3 as printed", "--", C3_PRINTED, C5),
        ("upper bound's shape (c3 = c5 = 1)", ":", 1.0, 1.0),
    )
    curves = []

    for label, line, c3, c5 in uppers:
        y = [
            dame_bounds_upper(m, users=1, epsilon=root, c3=c3, c5=c5)
            for m, root in zip(sizes, roots, strict=True)
        ]
        reference = panel.upper if line == "--" else {}
        curves.append(_curve(label, "tab:orange", line, x, y, reference))

    y = [dame_bounds_lower(m, users=1, epsilon=root) for m, root in zip(sizes, roots, strict=True)]
    return [*curves, _curve("lower bound", "tab:blue", "-", x, y, panel.lower)]


def _sizes(panel: Bounds, at: float) -> str:
    if panel.family.startswith("uniform"):
        return panel.family.format(round(2 * at - 1))
    return panel.family.format(at / 1000 if panel.family.startswith("binomial") else at)


def _curve(  # noqa: PLR0917 - private
    label: str, color: str, line: str, x: list[float], y: list[float], reference: dict[float, float]
) -> dict[str, Any]:
    known = [{"x": at, "y": value} for at, value in reference.items()]
    return {"label": label, "color": color, "line": line, "x": x, "y": y, "reference": known}


def reproduce_dame_text(result: dict[str, Any]) -> str:
    """Lay out our numbers next to the reference."""
    runs = "" if result["runs"] is None else f", {result['runs']} runs"
    lines = [f"figure {result['figure']}{runs}"]
    for panel in result["panels"]:
        lines.append(f"\n{panel['title']} ({panel['axis']})")
        for curve in panel["curves"]:
            reference = {entry["x"]: entry["y"] for entry in curve["reference"]}
            shown = [
                (x, y)
                for x, y in zip(curve["x"], curve["y"], strict=True)
                if x in reference or not reference
            ]
            step = 1 if reference else max(len(shown) // 5, 1)

            error = dict(zip(curve["x"], curve.get("stderr") or [], strict=False))
            cells = [
                f"{x:.3g}: {y:.3g}{_give(error.get(x))}{_reference_text(reference.get(x))}"
                for x, y in shown[::step]
            ]
            lines.append(f"  {curve['label']:<34}" + "   ".join(cells))

    return "\n".join([*lines, "", result["note"], f"picture: {result['png']}"]) + "\n"


def _give(stderr: float | None) -> str:
    if stderr is None:
        return ""
    return f" (s.e. {stderr:.1g})"


def _reference_text(reference: float | None) -> str:
    if reference is None:
        return ""
    return f" (reference {reference:.3g})"
