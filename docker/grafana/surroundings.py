"""What all dashboards have around their panels: variables, annotations, links."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}


def datasource() -> Json:
    """Let the reader choose the Prometheus."""
    return {
        "name": "datasource",
        "label": "Prometheus",
        "description": "Where the metrics are.",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": "Prometheus", "value": "meanstream-prometheus"},
        "hide": 0,
    }


def instance(job: str) -> Json:
    """Let the reader choose among the targets of a job."""
    return {
        "name": "instance",
        "label": "Engine" if job == "meanstream" else "Process",
        "description": "Which of the targets that Prometheus scrapes.",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": f'label_values(up{{job="{job}"}}, instance)', "refId": "instances"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def alerts(job: str) -> Json:
    """Show alerts that fire as annotations."""
    return {
        "name": "Alerts",
        "enable": True,
        "hide": False,
        "iconColor": "red",
        "datasource": SOURCE,
        "target": {
            "refId": "Anno",
            "expr": f'ALERTS{{alertstate="firing", alertname=~"Meanstream.+", job=~"{job}|", instance=~"$instance|"}}',
            "interval": "15s",
        },
        "titleFormat": "{{alertname}}",
        "textFormat": "{{severity}} at {{instance}}",
        "tagKeys": "severity",
    }


def link() -> Json:
    """Lead to the other dashboards."""
    return {
        "title": "Meanstream",
        "type": "dashboards",
        "tags": ["meanstream"],
        "asDropdown": False,
        "includeVars": False,
        "keepTime": True,
        "targetBlank": False,
        "icon": "dashboard",
        "tooltip": "The other dashboards",
        "url": "",
    }
