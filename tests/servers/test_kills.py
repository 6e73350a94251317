"""Killed at any time, again and again, an engine on Kafka loses nothing and lets nothing out twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.servers.support.engine_input import EngineInput
from tests.servers.support.engine_worlds import EngineWorlds
from tests.servers.support.random_kills import Phase, RandomKills

KILLS = 10


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_at_random_times_until_the_input_is_done(seed: int, broker_address: str, tmp_path: Path) -> None:
    worlds = EngineWorlds(broker_address, tmp_path / "worlds", EngineInput(samples=1500))
    killing = RandomKills(worlds, seed, KILLS)
    killing.run()
    worlds.close()
    assert killing.faults == []
    phases = Counter(kill.phase for kill in killing.kills)
    assert phases.total() == KILLS
    assert phases[Phase.START] <= KILLS / 2
