"""Letting out what agents were charged for, and their estimates when they are due."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.agents.own_answers import OWN_ANSWERS
from meanstream.streaming.clock import Clock
from meanstream.streaming.crash import CrashHook, CrashPoint, crash_step
from meanstream.streaming.engine.delivery import OUTBOX, CommittedDelivery
from meanstream.streaming.engine.health import EngineHealth
from meanstream.streaming.engine.options import EngineOptions
from meanstream.streaming.engine.stats import EngineStats
from meanstream.streaming.events.wire import Release
from meanstream.streaming.sinks.group import Sinks
from meanstream.streaming.store.store import Store

NEVER = 1e18
"""Seconds; no event time is that far away."""


class Delivery(CommittedDelivery):
    """Writes committed releases, notices and dead letters to the sinks, and the estimates that are due.

    The estimates are no committed events: after a crash they are computed again, from the same committed state.
    """

    def __init__(
        self,
        *,
        store: Store,
        sinks: Sinks,
        settings: AgentsSettings,
        options: EngineOptions,
        stats: EngineStats,
        clock: Clock,
        health: EngineHealth,
        crash: CrashHook,
        meanwhile: Callable[[], None],
    ) -> None:
        super().__init__(
            store=store,
            sinks=sinks,
            stats=stats,
            clock=clock,
            health=health,
            crash=crash,
            meanwhile=meanwhile,
            charged=Release,
            charged_role="releases",
            outbox=OUTBOX,
            answers=OWN_ANSWERS,
        )
        self._options = options
        self._estimates = PersonalEstimates(settings, options)
        self._refresh_time: float | None = None
        self._final = False  # the estimates at the end of the source were written

    def deliver(
        self,
        agents: Agents,
        followed: FollowedReleases,
        event_time: float,
        stop: Callable[[], bool],
        *,
        ended: bool,
    ) -> None:
        """Write what was committed, then the estimates that are due, and make all durable; see `keep_trying`."""
        self.keep_trying(partial(self._deliver, agents, followed, event_time, ended=ended), stop)

    def _deliver(self, agents: Agents, followed: FollowedReleases, event_time: float, *, ended: bool) -> None:
        written = self._write_charged(), self._write_outbox()
        with crash_step(CrashPoint.WRITE_ESTIMATES, self._crash):
            refreshed = self._write_estimates(agents, followed, event_time, ended=ended)
        final = ended and (self._final or refreshed is not None)
        same = (*written, final) == (self._ledger_seq, self._outbox_seq, self._final)
        if same and refreshed is None:
            return
        self._flush(written)
        self._final = final
        if refreshed is not None:
            self._refresh_time = event_time
            self._stats.estimates += refreshed
            self._stats.median_half_width = self._estimates.median_half_width
            self._stats.population = self._estimates.population
            self._stats.answers = self._estimates.answered

    def _note(self) -> dict[str, Any]:
        return {**super()._note(), "refresh_time": self._refresh_time, "final": self._final}

    def _take(self, note: dict[str, Any]) -> None:
        super()._take(note)
        self._refresh_time, self._final = note["refresh_time"], note["final"]

    def _write_estimates(
        self, agents: Agents, followed: FollowedReleases, event_time: float, *, ended: bool
    ) -> int | None:
        """Refresh at the end for everybody, before that for agents with new samples since the last time.

        Return how many estimates were written, None if none was due.
        """
        if (self._sinks.estimates is None and self._sinks.population is None) or not agents.n_agents:
            return None
        if ended:
            if self._final:
                return None
            which = None
        else:
            refresh, last = self._options.refresh, self._refresh_time
            if refresh is None or not math.isfinite(event_time) or not _entered(event_time, last, refresh):
                return None
            which = agents.seen_since(-NEVER if last is None else last)
            if not len(which):
                return None
        estimates, population = self._estimates.refresh(
            agents.names, followed.combined(agents.latest()), agents.own(which), followed.posterior, event_time
        )
        self._sinks.write("estimates", estimates)
        self._sinks.write("population", population)
        return len(estimates)


def _entered(event_time: float, last: float | None, refresh: float) -> bool:
    """Tell whether event time has come to another multiple of `refresh` seconds since the last time."""
    return last is None or refresh == 0 or event_time // refresh > last // refresh
