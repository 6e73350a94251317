"""Pictures of simulated errors, drawn like the paper's; the only file that imports matplotlib for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meanstream.pipelines.commands.command_outputs import PICTURE_MARK, require_new_output, save_output_figure
from meanstream.pipelines.options.option_errors import BadOption


def require_matplotlib_for_plots() -> None:
    """Refuse in one line if the optional dependency is missing, before anything is computed."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise BadOption("pictures need matplotlib: pip install 'meanstream[plot]'")


def plot_path(out: Path, name: str) -> Path:
    """Say where a picture goes, before anything is computed."""
    if not out.is_dir():
        raise BadOption(f"out must be an existing directory, got {str(out)!r}")
    require_new_output("out", out / name, PICTURE_MARK, "a picture of this command")
    return out / name


def draw_plot(result: dict[str, Any], path: Path) -> None:
    """Draw the panels of a reproduced figure side by side into a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = result["panels"]
    figure = Figure(figsize=(5.2 * len(panels), 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    explained: list[list[str]] = []
    for ax, panel in zip(axes, panels, strict=True):
        _draw_panel(ax, panel)
        labels = [curve["label"] for curve in panel["curves"]]
        if labels not in explained:  # panels with the same curves share one legend
            ax.legend(fontsize=7.5, loc="best")
            explained.append(labels)
    axes[0].set_ylabel("average mean squared error")
    figure.suptitle(f"{result['title']}: {result['runs']} runs, seed {result['seed']}", fontsize=11)
    save_output_figure("out", path, figure, dpi=150)


def _draw_panel(ax: Any, panel: dict[str, Any]) -> None:
    first = panel["curves"][0]
    for name, label, line in (("local", "local", "-"), ("ideal", "ideal (no privacy)", "-.")):
        ax.plot(*_visible(panel, first["checkpoints"], first[name]), line, color="0.35", lw=1, label=label)
    for curve in panel["curves"]:
        style = {"color": curve["color"], "lw": 1.4}
        ax.plot(*_visible(panel, curve["checkpoints"], curve["mse"]), curve["line"], label=curve["label"], **style)
        marked = [entry for entry in curve["reference"] if entry["step"] <= panel["steps"]]
        ax.plot(
            [e["step"] for e in marked],
            [e["mse"] for e in marked],
            "o",
            ms=4,
            mfc="white",
            color=curve["color"],
            zorder=5,
        )
    if any(curve["reference"] for curve in panel["curves"]):
        ax.plot([], [], "o", ms=4, mfc="none", color="0.35", label="reference values")
    ax.set(xscale="log", yscale="log", xlabel="time t (samples per agent)", title=panel["title"])
    ax.set_xlim(10, 1.12 * panel["steps"])
    ax.grid(visible=True, which="major", alpha=0.3)


def _visible(panel: dict[str, Any], times: list[int], values: list[float]) -> tuple[list[int], list[float]]:
    """Keep the part of a curve that the axes show."""
    shown = [(t, v) for t, v in zip(times, values, strict=True) if 10 <= t <= panel["steps"]]
    return [t for t, _ in shown], [v for _, v in shown]
