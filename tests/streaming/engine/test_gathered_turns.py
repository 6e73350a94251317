"""An engine that keeps up with a topic lets records gather between two turns; one that is behind does not wait."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.engine import engine_loop
from meanstream.streaming.engine.engine_loop import (
    FEW_RECORDS,
    GATHER_SECONDS,
    LEAST_SECONDS,
    EngineLoop,
)
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


def wait(
    lag: int | None,
    source: object,
    *,
    refresh: float = 10.0,
    stopped: bool = False,
    taken: int = 0,
    due: float = math.inf,
) -> None:
    loop: Any = SimpleNamespace(
        _source=source,
        _options=EngineOptions(refresh=refresh, batch_size=100_000),
        _committed=100.0,
        _seconds_until_due=lambda: due,
    )
    batch: Any = SimpleNamespace(lag=lag, samples=range(taken), rejects=())
    EngineLoop._let_records_gather(loop, batch, lambda: stopped)


def test_who_keeps_up_waits_once_per_turn(naps: list[float]) -> None:
    wait(FEW_RECORDS - 1, Live())
    assert sum(naps) == pytest.approx(GATHER_SECONDS)


def test_who_leaves_fewer_than_it_takes_keeps_up(naps: list[float]) -> None:
    wait(8_999, Live(), taken=9_000)
    assert sum(naps) == pytest.approx(GATHER_SECONDS)

    naps.clear()
    wait(9_000, Live(), taken=9_000)  # as many came meanwhile
    wait(50_000, Live(), taken=100_000)  # a backlog: it took as many as it may
    assert naps == []


@pytest.mark.parametrize(
    ("due", "waited"), [(0.6, 0.6), (30.0, GATHER_SECONDS), (1e-9, LEAST_SECONDS)]
)
def test_an_answer_that_is_due_is_not_kept_waiting(
    naps: list[float], due: float, waited: float
) -> None:
    wait(0, Live(), due=due)
    assert sum(naps) == pytest.approx(waited)


@pytest.mark.parametrize(
    ("watermark", "refresh", "due"),
    [(93.0, 10.0, 7.0), (90.0, 10.0, 10.0), (-math.inf, 10.0, math.inf), (93.0, None, math.inf)],
)
def test_agents_are_answered_at_multiples_of_refresh(
    watermark: float, refresh: float | None, due: float
) -> None:
    engine: Any = SimpleNamespace(
        _options=EngineOptions(refresh=refresh), _intake=SimpleNamespace(watermark=watermark)
    )
    assert Engine._seconds_until_due(engine) == due


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
