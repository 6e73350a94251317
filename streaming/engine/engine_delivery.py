"""Letting out what was committed: each event once, however often the process dies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Protocol

from meanstream.streaming.clock import Clock
from meanstream.streaming.crash import CrashHook, CrashPoint, crash_step
from meanstream.streaming.engine.earlier_releases import EarlierReleases, note_earlier_releases
from meanstream.streaming.engine.engine_health import Connected, EngineHealth
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.engine.own_events import (
    Elsewhere,
    OwnEvents,
    own_charged_events,
    require_own_events,
)
from meanstream.streaming.events.base import Event
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import EVENTS
from meanstream.streaming.repeated_lines import OncePerSecond
from meanstream.streaming.sinks.sink_protocol import DeliveryFailedError, SinkPosition, Sinks
from meanstream.streaming.store.source_identity import OLDER_COPY
from meanstream.streaming.store.state_store import Store

FIRST_WAITS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to deliver; the last one again and again."""

_log = logging.getLogger("meanstream.delivery")
_log.addFilter(OncePerSecond())

Outbox = Mapping[CrashPoint, Mapping[str, str]]

OUTBOX: Outbox = {
    CrashPoint.WRITE_NOTICES: {"budget": "notices", "refusal": "notices", "drift": "notices"},
    CrashPoint.WRITE_DEAD_LETTERS: {"dead_letter": "dead_letters"},
}
"""Topics of the events in the outbox that each step writes, and the role of the sink of each."""

ROUNDS_OUTBOX: Outbox = {
    CrashPoint.WRITE_NOTICES: {"stage_reports": "reports", "round_refusal": "notices"},
    CrashPoint.WRITE_DEAD_LETTERS: {
        "dead_letter": "dead_letters",
        "private_dead_letter": "dead_letters",
    },
    CrashPoint.WRITE_ESTIMATES: {"stage_result": "stages", "window_estimate": "means"},
}
"""The same for rounds."""


class DueAnswers(Protocol):
    """Answers that are computed from the committed state when they are due, and are no events of it.

    After a crash they are computed again, from the same state.
    """

    def write(self, sinks: Sinks, *, ended: bool) -> bool:
        """Write what is due; say whether anything is new."""

    def delivered(self) -> None:
        """Count from here: what was written is durable."""

    def note(self) -> dict[str, Any]:
        """Give what the next commit notes."""

    def take(self, note: dict[str, Any]) -> None:
        """Go back to what a commit has noted."""


class CommittedDelivery:
    """Writes to the sinks what was committed.

    The outputs of the ledger, and the events of the outbox.

    What was delivered, and how far each sink was written, is noted in the *next* commit. After a
    crash the sinks are cut back to that note and everything after it is written again, byte for
    byte.

    Parameters
    ----------
    charged : type of event
        What the outputs of the ledger are.
    charged_role : str
        The role of their sink.
    outbox : mapping
        Topics of the outbox by step, as `OUTBOX`.
    answers : collection of OwnEvents
        How the store tells its own answers in their sinks; none where answers spend nothing.
    due : DueAnswers, optional
        Answers besides.
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
        outbox: Outbox,
        answers: Collection[OwnEvents] = (),
        due: DueAnswers | None = None,
    ) -> None:
        self._store = store
        self._sinks = sinks

        for sink in sinks.opened():
            if isinstance(sink, Connected) and sink.watched:
                health.watch(sink)

        self._stats = stats
        self._clock = clock
        self._health = health
        self._crash = crash
        self._meanwhile = meanwhile  # called about once a second while a sink cannot take anything
        sinks.while_waiting(meanwhile)
        self._charged = charged
        self._charged_role = charged_role
        self._own_charged = own_charged_events(charged_role)
        self._earlier: EarlierReleases | None = None

        self._topics = outbox
        self._answers = answers
        self._due = due
        self._ledger_seq = 0  # charged outputs up to here are in the sink
        self._outbox_seq = 0
        self._unmarked = False
        self._noted: dict[
            str, SinkPosition
        ] = {}  # how far the last commit knew the sinks to be written

    def resume(self) -> None:
        """Go back to what the last commit knew to be delivered."""
        note = self._store.state("delivered")
        if note is not None:
            self._sinks.restore(note["sinks"])
            self._take(note)

        self._earlier = EarlierReleases(self._store, self._own_charged)
        self._unmarked = True

        # The store is an older copy for this run only, which knows now where its sinks are.
        if self._store.state(OLDER_COPY):
            with self._store.transaction():
                self._store.put_state(OLDER_COPY, False)
                self.save()

        self.mark()  # sinks that are new in this run have a position from now on

    def deliver(self, stop: Callable[[], bool], *, ended: bool = False) -> None:
        """Write what was committed and make it durable; wait, or give up, as `keep_trying` does."""
        self.keep_trying(partial(self._deliver, ended=ended), stop)

    def keep_trying(self, write: Callable[[], None], stop: Callable[[], bool]) -> None:
        """Write until it is delivered.

        While a sink cannot take anything, this waits, and so does the source: nothing piles up.
        When asked to stop, it gives up; the next run delivers.
        """
        began = time.perf_counter()
        before = self._stats.deliveries
        for seconds in _back_off():
            self._health.delivering()
            try:
                write()
                self._health.delivered()

                if self._stats.deliveries > before:
                    self._stats.delivery_seconds = time.perf_counter() - began

                return
            except DeliveryFailedError as error:
                self._sinks.restore(self._noted)
                if stop():
                    _log.warning("delivery failed, the next run writes it again: %s", error)
                    return

                _log.warning("delivery failed, it is written again in %g s: %s", seconds, error)
                self._meanwhile()
                self._clock.sleep(seconds)

    def hear(self) -> None:
        """Let the sinks know of an outage while nothing is delivered."""
        self._sinks.hear()

    def save(self) -> None:
        """Note within a transaction what is delivered."""
        self._noted = self._sinks.positions()
        self._store.put_state("delivered", self._note())
        self._store.clear_outbox(self._outbox_seq)
        self._unmarked = False

    def mark(self) -> None:
        """Note what is delivered in a transaction of its own."""
        if self._unmarked:
            with crash_step(CrashPoint.MARK_DELIVERY, self._crash), self._store.transaction():
                self.save()

    def require_own(self, elsewhere: Elsewhere | None = None) -> None:
        """Refuse a sink with charged events or answers that this store has not made.

        Call before anything is begun.
        """
        own = (self._own_charged, *self._answers)
        require_own_events(self._store, self._sinks, own, elsewhere)
        note_earlier_releases(self._store, self._sinks, self._own_charged)

    def require_same(self, charged: Sequence[bytes]) -> None:
        """Refuse to charge what left with another value before an older copy was put back."""
        if self._earlier is not None:
            self._earlier.require_same(charged)

    def _deliver(self, *, ended: bool) -> None:
        written = self._write_charged(), self._write_outbox()
        answered = False
        if self._due is not None:
            with crash_step(CrashPoint.WRITE_ESTIMATES, self._crash):
                answered = self._due.write(self._sinks, ended=ended)

        if not answered and written == (self._ledger_seq, self._outbox_seq):
            return

        self._flush(written)
        if self._due is not None:
            self._due.delivered()

    def _flush(self, written: tuple[int, int]) -> None:
        with crash_step(CrashPoint.FLUSH_SINKS, self._crash):
            self._sinks.flush()

        self._stats.deliveries += 1
        self._ledger_seq, self._outbox_seq = written
        self._unmarked = True

    def _note(self) -> dict[str, Any]:
        due = {} if self._due is None else self._due.note()
        return {
            "ledger": self._ledger_seq,
            "outbox": self._outbox_seq,
            "sinks": self._noted,
            **due,
        }

    def _take(self, note: dict[str, Any]) -> None:
        self._ledger_seq = note["ledger"]
        self._outbox_seq = note["outbox"]
        if self._due is not None:
            self._due.take(note)

    def _write_charged(self) -> int:
        with crash_step(CrashPoint.WRITE_RELEASES, self._crash):
            ledger = self._store.ledger
            self._sinks.write(
                self._charged_role, EventLines(self._charged, ledger.after(self._ledger_seq))
            )

        return ledger.last()

    def _write_outbox(self) -> int:
        rows = [row for row in self._store.outbox() if row[0] > self._outbox_seq]
        for point, topics in self._topics.items():
            with crash_step(point, self._crash):
                for topic, role in topics.items():
                    lines = [line for _, kind, line in rows if kind == topic]
                    self._sinks.write(role, EventLines(EVENTS[topic], lines))

        if rows:
            return rows[-1][0]
        return self._outbox_seq


def _back_off() -> Iterator[float]:
    """Seconds to wait before each further attempt, without end."""
    yield from FIRST_WAITS
    yield from repeat(FIRST_WAITS[-1])
