"""Snapshots of a running engine for a page: immutable, bounded, handed over after each turn."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from meanstream.operators.counters.base import counter_limit
from meanstream.operators.records import Floats
from meanstream.streaming.agents.first_release import FirstRelease
from meanstream.streaming.agents.pairwise.pairs_picture import PairsPicture
from meanstream.streaming.agents.public_population import AnsweredAgents, PublicPopulation
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.metrics.engine_metrics import HasBounds
from meanstream.streaming.metrics.history import (
    NewestAnswers,
    flow_points,
    kept_history,
    restored_history,
)
from meanstream.streaming.metrics.metric_records import (
    FittedPicture,
    FlowPoint,
    PageView,
    Precision,
    Quantiles,
    Thinned,
    TurnRecord,
    turn_record,
)
from meanstream.streaming.rounds.rounds_stats import RoundsStats, public_stats, rounds_stats

AHEAD_SECONDS = 1.0
"""Between two looks at when the next release is due."""

SAVE_SECONDS = 5.0
"""Between two times that the history of agents is kept."""

LEAST_SECONDS = 0.25
"""Between two snapshots of the flow; of turns that follow faster the newest is kept."""

MOST_TURNS = 720
MOST_POINTS = 400
MOST_ROWS = 500_000
"""Estimates that are kept for the histories of agents, over all of them together: some 40 MB."""

QUANTILES = (0.1, 0.5, 0.9)
"""Of half-widths over agents: what `Quantiles` are."""


class KnownMeans(Protocol):
    """What a demo knows besides: the true means."""

    def errors(self, answered: AnsweredAgents) -> tuple[float, float] | None:
        """Root mean squared error of what the agents know so far, together and alone.

        None if too few are known.
        """


class Telemetry:
    """Keeps snapshots for a page.

    `observe` is called in the engine's thread, everything else from others.

    Parameters
    ----------
    settings : AgentsSettings or RoundsSettings
        For the bounds of a value, the horizon and whose data is protected.
    clock : callable
        Seconds, for the flow.
    time_of_day : callable
        Seconds of the clock on the wall.

    Notes
    -----
    **Privacy.** This class keeps counts, times and what was released; see its subclasses for what
    they add.
    """

    kind = "engine"

    def __init__(
        self,
        *,
        settings: HasBounds,
        clock: Callable[[], float] = time.monotonic,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        self.horizon = counter_limit(settings.horizon)
        self.protected = settings.protected
        self.about: dict[str, Any] = {}  # which run it is, once that is known
        self._clock = clock
        self._time_of_day = time_of_day
        self._began = clock()
        self._lock = threading.Lock()
        self._turns: deque[TurnRecord] = deque(maxlen=MOST_TURNS)
        self._version = 0
        self._running = True
        self.not_ready: Callable[[], str | None] | None = None  # of an engine, as /readyz says

    def observe(self, stats: EngineStats) -> None:
        """Take the newest figures."""
        # Computed outside the lock, so that a page never waits for an engine.
        turn = turn_record(stats, self._clock() - self._began, self._time_of_day())
        own = self._look(stats)
        with self._lock:
            # Turns that follow quickly are one: the page shows the newest.
            turns = self._turns
            if len(turns) > 1 and turns[-1].seconds - turns[-2].seconds < LEAST_SECONDS:
                turns.pop()  # it came too soon after the one before, and is not the newest any more

            turns.append(turn)
            self._keep(own)
            self._version = self._next_version(stats)

    def finish(self) -> None:
        """Note that the engine has ended."""
        with self._lock:
            self._running = False
            self._version += 1

    def view(self) -> PageView:
        """Give what there is now."""
        # An engine that has ended has no problem any more.
        problem = None if self.not_ready is None or not self._running else self.not_ready()
        with self._lock:
            return PageView(
                version=self._version,
                running=self._running,
                problem=problem,
                about=dict(self.about),
                turns=tuple(self._turns),
                **self._shown(),
            )

    def history_since(self, *, ending: bool = False) -> dict[str, Any] | None:  # noqa: ARG002
        """Give what the next run shall show, too, as plain values; None if there is nothing new."""
        return None

    def restore_history(self, kept: dict[str, Any]) -> None:
        """Go on from what a run before has shown."""

    def _next_version(self, stats: EngineStats) -> int:  # noqa: ARG002
        """Give another number than before, by which who looks knows that there is something new."""
        return self._version + 1

    def _look(self, stats: EngineStats) -> Any:
        """Compute, outside the lock, what else is kept of the statistics."""

    def _keep(self, own: Any) -> None:
        """Keep it."""

    def _shown(self) -> dict[str, Any]:
        return {}


class _Seen(NamedTuple):
    """Private: what is new of the statistics of agents."""

    answered: AnsweredAgents | None
    precise: Precision | None
    population: FittedPicture | None
    pairs: PairsPicture | None


class AgentsTelemetry(Telemetry):
    """Telemetry of agents.

    Parameters
    ----------
    truth : KnownMeans, optional
        In a demo, what is known of the agents' true means.

    Notes
    -----
    **Privacy.** It keeps personal estimates, which mix in raw means: a page of it stays in the
    trust domain of the engine (`run agents` is a hosted deployment: engine and store hold more than
    this).
    """

    kind = "agents"

    def __init__(
        self,
        *,
        settings: HasBounds,
        truth: KnownMeans | None = None,
        clock: Callable[[], float] = time.monotonic,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(settings=settings, clock=clock, time_of_day=time_of_day)
        self._truth = truth
        self._before: tuple[FlowPoint, ...] = ()  # of the runs before this one
        self._next: FirstRelease | None = None
        self._ahead_due = self._save_due = -math.inf
        self._answered_until: float | None = None
        self._newest = NewestAnswers()
        self._precision: Thinned[Precision] = Thinned(MOST_POINTS)
        self._answers: Thinned[AnsweredAgents] = Thinned(MOST_POINTS)
        self._population: FittedPicture | None = None
        self._pairs: PairsPicture | None = None
        self._seen: tuple[AnsweredAgents | None, PublicPopulation | None] = (None, None)

    def history(self, agent: str) -> list[dict[str, Any]]:
        """Private, of one agent.

        Its estimates as the refreshes made them; empty if there are none.
        """
        with self._lock:
            records = self._answers.points()

        # The newest record that knows the agent tells its number.
        number = next(
            (n for record in reversed(records) if (n := record.number(agent)) is not None), None
        )
        rows = () if number is None else (record.row(number) for record in records)

        return [row for row in rows if row is not None]

    def names_like(self, text: str, most: int = 8) -> list[str]:
        """Private: some agents whose names have this in them, of those that were answered last."""
        with self._lock:
            records = self._answers.points()[-2:]

        wanted = text.casefold()
        matches = dict.fromkeys(
            name for r in reversed(records) for name in r.names if wanted in name.casefold()
        )

        return list(matches)[:most]

    def history_since(self, *, ending: bool = False) -> dict[str, Any] | None:
        """Give the course of precision and flow; at most every few seconds, and at the end."""
        now = self._clock()
        if now < self._save_due and not ending:
            return None
        self._save_due = now + SAVE_SECONDS

        # Points under the lock; what becomes of them outside.
        with self._lock:
            points = self._precision.points()
            turns = tuple(self._turns)

        return kept_history(
            points, (*self._before, *flow_points(turns)), self._answered_until, self._newest.rows
        )

    def restore_history(self, kept: dict[str, Any]) -> None:
        """Go on from the course that a run before has shown; agents' own histories begin again."""
        points, self._before, self._answered_until, self._newest.rows = restored_history(kept)
        with self._lock:
            for point in points:
                self._precision.add(point)

    def _look(self, stats: EngineStats) -> _Seen:
        answers, population = self._seen

        # Only what is new since the last look is computed.
        answered = stats.answers if stats.answers is not answers else None
        fresh = stats.population if stats.population is not population else None
        self._seen = (stats.answers, stats.population)
        precise = (
            self._precise(answered, stats) if answered is not None and len(answered.names) else None
        )

        if answered is not None:
            self._answered_until = stats.event_time

        # When the next release is due is looked up now and then: it reads all agents.
        if stats.look_ahead is not None and self._clock() >= self._ahead_due:
            self._next = stats.look_ahead()
            self._ahead_due = self._clock() + AHEAD_SECONDS

        # Pairs are drawn as often as answers; before these it is known that there will be some.
        due = answered is not None or self._pairs is None
        drawn = stats.pairs_picture() if due and stats.pairs_picture is not None else None
        fitted = None if fresh is None else telemetry_of_population(fresh)

        return _Seen(answered, precise, fitted, drawn)

    def _keep(self, own: _Seen) -> None:
        answered, precise, population, pairs = own
        if precise is not None and answered is not None:
            self._precision.add(precise)
            self._answers.add(answered)

            # Histories of agents are thinned out to bounded memory.
            while (
                sum(len(r.names) for r in self._answers.points()) > MOST_ROWS
                and len(self._answers.points()) > 2
            ):
                self._answers.halve()

        if population is not None:
            self._population = population

        if pairs is not None:
            self._pairs = pairs

    def _shown(self) -> dict[str, Any]:
        return {
            "precision": self._precision.points(),
            "population": self._population,
            "pairs": self._pairs,
            "flow": self._before,
            "next_release": self._next,
            "answered_until": self._answered_until,
        }

    def _precise(self, answered: AnsweredAgents, stats: EngineStats) -> Precision:
        self._newest.take(answered)
        together, alone = self._newest.half_widths()

        # With known means the errors are shown, too.
        errors = None if self._truth is None else self._truth.errors(answered)

        return Precision(
            events=stats.events,
            event_time=stats.event_time,
            clock=self._time_of_day(),
            answered=len(together),
            together=_quantiles(together),
            alone=_quantiles(alone),
            error=None if errors is None else errors[0],
            error_alone=None if errors is None else errors[1],
            classes=self._newest.classes(),
            class_agents=_quantiles(self._newest.class_members()),
        )


def telemetry_of_population(population: PublicPopulation) -> FittedPicture:
    """Public: a fitted population, and how many agents are most likely at each component."""
    component = population.answers().component
    likely = component[component >= 0]
    share = np.bincount(likely, minlength=population.n_components) / max(len(likely), 1)
    n = len(population.releases)

    return FittedPicture(
        description=population.description,
        agents=n,
        at=tuple(np.rint(share * n).astype(np.int64).tolist()),
    )


def _quantiles(of_agents: Floats) -> Quantiles:
    low, middle, high = np.quantile(of_agents, QUANTILES).tolist()
    return low, middle, high


MOST_WINDOWS = 400


class RoundsTelemetry(Telemetry):
    """Telemetry of rounds: the answers of the windows, as public events.

    Parameters
    ----------
    truth : mapping, optional
        In a demo, the true mean by the start of the window.

    Notes
    -----
    **Privacy.** Everything it keeps is public: it takes `public_stats` of the figures, and takes it
    in only where that has changed. How many windows end in one turn depends on how many samples
    everyone sends: the version of what is shown is a function of what is shown, and not of how
    often something was.
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
        self._unsaved = False
        self._before: RoundsStats | None = None

    def observe(self, stats: EngineStats) -> None:
        """Take the newest public figures, if there are any."""
        view = public_stats(rounds_stats(stats))
        if view != self._before:
            self._before = view
            super().observe(view)

    def _next_version(self, stats: EngineStats) -> int:
        """Count what has happened: a round that begins counts as one, one that ends as another."""
        stats = rounds_stats(stats)
        happened = stats.releases + stats.estimates + stats.over_budget + stats.results_refused
        return 1 + happened + 2 * stats.rounds + stats.waiting

    def _look(self, stats: EngineStats) -> list[dict[str, Any]]:
        stats = rounds_stats(stats)
        lines = stats.answers_of_turn if stats.estimates > self._estimates else ()
        self._estimates = stats.estimates
        events = [msgspec.json.decode(line) for line in lines[-MOST_WINDOWS:]]

        return [
            event | {"true": self._truth.get(datetime.fromisoformat(event["start"]))}
            for event in events
        ]

    def _keep(self, own: list[dict[str, Any]]) -> None:
        shown_windows = {(event["start"], event["end"]) for event in self._windows}
        fresh = [event for event in own if (event["start"], event["end"]) not in shown_windows]
        self._windows.extend(fresh)
        self._unsaved |= bool(fresh)

    def history_since(self, *, ending: bool = False) -> dict[str, Any] | None:  # noqa: ARG002 - always, by no clock
        """Give the newest windows' answers where there are new ones: public events."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, False

            if unsaved:
                return {"windows": list(self._windows)}
            return None

    def restore_history(self, kept: dict[str, Any]) -> None:
        """Go on from the windows that a run before has shown."""
        with self._lock:
            self._windows.extend(kept.get("windows", ()))

    def _shown(self) -> dict[str, Any]:
        return {"windows": tuple(self._windows)}
