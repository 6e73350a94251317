"""`meanstream reproduce cummings`.

What the curator's estimators achieve, next to reference numbers, and as a picture.

The paper has no figures of its own; these are the comparisons that its theorems make: the ideal
estimator, public sizes (Algorithm 2), private sizes by propose-test-release (Algorithms 3 and 4),
and the ratio that is shipped.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
LAWS = {"zipf:1,100": "sizes 1 to 100, Zipf", "uniform:1,100": "sizes 1 to 100, uniform"}
RUNS = 200
SECONDS = 0.5
"""Of one run of all points, on one core."""
USERS = 10_000
AT = 1.0
"""The epsilon of the reference values."""

NOTE = (
    "Errors are on [0, 1] (a quarter of those on [-1, 1]); values 0 and 1, rate 0.3, users' rates 0.04 apart. Epsilon "
    "is that of each release: a user of the ratio pays 3 times as much in mode paper, of propose-test-release 4 times; "
    "curves 'in all' pay epsilon itself. Reference ranges are measured by an own implementation. "
    "The printed propose-test-release (erratum C9) is far above the picture."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One curve: an estimator, how many releases its users pay for, and reference ranges by law of sizes."""

    label: str
    estimator: str
    mode: str
    color: str
    line: str = "-"
    releases: int = 1
    error: tuple[float, float] | None = None
    ratio: tuple[float, float] | None = None


CURVES = (
    Compared(
        label="ideal",
        estimator="ideal",
        mode="paper",
        color="0.35",
        line="-.",
        error=(1.4e-6, 2.0e-6),
    ),
    Compared(
        label="public sizes (Alg. 2)",
        estimator="known_sizes",
        mode="paper",
        color="tab:blue",
        error=(1.7e-6, 2.1e-6),
    ),
    Compared(
        label="public sizes, tuned",
        estimator="known_sizes",
        mode="tuned",
        color="tab:blue",
        line="--",
    ),
    Compared(
        label="ratio",
        estimator="ratio",
        mode="paper",
        color="tab:orange",
        releases=3,
        error=(2.4e-6, 3.0e-6),
        ratio=(1.2, 1.8),
    ),
    Compared(
        label="ratio, tuned, in all", estimator="ratio", mode="tuned", color="tab:orange", line="--"
    ),
    Compared(
        label="propose-test-release, tuned, in all",
        estimator="private_sizes",
        mode="tuned",
        color="tab:green",
        line="--",
    ),
)
BASE = 1
"""Ratios are to this curve."""


def reproduce_cummings_figures(
    figure: Annotated[
        str, cli_option("Comparison: errors (simulated) or c (appendix C, computed).", INPUT)
    ] = "errors",
    runs: Annotated[int, cli_option("Independent repetitions of each point.", INPUT)] = RUNS,
    seed: Annotated[int, cli_option("Seed; run r depends on it and on r only.", INPUT)] = 1,
    out: Annotated[Path, cli_option("Folder for cummings.png.", OUTPUT)] = Path(),
    json: JsonOption = False,
) -> None:
    """Compare the estimators of "Mean estimation with user-level privacy under data heterogeneity".

    Simulates ten thousand users, writes a PNG, and prints our numbers next to reference ranges. Appendix C compares
    with halving at the median, as prior work does.

    \b
    Example:
      meanstream reproduce cummings --runs 100 --out figures
    """  # noqa: D301 - click reads the escape
    if figure not in ("errors", "c"):
        raise BadOption(f"figure must be errors or c, got {figure!r}")

    with refusing_options():
        cummings_figures_configuration(CURVES[0], next(iter(LAWS)), AT, runs, seed)

    from meanstream.pipelines.commands.plots import (
        plot_path,
        require_matplotlib_for_plots,
        say_duration,
    )

    require_matplotlib_for_plots()
    if figure == "c":
        from meanstream.lab.reproduce.cummings_comparison import compare_cummings

        compare_cummings(out, as_json=json)
        return

    picture = plot_path(out, "cummings.png")
    say_duration("errors", SECONDS * runs, quiet=json)
    result = measure_cummings_figures(runs, seed, progress=not json)
    from meanstream.lab.reproduce.cummings_plots import draw_cummings

    draw_cummings(result, picture)
    result["png"] = str(picture)

    if json:
        print_options_json(result)
    else:
        sys.stdout.write(_as_text(result))


def cummings_figures_configuration(
    curve: Compared, law: str, epsilon: float, runs: int, seed: int
) -> Any:
    """Return the configuration of one point."""
    from meanstream.lab.simulation.simulated_rounds import RoundsConfig

    return RoundsConfig(
        estimator=f"cummings.{curve.estimator}",
        users=USERS,
        epsilon=epsilon * curve.releases,
        sizes=law,
        data="rademacher:-0.4",
        between_users_law="normal:0.08",
        mode=curve.mode,
        runs=runs,
        seed=seed,
    )


def measure_cummings_figures(runs: int, seed: int, *, progress: bool) -> dict[str, Any]:
    """Simulate every point."""
    panels = []
    for law, title in LAWS.items():
        curves = []
        for curve in CURVES:
            if progress:
                sys.stderr.write(f"{title}: {curve.label}\n")

            curves.append(_simulated(curve, law, runs, seed))

        for measured in curves:
            pairs = zip(measured["mse"], curves[BASE]["mse"], strict=True)
            measured["ratio"] = [ours / base for ours, base in pairs]

        panels.append({"title": title, "sizes": law, "epsilon": list(EPSILONS), "curves": curves})

    return {"runs": runs, "seed": seed, "users": USERS, "note": NOTE, "panels": panels}


def _simulated(curve: Compared, law: str, runs: int, seed: int) -> dict[str, Any]:
    from meanstream.lab.simulation.simulated_rounds import simulate_rounds

    found = [
        simulate_rounds(cummings_figures_configuration(curve, law, epsilon, runs, seed))
        for epsilon in EPSILONS
    ]

    return {
        "label": curve.label,
        "color": curve.color,
        "line": curve.line,
        "mse": [result.mse / 4.0 for result in found],
        "stderr": [None if result.stderr is None else result.stderr / 4.0 for result in found],
        "coverage": [result.coverage for result in found],
        "reference": {
            "mse": curve.error if law.startswith("zipf") else None,
            "ratio": curve.ratio,
            "epsilon": AT,
        },
    }


def _as_text(result: dict[str, Any]) -> str:
    """Lay out error and ratio by epsilon, with the reference ranges."""
    lines = [
        f"{result['users']} users, {result['runs']} runs; mean squared error +- its own (ratio to Alg. 2)"
    ]
    for panel in result["panels"]:
        epsilons = "".join(f"{f'epsilon {epsilon:g}':>22}" for epsilon in panel["epsilon"])
        lines.append(f"\n{panel['title']:<38}{epsilons}")

        for curve in panel["curves"]:
            points = zip(curve["mse"], curve["stderr"], curve["ratio"], strict=True)
            cells = "".join(
                f"{f'{mse:.2g}{_give(stderr)} ({ratio:.2f})':>22}" for mse, stderr, ratio in points
            )
            lines.append(f"  {curve['label']:<36}{cells}{_reference(curve['reference'])}")

    return "\n".join([*lines, "", result["note"], f"picture: {result['png']}"]) + "\n"


def _give(stderr: float | None) -> str:
    if stderr is None:
        return ""
    return f"+-{stderr:.0e}"


def _reference(reference: dict[str, Any]) -> str:
    known = {name: reference[name] for name in ("mse", "ratio") if reference[name]}
    said = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in known.items())

    if said:
        return f"   (reference at epsilon {reference['epsilon']:g}: {said})"
    return ""
