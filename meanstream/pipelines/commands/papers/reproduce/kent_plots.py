"""Pictures of Kent, Berrett and Yu's figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meanstream.pipelines.commands.command_outputs import save_output_figure


def draw_kent(result: dict[str, Any], path: Path) -> None:
    """Draw the panels of a reproduced figure side by side into a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = result["panels"]
    figure = Figure(figsize=(max(4.2 * len(panels), 6.5), 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(ax, panel)
    title = f"Kent, Berrett, Yu, Fig. {result['figure']}: {result['runs']} runs, seed {result['seed']}"
    figure.suptitle(title, fontsize=11)
    save_output_figure("out", path, figure, dpi=150)


def _draw_panel(ax: Any, panel: dict[str, Any]) -> None:
    for curve in panel["curves"]:
        bars = [bar or 0.0 for bar in curve["bar"]]
        # A bar must not reach below 0 on a logarithmic axis.
        down = [min(bar, 0.9 * y) if panel["log"][1] else bar for bar, y in zip(bars, curve["y"], strict=True)]
        style = {"color": curve["color"], "lw": 1.4, "capsize": 2, "label": curve["label"]}
        style |= {"linestyle": curve["line"]} if curve["line"] else {"linestyle": "none", "marker": "s", "ms": 4}
        ax.errorbar(curve["x"], curve["y"], yerr=[down, bars], **style)
        at = [(entry["x"], entry["y"]) for entry in curve["reference"]]
        ax.plot([x for x, _ in at], [y for _, y in at], "o", ms=5, mfc="none", color=curve["color"], zorder=5)
    if any(curve["reference"] for curve in panel["curves"]):
        ax.plot([], [], "o", ms=5, mfc="none", color="0.35", label="reference values")
    ax.set(xlabel=panel["axis"], ylabel=panel["quantity"], title=panel["title"])
    if panel["log"][0]:
        ax.set_xscale("log")
    if panel["log"][1]:
        ax.set_yscale("log")
    if panel["names"]:
        ax.set_xticks(panel["curves"][0]["x"], panel["names"], fontsize=7)
    ax.grid(visible=True, which="major", alpha=0.3)
    ax.legend(fontsize=7)
