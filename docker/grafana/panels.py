"""From what a panel shows to Grafana's JSON; the boards say what is shown, this file how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from surroundings import SOURCE, Json, alerts, datasource, instance, link

Kind = Literal["timeseries", "stat", "bargauge", "heatmap", "table"]

SCHEMA_VERSION = 41
COLUMNS = 24
GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"


def over_shards(expression: str, how: str = "sum") -> str:
    """Give one line for all shards of an engine, and the same line for an engine without shards."""
    return f"{how} without (shard) ({expression})"


@dataclass(frozen=True)
class Query:
    """A PromQL expression and the name of its lines.

    Attributes
    ----------
    buckets : bool
        The answer is the buckets of a histogram of now, not of what was added since.
    """

    expression: str
    legend: str = "{{instance}}"
    buckets: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What one panel shows.

    Attributes
    ----------
    unit : str
        Name of a unit of Grafana's, or `suffix:TEXT`.
    empty : str
        What the panel says where there is nothing to show: why that is, in few words.
    steps : sequence of (float or None, str)
        Colors from a value on; the first is of all that is below.
    width, height : int
        In 24ths of the page, and in lines of Grafana's grid.
    """

    title: str
    description: str
    queries: Sequence[Query]
    unit: str
    empty: str
    kind: Kind = "timeseries"
    width: int = 8
    height: int = 8
    steps: Sequence[tuple[float | None, str]] = ((None, BLUE),)
    least: float | None = 0
    most: float | None = None
    decimals: int | None = None
    logarithmic: bool = False
    stacked: bool = False
    mappings: Sequence[tuple[str, str, str]] = ()


@dataclass(frozen=True, kw_only=True)
class Row:
    """Panels side by side under a heading."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, kw_only=True)
class Board:
    """One dashboard.

    Attributes
    ----------
    name : str
        Of its file and in its address.
    job : str
        Variable `instance` lists the targets of this job of Prometheus.
    """

    name: str
    title: str
    description: str
    rows: Sequence[Row]
    job: str = "meanstream"
    tags: Sequence[str] = field(default=("meanstream",))

    def json(self) -> Json:
        """Give the dashboard as Grafana reads it."""
        return {
            "uid": f"meanstream-{self.name}",
            "title": f"Meanstream: {self.title}",
            "description": self.description,
            "tags": list(self.tags),
            "schemaVersion": SCHEMA_VERSION,
            "version": 1,
            "editable": False,
            "graphTooltip": 1,
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "utc",
            "links": [link()],
            "annotations": {"list": [alerts(self.job)]},
            "templating": {"list": [datasource(), instance(self.job)]},
            "panels": _placed(self.rows),
        }


def _placed(rows: Sequence[Row]) -> list[Json]:
    placed: list[Json] = []
    y = 0
    for row in rows:
        placed.append(
            {
                "id": len(placed) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
                "panels": [],
            }
        )
        y += 1
        x = line = 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, line = 0, y + line, 0
            place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            placed.append(_panel(panel, len(placed) + 1, place))
            x, line = x + panel.width, max(line, panel.height)
        y += line
    return placed


def _panel(panel: Panel, number: int, place: Json) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "gridPos": place,
        "datasource": SOURCE,
        "targets": [
            _target(panel, query, chr(ord("A") + i)) for i, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
        **({"transformations": [_labels_only()]} if panel.kind == "table" else {}),
    }


def _target(panel: Panel, query: Query, letter: str) -> Json:
    of_now = panel.kind in ("bargauge", "table")
    return {
        "refId": letter,
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": query.expression,
        "legendFormat": query.legend,
        "format": "heatmap"
        if query.buckets
        else "table"
        if panel.kind == "table"
        else "time_series",
        "instant": of_now,
        "range": not of_now,
    }


def _field(panel: Panel) -> Json:
    steps = [{"color": color, "value": value} for value, color in panel.steps]
    found: Json = {
        "unit": panel.unit,
        "noValue": panel.empty,
        "color": {"mode": "palette-classic" if panel.kind == "timeseries" else "thresholds"},
        "thresholds": {"mode": "absolute", "steps": steps},
        "mappings": [
            {"type": "value", "options": {value: {"text": text, "color": color, "index": i}}}
            for i, (value, text, color) in enumerate(panel.mappings)
        ],
    }

    optional = {"min": panel.least, "max": panel.most, "decimals": panel.decimals}
    found.update({name: value for name, value in optional.items() if value is not None})
    if panel.logarithmic:
        found.pop("min", None)  # zero has no logarithm

    if panel.kind == "timeseries":
        found["custom"] = {
            "drawStyle": "line",
            "lineWidth": 2,
            "fillOpacity": 20 if panel.stacked else 0,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "scaleDistribution": {"type": "log", "log": 10}
            if panel.logarithmic
            else {"type": "linear"},
            "thresholdsStyle": {"mode": "dashed" if len(panel.steps) > 1 else "off"},
        }

    return found


_REDUCED: Json = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_OPTIONS: dict[str, Json] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": _REDUCED,
        "orientation": "auto",
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "percentChangeColorMode": "standard",
        "showPercentChange": False,
        "textMode": "auto",
        "wideLayout": True,
    },
    "bargauge": {
        "reduceOptions": _REDUCED,
        "orientation": "horizontal",
        "displayMode": "basic",
        "valueMode": "color",
        "namePlacement": "auto",
        "sizing": "auto",
        "showUnfilled": True,
        "minVizHeight": 16,
        "minVizWidth": 8,
        "maxVizHeight": 300,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
    },
    "heatmap": {
        "calculate": False,
        "cellGap": 1,
        "color": {
            "mode": "scheme",
            "scheme": "Blues",
            "fill": "blue",
            "exponent": 0.5,
            "steps": 32,
            "reverse": False,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "showColorScale": True, "yHistogram": True},
        "yAxis": {"axisPlacement": "left"},
    },
    "table": {"showHeader": True, "frameIndex": 0},
}


def _labels_only() -> Json:
    hidden = dict.fromkeys(("Time", "Value", "__name__", "job"), True)
    return {"id": "organize", "options": {"excludeByName": hidden}}
