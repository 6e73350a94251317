"""Killed at any time, again and again, an engine on Kafka loses nothing and lets nothing out
twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.servers.support.engine_input import EngineInput
from tests.servers.support.engine_worlds import EngineWorlds
from tests.servers.support.random_kills import Phase, RandomKills

FEW, MANY = 4, 10


@pytest.mark.parametrize(
    ("seed", "kills", "samples"),
    [
        (1, FEW, 900),
        *(pytest.param(seed, MANY, 1500, marks=pytest.mark.full) for seed in (1, 2, 3)),
    ],
)
def test_killed_at_random_times_until_the_input_is_done(
    seed: int, kills: int, samples: int, broker_address: str, tmp_path: Path
) -> None:
    worlds = EngineWorlds(broker_address, tmp_path / "worlds", EngineInput(samples=samples))
    killing = RandomKills(worlds, seed, kills)
    killing.run()
    worlds.close()
    assert killing.faults == []
    phases = Counter(kill.phase for kill in killing.kills)
    assert phases.total() == kills
    assert phases[Phase.START] <= kills / 2
