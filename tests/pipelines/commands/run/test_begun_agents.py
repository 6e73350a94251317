"""Agents that already run keep what a newer version would choose otherwise, unless somebody says
so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.pipelines.options.agent_side import AgentSideOptions
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.streaming.store.database import StoreError
from meanstream.streaming.store.deployment_store import check_deployment, open_deployment
from tests.pipelines.command_line import SECRET

KNOWN: dict[str, Any] = {"lower": 0.0, "upper": 1.0, "epsilon": 1.0, "delta": 1e-6}
ENVIRONMENT = {"MEANSTREAM_SECRET": SECRET}


@pytest.mark.parametrize("options", [AgentsOptions, AgentSideOptions])
def test_a_store_goes_on_with_its_counter_and_its_votes(options: Any, tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    open_deployment(
        old, AgentsSettings(**KNOWN, counter="toeplitz", spread_share=0.2), environment=ENVIRONMENT
    ).store.close()
    kept, fresh = (options(**KNOWN, store=store).settings() for store in (old, new))
    assert (kept.counter, kept.noise, kept.spread_share) == ("toeplitz", "gaussian", 0.2)
    assert (fresh.counter, fresh.noise, fresh.spread_share) == ("pm1", "staircase", 0.1)
    assert check_deployment(old, kept, environment=ENVIRONMENT)
    with pytest.raises(StoreError, match="counter"):
        check_deployment(old, fresh, environment=ENVIRONMENT)
    assert (
        options(**KNOWN, store=old, counter="optimal", spread_share=0.0).settings().counter
        == "optimal"
    )


@pytest.mark.parametrize("options", [AgentsOptions, AgentSideOptions])
def test_a_store_goes_on_with_its_pure_noise(options: Any, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    made = AgentsSettings(**KNOWN, noise="laplace", counter="two_level")
    open_deployment(old, made, environment=ENVIRONMENT).store.close()
    kept = options(**KNOWN, store=old).settings()
    assert (kept.counter, kept.noise) == ("two_level", "laplace")
    assert check_deployment(old, kept, environment=ENVIRONMENT)


@pytest.mark.parametrize(
    ("changes", "mechanism"),
    [
        ({}, ("pm1", "staircase")),
        ({"horizon": 128}, ("two_level", "staircase")),
        ({"horizon": 400}, ("toeplitz", "gaussian")),
        ({"noise": "gaussian", "horizon": 128}, ("optimal", "gaussian")),
        ({"noise": "gaussian", "horizon": 129}, ("toeplitz", "gaussian")),
        ({"noise": "gaussian", "schedule": "every:1h"}, ("toeplitz", "gaussian")),
        ({"mode": "paper", "spread_share": 0.0}, ("toeplitz", "gaussian")),
    ],
    ids=str,
)
def test_the_least_noise_where_it_can_be(
    changes: dict[str, Any], mechanism: tuple[str, str]
) -> None:
    settings = AgentsSettings(**KNOWN, **changes)
    assert (settings.counter, settings.noise) == mechanism
