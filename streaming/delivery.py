"""Letting out what was committed: each event once, however often the process dies."""

from __future__ import annotations

import math
from typing import Any

from operators.agents import Agents, AgentsSettings
from streaming.crash import CrashHook, CrashPoint
from streaming.encode import EventLines
from streaming.events import EVENTS, Release
from streaming.options import EngineOptions
from streaming.personal import PersonalEstimates
from streaming.sinks.group import Sinks
from streaming.stats import EngineStats
from streaming.store import Store
from streaming.variance import ReleaseVariance

NEVER = 1e18
"""Seconds; no event time is that far away."""

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
        crash: CrashHook,
    ) -> None:
        self._store = store
        self._sinks = sinks
        self._options = options
        self._stats = stats
        self._crash = crash
        self._estimates = PersonalEstimates(settings, options)
        self._ledger_seq = 0  # releases up to here are in the sink
        self._outbox_seq = 0
        self._refresh_time: float | None = None
        self._final = False  # the estimates at the end of the source were written
        self._unmarked = False

    def resume(self) -> None:
        """Go back to what the last commit knew to be delivered."""
        note = self._store.state("delivered")
        if note is not None:
            self._sinks.restore(note["sinks"])
            self._ledger_seq, self._outbox_seq = note["ledger"], note["outbox"]
            self._refresh_time, self._final = note["refresh_time"], note["final"]
        self._unmarked = True
        self.mark()  # sinks that are new in this run have a position from now on

    def deliver(self, agents: Agents, variance: ReleaseVariance, event_time: float, *, ended: bool) -> None:
        """Write what was committed, then the estimates that are due, and make all durable."""
        ledger_seq, outbox_seq = self._write_releases(), self._write_outbox()
        refreshed = self._write_estimates(agents, variance, event_time, ended=ended)
        self._crash(CrashPoint.ESTIMATES_WRITTEN)
        final = ended and (self._final or refreshed)
        if (ledger_seq, outbox_seq, final) == (self._ledger_seq, self._outbox_seq, self._final) and not refreshed:
            return
        self._sinks.flush()
        self._crash(CrashPoint.FLUSHED)
        self._ledger_seq, self._outbox_seq, self._final = ledger_seq, outbox_seq, final
        if refreshed:
            self._refresh_time = event_time
        self._unmarked = True

    def save(self) -> None:
        """Note within a transaction what is delivered."""
        self._store.put_state("delivered", self._note())
        self._store.clear_outbox(self._outbox_seq)
        self._unmarked = False

    def mark(self) -> None:
        """Note what is delivered in a transaction of its own."""
        if self._unmarked:
            with self._store.transaction():
                self.save()
            self._crash(CrashPoint.DELIVERY_MARKED)

    def _note(self) -> dict[str, Any]:
        return {
            "ledger": self._ledger_seq,
            "outbox": self._outbox_seq,
            "refresh_time": self._refresh_time,
            "final": self._final,
            "sinks": self._sinks.positions(),
        }

    def _write_releases(self) -> int:
        rows = self._store.ledger.after(self._ledger_seq)
        self._sinks.write("releases", EventLines(Release, [line for _, line in rows]))
        self._crash(CrashPoint.RELEASES_WRITTEN)
        return rows[-1][0] if rows else self._ledger_seq

    def _write_outbox(self) -> int:
        rows = [row for row in self._store.outbox() if row[0] > self._outbox_seq]
        for topic, point in (
            ("budget", CrashPoint.NOTICES_WRITTEN),
            ("refusal", CrashPoint.NOTICES_WRITTEN),
            ("dead_letter", CrashPoint.DEAD_LETTERS_WRITTEN),
        ):
            lines = [line for _, kind, line in rows if kind == topic]
            self._sinks.write(ROLES[topic], EventLines(EVENTS[topic], lines))
            self._crash(point)
        return rows[-1][0] if rows else self._outbox_seq

    def _write_estimates(self, agents: Agents, variance: ReleaseVariance, event_time: float, *, ended: bool) -> bool:
        """Refresh at the end for everybody, before that for agents with new samples since the last time."""
        if (self._sinks.estimates is None and self._sinks.population is None) or not agents.n_agents:
            return False
        if ended:
            if self._final:
                return False
            which = None
        else:
            refresh, last = self._options.refresh, self._refresh_time
            if refresh is None or not math.isfinite(event_time) or not _entered(event_time, last, refresh):
                return False
            which = agents.seen_since(-NEVER if last is None else last)
            if not len(which):
                return False
        estimates, population = self._estimates.refresh(agents, which, variance.variance, event_time)
        self._sinks.write("estimates", estimates)
        self._sinks.write("population", population)
        self._stats.estimates += len(estimates)
        self._stats.median_half_width = self._estimates.median_half_width
        return True


def _entered(event_time: float, last: float | None, refresh: float) -> bool:
    """Tell whether event time has come to another multiple of `refresh` seconds since the last time."""
    return last is None or refresh == 0 or event_time // refresh > last // refresh
