"""Draws a dashboard without Grafana.

Its own panels and queries, answered by Prometheus, in Grafana's grid.
"""

from __future__ import annotations

import io
import json
import re
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

DASHBOARDS = Path(__file__).parents[2] / "docker" / "grafana" / "dashboards"
RATE = "10s"
LOOKS = {
    False: {
        "back": "#f4f5f7",
        "card": "#ffffff",
        "ink": "#1c2330",
        "quiet": "#566074",
        "line": "#dfe3ea",
    },
    True: {
        "back": "#11151c",
        "card": "#181b23",
        "ink": "#e8ecf3",
        "quiet": "#a3adbf",
        "line": "#313a49",
    },
}
COLORS = ("#5794f2", "#ff9830", "#73bf69", "#b877d9")
LINE, COLUMN = 0.3, 0.46
"""Inches of a line and of a column of Grafana's grid."""

Series = tuple[str, np.ndarray, np.ndarray]


def answers(url: str, panel: Mapping[str, Any], span: tuple[float, float]) -> list[Series]:
    """Evaluate the queries of a panel.

    Name, times and values of each line; of a value of now, one time.
    """
    lines = []
    for target in panel["targets"]:
        query = target["expr"].replace("$__rate_interval", RATE).replace("$instance", ".*")
        lasting = panel["type"] in ("timeseries", "heatmap")
        asked = {"query": query} | (
            {"start": span[0], "end": span[1], "step": 1} if lasting else {"time": span[1]}
        )
        kind = "query_range" if lasting else "query"
        with urllib.request.urlopen(
            f"{url}/api/v1/{kind}?{urllib.parse.urlencode(asked)}", timeout=30
        ) as answer:
            rows = json.load(answer)["data"]["result"]
        for row in rows:
            points = np.array(row.get("values") or [row["value"]], dtype=float)
            points = points[np.isfinite(points[:, 1])]
            shown = {**row["metric"], "instance": "engine"}
            name = target["legendFormat"]
            for label in re.findall(r"\{\{(\w+)\}\}", name):
                name = name.replace(f"{{{{{label}}}}}", shown.get(label, ""))
            if len(points):
                lines.append((name, points[:, 0] - span[0], points[:, 1]))
    return lines


def shown_number(value: float, panel: Mapping[str, Any]) -> str:
    """Write a value with the unit of its panel."""
    unit, decimals = (panel["fieldConfig"]["defaults"].get(name) for name in ("unit", "decimals"))
    if unit == "bool_yes_no":
        return "Yes" if value else "No"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    text = (
        f"{value:,.{decimals}f}"
        if decimals is not None
        else f"{value:,.3g}"
        if value < 1000
        else f"{value:,.0f}"
    )
    suffix = {"s": " s", "ops": "/s", "d": " d", "bytes": " B"}.get(str(unit), "")
    return text + (
        " " + unit.removeprefix("suffix:").strip() if str(unit).startswith("suffix:") else suffix
    )


def draw_lines(axes: Any, panel: Mapping[str, Any], lines: Sequence[Series]) -> None:
    """Draw a time series with its legend below, as Grafana has it."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    defaults = panel["fieldConfig"]["defaults"]
    for (name, at, value), color in zip(lines, COLORS * len(lines), strict=False):
        axes.plot(at, value, color=color, lw=1.4, label=name.removesuffix(", engine"))
    if defaults.get("custom", {}).get("scaleDistribution", {}).get("type") == "log":
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    elif defaults.get("min") is not None:
        top = max(float(value.max()) for _, _, value in lines)
        axes.set_ylim(defaults["min"], defaults.get("max") or (1.08 * top or 1))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown_number(value, panel)))
    show_clock(axes)
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(-0.02, -0.1),
        ncols=3,
        frameon=False,
        fontsize=7,
        borderaxespad=0.4,
    )


def draw_buckets(axes: Any, lines: Sequence[Series]) -> None:
    """Draw a heatmap of the buckets of a histogram."""
    rows = sorted(lines, key=lambda line: float(line[0]))
    at = np.unique(np.concatenate([line[1] for line in rows]))
    counts = np.array([np.interp(at, line[1], line[2]) for line in rows])
    counts = np.diff(counts, axis=0, prepend=0)
    used = np.flatnonzero(counts.max(axis=1) > 0)
    part = slice(used[0], used[-1] + 1)
    axes.pcolormesh(at, np.arange(len(rows))[part], counts[part], cmap="viridis")
    axes.set_yticks(
        np.arange(len(rows))[part], [f"{float(name):.3g}" for name, _, _ in rows][part], fontsize=6
    )
    show_clock(axes)


def show_clock(axes: Any) -> None:
    """Write minutes and seconds since the start of the run."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 1.5, 3, 6]))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda second, _: f"{second // 60:.0f}:{second % 60:02.0f}")
    )


def draw_bars(axes: Any, panel: Mapping[str, Any], lines: Sequence[Series]) -> None:
    """Draw a value of now per line."""
    at = range(len(lines))
    axes.barh(at, [value[-1] for _, _, value in lines], color=COLORS[0], height=0.6)
    for row, (_, _, value) in enumerate(lines):
        axes.text(value[-1], row, "  " + shown_number(value[-1], panel), va="center", fontsize=7)
    axes.set_yticks(at, [name for name, _, _ in lines])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xticks([])


def draw_panel(
    axes: Any, panel: Mapping[str, Any], lines: Sequence[Series], look: Mapping[str, str]
) -> None:
    """Draw one panel; one without an answer says why, as in Grafana."""
    if panel["type"] in ("stat", "table") or not lines:
        axes.axis("off")
        empty = panel["fieldConfig"]["defaults"].get("noValue", "no data")
        color, size = (COLORS[0], 20) if lines else (look["quiet"], 9)
        text = shown_number(lines[0][2][-1], panel) if lines else empty
        axes.text(
            0.5,
            0.45,
            text,
            transform=axes.transAxes,
            fontsize=size,
            color=color,
            ha="center",
            va="center",
        )
    elif panel["type"] == "heatmap":
        draw_buckets(axes, lines)
    elif panel["type"] == "bargauge":
        draw_bars(axes, panel, lines)
    else:
        draw_lines(axes, panel, lines)


def board_picture(
    name: str, url: str, span: tuple[float, float], most: int, *, dark: bool
) -> bytes:
    """Draw the panels of a dashboard that end within `most` lines of its grid."""
    from matplotlib import pyplot, rc_context

    board = json.loads((DASHBOARDS / f"{name}.json").read_text(encoding="utf-8"))
    look = LOOKS[dark]
    style = {f"{what}.color": look["quiet"] for what in ("xtick", "ytick")} | {
        "text.color": look["ink"]
    }
    style |= {
        "axes.facecolor": look["card"],
        "axes.edgecolor": look["line"],
        "grid.color": look["line"],
        "font.size": 8,
    }
    size = 24 * COLUMN, (most + 1.5) * LINE
    with rc_context(style):
        figure = pyplot.figure(figsize=size, facecolor=look["back"])
        figure.text(
            0.012,
            1 - 0.9 * LINE / size[1],
            board["title"],
            fontsize=13,
            fontweight="bold",
            va="center",
        )
        for panel in board["panels"]:
            if panel["gridPos"]["y"] + panel["gridPos"]["h"] <= most:
                lines = [] if panel["type"] == "row" else answers(url, panel, span)
                add_panel(figure, panel, lines, look)
        out = io.BytesIO()
        figure.savefig(out, dpi=105)
        pyplot.close(figure)
    return out.getvalue()


def add_panel(
    figure: Any, panel: Mapping[str, Any], lines: Sequence[Series], look: Mapping[str, str]
) -> None:
    """Place a panel where Grafana's grid has it; a row is a heading."""
    from matplotlib.patches import FancyBboxPatch

    place, size = panel["gridPos"], figure.get_size_inches()
    left, wide = place["x"] * COLUMN / size[0], place["w"] * COLUMN / size[0]
    top, high = 1 - (place["y"] + 1.5) * LINE / size[1], place["h"] * LINE / size[1]
    if panel["type"] == "row":
        figure.text(
            left + 0.012, top - high / 2, panel["title"], fontsize=9, fontweight="bold", va="center"
        )
        return
    card = (left + 0.004, top - high + 0.006), wide - 0.008, high - 0.012
    figure.patches.append(
        FancyBboxPatch(
            *card,
            boxstyle="round,pad=0,rounding_size=0.004",
            fc=look["card"],
            ec=look["line"],
            transform=figure.transFigure,
            zorder=-1,
        )
    )
    figure.text(
        left + 0.012,
        top - 0.55 * LINE / size[1] - 0.006,
        panel["title"],
        fontsize=8.5,
        fontweight="bold",
        va="center",
    )
    names = panel["type"] in ("bargauge", "heatmap")
    inner = (
        left + (0.11 if panel["type"] == "bargauge" else 0.055),
        top - high + 1.9 * LINE / size[1],
    )
    axes = figure.add_axes((*inner, wide - (inner[0] - left) - 0.02, high - 3.2 * LINE / size[1]))
    if panel["type"] == "stat":
        axes.set_position((*card[0], *card[1:]))
    axes.grid(alpha=0.7, axis="y" if not names else "x")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    draw_panel(axes, panel, lines, look)
