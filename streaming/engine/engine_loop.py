"""What every engine does: read a batch, take it in, commit, deliver; until the source ends."""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from meanstream.streaming.clock import CheckedClock, Clock, SystemClock, steady_seconds
from meanstream.streaming.crash import CrashHook, CrashPoint, crash_step
from meanstream.streaming.engine.engine_delivery import CommittedDelivery
from meanstream.streaming.engine.engine_health import Connected, EngineHealth
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.events.event_columns import Batch, Position, Rejects
from meanstream.streaming.sources.source_protocol import Begins, KnowsOffsets, Shared, Source
from meanstream.streaming.store.state_store import Store

KEPT_BYTES = 31 << 20
"""Arrays up to this size reuse memory of the process; the C library keeps twice as much where
nothing is in it."""

FEW_RECORDS = 500
"""With fewer records left in a topic, an engine keeps up with it."""
GATHER_SECONDS = 1.0
"""Time from one commit to the next batch of a topic that an engine keeps up with, at most."""
LEAST_SECONDS = 0.2
"""The same at least, however soon something is due: clocks of events may stand still before it."""
SHORTEST_NAP = 0.01

Stats = TypeVar("Stats", bound=EngineStats)
Taken = TypeVar("Taken")


def _keep_freed_memory() -> None:
    """Let arrays of a batch take the memory that those of the last one had.

    The C library of Linux returns blocks of more than 128 KiB to the system at once, until one as
    large as this was freed. Each page that is fetched again costs as much as adding 500 samples to
    sums.
    """
    np.empty(KEPT_BYTES, np.uint8)


def never_stop_loop() -> bool:
    """Do not stop before the source ends."""
    return False


HISTORY = "history"
"""Name of the state that holds what a page has shown."""


class KeptHistory(Protocol):
    """Plain values that outlive a restart with the engine's own state.

    Both are for the engine's thread.
    """

    def history_since(self, *, ending: bool = False) -> dict[str, Any] | None:
        """Give what is to be kept, None if nothing new is worth a write."""

    def restore_history(self, kept: dict[str, Any]) -> None:
        """Go on from what was kept."""


class EngineLoop(ABC, Generic[Stats, Taken]):
    """The loop of an engine; an engine says what it takes in, commits and delivers.

    After a crash it continues from the last commit. The parameters are those that all engines have.
    """

    state_name: ClassVar[str]
    """Name of the engine's state in the store."""
    log: ClassVar[logging.Logger]
    delivery: CommittedDelivery

    def __init__(
        self,
        *,
        source: Source,
        store: Store,
        options: EngineOptions,
        stats: Stats,
        clock: Clock | None,
        crash: CrashHook,
        on_turn: Callable[[Stats], None] | None,
        health: EngineHealth | None,
    ) -> None:
        self.stats = stats
        stats.lateness = options.allowed_lateness
        self.health = health or EngineHealth()

        if isinstance(source, Connected):
            self.health.watch(source)

        self._source = source
        self._store = store
        self._options = options
        self._clock = clock or SystemClock()
        self._checked = CheckedClock(self._clock, steady_seconds if clock is None else None)
        self._crash = crash
        self._on_turn = on_turn
        self._positions: dict[str, Position] = {}

        self._active: tuple[int, ...] = ()
        self.history: KeptHistory | None = None
        self._since = 0  # records that were read since the last commit
        self._rejects = Rejects()  # of these
        self._committed = time.monotonic()
        self._resumed = False
        self._ended = False  # the last commit took in the end of a bounded source

    def run(self, stop: Callable[[], bool] = never_stop_loop) -> Stats:
        """Work until the source ends or `stop()` is true between two batches.

        Everything is then committed.
        """
        _keep_freed_memory()
        if not self._resumed:
            self.resume()

        # A resumed engine delivers what its last commit holds: a kill may have come in between.
        self._deliver(stop, ended=self._ended)
        self._report()

        while self._since or not stop():
            began = time.perf_counter()
            self.delivery.hear()

            with crash_step(CrashPoint.READ_BATCH, self._crash):
                batch = self._source.next_batch(self._options.batch_size)

            self.stats.input_lag = batch.lag
            self.stats.input_lags = batch.lags
            self.stats.group_commit_age = batch.commit_age

            # A bounded source has ended: one last turn takes in what still waits for the
            # watermark.
            if batch.exhausted:
                if not self._ended or self._has_waiting():
                    self._turn(batch, stop, ended=True)
                    self._report(began)

                break

            # Silence costs no commit, or an idle engine would write for ever.
            if self._nothing_new(batch):
                self.health.turned()
                self._clock.sleep(self._options.poll)
                continue

            # Only a committed turn is reported; a batch that waits for the next one is not there
            # yet.
            if self._turn(batch, stop, ended=False):
                self._report(began)
                self._let_records_gather(batch, stop)
            else:
                self.health.turned()

        self.health.stopping()

        # What the page has shown goes on after a restart.
        if self.history is not None:
            with self._store.transaction():
                self._save_history(ending=True)

        self.delivery.mark()
        return self.stats

    def resume(self) -> None:
        """Continue from the last commit, if there is one."""
        self._resumed = True
        self.delivery.require_own(
            self._source.elsewhere if isinstance(self._source, Shared) else None
        )
        self._store.keep()  # partitions are owned in its name from here on
        state = self._store.state(self.state_name)

        # All that follows is a function of the last commit: a kill loses what came after it, and
        # no more.
        if state is not None:
            self._restore(state)
            self._positions = state["positions"]
            self._ended = bool(state["ended"])

        if self.history is not None and (kept := self._store.state(HISTORY)) is not None:
            self.history.restore_history(kept)

        # A source goes on where the commit says, whatever its own client remembers.
        position = self._positions.get(self._source.name)
        if position is not None:
            self._source.restore(position)
        elif isinstance(self._source, Begins):
            self._source.begin()

        begin = self._begun()
        self.delivery.resume()
        self.health.started()
        # Not the position: the offset in a file tells how many digits its values have.
        where = {"source": self._source.name, "store": str(self._store.path)}
        self.log.info("started" if state is None else "resumed", extra={**where, **begin})

    @abstractmethod
    def _restore(self, state: dict[str, Any]) -> None:
        """Take over the state of the last commit, positions and end apart."""

    @abstractmethod
    def _begun(self) -> dict[str, Any]:
        """Bring the statistics up to date; give what the log says of the beginning."""

    @abstractmethod
    def _has_waiting(self) -> bool:
        """Tell whether something that was read has not been counted, although the source has ended."""

    @abstractmethod
    def _take_in(self, batch: Batch, *, ended: bool) -> Taken:
        """Admit a batch, whose rejected records grow by that.

        Give what the watermark has made of it.
        """

    @abstractmethod
    def _commit(self, position: Position, taken: Taken, rejects: Rejects, *, ended: bool) -> None:
        """Commit position, state, ledger and outgoing events: all or nothing."""

    @abstractmethod
    def _deliver(self, stop: Callable[[], bool], *, ended: bool) -> None:
        """Write what was committed to the sinks."""

    def _save_history(self, *, ending: bool = False) -> None:
        """Write, within a transaction, what a page has shown so far."""
        kept = None if self.history is None else self.history.history_since(ending=ending)
        if kept is not None:
            self._store.put_state(HISTORY, kept)

    def _may_wait(self, read: int, lag: int | None) -> bool:  # noqa: ARG002 - an engine's answer may depend on them
        """Say whether a commit may take in more than a batch of that many records, and write less.

        `lag` is the number of records that the source holds beyond it, where it is known.
        """
        return False

    def _turn(self, batch: Batch, stop: Callable[[], bool], *, ended: bool) -> bool:
        """Take a batch in, commit and deliver; say whether it was committed."""
        read = len(batch.samples) + len(batch.rejects)
        with crash_step(CrashPoint.UPDATE_AGENTS, self._crash):
            taken = self._take_in(batch, ended=ended)

        self._since += read
        self._rejects.extend(batch.rejects)

        if not ended and self._may_wait(read, batch.lag) and not stop():
            return False

        with crash_step(CrashPoint.COMMIT, self._crash):
            self._commit(batch.position, taken, self._rejects, ended=ended)

        self._since = 0
        self._rejects = Rejects()
        self._committed = time.monotonic()
        self._active = batch.active
        self._ended = ended

        if isinstance(self._source, KnowsOffsets):
            self._source.commit(batch.position)

        self._deliver(stop, ended=ended)
        return True

    def _seconds_until_due(self) -> float:
        """Give how far event time is from an answer that is due by it."""
        return math.inf

    def _let_records_gather(self, batch: Batch, stop: Callable[[], bool]) -> None:
        """Wait for more records of a live topic: a turn costs the same for few and for many.

        Not where a run ends with its topic, nor where answers are asked for at each commit.
        """
        is_live_topic = isinstance(self._source, KnowsOffsets) and not self._source.bounded
        if not is_live_topic or batch.lag is None or self._options.refresh == 0:
            return

        # Who keeps up leaves fewer records than it takes, unless it takes as many as it may. How
        # many come meanwhile depends on the stream's rate and on who else has the processor.
        taken = len(batch.samples) + len(batch.rejects)
        if taken >= self._options.batch_size or batch.lag >= max(taken, FEW_RECORDS):
            return

        # Event time of a live stream goes as the clock does: what is due then is answered then.
        longest = min(max(self._seconds_until_due(), LEAST_SECONDS), GATHER_SECONDS)

        # The clock is read once: a clock that stands still must not make this wait for ever.
        remaining = min(self._committed + longest - time.monotonic(), longest)
        while remaining > 0 and not stop():
            nap = min(remaining, max(self._options.poll, SHORTEST_NAP))
            time.sleep(nap)
            remaining -= nap

    def _report(self, began: float | None = None) -> None:
        """Tell anyone who watches that all is committed and delivered, after a turn that began then."""
        if began is not None:
            self.stats.batch_seconds = time.perf_counter() - began

        self.health.turned()
        if self._on_turn is not None:
            self._on_turn(self.stats)

    def _nothing_new(self, batch: Batch) -> bool:
        """Say that neither records nor the end of waiting for a partition have come."""
        same = (
            batch.position == self._positions.get(self._source.name)
            and batch.active == self._active
        )

        return same and not len(batch.samples) and not len(batch.rejects)
