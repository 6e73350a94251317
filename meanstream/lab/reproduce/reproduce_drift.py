"""`meanstream reproduce drift`.

How long agents of several kinds err after half of the means have moved.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, cli_option
from meanstream.pipelines.options.option_errors import refusing_options

if TYPE_CHECKING:
    from meanstream.lab.simulation.drift.simulated_drift import DriftConfig, MakeLearner

AGES = (50, 100, 150, 200, 300, 500, 700, 1000, 1400, 2000, 3000, 5000)
AGENTS = 200
BEGIN = 5000
LENGTH = 500
"""Of the window, and of the exponentially weighted mean."""
MEMORY = "half-life:2000"
TOLD = (200, 500, 1000, 2000, 5000)
PICTURE = "drift.png"
CURVES: dict[str, dict[str, str]] = {
    "ours, forever (default)": {"color": "tab:red", "line": "-", "memory": "forever"},
    f"alone, EWMA {LENGTH}": {"color": "tab:gray", "line": "--"},
    f"alone, window {LENGTH}": {"color": "tab:purple", "line": ":"},
    f"alone, change-point, {MEMORY}": {
        "color": "tab:orange",
        "line": "-.",
        "memory": MEMORY,
        "collaboration": "none",
    },
    f"ours, {MEMORY}": {"color": "tab:blue", "line": "-", "memory": MEMORY},
}
"""What is drawn: of agents that are hosted their options, too."""


def reproduce_drift(
    runs: Annotated[int, cli_option("Independent repetitions.", INPUT)] = 5,
    seed: Annotated[int, cli_option("Seed; run r depends on it and on r only.", INPUT)] = 1,
    out: Annotated[Path, cli_option("Folder for drift.png.", OUTPUT)] = Path(),
    json: JsonOption = False,
) -> None:
    """Compare memories when means move: errors and coverage by samples since half of the agents moved.

    200 agents are in three classes. After 5,000 samples every second one moves by 0.2. The figure shows ours with
    the default memory and with a half-life. It also shows agents alone: an exponentially weighted mean, a window,
    and a mean with a change detector.

    \b
    Example:
      meanstream reproduce drift --runs 5 --out figures
    """  # noqa: D301 - click reads the escape
    with refusing_options():
        for curve in CURVES.values():
            _configuration(curve, runs, seed)

    from meanstream.lab.reproduce.drift_plots import draw_drift
    from meanstream.pipelines.commands.plots import plot_path, require_matplotlib_for_plots

    require_matplotlib_for_plots()
    picture = plot_path(out, PICTURE)
    result = _measure(runs, seed, progress=not json)
    draw_drift(result, picture)
    result["png"] = str(picture)

    if json:
        print_options_json(result)
    else:
        sys.stdout.write(reproduce_drift_text(result))


def _measure(runs: int, seed: int, *, progress: bool) -> dict[str, Any]:
    """Simulate every curve, on the same means and samples."""
    from meanstream.lab.simulation.drift.simulated_drift import hosted_agents, simulate_drift

    curves = []
    ages = AGES

    for label, curve in CURVES.items():
        if progress:
            sys.stderr.write(f"drift: {label}\n")

        learner = hosted_agents if "memory" in curve else _alone(label)
        found = simulate_drift(_configuration(curve, runs, seed), learner=learner).as_dict()
        curves.append({"label": label, "color": curve["color"], "line": curve["line"]}
                      | {part: found[part] for part in ("changed", "unchanged")})  # fmt: skip

    change = _configuration({}, runs, seed).change
    return {"runs": runs, "seed": seed, "change": change, "ages": ages, "curves": curves}


def _configuration(curve: dict[str, str], runs: int, seed: int) -> DriftConfig:
    from meanstream.lab.simulation.drift.simulated_drift import DriftConfig

    given: dict[str, Any] = {
        name: curve[name] for name in ("memory", "collaboration") if name in curve
    }
    return DriftConfig(
        change=f"step:0.2,0.5@{BEGIN}",
        agents=AGENTS,
        steps=BEGIN + AGES[-1],
        ages=AGES,
        runs=runs,
        seed=seed,
        **given,
    )


def _alone(label: str) -> MakeLearner:
    """Give how to make an agent alone that looks for nothing."""
    from meanstream.lab.simulation.drift.drift_learners import ExponentialMean, WindowMean

    if "EWMA" in label:
        return lambda config, *_: ExponentialMean(LENGTH, stddev=config.stddev)
    return lambda config, *_: WindowMean(LENGTH, stddev=config.stddev)


def reproduce_drift_text(result: dict[str, Any]) -> str:
    """Lay out squared error and coverage of agents that moved, and of the others."""
    lines = [
        f"squared error in 1e-4 and coverage by samples since {result['change']}, {result['runs']} runs"
    ]
    places = [place for place, age in enumerate(result["ages"]) if age in TOLD]

    for part, title in (("changed", "agents that moved"), ("unchanged", "the others")):
        lines.append(f"\n{title}")
        for curve in result["curves"]:
            found = curve[part]
            cells = [
                f"{result['ages'][place]}: {found['mse'][place] * 1e4:.3g}, {found['coverage'][place]:.2f}"
                for place in places
            ]
            lines.append(f"  {curve['label']:<36}" + "   ".join(cells))

    return "\n".join([*lines, "", f"picture: {result['png']}"]) + "\n"
