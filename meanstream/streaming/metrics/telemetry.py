"""Snapshots of a running engine for a page: immutable, bounded, handed over after each turn."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import msgspec
import numpy as np

from meanstream.operators.records import Floats
from meanstream.streaming.agents.estimates import PublicPopulation
from meanstream.streaming.agents.refreshed import AnsweredAgents
from meanstream.streaming.engine.stats import EngineStats
from meanstream.streaming.metrics.metrics import HasBounds
from meanstream.streaming.metrics.newest_answers import NewestAnswers
from meanstream.streaming.metrics.records import (
    FittedPicture,
    PageView,
    Precision,
    Quantiles,
    Thinned,
    TurnRecord,
    turn_record,
)
from meanstream.streaming.rounds.stats import RoundsStats, public_stats, rounds_stats

LEAST_SECONDS = 0.25
"""Between two snapshots of the flow; of turns that follow faster the newest is kept."""

MOST_TURNS = 720
MOST_POINTS = 400
MOST_WINDOWS = 400
MOST_ROWS = 500_000
"""Estimates that are kept for the histories of agents, over all of them together: some 40 MB."""

QUANTILES = (0.1, 0.5, 0.9)
"""Of half-widths over agents: what `Quantiles` are."""


class KnownMeans(Protocol):
    """What a demo knows besides: the true means."""

    def errors(self, answered: AnsweredAgents) -> tuple[float, float] | None:
        """Root mean squared error of what the agents know so far, together and alone; None if too few are known."""


class Telemetry:
    """Keeps snapshots for a page; `observe` is called in the engine's thread, everything else from others.

    Parameters
    ----------
    settings : AgentsSettings or RoundsSettings
        For the bounds of a value, the horizon and whose data is protected.
    clock : callable
        Seconds, for the flow.

    Notes
    -----
    **Privacy.** This class keeps counts, times and what was released; see its subclasses for what they add.
    """

    kind = "engine"

    def __init__(self, *, settings: HasBounds, clock: Callable[[], float] = time.monotonic) -> None:
        self.horizon, self.protected = settings.horizon, settings.protected
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._turns: deque[TurnRecord] = deque(maxlen=MOST_TURNS)
        self._version = 0
        self._running = True
        self.not_ready: Callable[[], str | None] | None = None  # of an engine, as /readyz says

    def observe(self, stats: EngineStats) -> None:
        """Take the newest figures."""
        turn = turn_record(stats, self._clock() - self._began)
        own = self._look(stats)
        with self._lock:
            turns = self._turns
            if len(turns) > 1 and turns[-1].seconds - turns[-2].seconds < LEAST_SECONDS:
                turns.pop()  # it came too soon after the one before, and is not the newest any more
            turns.append(turn)
            self._keep(own)
            self._version += 1

    def finish(self) -> None:
        """Note that the engine has ended."""
        with self._lock:
            self._running = False
            self._version += 1

    def view(self) -> PageView:
        """Give what there is now."""
        problem = None if self.not_ready is None or not self._running else self.not_ready()
        with self._lock:
            return PageView(
                version=self._version, running=self._running, problem=problem, turns=tuple(self._turns), **self._shown()
            )

    def _look(self, stats: EngineStats) -> Any:
        """Compute, outside the lock, what else is kept of the statistics."""

    def _keep(self, own: Any) -> None:
        """Keep it."""

    def _shown(self) -> dict[str, Any]:
        return {}


class AgentsTelemetry(Telemetry):
    """Telemetry of agents.

    Parameters
    ----------
    truth : KnownMeans, optional
        In a demo, what is known of the agents' true means.

    Notes
    -----
    **Privacy.** It keeps personal estimates, which mix in raw means: a page of it stays in the trust domain of the
    engine (`run agents` is a hosted deployment: engine and store hold more than this).
    """

    kind = "agents"

    def __init__(
        self, *, settings: HasBounds, truth: KnownMeans | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(settings=settings, clock=clock)
        self._truth = truth
        self._newest = NewestAnswers()
        self._precision: Thinned[Precision] = Thinned(MOST_POINTS)
        self._answers: Thinned[AnsweredAgents] = Thinned(MOST_POINTS)
        self._population: FittedPicture | None = None
        self._seen: tuple[AnsweredAgents | None, PublicPopulation | None] = (None, None)

    def history(self, agent: str) -> list[dict[str, float]]:
        """Private, of one agent: its estimates as the refreshes made them; empty if there are none."""
        with self._lock:
            records = self._answers.points()
        number = next((n for record in reversed(records) if (n := record.number(agent)) is not None), None)
        rows = () if number is None else (record.row(number) for record in records)
        return [row for row in rows if row is not None]

    def names_like(self, text: str, most: int = 8) -> list[str]:
        """Private: some agents whose names have this in them, of those that were answered last."""
        with self._lock:
            records = self._answers.points()[-2:]
        wanted = text.casefold()
        found = dict.fromkeys(name for r in reversed(records) for name in r.names if wanted in name.casefold())
        return list(found)[:most]

    def _look(self, stats: EngineStats) -> tuple[AnsweredAgents | None, Precision | None, FittedPicture | None]:
        answers, population = self._seen
        answered = stats.answers if stats.answers is not answers else None
        fresh = stats.population if stats.population is not population else None
        self._seen = (stats.answers, stats.population)
        precise = self._precise(answered, stats.events) if answered is not None and len(answered.names) else None
        return answered, precise, None if fresh is None else telemetry_of_population(fresh)

    def _keep(self, own: tuple[AnsweredAgents | None, Precision | None, FittedPicture | None]) -> None:
        answered, precise, population = own
        if precise is not None and answered is not None:
            self._precision.add(precise)
            self._answers.add(answered)
            while sum(len(r.names) for r in self._answers.points()) > MOST_ROWS and len(self._answers.points()) > 2:
                self._answers.halve()
        if population is not None:
            self._population = population

    def _shown(self) -> dict[str, Any]:
        return {"precision": self._precision.points(), "population": self._population}

    def _precise(self, answered: AnsweredAgents, events: int) -> Precision:
        self._newest.take(answered)
        together, alone = self._newest.half_widths()
        errors = None if self._truth is None else self._truth.errors(answered)
        return Precision(
            events=events,
            answered=len(together),
            together=_quantiles(together),
            alone=_quantiles(alone),
            error=None if errors is None else errors[0],
            error_alone=None if errors is None else errors[1],
        )


class RoundsTelemetry(Telemetry):
    """Telemetry of rounds: the answers of the windows, as public events.

    Parameters
    ----------
    truth : mapping, optional
        In a demo, the true mean by the start of the window.

    Notes
    -----
    **Privacy.** Everything it keeps is public: it takes `public_stats` of the figures, and takes it in only where that
    has changed, so that not even the number of turns tells of what was read.
    """

    kind = "rounds"

    def __init__(
        self,
        *,
        settings: HasBounds,
        truth: dict[datetime, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(settings=settings, clock=clock)
        self._truth = truth or {}
        self._windows: deque[dict[str, Any]] = deque(maxlen=MOST_WINDOWS)
        self._estimates = 0
        self._before: RoundsStats | None = None

    def observe(self, stats: EngineStats) -> None:
        """Take the newest public figures, if there are any."""
        view = public_stats(rounds_stats(stats))
        if view != self._before:
            self._before = view
            super().observe(view)

    def _look(self, stats: EngineStats) -> list[dict[str, Any]]:
        stats = rounds_stats(stats)
        lines = stats.answers_of_turn if stats.estimates > self._estimates else ()
        self._estimates = stats.estimates
        found = [msgspec.json.decode(line) for line in lines[-MOST_WINDOWS:]]
        return [event | {"true": self._truth.get(datetime.fromisoformat(event["start"]))} for event in found]

    def _keep(self, own: list[dict[str, Any]]) -> None:
        self._windows.extend(own)

    def _shown(self) -> dict[str, Any]:
        return {"windows": tuple(self._windows)}


def telemetry_of_population(population: PublicPopulation) -> FittedPicture:
    """Public: a fitted population, and how many agents are most likely at each component."""
    component = population.answers().component
    known = component[component >= 0]
    share = np.bincount(known, minlength=population.n_components) / max(len(known), 1)
    n = len(population.releases)
    return FittedPicture(
        description=population.description, agents=n, at=tuple(np.rint(share * n).astype(np.int64).tolist())
    )


def _quantiles(half_widths: Floats) -> Quantiles:
    low, middle, high = np.quantile(half_widths, QUANTILES).tolist()
    return low, middle, high
