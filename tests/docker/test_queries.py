"""Which endpoint answers each query: public boards ask for public metrics only, the operator's for
private ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.metrics.engine_metrics import Metrics
from meanstream.streaming.metrics.private_answers import PrivateMetrics, PrivateRoundsMetrics
from meanstream.streaming.metrics.rounds_metrics import RoundsMetrics
from meanstream.streaming.rounds.rounds_settings import RoundsSettings

ROOT = Path(__file__).parents[2] / "docker"
BOARDS = {
    path.stem: json.loads(path.read_text())
    for path in sorted((ROOT / "grafana" / "dashboards").glob("*.json"))
}
SUFFIXES = {
    "counter": ["_total"],
    "histogram": ["_bucket", "_sum", "_count"],
    "gaugehistogram": ["_bucket", "_gsum"],
}
NAME = re.compile(r"(?<![a-z_:])((?:[a-z_]+:)?meanstream_[a-z0-9_]+(?::[a-z0-9_]+)?)(\{[^}]*\})?")


def names(kind: type[Metrics]) -> set[str]:
    """Every name that an endpoint of this kind shows."""
    settings: Any = AgentsSettings(lower=0.0, upper=1.0, epsilon=1.0, delta=1e-6)
    if kind in (RoundsMetrics, PrivateRoundsMetrics):
        settings = RoundsSettings(lower=0.0, upper=1.0, epsilon=1.0, window="1d")
    shown = kind(settings=settings, health=EngineHealth())
    found = {
        family.name + suffix
        for family in shown.collect()
        for suffix in (["_info"] if family.type == "info" else SUFFIXES.get(family.type, [""]))
    }
    return found | {f"meanstream_{name}" for name in shown.families.live}


AGENTS, ROUNDS, OF_AGENTS, OF_ROUNDS = (
    names(kind) for kind in (Metrics, RoundsMetrics, PrivateMetrics, PrivateRoundsMetrics)
)
PRIVATE = OF_AGENTS | OF_ROUNDS
RULES = [
    rule
    for path in sorted((ROOT / "prometheus" / "rules").glob("*.yml"))
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]
RECORDED = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}


def queries(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


def asked(query: str) -> list[tuple[str, str]]:
    """Names and their selectors; what a rule has recorded stands for what it was made of."""
    found = []
    for name, selector in NAME.findall(query):
        of_rule = asked(RECORDED[name]) if ":" in name else [(name, "")]
        found += [(one, selector) for one, _ in of_rule]
    return found


@pytest.mark.parametrize("name", ["convergence", "budget", "pipeline", "rounds"])
def test_public_boards_are_answered_from_public_metrics_and_by_no_private_series(name: str) -> None:
    public = ROUNDS if name == "rounds" else AGENTS | ROUNDS
    wanted = [one for query in queries(BOARDS[name]) for one in asked(query)]
    assert len(wanted) > 10
    for metric, selector in wanted:
        assert metric in public, metric
        if metric in PRIVATE:
            assert 'trust!="private"' in selector, (metric, selector)


def test_the_operators_board_asks_for_private_series_only() -> None:
    wanted = [one for query in queries(BOARDS["operator"]) for one in asked(query)]
    assert len(wanted) >= 10
    for metric, selector in wanted:
        assert metric in PRIVATE, metric
        assert 'trust="private"' in selector


def test_flinks_board_asks_for_nothing_private() -> None:
    assert not any("private" in query for query in queries(BOARDS["flink"]))


def test_alerts_ask_for_what_some_endpoint_shows() -> None:
    of_engines = [rule for rule in RULES if "flink_" not in rule["expr"]]
    wanted = {name for rule in of_engines for name, _ in asked(rule["expr"])}
    assert len(wanted) > 10
    assert wanted <= AGENTS | ROUNDS | PRIVATE | set(RECORDED)


def test_the_reader_of_queries_finds_names_and_selectors() -> None:
    """Known-bad twins: a private figure in a public board, and a public one without its
    selector."""
    assert asked('rate(meanstream_clipped_total{a="b"}[5m])') == [
        ("meanstream_clipped_total", '{a="b"}')
    ]
    assert "meanstream_clipped_total" not in AGENTS | ROUNDS
    assert "meanstream_events_total" in PRIVATE & AGENTS
    assert asked('instance:meanstream_events:rate5m{x="y"}') == [
        ("meanstream_events_total", '{x="y"}')
    ]
