"""A ledger followed from beside says what `meanstream budget` says of it, a part at a time and as
it grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from meanstream.streaming.agents import agents_budget as module
from meanstream.streaming.agents.agents_budget import agents_budgets, budget_outlook
from meanstream.streaming.agents.saved_agents import own_settings
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.metrics.engine_metrics import Metrics
from tests.pipelines.command_line import run_agents, write_samples


def grown(folder: Path, rows: int) -> None:
    write_samples(folder / "flights.csv", agents=4, rows=rows)
    assert run_agents(folder, sort=False, final_release=False).code == 0


def test_it_follows_a_ledger_that_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("ledger_reader", "ledger_chain"):
        monkeypatch.setattr(f"meanstream.streaming.store.{place}.SEGMENT", 3)
    monkeypatch.setattr(module, "BLOCKS", 1)
    grown(tmp_path, 160)
    store = tmp_path / "state.db"
    look = budget_outlook(own_settings(store), store)
    assert look is not None
    assert look() is None  # a part of it
    found = [one for _ in range(20) if (one := look()) is not None][-1]
    assert found.summary == agents_budgets(store, foretell=True).forecast
    grown(tmp_path, 640)
    assert look() is found  # while there is more to read it stays what it was
    newest = [look() for _ in range(40)][-1]
    assert newest is not None
    assert newest is not found
    assert newest.summary == agents_budgets(store, foretell=True).forecast
    assert newest.summary is not None
    assert len(newest.days) == newest.summary.agents == 4
    monkeypatch.setattr(module, "BLOCKS", 64)  # all of it at once
    text = (
        Metrics(settings=own_settings(store), health=EngineHealth(), store=store)
        .exposition()
        .decode()
    )
    assert "meanstream_budget_left_seconds_gcount" in text


def test_a_store_that_is_not_there_or_has_no_such_budget(tmp_path: Path) -> None:
    grown(tmp_path, 40)
    settings = own_settings(tmp_path / "state.db")
    look = budget_outlook(settings, tmp_path / "none.db")
    assert look is not None
    assert look() is None
    assert budget_outlook(settings, None) is None
