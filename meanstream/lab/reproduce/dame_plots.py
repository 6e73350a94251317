"""Pictures of DAME's bounds and errors, drawn like the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meanstream.pipelines.commands.command_outputs import save_output_figure
from meanstream.pipelines.commands.plots import legends_below


def draw_dame(result: dict[str, Any], path: Path) -> None:
    """Draw the panels of a reproduced figure side by side into a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = result["panels"]
    figure = Figure(figsize=(max(4.4 * len(panels), 7.0), 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]

    for ax, panel in zip(axes, panels, strict=True):
        _draw_panel(ax, panel, simulated=result["figure"] == "1b")

    axes[0].set_ylabel("mean squared error")
    legends_below(figure, axes)
    runs = f": {result['runs']} runs, seed {result['seed']}" if result["figure"] == "1b" else ""
    figure.suptitle(f"Pla, Richard, Vono, Fig. {result['figure']}{runs}", fontsize=11)
    save_output_figure("out", path, figure, dpi=150)


def _draw_panel(ax: Any, panel: dict[str, Any], *, simulated: bool) -> None:
    for curve in panel["curves"]:
        style = {
            "color": curve["color"],
            "linestyle": curve["line"],
            "lw": 1.4,
            "label": curve["label"],
        }

        if curve.get("stderr") and None not in curve["stderr"]:
            ax.errorbar(
                curve["x"], curve["y"], yerr=[2.0 * e for e in curve["stderr"]], capsize=2, **style
            )
        else:
            ax.plot(curve["x"], curve["y"], **style)

        at = [(entry["x"], entry["y"]) for entry in curve["reference"]]
        ax.plot(
            [x for x, _ in at],
            [y for _, y in at],
            "o",
            ms=4,
            mfc="white",
            color=curve["color"],
            zorder=5,
        )

    if any(curve["reference"] for curve in panel["curves"]):
        ax.plot([], [], "o", ms=4, mfc="none", color="0.35", label="reference values")

    ax.set(yscale="log", xlabel=panel["axis"], title=panel["title"])
    if not simulated:
        ax.set_xscale("log")

    ax.grid(visible=True, which="major", alpha=0.3)
