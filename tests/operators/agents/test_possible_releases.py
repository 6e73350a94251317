"""Releases that cannot have been made: every honest one passes, every forged one is refused by its
reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.agents.release_checks import LARGEST_COUNT, PossibleReleases
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import ReleaseColumns

SETTINGS = AgentsSettings(lower=-30, upper=120, epsilon=1, delta=1e-6)


def releases(
    settings: AgentsSettings = SETTINGS, agents: int = 5, samples: int = 400
) -> ReleaseColumns:
    """Honest ones, as the operators make them."""
    noise = KeyedNoise(b"0d409462e4304f9f66770dc046be10c9", deployment="test", purpose="releases")
    made = Agents(settings, noise)
    made.add_agents([f"agent {i}" for i in range(agents)])
    rng = np.random.default_rng(1)
    agent = np.tile(np.arange(agents), samples)
    value, time = rng.uniform(-50, 150, len(agent)), np.repeat(np.arange(samples) * 60.0, agents)
    batch = made.update(agent, value, time)
    return batch.releases


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"schedule": "every:1h"},
        {"noise": "laplace", "counter": "pm1"},
        {"counter": "pm2", "mode": "paper", "calibration": "classical"},
        {"lower": 0, "upper": 1e150},
        {"lower": 1e6, "upper": 1e6 + 1e-3},
        {"epsilon": 0.6, "schedule": "geometric:1,1.1"},
    ],
)
def test_honest_releases_are_possible(changes: dict[str, Any]) -> None:
    plain = {name: getattr(SETTINGS, name) for name in ("lower", "upper", "epsilon", "delta")}
    settings = AgentsSettings(**{**plain, **changes})
    made = releases(settings)
    assert len(made) > 5
    assert not PossibleReleases(settings).reasons(made).any()


def first(values: Any, value: Any) -> Any:
    out = values.copy()
    out[0] = value
    return out


FORGED = {
    "index": ((0, -1, 41, 2**62), "impossible_index"),
    "count": ((0, -5, 30_000_001, 2**62), "impossible_count"),
    "total": ((2**62, -(2**62)), "impossible_total"),
    "mean": ((0.0, 1e308, -1e308, 5e-324), "impossible_mean"),
    "noise_variance": ((0.0, 5e-324, 1e-9), "too_precise"),
    "noise variance": ((1e308, 1e30), "too_vague"),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_one_is_refused_and_changes_nothing_of_its_neighbors(what: str) -> None:
    made = releases()
    name, (values, reason) = what.replace(" ", "_"), FORGED[what]
    for value in values:
        found = PossibleReleases(SETTINGS).reasons(
            replace(made, **{name: first(getattr(made, name), value)})
        )
        assert found[0] == reason
        assert not found[1:].any()


def test_a_mean_off_by_a_step_or_a_variance_less_by_a_millionth_is_refused() -> None:
    made, possible = releases(), PossibleReleases(SETTINGS)
    moved = replace(made, mean=made.mean + SETTINGS.grid.resolution)
    assert set(possible.reasons(moved).tolist()) == {"impossible_mean"}
    less = replace(made, noise_variance=made.noise_variance * (1 - 1e-6))
    assert set(possible.reasons(less).tolist()) == {"too_precise"}


def test_more_samples_than_anybody_has_are_refused() -> None:
    made = releases(samples=60)
    found = PossibleReleases(SETTINGS, max_samples=30).reasons(made)
    assert np.array_equal(found == "impossible_count", made.count > 30)
    hourly = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, schedule="every:1h")
    assert PossibleReleases(hourly).largest_count == LARGEST_COUNT
    for most in (0, -1, 2**44):
        with pytest.raises(ValueError, match="max_samples must lie in"):
            PossibleReleases(SETTINGS, max_samples=most)
