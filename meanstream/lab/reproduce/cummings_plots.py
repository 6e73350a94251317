"""Pictures of the curator's errors, next to reference ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meanstream.pipelines.commands.command_outputs import save_output_figure
from meanstream.pipelines.commands.plots import legends_below


def draw_cummings(result: dict[str, Any], path: Path) -> None:
    """Draw errors above and their ratios to Algorithm 2 below, one column per law of sizes, into a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = result["panels"]
    figure = Figure(figsize=(5.2 * len(panels), 8.2), layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(2, len(panels), squeeze=False)

    for column, panel in enumerate(panels):
        for row, measure in enumerate(("mse", "ratio")):
            _draw_panel(rows[row][column], panel, measure)

        rows[0][column].set_title(panel["title"])
        rows[1][column].set_xlabel("epsilon")

    rows[0][0].set_ylabel("mean squared error on [0, 1]")
    rows[1][0].set_ylabel("ratio to Algorithm 2")
    legends_below(figure, rows[0])
    title = (
        f"Cummings et al.: {result['users']} users, {result['runs']} runs, seed {result['seed']}"
    )
    figure.suptitle(title, fontsize=11)
    save_output_figure("out", path, figure, dpi=150)


def _draw_panel(ax: Any, panel: dict[str, Any], measure: str) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    for place, curve in enumerate(panel["curves"]):
        style = {"color": curve["color"], "lw": 1.4, "label": curve["label"]}
        ax.plot(panel["epsilon"], curve[measure], curve["line"], **style)
        known = curve["reference"][measure]
        if known:
            # Side by side, where ranges of several curves would lie on each other.
            at = curve["reference"]["epsilon"] * 1.04 ** (place - 1)
            ax.plot([at, at], known, color=curve["color"], lw=5, alpha=0.4, solid_capstyle="butt")

    ax.plot([], [], color="0.35", lw=5, alpha=0.4, label="reference ranges")
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(panel["epsilon"], [f"{epsilon:g}" for epsilon in panel["epsilon"]])
    ax.xaxis.set_minor_locator(NullLocator())

    if measure == "ratio":
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_locator(NullLocator())

    ax.grid(visible=True, which="major", alpha=0.3)
