"""A job on a real Flink cluster that is stopped and begun again from its state goes on as if nothing had happened.

From a savepoint it goes on with two workers where it had one; `test_flink_scaling.py` has the sweep.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.servers.support.flink_cluster import FlinkCluster
from tests.servers.support.flink_jobs import contradictions, examine, time_of
from tests.servers.support.flink_kills import PATIENCE, FlinkWorld, Job
from tests.servers.support.flink_stream import SETTINGS, WINDOW, PacedProducer
from tests.servers.support.waiting import NotInTimeError

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
    parallelism = 2 if kept == "savepoint" else 1
    again = world.start("again", f"--savepoint_path={state}", f"--parallelism={parallelism}")
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


def others(folder: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """What a restored job may not be, and the line that says so."""
    secret = folder / "another secret"
    secret.write_text("5f0d8c2b7a6e41939fd2c1b08e7a4d36")
    continued = "as in the state that is continued, got"
    return {
        "shards": ({"shards": 3}, f"shards must be 2 {continued} 3"),
        "epsilon": ({"settings": replace(SETTINGS, epsilon=2.0)}, f"epsilon must be 1.0 {continued} 2.0"),
        "bounds": ({"settings": replace(SETTINGS, upper=11)}, f"upper must be 10.0 {continued} 11.0"),
        "name": ({"settings": replace(SETTINGS, name="another")}, f"name must be 'test' {continued} 'another'"),
        "secret": ({"secret": secret}, "secret must be the one that the state began with, got another"),
    }


@pytest.mark.slow
def test_a_job_restored_under_others_is_one_line_and_releases_nothing(
    flink: FlinkCluster, broker_address: str, tmp_path: Path
) -> None:
    world = FlinkWorld(flink, broker_address, tmp_path, f"others-{flink.ports['rest']}")
    producer = PacedProducer(broker_address, world.samples, pace=0)
    producer.write(WINDOWS)
    first = world.start("first")
    world.wait([first], (WINDOWS - 2) * WINDOW, "no release")
    state = flink.stop_with_savepoint(first.id)
    producer.write(WINDOWS)
    producer.end()
    for name, (how, line) in others(tmp_path).items():
        job = world.start(name, f"--savepoint_path={state}", **how)
        try:
            wait_for_failure(flink, job, line)
        finally:
            flink.cancel(job.id)
        assert job.releases.look() == job.estimates.look() == job.refusals.look() == [], name
        job.close()
    again = world.start("again", f"--savepoint_path={state}")
    try:
        world.wait([again], (2 * WINDOWS - 1) * WINDOW, "nothing after the restore under the same")
    finally:
        flink.cancel(again.id)


def wait_for_failure(flink: FlinkCluster, job: Job, line: str) -> None:
    """Wait until a job, which is tried again for ever, has failed of this."""
    until = time.monotonic() + PATIENCE
    seen: list[str] = []
    while time.monotonic() < until:
        entries = flink.get(f"/jobs/{job.id}/exceptions")["exceptionHistory"]["entries"]
        seen = [str(entry["stacktrace"]) for entry in entries]
        if any(line in text for text in seen):
            return
        time.sleep(0.2)
    raise NotInTimeError(f"not {line!r} in {PATIENCE:g} s but {seen}: {flink.jobs()}; logs: {flink.folder}")


def stop_at_checkpoint(flink: FlinkCluster, job: Job) -> str:
    """Cancel a job after its next checkpoint, which stays."""
    flink.wait_for_checkpoint(job.id)
    state = flink.retained_checkpoint(job.id)
    flink.cancel(job.id)
    return state
