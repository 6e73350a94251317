"""How every figure is reproduced: refusals first, then the measurement, a picture, and text or JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.declaration import INPUT, cli_option

T = TypeVar("T")
Result = dict[str, Any]
"""What was measured, as it is printed with --json."""
Say = Callable[[str], object]
"""Writes a line of progress."""

SeedOption = Annotated[int, cli_option("Seed; run r depends on it and on r only.", INPUT)]
RunsOption = Annotated[int, cli_option("Independent repetitions of each point.", INPUT)]


def reproduce_figure(
    picture: Path,
    measure: Callable[[Say], Result],
    draw: Callable[[Result, Path], None],
    lay_out: Callable[[Result], Iterable[str]],
    *,
    as_json: bool,
    name: str = "",
    seconds: float | None = None,
) -> None:
    """Measure a figure, draw it, and print its numbers.

    Parameters
    ----------
    picture : Path
        Where the PNG goes; its folder is made.
    measure, draw, lay_out : callables
        What gives the numbers, draws them, and writes them as lines.
    as_json : bool
    name, seconds
        How long the figure of this name takes on one core, where that is told before.
    """
    from meanstream.pipelines.commands.plots import (
        plot_path,
        require_matplotlib_for_plots,
        say_duration,
    )

    require_matplotlib_for_plots()
    path = plot_path(picture.parent, picture.name)
    if seconds is not None:
        say_duration(name, seconds, quiet=as_json)

    result = measure(lambda line: as_json or sys.stderr.write(f"{line}\n"))
    draw(result, path)
    result["png"] = str(path)

    if as_json:
        print_options_json(result)
        return

    notes = [result["note"]] if "note" in result else []
    lines = [*lay_out(result), "", *notes, f"picture: {path}"]
    sys.stdout.write("\n".join(lines) + "\n")


@cache
def _papers() -> dict[str, Any]:
    import tomllib

    return tomllib.loads(Path(__file__).with_name("papers.toml").read_text(encoding="utf-8"))


def paper_data(paper: str, kind: type[T]) -> T:
    """Read what `papers.toml` has of a paper."""
    import msgspec

    return msgspec.convert(_papers()[paper], kind, str_keys=True)


def number_text(value: float | None, form: str) -> str:
    """Write a number where there is one: `form` has {} for it.

    Examples
    --------
    >>> number_text(0.25, " (reference {:.3g})"), number_text(None, " (reference {:.3g})")
    (' (reference 0.25)', '')
    """
    if value is None:
        return ""
    return form.format(value)


def new_axes(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    """Give an empty figure of that many inches, and its axes by row and column."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def save_figure(figure: Any, path: Path, title: str) -> None:
    """Put a title above a figure, and write it."""
    from meanstream.pipelines.commands.command_outputs import save_output_figure

    figure.suptitle(title, fontsize=11)
    save_output_figure("out", path, figure, dpi=150)


def draw_panels(result: Result, path: Path, *, title: str) -> None:
    """Draw panels side by side: curves, the bars of their points, and reference values.

    A panel has a title, the names of its axis and quantity, whether each is logarithmic, and
    `names` where the values on the axis are no numbers.
    """
    from meanstream.pipelines.commands.plots import legends_below

    panels = result["panels"]
    figure, (axes,) = new_axes(1, len(panels), (max(4.6 * len(panels), 6.5), 5.4))
    for ax, panel in zip(axes, panels, strict=True):
        _draw_panel(ax, panel)

    legends_below(figure, axes)
    drawn = any(bar for panel in panels for curve in panel["curves"] for bar in curve["bar"])
    runs = f": {result['runs']} runs, seed {result['seed']}" if drawn else ""
    save_figure(figure, path, f"{title}{runs}")


def _draw_panel(ax: Any, panel: Result) -> None:
    for curve in panel["curves"]:
        _draw_curve(ax, curve, log_y=panel["log"][1])

    if any(curve["reference"] for curve in panel["curves"]):
        ax.plot([], [], "o", ms=5, mfc="none", color="0.35", label="reference values")

    ax.set(xlabel=panel["axis"], ylabel=panel["quantity"])
    ax.set_title(panel["title"], fontsize=10)
    ax.set_xscale("log" if panel["log"][0] else "linear")
    ax.set_yscale("log" if panel["log"][1] else "linear")
    if panel["names"]:
        ax.set_xticks(panel["curves"][0]["x"], panel["names"], fontsize=7)

    ax.grid(visible=True, which="major", alpha=0.3)


def _draw_curve(ax: Any, curve: Result, *, log_y: bool) -> None:
    style = {"color": curve["color"], "lw": 1.4, "label": curve["label"]}
    points = {"linestyle": "none", "marker": "s", "ms": 4}
    style |= {"linestyle": curve["line"]} if curve["line"] else points

    bars = [bar or 0.0 for bar in curve["bar"]]
    if any(bars):
        # A bar must not reach below 0 on a logarithmic axis.
        longest = [0.9 * y if log_y else float("inf") for y in curve["y"]]
        below = [min(pair) for pair in zip(bars, longest, strict=True)]
        ax.errorbar(curve["x"], curve["y"], yerr=[below, bars], capsize=2, **style)
    else:
        ax.plot(curve["x"], curve["y"], **style)

    known = {entry["x"]: entry["y"] for entry in curve["reference"]}
    ax.plot([*known], [*known.values()], "o", ms=5, mfc="none", color=curve["color"], zorder=5)


def shown_curve(
    label: str,
    color: str,
    line: str,
    x: Sequence[float],
    y: Sequence[float],
    *,
    bar: Sequence[float | None] | None = None,
    reference: dict[float, float] | None = None,
) -> Result:
    """Give a curve as it is printed and drawn."""
    known = [{"x": at, "y": value} for at, value in (reference or {}).items()]
    return {
        "label": label,
        "color": color,
        "line": line,
        "x": list(x),
        "y": list(y),
        "bar": [None] * len(x) if bar is None else list(bar),
        "reference": known,
    }
