"""Releases of strangers on Beam: what cannot have been made is counted, and the population is that
of the others."""

from __future__ import annotations

import json
from typing import Any

import apache_beam as beam
import pytest

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.pipelines.beam.agents.agent_transforms import SnapshotReleases
from meanstream.streaming.events.wire import Release
from tests.pipelines.beam.support.collecting import run_pipeline

SETTINGS = AgentsSettings(name="test", lower=0, upper=10, epsilon=1, delta=1e-6)


def release(agent: str, place: float, **changes: Any) -> Release:
    event: dict[str, Any] = {
        "release_id": f"{agent}:1",
        "agent": agent,
        "index": 1,
        "time": "2013-01-01T10:00:00Z",
        "n": 10,
        "total": int(place * 10 * 2**16),
        "mean": place,
        "noise_variance": 100.0,
        "epsilon": 1.0,
        "delta": 1e-6,
        "mode": "tuned",
        "schema_version": 1,
    }
    return Release.model_validate_json(json.dumps(event | changes))


HONEST = [release(f"agent {i}", 2.0 + 4.0 * (i % 2)) for i in range(12)]
FORGED = {
    "impossible_count": {"n": 2**40},
    "impossible_index": {"index": 41, "n": 100, "total": int(3.0 * 100 * 2**16)},
    "impossible_mean": {"mean": 9.0},
    "impossible_total": {"total": 2**62, "mean": 1e300},
    "too_precise": {"noise_variance": 1e-9},
    "too_vague": {"noise_variance": 1e308},
    "malformed": {"total": 10**30},
}


def population(events: list[Release]) -> tuple[list[Any], dict[str, int]]:
    fitted, counted = run_pipeline(
        lambda p: p | beam.Create(events, reshuffle=False) | SnapshotReleases(SETTINGS)
    )
    return [
        (one.agents, one.pool.variance.tolist(), one.fitted.describe()) for one in fitted
    ], counted


def test_what_cannot_have_been_made_is_counted_and_left_out() -> None:
    lies = [
        release("agent 3", 3.0, **{**changes, "release_id": "agent 3:1"})
        for changes in FORGED.values()
    ]
    clean, _ = population(HONEST)
    dirty, counted = population([*lies, *HONEST, *lies])
    assert dirty == clean
    assert {name: n for name, n in counted.items() if name.startswith("rejected_")} == {
        f"rejected_{reason}": 2 for reason in FORGED
    }


def test_a_wrong_number_of_samples_is_refused_beforehand() -> None:
    with pytest.raises(ValueError, match="max_samples must lie in"):
        SnapshotReleases(SETTINGS, max_samples=0)
