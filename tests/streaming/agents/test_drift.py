"""Notices of means that changed: what the releases show, and nothing of what nobody was shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.agents.released_change_tests import NOTHING
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.streaming.agents.agents_releases import DriftsOfReleases
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.wire import DriftEvent
from tests.streaming.support.scripted_source import ScriptedSource

SETTINGS = AgentsSettings(
    lower=0,
    upper=10,
    epsilon=1,
    delta=1e-6,
    name="world",
    memory="half-life:400",
    schedule="geometric:50,2",
)
CHANGE, SAMPLES = 1500, 2400


def stream(change: float = 2.5) -> list[tuple[str, float, float]]:
    """Two agents in turn; the mean of the first one changes."""
    value = np.random.default_rng(5).uniform(2, 5, (SAMPLES, 2))
    value[CHANGE:, 0] += change
    return [
        (name, float(value[i, k]), float(2 * i + k))
        for i in range(SAMPLES)
        for k, name in enumerate(("ann", "bob"))
    ]


@pytest.fixture
def drift_world(new_world: Callable[[str], Any]) -> Any:
    world = new_world("drift")
    world.settings = SETTINGS
    world.options = EngineOptions(batch_size=1600, refresh=None, allowed_lateness=3.0)
    return world


def test_a_change_is_told_after_a_warning_and_the_world_says_how_many(drift_world: Any) -> None:
    world = drift_world
    stats = world.run(ScriptedSource(stream()))
    told = [DriftEvent.model_validate_json(line) for line in world.lines("notices")]
    assert (stats.drifts, stats.drift_warnings) == tuple(
        sum(one.found == kind for one in told) for kind in ("drift", "warning")
    )
    assert {one.agent for one in told} == {"ann"}
    drift = next(one for one in told if one.found == "drift")
    number = {
        event["index"]: event for event in world.events("releases") if event["agent"] == "ann"
    }
    assert number[drift.index]["time"] == drift.time.isoformat().replace("+00:00", "Z")
    assert 2 * CHANGE < drift.time.timestamp() < 2 * (CHANGE + 400)
    after, before = (abs(number[index]["mean"] - 3.5) for index in (drift.index, drift.since))
    assert after > before + 0.5


def test_what_a_refused_release_shows_is_not_told(drift_world: Any) -> None:
    """Another input under the same ids: the releases are refused, and so nobody may be told of a
    change in them."""
    world = drift_world
    world.run(ScriptedSource(stream(change=0)))
    assert world.lines("notices") == []
    world.lose_agents()
    (name, value, time), *rest = stream()
    stats = world.run(ScriptedSource([(name, value + 0.5, time), *rest]))
    assert stats.refusals > 0
    assert (stats.drifts, stats.drift_warnings) == (0, 0)
    events = world.events("notices")
    assert all("found" not in event for event in events if event["agent"] == "ann")


@pytest.mark.parametrize("memory", ["forever", "half-life:400"])
def test_a_run_without_changes_tells_none(memory: str, drift_world: Any) -> None:
    world = drift_world
    world.settings = AgentsSettings(
        lower=0, upper=10, epsilon=1, delta=1e-6, name="world", memory=memory
    )
    stats = world.run(ScriptedSource(stream(change=0)))
    assert (stats.drifts, stats.drift_warnings, world.lines("notices")) == (0, 0, [])


def test_the_twin_that_tells_of_refused_releases_is_seen() -> None:
    """Places of refused releases count over all batches that released, as the ledger's rows do."""
    noise = KeyedNoise(
        bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="test", purpose="agents"
    )
    agents = Agents(SETTINGS, noise)
    agents.add_agents(["ann", "bob"])
    rows = stream()
    agent = np.array([name == "bob" for name, _, _ in rows]).astype(np.int64)
    value, time = np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
    batches = [
        agents.update(agent[part], value[part], time[part])
        for part in (slice(0, 3100), slice(3100, None))
    ]
    every = DriftsOfReleases.of(batches, [])
    assert every.drifts >= 1
    drift = np.concatenate([batch.drift for batch in batches])
    shown = np.flatnonzero(drift != NOTHING).tolist()
    assert len(DriftsOfReleases.of(batches, shown).moved) == 0
    assert len(DriftsOfReleases.of(batches, shown[1:]).moved) == 1
