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
from meanstream.streaming.store.store_deployment import check_deployment, open_deployment
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
    assert (kept.counter, kept.spread_share) == ("toeplitz", 0.2)
    assert (fresh.counter, fresh.spread_share) == ("optimal", 0.1)
    assert check_deployment(old, kept, environment=ENVIRONMENT)
    with pytest.raises(StoreError, match="counter"):
        check_deployment(old, fresh, environment=ENVIRONMENT)
    assert (
        options(**KNOWN, store=old, counter="optimal", spread_share=0.0).settings().counter
        == "optimal"
    )


@pytest.mark.parametrize(
    ("changes", "counter"),
    [
        ({"horizon": 128}, "optimal"),
        ({"horizon": 129}, "toeplitz"),
        ({"schedule": "every:1h"}, "toeplitz"),
        ({"mode": "paper", "spread_share": 0.0}, "toeplitz"),
    ],
    ids=str,
)
def test_the_least_noise_where_it_can_be(changes: dict[str, Any], counter: str) -> None:
    assert AgentsSettings(**KNOWN, **changes).counter == counter
