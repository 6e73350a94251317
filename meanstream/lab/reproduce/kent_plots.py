"""Pictures of Kent, Berrett and Yu's figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meanstream.pipelines.commands.command_outputs import save_output_figure
from meanstream.pipelines.commands.plots import legends_below


def draw_kent(result: dict[str, Any], path: Path) -> None:
    """Draw the panels of a reproduced figure side by side into a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = result["panels"]
    figure = Figure(figsize=(max(4.6 * len(panels), 6.5), 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]

    for ax, panel in zip(axes, panels, strict=True):
        _draw_panel(ax, panel)

    legends_below(figure, axes)
    drawn = any(bar for panel in panels for curve in panel["curves"] for bar in curve["bar"])
    runs = f": {result['runs']} runs, seed {result['seed']}" if drawn else ""
    title = f"{result.get('authors', 'Kent, Berrett, Yu')}, {_named(result['figure'])}{runs}"
    figure.suptitle(title, fontsize=11)
    save_output_figure("out", path, figure, dpi=150)


def _named(figure: str) -> str:
    if figure.startswith("App"):
        return figure
    return f"Fig. {figure}"


def _draw_panel(ax: Any, panel: dict[str, Any]) -> None:
    for curve in panel["curves"]:
        bars = [bar or 0.0 for bar in curve["bar"]]
        # A bar must not reach below 0 on a logarithmic axis.
        down = [
            min(bar, 0.9 * y) if panel["log"][1] else bar
            for bar, y in zip(bars, curve["y"], strict=True)
        ]
        style = {"color": curve["color"], "lw": 1.4, "label": curve["label"]}
        style |= (
            {"linestyle": curve["line"]}
            if curve["line"]
            else {"linestyle": "none", "marker": "s", "ms": 4}
        )

        if any(bars):
            ax.errorbar(curve["x"], curve["y"], yerr=[down, bars], capsize=2, **style)
        else:
            ax.plot(curve["x"], curve["y"], **style)

        at = [(entry["x"], entry["y"]) for entry in curve["reference"]]
        ax.plot(
            [x for x, _ in at],
            [y for _, y in at],
            "o",
            ms=5,
            mfc="none",
            color=curve["color"],
            zorder=5,
        )

    if any(curve["reference"] for curve in panel["curves"]):
        ax.plot([], [], "o", ms=5, mfc="none", color="0.35", label="reference values")

    ax.set(xlabel=panel["axis"], ylabel=panel["quantity"])
    ax.set_title(panel["title"], fontsize=10)

    if panel["log"][0]:
        ax.set_xscale("log")

    if panel["log"][1]:
        ax.set_yscale("log")

    if panel["names"]:
        ax.set_xticks(panel["curves"][0]["x"], panel["names"], fontsize=7)

    ax.grid(visible=True, which="major", alpha=0.3)
