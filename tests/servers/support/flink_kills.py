"""Kills of a TaskManager and of a pool of workers under two jobs on one topic: as we release, and
with fresh noise."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from confluent_kafka.admin import AdminClient, NewTopic

from tests.servers.support.flink_cluster import FlinkCluster
from tests.servers.support.flink_jobs import (
    Attempts,
    Found,
    Topics,
    again,
    answered_anew,
    contradictions,
    examine,
    submit,
    time_of,
)
from tests.servers.support.flink_stream import (
    PARTITIONS,
    SECRET,
    WINDOW,
    PacedProducer,
    expected_releases,
)
from tests.servers.support.wait_until import wait_until

PATIENCE = 300.0
"""Seconds in which a job must have gone on after a kill; a busy machine is slow to start
workers."""
SPAN_SECONDS = 3.0
"""A kill comes at most so long after the jobs have come up with the stream."""
MORE = 3
"""At most so many times as many kills as were asked for, until one has met a release of each
job."""
CHECKPOINT_MILLISECONDS = 3000
"""Much longer than a bundle may take: otherwise releases leave just before the checkpoint that
holds them, and a kill of a job that only releases met none in many."""


class Victim(StrEnum):
    """What is killed; its worker processes die with the pool."""

    TASKMANAGER = "TaskManager"
    POOL = "worker pool"


@dataclass
class Job:
    """One job and what it lets out."""

    id: str
    releases: Attempts
    estimates: Attempts
    refusals: Attempts

    def close(self) -> None:
        for attempts in (self.releases, self.estimates, self.refusals):
            attempts.close()


class FlinkWorld:
    """Jobs on one topic of a broker, and the stream that they read.

    Parameters
    ----------
    cluster : FlinkCluster
    address : str
        Of the broker.
    folder : Path
        For the secret and the engine's store.
    prefix : str
        Of the names of topics and jobs.
    partitions : int
        Of the topic.
    """

    def __init__(
        self,
        cluster: FlinkCluster,
        address: str,
        folder: Path,
        prefix: str,
        *,
        partitions: int = PARTITIONS,
    ) -> None:
        self.cluster, self.address, self.folder = cluster, address, folder
        self._prefix = (
            f"{prefix}-{uuid4().hex[:8]}"  # a test that is tried again finds its topics empty
        )
        self._admin = AdminClient({"bootstrap.servers": address})
        self._secret = folder / "secret"
        self._secret.write_text(SECRET)
        self.samples = self._topic("samples", partitions)

    def start(self, name: str, *more: str, secret: Path | None = None, **how: Any) -> Job:
        """Submit a job to topics of its own; `how` as for `submit`."""
        names = {
            role: self._topic(f"{name}-{role}") for role in ("releases", "estimates", "refusals")
        }
        topics = Topics(samples=self.samples, **names)
        place = secret or self._secret
        job = submit(
            self.cluster, self.address, topics, place, f"{self._prefix}-{name}", *more, **how
        )
        return Job(job, **{role: Attempts(self.address, topic) for role, topic in names.items()})

    def expected(self, windows: int) -> list[bytes]:
        """What the engine releases."""
        return expected_releases(self.folder / f"engine-{windows}", windows)

    def wait(self, jobs: list[Job], until: float, what: str) -> None:
        """Wait until every job has released what is due at a time."""
        self._wait([job.releases for job in jobs], until, what)

    def wait_for_estimates(self, job: Job, until: float) -> None:
        """Wait until everybody with samples at a time was answered."""
        self._wait([job.estimates], until, "no estimates")

    def _wait(self, followed: list[Attempts], until: float, what: str) -> None:
        wait_until(
            lambda: min(attempts.newest() for attempts in followed) >= until,
            PATIENCE,
            every=0.1,
            why=lambda: (
                f"{what} up to {until:g}, newest {[attempts.newest() for attempts in followed]}: "
                f"{self.cluster.jobs()}; logs: {self.cluster.folder}"
            ),
        )

    def _topic(self, name: str, partitions: int = 1) -> str:
        topic = f"{self._prefix}-{name}"
        self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        until = time.monotonic() + 30
        while topic not in self._admin.list_topics(timeout=10).topics and time.monotonic() < until:
            time.sleep(0.05)
        return topic


@dataclass
class FlinkKills:
    """Kills, one after the other, each once both jobs have come up with the stream again.

    Half of them come at random times, the others as soon as a release is on its topic, which the
    next checkpoint is yet to hold; with `aimed` each comes when both jobs have such a release.
    Where a checkpoint was quicker than every kill there are more, up to three times as many, until
    releases of both jobs were executed again.

    Parameters
    ----------
    world : FlinkWorld
        Of which nobody else uses the cluster.
    seed : int
        The same seed gives the same times.
    count : int
        Number of kills, at least: of the TaskManager and of the pool in turn.
    aimed : bool
        Leave nothing to chance: two kills show what takes ten at random times.

    Attributes
    ----------
    ours, fresh : Found
        Of the job as it is, and of the control with fresh noise.
    contradictions : list of str
        Agents of ours that were told two things of one time under one population.
    answered_anew : int
        Agents' windows of ours that were answered again after a kill, under a later population.
    unanswered : list of int
        Windows of ours without estimates.
    refusals : int
        Of ours.
    releases : int
        That the engine makes.
    met : list of tuple
        After each kill, how many releases of ours and of the control were executed again until
        then.
    lag_seconds, answer_seconds : list of float
        After each kill, until both jobs have released what was there soon after it; until ours has
        answered it.
    disk : list of int
        Bytes in the world's folder, at first and after each kill.
    exceptions : list of str
        What has ended attempts of ours.
    """

    world: FlinkWorld
    seed: int
    count: int
    aimed: bool = False
    kills: list[Victim] = field(default_factory=list)
    ours: Found = field(default_factory=Found)
    fresh: Found = field(default_factory=Found)
    contradictions: list[str] = field(default_factory=list)
    answered_anew: int = 0
    unanswered: list[int] = field(default_factory=list)
    refusals: int = 0
    releases: int = 0
    met: list[tuple[int, int]] = field(default_factory=list)
    lag_seconds: list[float] = field(default_factory=list)
    answer_seconds: list[float] = field(default_factory=list)
    disk: list[int] = field(default_factory=list)
    exceptions: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Kill so often, let the stream end, and compare."""
        seldom = f"--checkpointing_interval={CHECKPOINT_MILLISECONDS}"
        jobs = [self.world.start("ours", seldom), self.world.start("fresh", seldom, fresh=True)]
        rng = np.random.default_rng(self.seed)
        producer = PacedProducer(self.world.address, self.world.samples)
        self.world.wait(jobs, WINDOW, "no release")
        self._weigh()
        while self._goes_on():
            number = len(self.kills)
            if self.aimed:
                self._wait_for_releases(jobs)
            else:
                time.sleep(rng.uniform(0, SPAN_SECONDS))
                if number // 2 % 2:
                    self._wait_for_releases([jobs[number // 4 % 2]])
            self._kill(list(Victim)[number % 2])
            killed = time.monotonic()
            until = producer.windows * WINDOW
            self.world.wait(jobs, until, f"kill {number + 1}: nothing new")
            self.lag_seconds.append(time.monotonic() - killed)
            self.world.wait_for_estimates(
                jobs[0], until
            )  # a job that only releases would hide that it answers late
            self.answer_seconds.append(time.monotonic() - killed)
            self.met.append((again(jobs[0].releases.ids()), again(jobs[1].releases.ids())))
            self._remember(jobs[0])
            self._weigh()
        producer.end()
        self.world.wait(jobs, (producer.windows - 1) * WINDOW, "the last releases are not there")
        with suppress(TimeoutError):  # what is not there then is told
            self.world.wait_for_estimates(jobs[0], (producer.windows - 1) * WINDOW)
        expected = self.world.expected(producer.windows)
        self._wait_for_all(jobs, len(expected))
        ours, fresh = jobs
        self.releases = len(expected)
        self.ours, self.fresh = (examine(job.releases.look(), expected) for job in (ours, fresh))
        self.contradictions = contradictions(ours.estimates.look())
        self.answered_anew = answered_anew(ours.estimates.look())
        answered = {time_of(line) // WINDOW for line in ours.estimates.look()}
        self.unanswered = sorted(set(range(producer.windows)) - answered)
        self.refusals = len(ours.refusals.look())
        for job in jobs:
            self.world.cluster.cancel(job.id)
            job.close()

    def _goes_on(self) -> bool:
        """Whether there are kills to come; always as many of the one as of the other."""
        done = len(self.kills)
        return done < self.count or (
            done < MORE * self.count and (not all(self.met[-1]) or bool(done % len(Victim)))
        )

    def _wait_for_releases(self, jobs: list[Job]) -> None:
        """Wait until each of the jobs has released something that no checkpoint holds."""
        checkpoints: list[int] = []
        lines: list[int] = []

        def met() -> bool:
            now = [self.world.cluster.completed_checkpoints(job.id) for job in jobs]
            if now != checkpoints:
                checkpoints[:], lines[:] = now, [len(job.releases.look()) for job in jobs]
            return all(
                len(job.releases.look()) > known for job, known in zip(jobs, lines, strict=True)
            )

        wait_until(
            met, PATIENCE, every=0.02, why=lambda: f"no release: {self.world.cluster.jobs()}"
        )

    def _remember(self, job: Job) -> None:
        """Keep what has ended an attempt: Flink's history is short."""
        self.exceptions += [
            text for text in self.world.cluster.exceptions(job.id) if text not in self.exceptions
        ]

    def _weigh(self) -> None:
        """Note what is on the disk: of the broker, of the cluster, of what was killed."""
        used = 0
        for path in self.world.folder.rglob("*"):
            with suppress(FileNotFoundError):
                used += path.stat().st_blocks * 512
        self.disk.append(used)

    def landed(self) -> dict[str, int]:
        """Count kills by what was killed."""
        return dict(Counter(victim.value for victim in self.kills))

    def _kill(self, victim: Victim) -> None:
        cluster = self.world.cluster
        if victim is Victim.TASKMANAGER:
            cluster.kill_taskmanager()
            cluster.start_taskmanager()
        else:
            cluster.kill_pool()
            cluster.start_pool()
        self.kills.append(victim)

    def _wait_for_all(self, jobs: list[Job], count: int) -> None:
        """Give the last ones time; what is not there then is lost."""
        end = time.monotonic() + 60
        while time.monotonic() < end and min(len(set(job.releases.ids())) for job in jobs) < count:
            time.sleep(0.2)
