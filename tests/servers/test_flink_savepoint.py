"""A job on a real Flink cluster that is stopped and begun again from its state goes on as if
nothing had happened.

From a savepoint it goes on with two workers where it had one; `test_flink_scaling.py` has the
sweep.
"""

from __future__ import annotations

import re
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.servers.support.flink_cluster import FlinkCluster
from tests.servers.support.flink_jobs import contradictions, examine, time_of
from tests.servers.support.flink_kills import PATIENCE, FlinkWorld, Job
from tests.servers.support.flink_stream import WINDOW, PacedProducer
from tests.servers.support.wait_until import wait_until

WINDOWS = 30
"""Before the stop, and after it: agents live on from one to the other."""
RETAIN = ("--externalized_checkpoints_enabled", "--retain_externalized_checkpoints_on_cancellation")
GIVE_UP = ("--number_of_execution_retries=1", "--execution_retry_delay=0")
PARTITIONS = 8
"""Each has a turn of reading per second."""
TURNS = 48
"""Of the first run, at least."""


def test_a_job_goes_on_from_a_savepoint_and_from_a_checkpoint_and_under_no_other_settings(
    flink: FlinkCluster, broker_address: str, tmp_path: Path
) -> None:
    """Jobs take long to start, so one state serves all cases."""
    world = FlinkWorld(
        flink, broker_address, tmp_path, f"kept-{flink.ports['rest']}", partitions=PARTITIONS
    )
    producer = PacedProducer(broker_address, world.samples, pace=0, partitions=PARTITIONS)
    producer.write(WINDOWS)
    first = world.start("first", *RETAIN)
    world.wait([first], (WINDOWS - 2) * WINDOW, "no release")  # the last window has not ended
    flink.wait_for_checkpoint(first.id)
    had = [turns_once(flink, first, TURNS)]
    kept = {"savepoint": flink.stop_with_savepoint(first.id)}
    kept["checkpoint"] = flink.retained_checkpoint(first.id)
    left = [names(kept["savepoint"])]
    producer.write(WINDOWS)
    producer.end()

    assert_refused_under_others(world, kept["savepoint"])
    workers = {"savepoint": 2, "checkpoint": 1}  # a job may be scaled where it goes on
    again = {
        name: world.start(name, f"--savepoint_path={state}", f"--parallelism={workers[name]}")
        for name, state in kept.items()
    }
    try:
        world.wait(list(again.values()), (2 * WINDOWS - 1) * WINDOW, "nothing after the restore")
        for job in again.values():
            world.wait_for_estimates(job, (2 * WINDOWS - 1) * WINDOW)
        flink.cancel(again["checkpoint"].id)
        had.append(turns_once(flink, again["savepoint"], left[0] + 2 * PARTITIONS))
        asked = time.monotonic()
        left.append(names(flink.stop_with_savepoint(again["savepoint"].id)))
        since = PARTITIONS * int(time.monotonic() - asked + 1)  # turns while the savepoint was made
    finally:
        for job in again.values():
            flink.cancel(job.id)
    for job in again.values():
        assert_goes_on(first, job, world.expected(2 * WINDOWS))
    # What Flink keeps of each turn: docs/beam.md says how long a job may read, from this.
    assert [leaves >= turns // 2 for leaves, turns in zip(left, had, strict=True)] == [
        True,
        True,
    ], (left, had)
    assert left[1] <= had[1] + 2 * PARTITIONS + since, (
        "not the sum of both runs: names are used again"
    )


def assert_goes_on(first: Job, again: Job, expected: list[bytes]) -> None:
    """Nothing is lost, noised twice or told otherwise, and the second run has begun where the first
    one ended."""
    before, after = first.releases.look(), again.releases.look()
    found = examine([*before, *after], expected)
    assert (found.noised_twice, found.lost, found.strange) == ([], [], [])
    assert examine(after, expected).lost, "it has begun at the beginning"
    assert examine(before, expected).lost, "nothing was left to release"
    told = [*first.estimates.look(), *again.estimates.look()]
    assert contradictions(told) == []
    assert {time_of(line) // WINDOW for line in told} >= set(range(2 * WINDOWS)), (
        "what is combined goes on, too"
    )
    assert first.refusals.look() == again.refusals.look() == []


def others(folder: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """What a restored job may not be, and the line that says so; `test_state.py` has every setting
    of every step."""
    secret = folder / "another secret"
    secret.write_text("5f0d8c2b7a6e41939fd2c1b08e7a4d36")
    continued = "as in the state that is continued, got"
    return {
        "shards": ({"shards": 3}, f"shards must be 2 {continued} 3"),
        "secret": (
            {"secret": secret},
            "secret must be the one that the state began with, got another",
        ),
    }


def assert_refused_under_others(world: FlinkWorld, state: str) -> None:
    """Each fails in one line and releases nothing; all of them are tried at once."""
    lines = {name: line for name, (_, line) in others(world.folder).items()}
    jobs = {
        name: world.start(name, f"--savepoint_path={state}", *GIVE_UP, **how)
        for name, (how, _) in others(world.folder).items()
    }
    try:
        for name, job in jobs.items():
            wait_for_failure(world.cluster, job, lines[name])
    finally:
        for job in jobs.values():
            world.cluster.cancel(job.id)
    for name, job in jobs.items():
        assert job.releases.look() == job.estimates.look() == job.refusals.look() == [], name
        job.close()


def wait_for_failure(flink: FlinkCluster, job: Job, line: str) -> None:
    """Wait until a job has failed of this."""

    def failed() -> bool:
        return any(line in text for text in flink.exceptions(job.id))

    wait_until(
        failed,
        PATIENCE,
        every=0.2,
        why=lambda: f"not {line!r} but {flink.exceptions(job.id)}: {flink.jobs()}",
    )


def names(state: str) -> int:
    """Count the names of states that turns have left in a savepoint."""
    found: set[bytes] = set()
    for file in Path(state.removeprefix("file:")).rglob("*"):
        if file.is_file():
            found |= set(re.findall(rb"sdf_checkpoint:\d+:\d+", file.read_bytes()))
    return len(found)


def turns_once(flink: FlinkCluster, job: Job, least: int) -> int:
    """Wait until Flink's Prometheus reporter says that the run has had so many turns of reading,
    and return them."""
    counter = rf'(?m)^flink_taskmanager_job_task_operator_meanstream_reading_turns{{.*job_id="{job.id}".*}} (\S+)$'

    def turns() -> int:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{flink.taskmanager_metrics}/", timeout=10
        ) as answer:
            return int(sum(map(float, re.findall(counter, answer.read().decode()))))

    wait_until(
        lambda: turns() >= least, PATIENCE, every=0.2, why=lambda: f"{turns()} turns of {least}"
    )
    return turns()
