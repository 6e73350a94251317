"""A job on a real Flink cluster that goes on with more workers, or fewer: it counts each sample
once.

`test_flink_savepoint.py` goes from one to two in every gate. Here is the sweep, and what happens
where a user lets Flink drop the state that it cannot place.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from meanstream.pipelines.beam.kafka.beam_kafka_source import ReadKafka
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.servers.support.flink_cluster import FlinkCluster
from tests.servers.support.flink_jobs import Found, examine
from tests.servers.support.flink_kills import FlinkWorld, Job
from tests.servers.support.flink_stream import WINDOW, PacedProducer, samples_of
from tests.servers.support.second_reader import expand_chained, expand_chained_unkeyed

WINDOWS = 12
"""Of each leg; agents live for eight."""


class Legs:
    """One job after the other, each from the savepoint of the one before."""

    def __init__(
        self, cluster: FlinkCluster, address: str, folder: Path, mapping: ColumnMapping
    ) -> None:
        self.world = FlinkWorld(cluster, address, folder, f"scaling-{cluster.ports['rest']}")
        self._mapping = mapping
        self._producer = PacedProducer(address, self.world.samples, pace=0)
        self._jobs: list[Job] = []

    def run(self, parallelisms: Sequence[int], *more: str) -> None:
        """Release what a leg brings at each parallelism; the last one sees the end of the
        stream."""
        state: list[str] = []
        for number, parallelism in enumerate(parallelisms):
            self._producer.write(WINDOWS)
            last = number == len(parallelisms) - 1
            if last:
                self._producer.end()
            name = f"leg-{number}-of-{parallelism}"
            job = self.world.start(
                name,
                f"--parallelism={parallelism}",
                *state,
                *more[: len(state)],
                mapping=self._mapping,
            )
            self._jobs.append(job)
            until = (self._producer.windows - (1 if last else 2)) * WINDOW
            self.world.wait([job], until, f"leg {number}: no release")
            if last:
                self.world.wait_for_estimates(job, until)
                self.world.cluster.cancel(job.id)
            else:
                state = [f"--savepoint_path={self.world.cluster.stop_with_savepoint(job.id)}"]

    def found(self) -> tuple[Found, int]:
        """Compare all legs with the engine; tell how many releases it makes."""
        expected = self.world.expected(self._producer.windows)
        return examine([line for job in self._jobs for line in job.releases.look()], expected), len(
            expected
        )

    def wrong_counts(self) -> dict[str, int]:
        """Agents whose newest estimate is of another number of samples than they have sent."""
        sent: dict[str, int] = {}
        for window in range(self._producer.windows):
            for agent, _, _ in samples_of(window):
                sent[agent] = sent.get(agent, 0) + 1
        told: dict[str, int] = {}
        for line in (line for job in self._jobs for line in job.estimates.look()):
            event = msgspec.json.decode(line)
            told[event["agent"]] = max(event["n"], told.get(event["agent"], 0))
        return {agent: n for agent, n in told.items() if n != sent.get(agent, n)}

    def refusals(self) -> int:
        return sum(len(job.refusals.look()) for job in self._jobs)


@pytest.mark.full
@pytest.mark.parametrize("column", [None, "id"])
def test_a_job_goes_on_with_other_parallelisms(
    column: str | None, flink: FlinkCluster, broker_address: str, tmp_path: Path
) -> None:
    legs = Legs(flink, broker_address, tmp_path, ColumnMapping(id=column))
    legs.run([1, 2, 3, 1])
    found, n_releases = legs.found()
    assert n_releases > 300
    assert (found.noised_twice, found.lost, found.strange) == ([], [], [])
    assert legs.wrong_counts() == {}
    assert legs.refusals() == 0


@pytest.mark.full
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "control"])
def test_a_second_reader_counts_nothing_twice(
    keyed: bool, flink: FlinkCluster, broker_address: str, tmp_path: Path
) -> None:
    """The source as it was, scaled with `--allow_non_restored_state`: without keys the same check
    finds the fault."""
    legs = Legs(flink, broker_address, tmp_path, ColumnMapping())
    with mock.patch.object(
        ReadKafka, "expand", expand_chained if keyed else expand_chained_unkeyed
    ):
        legs.run([1, 2], "--allow_non_restored_state")
    found, n_releases = legs.found()
    assert n_releases > 150
    if keyed:
        assert (found.noised_twice, found.lost, found.strange) == ([], [], [])
        assert legs.wrong_counts() == {}
    else:
        assert found.strange
        assert legs.wrong_counts()
