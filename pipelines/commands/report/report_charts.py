"""The pictures of a report, as SVG.

Of the same figures as the live page (`meanstream.pipelines.page.page_figures`).

Each picture is drawn twice, for a wide and for a narrow window, in colors of the page's style:
light or dark.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from io import StringIO
from typing import Any

from meanstream.pipelines.drawn_text import drawn_text

BLUE = "#1a6bc2"
GRAY = "#6b7280"
ORANGE = "#b8500f"
_INK = "#010203"
_LINE = "#a1a2a3"  # in no picture otherwise
_STYLED = {BLUE: "blue", GRAY: "gray", ORANGE: "orange", _INK: "ink", _LINE: "line"}
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_WIDTHS = {"wide": 9.4, "narrow": 4.6}
_LOOK: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    **dict.fromkeys(("axes.edgecolor", "grid.color"), _LINE),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
}
SEVERAL_TICKS = 4
"""A scale is logarithmic where the largest number is that many times the least: then some of its
ticks have numbers."""


def convergence_chart(found: Mapping[str, Any]) -> str:
    """Half-widths together and alone in the course of event time.

    Medians, and 10 % to 90 % quantiles.
    """
    time = [datetime.fromtimestamp(seconds, UTC) for seconds in found["event_time"]]

    def draw(axes: Any) -> None:
        # Half of the agents lie within each band.
        for name, color in (("alone", GRAY), ("together", BLUE)):
            of = found[name]
            axes.fill_between(time, of["low"], of["high"], color=color, alpha=0.18, lw=0)
            axes.plot(time, of["median"], "o-", ms=3, color=color, label=name)

        axes.set(xlabel="event time (UTC)", ylabel="half-width, value's unit")
        _dates(axes)
        _scale(axes, [*found["alone"]["high"], *found["together"]["low"]])

    return _picture("convergence", draw)


def population_chart(found: Mapping[str, Any]) -> str:
    """Draw the density of the learned prior, and its centers."""
    density = found["density"]

    # Triangles above the density are the centers, with how well they are known.
    centers = [component["center"] for component in found["components"]]
    spread = [component["center_stddev"] for component in found["components"]]

    def draw(axes: Any) -> None:
        axes.fill_between(density["value"], density["density"], color=BLUE, alpha=0.18, lw=0)
        axes.plot(density["value"], density["density"], color=BLUE, label="prior")
        top = [1.07 * max(density["density"])] * len(centers)
        axes.errorbar(centers, top, xerr=spread, fmt="v", color=ORANGE, label="centers")
        axes.set(
            xlabel="mean of an agent, value's unit",
            ylabel="prior density",
            xlim=(density["value"][0], density["value"][-1]),
        )
        axes.set_ylim(bottom=0)

    return _picture("population", draw)


def counts_chart(found: Mapping[str, Any]) -> str:
    """Draw how means, and their spread, go with an agent's number of samples."""
    center = found["center"]
    spread = found["spread"]

    def draw(axes: Any) -> None:
        # The band is the spread of the means, not of their center.
        low, high = (
            [c + sign * s for c, s in zip(center, spread, strict=True)] for sign in (-1, 1)
        )
        axes.fill_between(found["n"], low, high, color=BLUE, alpha=0.18, lw=0)
        axes.plot(found["n"], center, "o-", ms=3, color=BLUE, label="center, and spread of means")
        axes.set(xscale="log", xlabel="samples of an agent", ylabel="mean, value's unit")
        axes.xaxis.set_major_formatter("{x:,.0f}")

    return _picture("counts", draw)


def windows_chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """Each window's answer with its interval.

    Of vectors and categories those of the newest window.
    """
    import numpy as np

    last = rows[-1]

    # A vector has one picture of its newest window; numbers have one of all windows.
    vector = isinstance(last["value"], list)
    names = last.get("categories") or last.get("quantiles")
    shares = "categories" in last

    # Values with ends, as distances that error bars take.
    value = np.array(last["value"] if vector else [row["value"] for row in rows])
    ends = [
        np.array(last[end] if vector else [row[end] for row in rows]) for end in ("lower", "upper")
    ]
    positions = (
        np.arange(1, len(value) + 1)
        if vector
        else np.array([row["start"][:19] for row in rows], "datetime64[s]")
    )
    reach = [np.maximum(value - ends[0], 0), np.maximum(ends[1] - value, 0)]

    # What the axis is of.
    of, part = (
        ("share", "category")
        if shares
        else ("quantile", "probability")
        if names
        else ("mean", "coordinate")
    )

    def draw(axes: Any) -> None:
        axes.errorbar(
            positions,
            value,
            yerr=reach,
            fmt="o",
            ms=4,
            lw=1.2,
            color=BLUE,
            label=f"private {of} with its interval",
        )
        where = f"{part}, in the newest window" if vector else "start of the window (UTC)"
        axes.set(xlabel=where, ylabel="share of the users" if shares else f"{of}, value's unit")

        if names:
            axes.set_xticks(
                positions, [drawn_text(f"{name}", 24) for name in names], rotation=45, ha="right"
            )

        if not vector:
            _dates(axes)

    return _picture("windows", draw)


def stages_chart(row: Mapping[str, Any]) -> str | None:
    """Draw where each stage of a window's round left the mean to be.

    None where the stages say nothing of that.
    """
    # Votes have no center: only stages with one are drawn.
    shown = [stage for stage in row["stages"] if stage["center"] is not None]
    if not shown:
        return None
    names = [drawn_text(f"{number} {stage['name']}") for number, stage in enumerate(shown, 1)]

    def draw(axes: Any) -> None:
        for line, stage in enumerate(shown):
            if stage["lower"] is not None:
                width = stage["upper"] - stage["lower"]
                axes.barh(line, width, left=stage["lower"], height=0.5, color=BLUE, alpha=0.25)

        axes.plot(
            [stage["center"] for stage in shown],
            range(len(shown)),
            "o",
            color=ORANGE,
            label="center",
        )
        axes.set(yticks=range(len(names)), xlabel="value's unit", ylim=(len(names) - 0.5, -0.5))
        axes.set_yticklabels(names)

    return _picture("stages", draw, height=1.2 + 0.4 * len(shown))


def budget_chart(found: Mapping[str, Any], who: str) -> str:
    # Labels are shares of the budget; without one, numbers of rounds.
    """How many have spent which share of their budget."""

    def draw(axes: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        axes.bar(found["labels"], found["agents"], color=BLUE)
        axes.set(
            xlabel="rounds paid for" if found["horizon"] is None else "spent share of the budget",
            ylabel=who,
        )
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))

        if len(found["labels"]) > 24:  # without a limit there may be many
            axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
        elif axes.get_figure().get_figwidth() < 6:
            axes.tick_params(axis="x", rotation=90)

    return _picture("budget", draw, legend=False)


def simulation_chart(result: Mapping[str, Any]) -> str:
    """Mean squared error against samples per agent, next to what is possible."""
    steps = result["checkpoints"]
    reach = [1.96 * s for s in result["stderr"]] if result.get("stderr") is not None else None

    # What is possible stands next to what was simulated.
    styles = {"local": (GRAY, "-"), "ideal": (GRAY, "-."), "oracle": (ORANGE, ":")}

    def draw(axes: Any) -> None:
        axes.errorbar(
            steps, result["mse"], yerr=reach, fmt="o-", ms=4, color=BLUE, label="simulated"
        )
        drawn = list(result["mse"])

        for name, (color, line) in styles.items():
            if result.get(name) is not None:
                axes.plot(steps, result[name], line, color=color, label=name)
                drawn += result[name]

        axes.set(xlabel="samples per agent", ylabel="mean squared error")
        _scale(axes, drawn)

    return _picture("simulation", draw)


def drift_chart(result: Mapping[str, Any], parts: Mapping[str, str], measure: str) -> str:
    """Draw squared error or coverage by the samples since a change, of each part of the agents that there is."""
    ages = result["ages"]
    drawn = []

    def draw(axes: Any) -> None:
        # Unchanged agents may be missing: then every mean has moved.
        for (name, title), color in zip(parts.items(), (BLUE, ORANGE), strict=True):
            errors = result[name]
            if errors is None:
                continue
            reach = (
                [1.96 * s for s in errors["stderr"]]
                if measure == "mse" and errors["stderr"] is not None
                else None
            )
            axes.errorbar(
                ages, errors[measure], yerr=reach, fmt="o-", ms=4, color=color, label=title
            )
            drawn.extend(errors[measure])

        axes.set(xscale="log", xlabel="samples of an agent since the change")
        axes.set_xticks(ages, [f"{age:,}" for age in ages])
        axes.minorticks_off()

        # Errors on a scale of ratios; coverage beside the level that it should have.
        if measure == "mse":
            axes.set_ylabel("mean squared error")
            _scale(axes, drawn)
        else:
            axes.set(ylabel="coverage", ylim=(-0.03, 1.03))
            axes.axhline(0.95, color=GRAY, lw=1, ls="--")

    return _picture(f"drift-{measure}", draw)


def errors_chart(result: Mapping[str, Any]) -> str:
    """Draw the simulated mean squared error of rounds next to what the estimator predicts."""
    names = [name for name in ("mse", "mse_cut", "predicted_mse") if result.get(name) is not None]
    reach = [1.96 * (result.get("stderr") or 0.0) if name == "mse" else 0.0 for name in names]
    labels = {"mse": "simulated", "mse_cut": "cut to [-1, 1]", "predicted_mse": "predicted"}

    def draw(axes: Any) -> None:
        axes.barh(
            [labels[name] for name in names],
            [result[name] for name in names],
            xerr=reach,
            color=BLUE,
            height=0.5,
        )
        axes.invert_yaxis()
        axes.set(xlabel="mean squared error on [-1, 1]")

    return _picture("errors", draw, height=2.4, legend=False)


def audit_chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """Draw of each mechanism, in shares of its claim, what was proved and what could have been."""
    positions = range(len(rows))

    # The claim is 1; a bar beyond it would refute it.
    proved, ceiling = (
        [row[name] / row["claimed"] for row in rows] for name in ("proved", "ceiling")
    )

    def draw(axes: Any) -> None:
        colors = [ORANGE if row["violated"] else BLUE for row in rows]
        axes.barh(positions, ceiling, height=0.7, color=GRAY, alpha=0.25, label="ceiling")
        axes.barh(positions, proved, height=0.35, color=colors, label="proved")
        axes.axvline(1, color=_INK, lw=1, label="claimed")
        axes.set(
            yticks=positions, xlabel="share of the claimed epsilon", ylim=(len(rows) - 0.5, -0.5)
        )
        axes.set_yticklabels([drawn_text(row["name"]) for row in rows])

    return _picture("audit", draw, height=1.2 + 0.28 * len(rows))


def _picture(
    name: str, draw: Callable[[Any], None], *, height: float = 3.6, legend: bool = True
) -> str:
    """Draw a picture in both widths; the style of the report shows the one that fits."""
    return "".join(
        _svg(f"{name}-{kind}", kind, draw, (width, height), legend)
        for kind, width in _WIDTHS.items()
    )


def _svg(
    name: str, kind: str, draw: Callable[[Any], None], size: tuple[float, float], legend: bool
) -> str:
    """Write an SVG element; its ids are of this picture alone, and it names no file of a format."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    text = StringIO()
    # A name may have letters that the font has not, a number may be larger than an axis takes.
    with rc_context({**_LOOK, "svg.hashsalt": name, "svg.id": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        axes.grid(alpha=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)

        if legend:  # above: never on the data
            axes.legend(
                frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2
            )

        figure.savefig(text, format="svg", metadata=_NO_METADATA)

    drawn = text.getvalue()

    # Colors become names of the style, so that the report can be dark.
    for color, style in _STYLED.items():
        drawn = drawn.replace(color, f"var(--{style})")

    return f'<div class="{kind}">{drawn[drawn.index("<svg") :]}</div>'


def _dates(axes: Any) -> None:
    from matplotlib import dates

    kinds: Any = dates  # whose constructors have no types
    locator = kinds.AutoDateLocator(
        minticks=3, maxticks=5 if axes.get_figure().get_figwidth() < 6 else 9
    )
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(kinds.ConciseDateFormatter(locator))


def _scale(axes: Any, values: Sequence[float]) -> None:
    """Make a scale that always has numbers.

    Logarithmic only where several of its ticks are in reach.
    """
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    # A scale of logarithms needs several ticks; else it begins at 0.
    positive = [value for value in values if value > 0]
    if not positive or max(positive) < SEVERAL_TICKS * min(positive):
        axes.set_ylim(bottom=0)
        return

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
