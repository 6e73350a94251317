"""An engine that keeps up with a topic lets records gather between two turns; one that is behind does not wait."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from meanstream.streaming.engine import engine_loop
from meanstream.streaming.engine.engine_loop import FEW_RECORDS, GATHER_SECONDS, EngineLoop
from meanstream.streaming.engine.engine_options import EngineOptions


class Live:
    """A source that knows offsets."""

    bounded = False

    def commit(self, position: Any) -> None:
        """Tell no one."""


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the engine slept, by a clock that only its sleep moves."""
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: 100.0 + sum(slept), sleep=slept.append)
    monkeypatch.setattr(engine_loop, "time", clock)
    return slept


def wait(lag: int | None, source: object, *, refresh: float = 10.0, stopped: bool = False) -> None:
    loop: Any = SimpleNamespace(
        _source=source, _options=EngineOptions(refresh=refresh), _committed=100.0
    )
    batch: Any = SimpleNamespace(lag=lag)
    EngineLoop._let_records_gather(loop, batch, lambda: stopped)


def test_who_keeps_up_waits_once_per_turn(naps: list[float]) -> None:
    wait(FEW_RECORDS - 1, Live())
    assert sum(naps) == pytest.approx(GATHER_SECONDS)


class UntilEnd(Live):
    """A topic that is read up to where it ended when the run began."""

    bounded = True


def test_a_clock_that_stands_still_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: 100.0, sleep=slept.append)
    monkeypatch.setattr(engine_loop, "time", clock)

    wait(0, Live())
    assert sum(slept) == pytest.approx(GATHER_SECONDS)


def test_nothing_waits_otherwise(naps: list[float]) -> None:
    wait(FEW_RECORDS, Live())  # behind
    wait(None, Live())  # how far is not known
    wait(0, object())  # a file
    wait(0, UntilEnd())  # ends with its topic
    wait(0, Live(), refresh=0.0)  # answers at each commit
    wait(0, Live(), stopped=True)
    assert naps == []
