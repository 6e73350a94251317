"""TaskManager and workers of a real Flink cluster killed again and again: no release has two noises, none is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.support.flink_cluster import FlinkCluster
from tests.servers.support.flink_kills import FlinkKills, FlinkWorld

KILLS = 10


@pytest.mark.slow
def test_a_killed_job_draws_no_noise_again(own_flink: FlinkCluster, broker_address: str, tmp_path: Path) -> None:
    killing = FlinkKills(FlinkWorld(own_flink, broker_address, tmp_path, f"kills-{own_flink.ports['rest']}"), 1, KILLS)
    killing.run()
    half = len(killing.kills) // 2
    assert half >= KILLS // 2
    assert killing.landed() == {"TaskManager": half, "worker pool": half}
    assert killing.ours.again > 0, "no kill has met a release: it would have been executed again"
    assert (killing.ours.noised_twice, killing.ours.lost, killing.ours.strange) == ([], [], [])
    assert (killing.contradictions, killing.refusals) == ([], 0)
    assert killing.releases > 100
    assert killing.fresh.noised_twice, "fresh noise must show"
    assert killing.unanswered == []
    assert max(killing.disk) - killing.disk[0] < 64 << 20, "what is killed leaves nothing behind"
