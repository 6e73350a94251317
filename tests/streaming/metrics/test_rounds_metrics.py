"""What an engine of rounds shows: equal to its events, public, and empty where there is nothing to
show."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from meanstream.operators.estimators.registry import ESTIMATORS
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.metrics.engine_metrics import Metrics
from meanstream.streaming.metrics.private_answers import PrivateRoundsMetrics
from meanstream.streaming.metrics.rounds_metrics import RoundsMetrics
from meanstream.streaming.rounds.rounds_stats import RoundsStats
from tests.streaming.support.rounds_world import RoundsWorld, Spoiled, rounds_settings, samples
from tests.streaming.support.scripted_source import ScriptedSource, SettableClock
from tests.streaming.support.tiny_estimator import TINY

SETTINGS = {"meanstream_build_info", "meanstream_allowed_lateness_seconds"}
"""What is public, and needed beside private figures."""


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "tiny", TINY)


def shown(metrics: Metrics) -> dict[str, float]:
    """All samples; labels but the reason and the bound are left out."""
    found = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            label = sample.labels.get("reason") or sample.labels.get("le")
            found[sample.name if label is None else f"{sample.name}:{label}"] = sample.value
    return found


def watched(
    world: RoundsWorld, source: Any, kind: type[Metrics] = RoundsMetrics
) -> tuple[RoundsStats, dict[str, float]]:
    stats = world.run(source)
    metrics = kind(
        settings=world.settings,
        health=EngineHealth(),
        store=world.folder / "s.db",
        clock=SettableClock(2e9),
    )
    metrics.observe(stats)
    return stats, shown(metrics)


def test_metrics_are_what_the_events_say(tmp_path: Path) -> None:
    world = RoundsWorld(
        tmp_path / "w", rounds_settings(user_budget=6.0)
    )  # three rounds of epsilon 2
    stats, found = watched(world, Spoiled(samples()))
    means, reports = world.events("means"), [e for e in world.events("reports") if "payload" in e]
    assert len(means) == 4
    newest = means[-1]
    lower, upper = newest["interval"]
    assert found["meanstream_rounds_total"] == 4 == stats.rounds
    assert found["meanstream_rounds_value"] == newest["value"]
    assert (found["meanstream_rounds_lower"], found["meanstream_rounds_upper"]) == (lower, upper)
    assert found["meanstream_rounds_half_width"] == pytest.approx((upper - lower) / 2)
    assert found["meanstream_rounds_window_users"] == newest["users"]
    assert found["meanstream_rounds_stages"] == len(newest["stages"])
    assert (
        found["meanstream_rounds_window_end_timestamp_seconds"]
        == datetime.fromisoformat(newest["end"]).timestamp()
    )
    assert (
        found["meanstream_rounds_reports_total"] == len(reports) == found["meanstream_ledger_rows"]
    )
    assert found["meanstream_rounds_over_budget_total"] == len(world.events("notices")) > 0
    # Every user was in the first three windows and is at its budget.
    assert found["meanstream_agents"] == found["meanstream_agents_exhausted"] == 12
    assert found["meanstream_budget_spent_ratio_max"] == 1
    assert found["meanstream_budget_spent_ratio_bucket:0.9"] == 0
    assert found["meanstream_budget_spent_ratio_bucket:1.0"] == 12


def test_private_metrics_are_labelled_and_share_no_name_with_public_ones(tmp_path: Path) -> None:
    world = RoundsWorld(tmp_path / "w", rounds_settings(user_budget=6.0))
    stats, found = watched(world, Spoiled(samples()), PrivateRoundsMetrics)
    assert found["meanstream_events_total"] == stats.events
    assert found["meanstream_accepted_total"] == stats.accepted
    assert found["meanstream_clipped_total"] == stats.clipped
    assert found["meanstream_rejects_total:malformed"] == len(world.events("dead_letters")) > 0
    assert found["meanstream_users_seen"] == 12
    assert found["meanstream_rounds_open_windows"] == 0
    made = [
        kind(settings=world.settings, health=EngineHealth())
        for kind in (RoundsMetrics, PrivateRoundsMetrics)
    ]
    families = [list(text_string_to_metric_families(one.exposition().decode())) for one in made]
    public, private = ({f.name for f in some} - SETTINGS for some in families)
    assert not public & private
    assert all(s.labels["trust"] == "private" for f in families[1] for s in f.samples)


def test_without_a_budget_none_is_shown_and_without_a_window_no_answer(tmp_path: Path) -> None:
    world = RoundsWorld(tmp_path / "w", rounds_settings(allowed_lateness=3600.0))
    stats, found = watched(world, ScriptedSource([]))
    assert stats.answer is None
    empty = {
        name
        for name in found
        if name.startswith(("meanstream_rounds_window", "meanstream_rounds_value"))
    }
    assert empty == set()
    assert found["meanstream_rounds_total"] == found["meanstream_agents"] == 0
    _, found = watched(RoundsWorld(tmp_path / "v"), ScriptedSource(samples()))
    assert "meanstream_rounds_value" in found
    assert not any(name.startswith("meanstream_budget") or "exhausted" in name for name in found)


def test_a_run_that_goes_on_knows_what_was_spent(tmp_path: Path) -> None:
    world = RoundsWorld(tmp_path / "w", rounds_settings(user_budget=8.0))
    _, before = watched(world, ScriptedSource(samples()))
    stats, after = watched(world, ScriptedSource(samples()))
    assert stats.rounds == 0, "all of it was read before"
    assert (
        after["meanstream_budget_spent_ratio_max"]
        == before["meanstream_budget_spent_ratio_max"]
        == 1
    )


def test_only_public_figures_are_shown(tmp_path: Path) -> None:
    """Two streams that differ in values alone differ in what was released alone."""
    released = {"meanstream_rounds_value", "meanstream_rounds_lower", "meanstream_rounds_upper"}
    released |= {"meanstream_rounds_half_width", "meanstream_ledger_bytes"}
    founds = []
    for name, values in (("a", (1.0, 2.0)), ("b", (9.0, 30.0))):  # the second is clipped, too
        stream = [(user, values[i % 2], time) for i, (user, _, time) in enumerate(samples())]
        _, found = watched(RoundsWorld(tmp_path / name), ScriptedSource(stream))
        founds.append(
            {k: v for k, v in found.items() if "seconds" not in k and not k.endswith("_created")}
        )
    different = {name for name in founds[0] if founds[0][name] != founds[1][name]}
    assert founds[0].keys() == founds[1].keys()
    assert {"meanstream_rounds_value"} <= different <= released
