"""A job on a real Flink cluster that is stopped and begun again from its state goes on as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.flink_cluster import FlinkCluster
from tests.servers.flink_jobs import contradictions, examine, time_of
from tests.servers.flink_kills import FlinkWorld, Job
from tests.servers.flink_stream import WINDOW, PacedProducer

WINDOWS = 30
"""Before the stop, and after it: agents live on from one to the other."""
RETAIN = ("--externalized_checkpoints_enabled", "--retain_externalized_checkpoints_on_cancellation")


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["savepoint", "checkpoint"])
def test_a_restored_job_releases_what_is_left(
    kept: str, flink: FlinkCluster, broker_address: str, tmp_path: Path
) -> None:
    world = FlinkWorld(flink, broker_address, tmp_path, f"{kept}-{flink.ports['rest']}")
    producer = PacedProducer(broker_address, world.samples, pace=0)
    producer.write(WINDOWS)
    first = world.start("first", *(RETAIN if kept == "checkpoint" else ()))
    world.wait([first], (WINDOWS - 2) * WINDOW, "no release")  # the last window has not ended
    state = flink.stop_with_savepoint(first.id) if kept == "savepoint" else stop_at_checkpoint(flink, first)
    producer.write(WINDOWS)
    producer.end()
    again = world.start("again", f"--savepoint_path={state}")
    try:
        world.wait([again], (2 * WINDOWS - 1) * WINDOW, "nothing after the restore")
        world.wait_for_estimates(again, (2 * WINDOWS - 1) * WINDOW)
    finally:
        flink.cancel(again.id)
    expected = world.expected(2 * WINDOWS)
    before, after = first.releases.look(), again.releases.look()
    found = examine([*before, *after], expected)
    assert (found.noised_twice, found.lost, found.strange) == ([], [], [])
    assert examine(after, expected).lost, "it has begun at the beginning"
    assert examine(before, expected).lost, "nothing was left to release"
    told = [*first.estimates.look(), *again.estimates.look()]
    assert contradictions(told) == []
    assert {time_of(line) // WINDOW for line in told} >= set(range(2 * WINDOWS)), "what is combined goes on, too"
    assert first.refusals.look() == again.refusals.look() == []


def stop_at_checkpoint(flink: FlinkCluster, job: Job) -> str:
    """Cancel a job after its next checkpoint, which stays."""
    flink.wait_for_checkpoint(job.id)
    state = flink.retained_checkpoint(job.id)
    flink.cancel(job.id)
    return state
