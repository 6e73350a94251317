"""The picture of `meanstream reproduce drift`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meanstream.pipelines.commands.command_outputs import save_output_figure

PANELS = (
    ("changed", "mse", "agents that moved: mean squared error"),
    ("unchanged", "mse", "the others: mean squared error"),
    ("changed", "coverage", "agents that moved: coverage of 95 % intervals"),
)


def draw_drift(result: dict[str, Any], path: Path) -> None:
    """Draw errors and coverage by the age of the change into a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14.4, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(PANELS), squeeze=False)[0]
    for ax, (part, measure, title) in zip(axes, PANELS, strict=True):
        for curve in result["curves"]:
            style = {"color": curve["color"], "lw": 1.6, "label": curve["label"]}
            ax.plot(result["ages"], curve[part][measure], curve["line"], **style)

        ax.set(xscale="log", xlabel="samples of an agent since the change", title=title)
        ax.set_xticks(
            ticks := [50, 100, 200, 500, 1000, 2000, 5000], [f"{tick:,}" for tick in ticks]
        )
        ax.minorticks_off()

        if measure == "mse":
            ax.set_yscale("log")
        else:
            ax.axhline(0.95, color="0.35", lw=0.8, ls="--")
            ax.set_ylim(-0.03, 1.03)

        ax.grid(visible=True, which="major", alpha=0.3)

    axes[0].legend(fontsize=8, loc="lower left")
    figure.suptitle(
        f"{result['change']}: {result['runs']} runs, seed {result['seed']}", fontsize=11
    )
    save_output_figure("out", path, figure, dpi=150)
