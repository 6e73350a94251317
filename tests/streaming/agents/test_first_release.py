"""Before the first release: how many samples wait for event time, and the time that is told is the
time that comes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.release_times import parse_release_times
from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.agents.first_release import (
    FirstRelease,
    FirstReleaseWatch,
    expected_first_release,
)
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.sinks.sink_protocol import Sinks
from meanstream.streaming.store.deployment_store import open_deployment
from tests.streaming.support.scripted_source import ScriptedSource, SettableClock

LATENESS = 30.0


def turns(
    folder: Path, schedule: str, samples: list[tuple[str, float, float]]
) -> list[tuple[int, int, FirstRelease]]:
    """Pending samples, releases and expectation after each sample of a stream."""
    settings = AgentsSettings(
        name="t", lower=0, upper=1, epsilon=1, delta=1e-6, schedule=schedule, horizon=8
    )
    deployment = open_deployment(
        folder / "s.db",
        settings,
        environment={"MEANSTREAM_SECRET": "7c1e94b05fa3d2681be60c9d37f25a84"},
    )
    seen: list[tuple[int, int, FirstRelease]] = []

    def note(stats: EngineStats) -> None:
        seen.append((stats.pending, stats.releases, stats.first_release))  # type: ignore[arg-type]

    engine = Engine(
        source=ScriptedSource(samples),
        settings=settings,
        noise=deployment.noise,
        store=deployment.store,
        sinks=Sinks(),
        options=EngineOptions(
            batch_size=1,
            allowed_lateness=LATENESS,
            quorum=1,
            refresh=None,
            drain=False,
            final_release=False,
        ),
        clock=SettableClock(1e6),
        on_turn=note,
    )
    engine.run()
    deployment.store.close()
    return seen[1 : len(samples) + 1]


@pytest.mark.parametrize("schedule", ["preferred:10", "geometric:3,2", "every:50s"])
def test_the_first_release_comes_when_it_was_said_to(schedule: str, tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    times = np.arange(200.0) * 3 + 1 + random.uniform(0, LATENESS / 2, 200)
    samples = [(f"agent {random.integers(5)}", 0.5, float(time)) for time in times]
    seen = turns(tmp_path, schedule, samples)
    first = next(i for i, (_, releases, _) in enumerate(seen) if releases)
    assert first > 5
    assert all(due is None for _, _, due in seen[first:])
    newest = np.maximum.accumulate(times)
    told = seen[first - 1][2]
    assert told.event_time is not None
    assert newest[first - 1] <= told.event_time <= newest[first]
    assert all(
        due.event_time is None or due.event_time >= newest[i]
        for i, (_, _, due) in enumerate(seen[:first])
    )
    reached = np.array([max(newest[i] - LATENESS, -np.inf) for i in range(200)])
    assert [n for n, _, _ in seen] == [
        int(np.sum(times[: i + 1] >= reached[i])) for i in range(200)
    ]


def test_it_says_what_is_missing(tmp_path: Path) -> None:
    seen = turns(tmp_path, "preferred:10", [("a", 0.5, float(i)) for i in range(3)])
    assert seen[-1] == (
        3,
        0,
        FirstRelease(None, "an agent's sample number 10; the agent with most has sent 3"),
    )


def test_nothing_was_sent() -> None:
    none, nothing = np.zeros(0, np.int64), np.zeros(0)
    for schedule in ("preferred:10", "every:1h"):
        due = expected_first_release(
            parse_release_times(schedule), 0.0, counted=none, agent=none, times=nothing
        )
        assert due.event_time is None


def test_it_is_looked_again_when_enough_is_new_and_not_by_a_clock() -> None:
    looks: list[int] = []

    def look() -> FirstRelease:
        looks.append(1)
        return FirstRelease(None, f"{len(looks)}")

    watch = FirstReleaseWatch(look)
    accepted = np.arange(0, 10_000, 10)
    for n in accepted.tolist():
        watch.newest(n, n)
    assert 2 <= len(looks) <= 2 + np.log(10_000 / 10) / np.log(1.5) + 10
