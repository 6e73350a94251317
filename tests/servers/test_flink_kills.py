"""TaskManager and workers of a real Flink cluster killed: no release has two noises, and no release
is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.support.flink_cluster import FlinkCluster
from tests.servers.support.flink_kills import FlinkKills, FlinkWorld


def assert_nothing_noised_twice_or_lost(killing: FlinkKills) -> None:
    """And the kills have met releases: the same job with fresh noise shows it."""
    half = len(killing.kills) // 2
    assert half >= killing.count // 2
    assert killing.landed() == {"TaskManager": half, "worker pool": half}
    assert killing.ours.again > 0, "no kill has met a release: it would have been executed again"
    assert (killing.ours.noised_twice, killing.ours.lost, killing.ours.strange) == ([], [], [])
    assert (killing.contradictions, killing.refusals) == ([], 0)
    assert killing.fresh.noised_twice, "fresh noise must show"
    assert killing.unanswered == []
    assert max(killing.disk) - killing.disk[0] < 64 << 20, "what is killed leaves nothing behind"


def test_a_killed_job_draws_no_noise_again(
    own_flink: FlinkCluster, broker_address: str, tmp_path: Path
) -> None:
    """One kill of each kind, right after releases that no checkpoint holds."""
    world = FlinkWorld(own_flink, broker_address, tmp_path, f"kills-{own_flink.ports['rest']}")
    killing = FlinkKills(world, seed=1, count=2, aimed=True)
    killing.run()
    assert_nothing_noised_twice_or_lost(killing)
    assert killing.releases > 50


@pytest.mark.full
def test_ten_kills_at_random_times_draw_no_noise_again(
    own_flink: FlinkCluster, broker_address: str, tmp_path: Path
) -> None:
    world = FlinkWorld(own_flink, broker_address, tmp_path, f"sweep-{own_flink.ports['rest']}")
    killing = FlinkKills(world, seed=1, count=10)
    killing.run()
    assert_nothing_noised_twice_or_lost(killing)
    assert killing.releases > 100
