"""Letting out what was committed: each event once, however often the process dies."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

from operators.agents import Agents, AgentsSettings
from streaming.clock import Clock
from streaming.crash import CrashHook, CrashPoint, step
from streaming.encode import EventLines
from streaming.events import EVENTS, Release
from streaming.health import EngineHealth
from streaming.options import EngineOptions
from streaming.personal import PersonalEstimates
from streaming.sinks.group import Sinks
from streaming.sinks.sink import DeliveryFailedError, SinkPosition
from streaming.stats import EngineStats
from streaming.store import Store
from streaming.variance import ReleaseVariance

NEVER = 1e18
"""Seconds; no event time is that far away."""

FIRST_WAITS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to deliver; the last one again and again."""

_log = logging.getLogger("meanstream.delivery")

ROLES = {"dead_letter": "dead_letters", "budget": "notices", "refusal": "notices"}
"""Topic of an event in the outbox to the role of its sink."""


class Delivery:
    """Writes committed releases, notices and dead letters to the sinks, and the estimates that are due.

    What was delivered, and how far each sink was written, is noted in the *next* commit. After a crash the sinks are
    cut back to that note and everything after it is written again: from the ledger and the outbox byte for byte, and
    the estimates from the same committed state.
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
        self._store = store
        self._sinks = sinks
        self._options = options
        self._stats = stats
        self._clock = clock
        self._health = health
        self._crash = crash
        self._meanwhile = meanwhile  # called about once a second while a sink cannot take anything
        sinks.while_waiting(meanwhile)
        self._estimates = PersonalEstimates(settings, options)
        self._ledger_seq = 0  # releases up to here are in the sink
        self._outbox_seq = 0
        self._refresh_time: float | None = None
        self._final = False  # the estimates at the end of the source were written
        self._unmarked = False
        self._noted: dict[str, SinkPosition] = {}  # how far the last commit knew the sinks to be written

    def resume(self) -> None:
        """Go back to what the last commit knew to be delivered."""
        note = self._store.state("delivered")
        if note is not None:
            self._sinks.restore(note["sinks"])
            self._ledger_seq, self._outbox_seq = note["ledger"], note["outbox"]
            self._refresh_time, self._final = note["refresh_time"], note["final"]
        self._unmarked = True
        self.mark()  # sinks that are new in this run have a position from now on

    def deliver(
        self,
        agents: Agents,
        variance: ReleaseVariance,
        event_time: float,
        stop: Callable[[], bool],
        *,
        ended: bool,
    ) -> None:
        """Write what was committed, then the estimates that are due, and make all durable.

        While a sink cannot take anything, this waits, and so does the source: nothing piles up. When asked to stop, it
        gives up; the next run delivers.
        """
        for seconds in _back_off():
            self._health.delivering()
            try:
                self._deliver(agents, variance, event_time, ended=ended)
                self._health.delivered()
                return
            except DeliveryFailedError as error:
                self._sinks.restore(self._noted)
                if stop():
                    _log.warning("delivery failed, the next run writes it again: %s", error)
                    return
                _log.warning("delivery failed, it is written again in %g s: %s", seconds, error)
                self._meanwhile()
                self._clock.sleep(seconds)

    def save(self) -> None:
        """Note within a transaction what is delivered."""
        self._noted = self._sinks.positions()
        self._store.put_state("delivered", self._note())
        self._store.clear_outbox(self._outbox_seq)
        self._unmarked = False

    def mark(self) -> None:
        """Note what is delivered in a transaction of its own."""
        if self._unmarked:
            with step(CrashPoint.MARK_DELIVERY, self._crash), self._store.transaction():
                self.save()

    def _deliver(self, agents: Agents, variance: ReleaseVariance, event_time: float, *, ended: bool) -> None:
        ledger_seq, outbox_seq = self._write_releases(), self._write_outbox()
        with step(CrashPoint.WRITE_ESTIMATES, self._crash):
            refreshed = self._write_estimates(agents, variance, event_time, ended=ended)
        final = ended and (self._final or refreshed is not None)
        if (ledger_seq, outbox_seq, final) == (self._ledger_seq, self._outbox_seq, self._final) and refreshed is None:
            return
        with step(CrashPoint.FLUSH_SINKS, self._crash):
            self._sinks.flush()
        self._ledger_seq, self._outbox_seq, self._final = ledger_seq, outbox_seq, final
        if refreshed is not None:
            self._refresh_time = event_time
            self._stats.estimates += refreshed
            self._stats.median_half_width = self._estimates.median_half_width
            self._stats.population = self._estimates.population
        self._unmarked = True

    def _note(self) -> dict[str, Any]:
        return {
            "ledger": self._ledger_seq,
            "outbox": self._outbox_seq,
            "refresh_time": self._refresh_time,
            "final": self._final,
            "sinks": self._noted,
        }

    def _write_releases(self) -> int:
        with step(CrashPoint.WRITE_RELEASES, self._crash):
            rows = self._store.ledger.after(self._ledger_seq)
            self._sinks.write("releases", EventLines(Release, [line for _, line in rows]))
        return rows[-1][0] if rows else self._ledger_seq

    def _write_outbox(self) -> int:
        rows = [row for row in self._store.outbox() if row[0] > self._outbox_seq]
        for point, topics in (
            (CrashPoint.WRITE_NOTICES, ("budget", "refusal")),
            (CrashPoint.WRITE_DEAD_LETTERS, ("dead_letter",)),
        ):
            with step(point, self._crash):
                for topic in topics:
                    lines = [line for _, kind, line in rows if kind == topic]
                    self._sinks.write(ROLES[topic], EventLines(EVENTS[topic], lines))
        return rows[-1][0] if rows else self._outbox_seq

    def _write_estimates(
        self, agents: Agents, variance: ReleaseVariance, event_time: float, *, ended: bool
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
            agents.names, agents.latest(), agents.own(which), variance.variance, event_time
        )
        self._sinks.write("estimates", estimates)
        self._sinks.write("population", population)
        return len(estimates)


def _entered(event_time: float, last: float | None, refresh: float) -> bool:
    """Tell whether event time has come to another multiple of `refresh` seconds since the last time."""
    return last is None or refresh == 0 or event_time // refresh > last // refresh


def _back_off() -> Iterator[float]:
    """Seconds to wait before each further attempt, without end."""
    yield from FIRST_WAITS
    yield from repeat(FIRST_WAITS[-1])
