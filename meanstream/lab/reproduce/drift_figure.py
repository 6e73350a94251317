"""`meanstream reproduce drift`: how long agents of several kinds err after half of the means have moved."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from meanstream.lab.reproduce.figure_runner import (
    Result,
    Say,
    SeedOption,
    new_axes,
    reproduce_figure,
    save_figure,
)
from meanstream.pipelines.options.base import JsonOption
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, cli_option
from meanstream.pipelines.options.option_errors import refusing_options

if TYPE_CHECKING:
    from meanstream.lab.simulation.drift.simulated_drift import DriftConfig, MakeLearner

AGES = (50, 100, 150, 200, 300, 500, 700, 1000, 1400, 2000, 3000, 5000)
PRINTED_AGES = (200, 500, 1000, 2000, 5000)
AGENTS = 200
BEGIN = 5000
LENGTH = 500
"""Of the window, and of the exponentially weighted mean."""
MEMORY = "half-life:2000"
HOSTED = {
    "ours, forever (default)": {"memory": "forever"},
    f"alone, change-point, {MEMORY}": {"memory": MEMORY, "collaboration": "none"},
    f"ours, {MEMORY}": {"memory": MEMORY},
}
"""Options of the curves of agents that are hosted."""
CURVES = {
    "ours, forever (default)": ("tab:red", "-"),
    f"alone, EWMA {LENGTH}": ("tab:gray", "--"),
    f"alone, window {LENGTH}": ("tab:purple", ":"),
    f"alone, change-point, {MEMORY}": ("tab:orange", "-."),
    f"ours, {MEMORY}": ("tab:blue", "-"),
}
"""Color and line of each curve."""
PANELS = (
    ("changed", "mse", "agents that moved: mean squared error"),
    ("unchanged", "mse", "the others: mean squared error"),
    ("changed", "coverage", "agents that moved: coverage of 95 % intervals"),
)


def reproduce_drift(
    runs: Annotated[int, cli_option("Independent repetitions.", INPUT)] = 5,
    seed: SeedOption = 1,
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
        for label in CURVES:
            _configuration(label, runs, seed)

    reproduce_figure(
        out / "drift.png", partial(_measure, runs, seed), _draw, drift_lines, as_json=json
    )


def _measure(runs: int, seed: int, say: Say) -> Result:
    """Simulate every curve, on the same means and samples."""
    from meanstream.lab.simulation.drift.simulated_drift import simulate_drift

    curves = []
    for label, (color, line) in CURVES.items():
        say(f"drift: {label}")
        config = _configuration(label, runs, seed)
        measured = simulate_drift(config, learner=_learner(label)).as_dict()
        curves.append({
            "label": label,
            "color": color,
            "line": line,
            "changed": measured["changed"],
            "unchanged": measured["unchanged"],
        })  # fmt: skip

    return {"runs": runs, "seed": seed, "change": config.change, "ages": AGES, "curves": curves}


def _configuration(label: str, runs: int, seed: int) -> DriftConfig:
    from meanstream.lab.simulation.drift.simulated_drift import DriftConfig

    options: dict[str, Any] = HOSTED.get(label, {})
    return DriftConfig(
        change=f"step:0.2,0.5@{BEGIN}",
        agents=AGENTS,
        steps=BEGIN + AGES[-1],
        ages=AGES,
        runs=runs,
        seed=seed,
        **options,
    )


def _learner(label: str) -> MakeLearner:
    """Give how to make the agents of a curve."""
    from meanstream.lab.simulation.drift.simulated_drift import (
        ExponentialMean,
        WindowMean,
        hosted_agents,
    )

    if label in HOSTED:
        return hosted_agents
    kind = ExponentialMean if "EWMA" in label else WindowMean

    return lambda config, *_: kind(LENGTH, stddev=config.stddev)


def drift_lines(result: Result) -> Iterator[str]:
    """Lay out squared error and coverage of agents that moved, and of the others."""
    yield f"squared error in 1e-4 and coverage by samples since {result['change']}, {result['runs']} runs"
    for agents, title in (("changed", "agents that moved"), ("unchanged", "the others")):
        yield f"\n{title}"
        for curve in result["curves"]:
            points = zip(
                result["ages"], curve[agents]["mse"], curve[agents]["coverage"], strict=True
            )
            cells = [
                f"{age}: {mse * 1e4:.3g}, {coverage:.2f}"
                for age, mse, coverage in points
                if age in PRINTED_AGES
            ]
            yield f"  {curve['label']:<36}" + "   ".join(cells)


def _draw(result: Result, path: Path) -> None:
    """Draw errors and coverage by the age of the change."""
    figure, (axes,) = new_axes(1, len(PANELS), (14.4, 4.8))
    ticks = [50, 100, 200, 500, 1000, 2000, 5000]

    for ax, (agents, measure, title) in zip(axes, PANELS, strict=True):
        for curve in result["curves"]:
            style = {"color": curve["color"], "lw": 1.6, "label": curve["label"]}
            ax.plot(result["ages"], curve[agents][measure], curve["line"], **style)

        ax.set(xscale="log", xlabel="samples of an agent since the change", title=title)
        ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        ax.minorticks_off()

        if measure == "mse":
            ax.set_yscale("log")
        else:
            ax.axhline(0.95, color="0.35", lw=0.8, ls="--")
            ax.set_ylim(-0.03, 1.03)

        ax.grid(visible=True, which="major", alpha=0.3)

    axes[0].legend(fontsize=8, loc="lower left")
    save_figure(figure, path, f"{result['change']}: {result['runs']} runs, seed {result['seed']}")
