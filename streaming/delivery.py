"""Letting out what was committed: each event once, however often the process dies."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import repeat
from typing import Any

from operators.agents import Agents, AgentsSettings
from streaming.clock import Clock
from streaming.crash import CrashHook, CrashPoint, step
from streaming.encode import EventLines
from streaming.events import EVENTS, Event, Release
from streaming.health import EngineHealth
from streaming.options import EngineOptions
from streaming.personal import PersonalEstimates
from streaming.sinks.group import Sinks
from streaming.sinks.sink import DeliveryFailedError, SinkPosition
from streaming.stats import EngineStats
from streaming.store.store import Store
from streaming.variance import ReleaseVariance

NEVER = 1e18
"""Seconds; no event time is that far away."""

FIRST_WAITS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to deliver; the last one again and again."""

_log = logging.getLogger("meanstream.delivery")

OUTBOX: Mapping[CrashPoint, Mapping[str, str]] = {
    CrashPoint.WRITE_NOTICES: {"budget": "notices", "refusal": "notices"},
    CrashPoint.WRITE_DEAD_LETTERS: {"dead_letter": "dead_letters"},
}
"""Topics of the events in the outbox that each step writes, and the role of the sink of each."""

ROUNDS_OUTBOX: Mapping[CrashPoint, Mapping[str, str]] = {
    CrashPoint.WRITE_NOTICES: {"stage_reports": "reports", "round_refusal": "notices"},
    CrashPoint.WRITE_DEAD_LETTERS: {"dead_letter": "dead_letters"},
    CrashPoint.WRITE_ESTIMATES: {"stage_result": "stages", "window_estimate": "means"},
}
"""The same for rounds."""


class CommittedDelivery:
    """Writes to the sinks what was committed: the outputs of the ledger, and the events of the outbox.

    What was delivered, and how far each sink was written, is noted in the *next* commit. After a crash the sinks are
    cut back to that note and everything after it is written again, byte for byte.

    Parameters
    ----------
    charged : type of event
        What the outputs of the ledger are.
    charged_role : str
        The role of their sink.
    outbox : mapping
        Topics of the outbox by step, as `OUTBOX`.
    """

    def __init__(
        self,
        *,
        store: Store,
        sinks: Sinks,
        stats: EngineStats,
        clock: Clock,
        health: EngineHealth,
        crash: CrashHook,
        meanwhile: Callable[[], None],
        charged: type[Event],
        charged_role: str,
        outbox: Mapping[CrashPoint, Mapping[str, str]],
    ) -> None:
        self._store = store
        self._sinks = sinks
        self._stats = stats
        self._clock = clock
        self._health = health
        self._crash = crash
        self._meanwhile = meanwhile  # called about once a second while a sink cannot take anything
        sinks.while_waiting(meanwhile)
        self._charged, self._charged_role, self._topics = charged, charged_role, outbox
        self._ledger_seq = 0  # charged outputs up to here are in the sink
        self._outbox_seq = 0
        self._unmarked = False
        self._noted: dict[str, SinkPosition] = {}  # how far the last commit knew the sinks to be written

    def resume(self) -> None:
        """Go back to what the last commit knew to be delivered."""
        note = self._store.state("delivered")
        if note is not None:
            self._sinks.restore(note["sinks"])
            self._take(note)
        self._unmarked = True
        self.mark()  # sinks that are new in this run have a position from now on

    def deliver_committed(self, stop: Callable[[], bool]) -> None:
        """Write what was committed and make it durable; wait, or give up, as `keep_trying` does."""
        self.keep_trying(self._deliver_committed, stop)

    def keep_trying(self, write: Callable[[], None], stop: Callable[[], bool]) -> None:
        """Write until it is delivered.

        While a sink cannot take anything, this waits, and so does the source: nothing piles up. When asked to stop, it
        gives up; the next run delivers.
        """
        for seconds in _back_off():
            self._health.delivering()
            try:
                write()
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

    def _deliver_committed(self) -> None:
        written = self._write_charged(), self._write_outbox()
        if written != (self._ledger_seq, self._outbox_seq):
            self._flush(written)

    def _flush(self, written: tuple[int, int]) -> None:
        with step(CrashPoint.FLUSH_SINKS, self._crash):
            self._sinks.flush()
        self._ledger_seq, self._outbox_seq = written
        self._unmarked = True

    def _note(self) -> dict[str, Any]:
        return {"ledger": self._ledger_seq, "outbox": self._outbox_seq, "sinks": self._noted}

    def _take(self, note: dict[str, Any]) -> None:
        self._ledger_seq, self._outbox_seq = note["ledger"], note["outbox"]

    def _write_charged(self) -> int:
        with step(CrashPoint.WRITE_RELEASES, self._crash):
            rows = self._store.ledger.after(self._ledger_seq)
            self._sinks.write(self._charged_role, EventLines(self._charged, [line for _, line in rows]))
        return rows[-1][0] if rows else self._ledger_seq

    def _write_outbox(self) -> int:
        rows = [row for row in self._store.outbox() if row[0] > self._outbox_seq]
        for point, topics in self._topics.items():
            with step(point, self._crash):
                for topic, role in topics.items():
                    lines = [line for _, kind, line in rows if kind == topic]
                    self._sinks.write(role, EventLines(EVENTS[topic], lines))
        return rows[-1][0] if rows else self._outbox_seq


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
        )
        self._options = options
        self._estimates = PersonalEstimates(settings, options)
        self._refresh_time: float | None = None
        self._final = False  # the estimates at the end of the source were written

    def deliver(
        self,
        agents: Agents,
        variance: ReleaseVariance,
        event_time: float,
        stop: Callable[[], bool],
        *,
        ended: bool,
    ) -> None:
        """Write what was committed, then the estimates that are due, and make all durable; see `keep_trying`."""
        self.keep_trying(partial(self._deliver, agents, variance, event_time, ended=ended), stop)

    def _deliver(self, agents: Agents, variance: ReleaseVariance, event_time: float, *, ended: bool) -> None:
        written = self._write_charged(), self._write_outbox()
        with step(CrashPoint.WRITE_ESTIMATES, self._crash):
            refreshed = self._write_estimates(agents, variance, event_time, ended=ended)
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
