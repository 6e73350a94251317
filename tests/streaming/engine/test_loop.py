"""The loop that all engines share: when it takes a turn, when it waits, and whom it tells."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meanstream.streaming.crash import no_crash
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.engine.engine_loop import EngineLoop
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.events.event_columns import Batch, Position, Rejects
from tests.streaming.support.scripted_source import ScriptedSource, SettableClock

POLL = 0.25


def batch(at: int, *, samples: int = 0, rejects: int = 0, **more: Any) -> Batch:
    found = Rejects()
    for i in range(rejects):
        found.add("malformed", i, 1)
    taken = ScriptedSource([("ann", 1.0, 0.0)] * samples).next_batch(samples).samples
    return Batch(taken, found, {"at": at}, **more)


class Source:
    """Gives batches one after the other, and hears what is committed."""

    name, bounded = "batches", True

    def __init__(self, *batches: Batch) -> None:
        self.batches = list(batches)
        self.heard: list[Any] = []

    def next_batch(self, _: int) -> Batch:
        return self.batches.pop(0)

    def restore(self, position: Position) -> None:
        self.heard.append(("restore", position))

    def begin(self) -> None:
        self.heard.append("begin")

    def commit(self, position: Position) -> None:
        self.heard.append(("commit", position))

    def close(self) -> None:
        """Nothing is open."""


class Loop(EngineLoop[EngineStats, int]):
    """Notes what it is asked to do."""

    state_name, log = "loop", logging.getLogger(__name__)
    waiting = False

    def __init__(self, source: Source, state: Any = None) -> None:
        self.did: list[Any] = []
        self.told: list[int | None] = []
        self.time = SettableClock(1000.0)
        self.delivery = SimpleNamespace(  # type: ignore[assignment]
            hear=lambda: None,
            require_own=lambda _elsewhere: self.did.append("require_own"),
            **{name: partial(self.did.append, name) for name in ("resume", "mark")},
        )
        super().__init__(
            source=source,
            store=SimpleNamespace(
                state=lambda _: state, path=Path("s.db"), keep=partial(self.did.append, "keep")
            ),  # type: ignore[arg-type]
            options=EngineOptions(poll=POLL),
            stats=EngineStats(),
            clock=self.time,
            crash=no_crash,
            on_turn=lambda stats: self.told.append(stats.input_lag),
            health=EngineHealth(silent_seconds=POLL, now=self.time.now),
        )

    def _restore(self, state: dict[str, Any]) -> None:
        self.did.append(("restored", state["own"]))

    def _begun(self) -> dict[str, Any]:
        return {}

    def _has_waiting(self) -> bool:
        return self.waiting

    def _take_in(self, taken: Batch, *, ended: bool) -> int:
        return len(taken.samples)

    def _commit(self, position: Position, taken: int, rejects: Rejects, *, ended: bool) -> None:
        self._positions = {self._source.name: position}
        self.did.append((position["at"], taken, len(rejects), ended))

    def _deliver(self, stop: Any, *, ended: bool) -> None:
        self.did.append("delivered")


def turns(loop: Loop) -> list[Any]:
    return [row for row in loop.did if isinstance(row, tuple) and isinstance(row[0], int)]


END = batch(9, exhausted=True)


def test_a_turn_is_taken_for_all_that_is_new_and_for_nothing_else() -> None:
    source = Source(
        batch(1, samples=2, lag=7),
        batch(1, lag=3),  # nothing new
        batch(1, rejects=1),
        batch(1, samples=1),
        batch(2),  # a position moved over what was no record
        batch(2, active=()),  # a partition is idle now: event time may go on
        batch(2, active=()),
        END,
    )
    loop = Loop(source)
    loop.run()
    assert turns(loop) == [
        (1, 2, 0, False),
        (1, 0, 1, False),
        (1, 1, 0, False),
        (2, 0, 0, False),
        (2, 0, 0, False),
        (9, 0, 0, True),
    ]
    assert loop.did[:4] == ["require_own", "keep", "resume", "delivered"]
    assert loop.did[-2:] == ["delivered", "mark"]
    assert loop.did.count("delivered") == 7
    assert source.heard == ["begin", *(("commit", {"at": at}) for at in (1, 1, 1, 2, 2, 9))]
    assert loop.told == [None, 7, None, None, None, None, None]
    assert loop.time.now() == 1000.0 + 2 * POLL


def test_while_nothing_comes_it_is_alive_and_its_checkpoint_is_fresh() -> None:
    loop = Loop(Source(*[batch(1) for _ in range(9)]))
    loop._positions = {"batches": {"at": 1}}
    loop._active = (0,)
    seen = []

    def stop() -> bool:
        seen.append((loop.health.not_ready(), loop.health.checkpoint_age))
        return len(seen) == 9

    loop.run(stop)
    assert seen[1:] == [(None, POLL)] * 8  # each look is one wait after the last sign of life
    assert turns(loop) == []
    assert loop.health.not_ready() == "stopping"


@pytest.mark.parametrize(
    ("ended", "waiting", "turn"), [(0, False, 1), (0, True, 1), (1, False, 0), (1, True, 1)]
)
def test_the_end_is_taken_in_once_or_while_something_waits(
    ended: int, waiting: bool, turn: int
) -> None:
    source = Source(END)
    loop = Loop(
        source, {"own": 5, "positions": {"batches": {"at": 9}, "other": {"at": 3}}, "ended": ended}
    )
    loop.waiting = waiting
    loop.run()
    assert turns(loop) == [(9, 0, 0, True)] * turn
    assert source.heard[0] == ("restore", {"at": 9})
    assert loop.did[:3] == ["require_own", "keep", ("restored", 5)]
    assert len(loop.told) == 1 + turn


def test_a_second_run_goes_on_without_resuming() -> None:
    source = Source(batch(1, samples=1), batch(2, samples=1), END)
    loop = Loop(source)
    stops = iter([False, True])
    loop.run(lambda: next(stops))
    loop.run()
    assert [row[0] for row in turns(loop)] == [1, 2, 9]
    assert loop.did.count("resume") == 1
    assert source.heard.count("begin") == 1
