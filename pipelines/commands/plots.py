"""Pictures of simulated errors, drawn like the paper's.

The only file that imports matplotlib for them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meanstream.pipelines.commands.command_outputs import (
    PICTURE_MARK,
    require_new_output,
    save_output_figure,
)
from meanstream.pipelines.options.option_errors import BadOption

_LONG = 28
"""Characters of a label from which on a legend has one column."""


def require_matplotlib_for_plots() -> None:
    """Refuse in one line if the optional dependency is missing, before anything is computed."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise BadOption("pictures need matplotlib: pip install 'meanstream[plot]'")


def plot_path(out: Path, name: str) -> Path:
    """Say where a picture goes, before anything is computed; make its folder.

    Raises
    ------
    BadOption
        If the folder cannot be made, or something else than a picture of ours is there.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadOption(
            f"out must be a folder, or a new one, got {str(out)!r} ({error.strerror})"
        ) from None

    require_new_output("out", out / name, PICTURE_MARK, "a picture of this command")
    return out / name


def say_duration(figure: str, seconds: float, *, quiet: bool) -> None:
    """Say before a simulation how long it takes on one core of a quiet machine.

    `quiet` where only JSON is wanted.
    """
    if not quiet:
        shown = f"{max(round(seconds), 1)} s" if seconds < 90 else f"{round(seconds / 60)} min"
        sys.stderr.write(f"figure {figure}: about {shown} on one core; fewer --runs are faster\n")


def legends_below(figure: Any, axes: Sequence[Any]) -> None:
    """Put legends below the axes, where they cover no data.

    One for all if all have the same labels.
    """
    labels = [ax.get_legend_handles_labels()[1] for ax in axes]
    if all(label == labels[0] for label in labels):
        handles, names = axes[0].get_legend_handles_labels()
        fitting = int(figure.get_figwidth() / (0.6 + 0.06 * max(map(len, names))))
        columns = max(min(4, fitting, len(names)), 1)
        figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=7.5)

        return

    for number, ax in enumerate(axes):
        if labels[number] not in labels[:number]:
            columns = 1 if max(map(len, labels[number])) > _LONG else 2
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=columns, fontsize=7)


def draw_plot(result: dict[str, Any], path: Path) -> None:
    """Draw the panels of a reproduced figure side by side into a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = result["panels"]
    figure = Figure(figsize=(5.2 * len(panels), 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]

    for ax, panel in zip(axes, panels, strict=True):
        _draw_panel(ax, panel)

    legends_below(figure, axes)
    axes[0].set_ylabel("average mean squared error")
    figure.suptitle(f"{result['title']}: {result['runs']} runs, seed {result['seed']}", fontsize=11)
    save_output_figure("out", path, figure, dpi=150)


def _draw_panel(ax: Any, panel: dict[str, Any]) -> None:
    first = panel["curves"][0]
    if panel["measure"] == "type1":
        for curve in panel["curves"]:
            ax.plot(*_visible(panel, curve["checkpoints"], curve["type1"]), curve["line"], color=curve["color"],
                    lw=1.4, label=curve["label"])  # fmt: skip

        ax.set(
            xscale="log",
            xlabel="time t (samples per agent)",
            ylabel="share rejected",
            title=panel["title"],
        )
        ax.grid(visible=True, which="major", alpha=0.3)

        return

    for name, label, line in (("local", "local", "-"), ("ideal", "ideal (no privacy)", "-.")):
        ax.plot(
            *_visible(panel, first["checkpoints"], first[name]),
            line,
            color="0.35",
            lw=1,
            label=label,
        )

    for curve in panel["curves"]:
        style = {"color": curve["color"], "lw": 1.4}
        ax.plot(
            *_visible(panel, curve["checkpoints"], curve["mse"]),
            curve["line"],
            label=curve["label"],
            **style,
        )

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


def _visible(
    panel: dict[str, Any], times: list[int], values: list[float]
) -> tuple[list[int], list[float]]:
    """Keep the part of a curve that the axes show."""
    shown = [(t, v) for t, v in zip(times, values, strict=True) if 10 <= t <= panel["steps"]]
    return [t for t, _ in shown], [v for _, v in shown]
