"""A topic that falls silent: the clock lets go what waits, once, the same after a restart, and
nothing good is late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.streaming.crash import CrashPoint
from meanstream.streaming.engine.watermark import Watermark
from meanstream.streaming.events.event_columns import Batch
from tests.streaming.conftest import World
from tests.streaming.support.scripted_source import (
    Script,
    ScriptedSample,
    ScriptedSource,
    SettableClock,
)

BEGAN, LATENESS, IDLE, REFRESH = 2e9, 10.0, 6.0, 5.0
STREAM: list[ScriptedSample | Script] = [
    (f"agent {i % 4}", 5.0 + i % 3, 1000.0 + i) for i in range(40)
]
NEWEST = 1039.0
WAITING = 12
"""Of the newest time another sender must have come, too: 1,038 has, and so 1,028 is reached."""


class QuietTopic(ScriptedSource):
    """A topic without end: where nothing is there, no partition has more to come."""

    def __init__(
        self, script: Sequence[ScriptedSample | Script], *, problem: str | None = None
    ) -> None:
        super().__init__(script, bounded=False)
        self.problem = problem
        self.client, self.watched = "source", True

    def next_batch(self, max_samples: int) -> Batch:
        batch = super().next_batch(max_samples)
        return batch if len(batch.samples) else replace(batch, active=())

    def connection_problem(self) -> str | None:
        return self.problem


@pytest.fixture
def topic_world(new_world: Callable[[str], World]) -> Callable[[str, float | None], World]:
    def made(name: str, idle_after: float | None) -> World:
        world = new_world(name)
        how = {
            "allowed_lateness": LATENESS,
            "refresh": REFRESH,
            "idle_after": idle_after,
            "poll": 1.0,
            "collaboration": "none",
        }
        world.options, world.clock = replace(world.options, **how), SettableClock(BEGAN)
        return world

    return made


def live(
    world: World, seconds: float, script: Sequence[ScriptedSample | Script] = STREAM, **how: object
) -> None:
    """One life of the process, for so many seconds of its clock."""
    until = world.clock.now() + seconds
    world.stats = world.run(QuietTopic(script), stop=lambda: world.clock.now() >= until, **how)  # type: ignore[attr-defined, arg-type]


def answered(world: World) -> dict[str, int]:
    """Of how many samples each agent was told last."""
    return {str(event["agent"]): int(str(event["n"])) for event in world.events("estimates")}


def test_without_it_the_last_ones_wait_for_ever(
    topic_world: Callable[[str, float | None], World],
) -> None:
    world = topic_world("waits", None)
    live(world, 60.0)
    assert world.engine.stats.pending == WAITING
    assert sum(answered(world).values()) == 28  # until the multiple of REFRESH


def test_what_waits_is_let_go_and_answered(
    topic_world: Callable[[str, float | None], World],
) -> None:
    world = topic_world("goes", IDLE)
    live(world, IDLE - 2)
    assert world.engine.stats.pending == WAITING
    live(world, IDLE - 2)
    assert (
        world.engine.stats.pending == WAITING
    )  # a silence is counted by who looks: another process begins anew
    live(world, LATENESS + 6)
    assert world.engine.stats.pending == 0
    assert answered(world) == {f"agent {number}": 10 for number in range(4)}
    assert {event["time"] for event in world.events("estimates")[-4:]} == {"1970-01-01T00:17:19Z"}


def test_a_longer_lateness_is_waited_for(topic_world: Callable[[str, float | None], World]) -> None:
    world = topic_world("long", IDLE)
    world.options = replace(world.options, allowed_lateness=30.0)
    live(world, IDLE + 5)
    assert world.engine.stats.watermark == NEWEST - 1 - 30 + 10
    assert world.engine.stats.pending == 22
    live(world, 30.0 + 5)
    assert world.engine.stats.pending == 0


def test_what_comes_after_is_late_only_if_it_is_older(
    topic_world: Callable[[str, float | None], World],
) -> None:
    world, source = topic_world("resumed", IDLE), QuietTopic(STREAM)
    after = [(f"agent {number}", 5.0, NEWEST + ahead) for number, ahead in enumerate((1, -1, 0, 9))]

    def stop() -> bool:
        if world.clock.now() >= BEGAN + 20 and len(source.script) == len(STREAM):
            source.script += after
        return world.clock.now() >= BEGAN + 45

    world.run(source, stop=stop)
    assert world.engine.stats.rejected == {"late": 2}
    assert (world.engine.stats.accepted, world.engine.stats.pending) == (42, 0)


def test_the_clock_does_not_pass_records_that_may_be_there(
    topic_world: Callable[[str, float | None], World],
) -> None:
    world = topic_world("outage", IDLE)
    until = BEGAN + 40
    world.run(
        QuietTopic(STREAM, problem="no broker answers"), stop=lambda: world.clock.now() >= until
    )
    assert world.engine.stats.pending == WAITING
    bounded = topic_world("active", IDLE)
    bounded.run(ScriptedSource(STREAM, bounded=False), stop=lambda: bounded.clock.now() >= until)
    assert bounded.engine.stats.pending == WAITING  # a partition that more is expected of


def test_a_process_that_stood_still_has_not_looked(
    topic_world: Callable[[str, float | None], World],
) -> None:
    world = topic_world("stood", IDLE)
    looks = iter(range(40))

    def stop() -> bool:
        if next(looks) == 2:
            world.clock.sleep(5000.0)  # the machine slept
        return world.clock.now() >= BEGAN + 5000 + IDLE - 3

    world.run(QuietTopic(STREAM), stop=stop)
    assert world.engine.stats.pending == WAITING


def test_one_fast_clock_does_not_hurry_the_others() -> None:
    watermark = Watermark(10.0)
    watermark.late(
        np.zeros(3, np.int64), np.array([100.0, 101.0, 900.0]), np.array([1, 2, 3], np.uint64)
    )
    assert watermark.advance(()) == 91.0
    assert (watermark.by_clock(5.0), watermark.by_clock(50.0)) == (96.0, 141.0)
    alone = Watermark(10.0)
    alone.late(np.zeros(1, np.int64), np.array([100.0]), np.array([1], np.uint64))
    assert alone.by_clock(0.0) == 90.0
    assert Watermark(10.0).by_clock(1e9) == -np.inf


POINTS = [
    CrashPoint.SAVE_POSITION,
    CrashPoint.CHARGE_LEDGER,
    CrashPoint.COMMIT,
    CrashPoint.WRITE_ESTIMATES,
]


class Death(Exception):  # noqa: N818 - it stands for a death
    pass


@pytest.mark.parametrize("point", POINTS)
def test_a_death_in_the_silence_changes_no_byte(
    point: CrashPoint, topic_world: Callable[[str, float | None], World]
) -> None:
    """Also not of what the clock had let go: it is in the commit, and never waits again."""
    undisturbed, world = topic_world("undisturbed", IDLE), topic_world("killed", IDLE)
    live(undisturbed, 30.0)
    died = 0

    def crash(at: CrashPoint, *_: object) -> None:
        nonlocal died
        if at is point and world.clock.now() >= BEGAN + IDLE and died < 2:
            died += 1
            raise Death

    for _ in range(3):
        with suppress(Death):
            live(world, 30.0, crash=crash)
    assert died == 2
    assert world.files() == undisturbed.files()
    assert world.engine.stats.pending == 0


def test_topics_have_it_by_default_and_nothing_else_does() -> None:
    def seconds(source: str, idle_after: str | None) -> float | None:
        bounds = {"lower": 0.0, "upper": 1.0, "epsilon": 1.0, "delta": 1e-6}
        return (
            AgentsOptions(source=source, idle_after=idle_after, **bounds)
            .engine_options()
            .idle_after
        )  # type: ignore[arg-type]

    topic = "kafka://127.0.0.1:9092/samples"
    assert [seconds(topic, text) for text in (None, "never", "90s")] == [60.0, None, 90.0]
    assert seconds("samples.csv", None) is None
    with pytest.raises(
        ValueError, match="idle_after must be left out unless the source is a topic, got '1m'"
    ):
        seconds("samples.csv", "1m")
    with pytest.raises(ValueError, match="idle_after must be positive"):
        seconds(topic, "0s")
