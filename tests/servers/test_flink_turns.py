"""What Flink keeps of each turn of reading, and that a job that goes on from a savepoint begins to count anew."""

from __future__ import annotations

import re
import time
import urllib.request
from functools import partial
from pathlib import Path

import pytest

from tests.servers.support.flink_cluster import FlinkCluster
from tests.servers.support.flink_jobs import contradictions, examine
from tests.servers.support.flink_kills import FlinkWorld
from tests.servers.support.flink_stream import WINDOW, PacedProducer
from tests.servers.support.waiting import wait_until

STEP = 8
"""Windows that are written at once."""
TURNS = 12
"""Of each run, at least."""
COUNTER = re.compile(r"(?m)^flink_taskmanager_job_task_operator_meanstream_reading_turns\{.*\} (\S+)$")


def names(state: str) -> int:
    """Count the names of states that turns have left in a savepoint."""
    found: set[bytes] = set()
    for file in Path(state.removeprefix("file:")).rglob("*"):
        if file.is_file():
            found |= set(re.findall(rb"sdf_checkpoint:\d+:\d+", file.read_bytes()))
    return len(found)


def turns(flink: FlinkCluster) -> int:
    """Ask Flink's Prometheus reporter how many turns the run has had."""
    with urllib.request.urlopen(f"http://127.0.0.1:{flink.taskmanager_metrics}/", timeout=10) as answer:
        return int(sum(map(float, COUNTER.findall(answer.read().decode()))))


def had_turns(flink: FlinkCluster, least: int) -> bool:
    return turns(flink) >= least


@pytest.mark.slow
def test_what_turns_leave_grows_within_a_run_and_is_used_again_by_the_next(
    own_flink: FlinkCluster, broker_address: str, tmp_path: Path
) -> None:
    """Three runs of a job leave what the longest of them does; nothing of the stream is lost or told twice."""
    world = FlinkWorld(own_flink, broker_address, tmp_path, f"turns-{own_flink.ports['rest']}")
    producer = PacedProducer(broker_address, world.samples, pace=0)
    jobs, left, had, more = [], [], [], ()
    for number in range(1, 4):
        producer.write(STEP)
        if number == 3:
            producer.end()
        job = world.start(f"run-{number}", *more)
        world.wait([job], (number * STEP - 2) * WINDOW, f"run {number}: nothing released")
        wait_until(partial(had_turns, own_flink, TURNS * number), 120, why=lambda: "too few turns")
        had.append(turns(own_flink))
        asked = time.monotonic()
        state = own_flink.stop_with_savepoint(job.id)
        since = 2 * int(time.monotonic() - asked + 1)  # turns that it has had meanwhile: one per second and partition
        more = (f"--savepoint_path={state}",)
        jobs.append(job)
        left.append(names(state))
        wait_until(lambda: turns(own_flink) == 0, 60, why=lambda: "the ended job is still shown")
    assert left[0] >= had[0] // 2, "a turn leaves a name, or two of one bundle do"
    assert left[0] < left[1] < left[2], "a longer run leaves more"
    assert left[2] <= had[2] + 8 + since, "not the sum of all runs: names are used again"

    found = examine([line for job in jobs for line in job.releases.look()], world.expected(3 * STEP))
    assert (found.noised_twice, found.lost, found.strange) == ([], [], [])
    assert contradictions([line for job in jobs for line in job.estimates.look()]) == []
    assert [job.refusals.look() for job in jobs] == [[], [], []]
