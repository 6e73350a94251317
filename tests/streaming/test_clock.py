"""A machine's clock that jumps: no good sample is lost by it, and no window closes early."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from meanstream.operators.estimators.registry import ESTIMATORS
from meanstream.streaming.clock import CONFIRM_SECONDS, CheckedClock, SystemClock, TimeBounds
from meanstream.streaming.engine import engine_loop
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.event_columns import Batch
from tests.streaming.support.rounds_world import RoundsWorld, rounds_settings
from tests.streaming.support.scripted_source import Script, ScriptedSource
from tests.streaming.support.tiny_estimator import TINY

START = 1_700_000_040.0  # a whole minute
TICK = 20.0
TICKS = 60
DAY = 86_400.0
JUMPS: dict[str, Callable[[int], float]] = {
    "ahead": lambda tick: DAY * (20 <= tick < 30),
    "back": lambda tick: -DAY * (20 <= tick < 30),
    "ahead, then back": lambda tick: DAY * (20 <= tick < 25) - DAY * (25 <= tick < 30),
}


@dataclass
class Machine:
    """A clock that someone sets, and one that no one sets."""

    jump: Callable[[int], float]
    steady: float = 0.0

    def wall(self) -> float:
        return START + self.steady + self.jump(round(self.steady / TICK))


class TickingSource(ScriptedSource):
    """Gives what two senders have sent in each tick, at its end; then waits for more."""

    def __init__(self, machine: Machine) -> None:
        rows = [
            [(name, 5.0, START + TICK * tick + i) for i, name in enumerate(("ann", "bob"))]
            for tick in range(TICKS)
        ]
        super().__init__([step for row in rows for step in (*row, Script.PAUSE)], bounded=False)
        self._machine = machine

    def next_batch(self, max_samples: int) -> Batch:
        batch = super().next_batch(max_samples)
        self._machine.steady += TICK if len(batch.samples) or not self.left else 0.0
        return batch

    @property
    def left(self) -> int:
        return len(self.script) - self._at


@pytest.fixture
def life(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Callable[[int], float]], Any]:
    """Run a world to the end of the script on a machine whose clock jumps."""
    monkeypatch.setitem(ESTIMATORS, "tiny", TINY)

    def run(world: Any, jump: Callable[[int], float]) -> Any:
        machine = Machine(jump)
        monkeypatch.setattr(SystemClock, "now", lambda _: machine.wall())
        monkeypatch.setattr(SystemClock, "sleep", lambda *_: None)
        monkeypatch.setattr(engine_loop, "steady_seconds", lambda: machine.steady)
        world.clock = None
        source = TickingSource(machine)
        turns = iter(range(20))
        world.run(source, stop=lambda: not source.left and next(turns, None) is None)
        return world

    return run


def rounds_world(folder: Path) -> RoundsWorld:
    world = RoundsWorld(folder, rounds_settings(window="1m"))
    world.options = EngineOptions(batch_size=32, allowed_lateness=10.0)
    return world


@pytest.mark.parametrize("jump", JUMPS)
def test_windows_of_rounds_close_as_on_a_machine_whose_clock_is_right(
    jump: str, tmp_path: Path, life: Any, caplog: pytest.LogCaptureFixture
) -> None:
    right = life(rounds_world(tmp_path / "right"), lambda _: 0.0)
    wrong = life(rounds_world(tmp_path / "wrong"), JUMPS[jump])
    assert len(right.lines("means")) == TICKS * TICK / 60
    for role in ("means", "reports", "dead_letters"):
        assert wrong.lines(role) == right.lines(role)
    assert wrong.lines("dead_letters") == []
    assert "the machine's clock was set by " in caplog.text


def test_a_clock_that_is_believed_at_once_makes_good_samples_late(
    tmp_path: Path, life: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The known-bad twin: what the test above would find."""
    monkeypatch.setattr(CheckedClock, "bounds", lambda self: TimeBounds(*[self._clock.now()] * 2))
    for jump, reason in (("ahead", "late"), ("back", "in_future")):
        wrong = life(rounds_world(tmp_path / jump), JUMPS[jump])
        assert {event["reason"] for event in wrong.events("dead_letters")} == {reason}


@pytest.mark.parametrize("jump", JUMPS)
def test_samples_of_agents_count_as_on_a_machine_whose_clock_is_right(
    jump: str, new_world: Callable[[str], Any], life: Any
) -> None:
    right = life(new_world("right"), lambda _: 0.0)
    wrong = life(new_world("wrong"), JUMPS[jump])
    assert wrong.files() == right.files()
    assert len(right.lines("releases")) > 4
    assert right.lines("dead_letters") == []


def test_a_clock_that_stays_as_it_was_set_is_believed(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(lambda tick: DAY * (tick >= 1))

    class Wall:
        def now(self) -> float:
            return machine.wall()

        def sleep(self, seconds: float) -> None:
            machine.steady += seconds

    checked = CheckedClock(Wall(), steady=lambda: machine.steady)
    assert checked.bounds() == (START, START)
    doubted = 0
    with caplog.at_level(logging.WARNING):
        for _ in range(60):
            machine.steady += TICK
            earliest, latest = checked.bounds()
            assert latest == machine.wall()
            doubted += earliest < latest
    assert doubted == CONFIRM_SECONDS / TICK
    assert caplog.text.count("was set by 86400 s") == 1


def test_small_corrections_are_none(caplog: pytest.LogCaptureFixture) -> None:
    """A clock that loses a second in a minute, as none does, is followed."""
    machine = Machine(lambda tick: -float(tick // 3))
    checked = CheckedClock(
        type("Wall", (), {"now": lambda _: machine.wall()})(), lambda: machine.steady
    )  # type: ignore[arg-type]
    for _ in range(600):
        machine.steady += TICK
        assert checked.bounds() == (machine.wall(), machine.wall())
    assert caplog.text == ""
