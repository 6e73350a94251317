"""The pictures of a report, as SVG; of the same figures as the live page (`meanstream.pipelines.page.figures`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BLUE, GRAY, ORANGE = "#1a6bc2", "#6b7280", "#b8500f"
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def convergence_chart(found: Mapping[str, Any], label: str) -> str:
    """Half-widths together and alone: medians, and from the 10 % to the 90 % quantile."""
    figure, axes = _axes()
    for name, color in (("alone", GRAY), ("together", BLUE)):
        of = found[name]
        axes.fill_between(found["events"], of["low"], of["high"], color=color, alpha=0.18, lw=0)
        axes.plot(found["events"], of["median"], "o-", ms=3, color=color, label=name)
    axes.set(yscale="log", xlabel=label, ylabel="half-width of the interval, value's unit")
    _plain_ticks(axes)
    return _svg(figure, axes, "convergence")


def population_chart(found: Mapping[str, Any]) -> str:
    """Draw the density of the learned prior, and its centers."""
    figure, axes = _axes()
    density = found["density"]
    axes.fill_between(density["value"], density["density"], color=BLUE, alpha=0.18, lw=0)
    axes.plot(density["value"], density["density"], color=BLUE, label="prior density")
    top = 1.07 * max(density["density"])
    centers = [component["center"] for component in found["components"]]
    spread = [component["center_stddev"] for component in found["components"]]
    axes.errorbar(centers, [top] * len(centers), xerr=spread, fmt="v", color=ORANGE, label="centers")
    axes.set(xlabel="mean of an agent, value's unit", xlim=(density["value"][0], density["value"][-1]))
    axes.set_ylim(bottom=0)
    return _svg(figure, axes, "population")


def windows_chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """Each window's answer with its interval; of vectors the coordinates of the newest window."""
    import numpy as np

    figure, axes = _axes()
    last = rows[-1]
    vector = isinstance(last["value"], list)
    value = np.array(last["value"] if vector else [row["value"] for row in rows])
    ends = [np.array(last[end] if vector else [row[end] for row in rows]) for end in ("lower", "upper")]
    at = np.arange(1, len(value) + 1) if vector else np.array([row["start"][:19] for row in rows], "datetime64[s]")
    reach = [np.maximum(value - ends[0], 0), np.maximum(ends[1] - value, 0)]
    axes.errorbar(at, value, yerr=reach, fmt="o", ms=4, lw=1.2, color=BLUE, label="private mean with its interval")
    axes.set(xlabel="coordinate, in the newest window" if vector else "start of the window", ylabel="value's unit")
    return _svg(figure, axes, "windows")


def budget_chart(found: Mapping[str, Any], who: str) -> str:
    """How many have spent which share of their budget."""
    figure, axes = _axes()
    axes.bar(found["labels"], found["agents"], color=BLUE)
    axes.set(xlabel="rounds paid for" if found["horizon"] is None else "spent share of the budget", ylabel=who)
    if len(found["labels"]) > 24:  # without a limit there may be many
        axes.xaxis.set_major_locator(_few_ticks())
    return _svg(figure, None, "budget")


def simulation_chart(result: Mapping[str, Any]) -> str:
    """Mean squared error against samples per agent, beside what is possible."""
    figure, axes = _axes()
    steps = result["checkpoints"]
    reach = [1.96 * s for s in result["stderr"]] if result.get("stderr") is not None else None
    axes.errorbar(steps, result["mse"], yerr=reach, fmt="o-", ms=4, color=BLUE, label="simulated")
    styles = {"local": (GRAY, "-"), "ideal": (GRAY, "-."), "oracle": (ORANGE, ":")}
    for name, (color, line) in styles.items():
        if result.get(name) is not None:
            axes.plot(steps, result[name], line, color=color, label=name)
    axes.set(yscale="log", xlabel="samples per agent", ylabel="mean squared error")
    return _svg(figure, axes, "simulation")


def errors_chart(result: Mapping[str, Any]) -> str:
    """Draw the simulated mean squared error of rounds beside what the estimator predicts."""
    figure, axes = _axes(height=2.4)
    names = [name for name in ("mse", "mse_cut", "predicted_mse") if result.get(name) is not None]
    reach = [1.96 * (result.get("stderr") or 0.0) if name == "mse" else 0.0 for name in names]
    labels = {"mse": "simulated", "mse_cut": "cut to [-1, 1]", "predicted_mse": "predicted"}
    axes.barh([labels[name] for name in names], [result[name] for name in names], xerr=reach, color=BLUE, height=0.5)
    axes.invert_yaxis()
    axes.set(xlabel="mean squared error on [-1, 1]")
    return _svg(figure, None, "errors")


def _axes(height: float = 3.6) -> tuple[Any, Any]:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.4, height), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _plain_ticks(axes: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(12, integer=True)


def _svg(figure: Any, axes: Any, name: str) -> str:
    """Write an SVG element; its ids are of this picture alone, and it names no file of a format."""
    from io import StringIO

    from matplotlib import rc_context

    if axes is not None:
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=4)  # above: never on the data
    text = StringIO()
    with rc_context({"svg.hashsalt": name, "svg.id": name}):
        figure.savefig(text, format="svg", metadata=_NO_METADATA)
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :]
