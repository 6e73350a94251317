"""The engine of rounds: samples to windows, each window once to reports and an estimate, exactly once."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from operators.validation import require
from streaming.clock import Clock
from streaming.columns import Batch, Position, Rejects
from streaming.crash import CrashHook, CrashPoint, no_crash, step
from streaming.delivery import ROUNDS_OUTBOX, CommittedDelivery
from streaming.events import Charge, Report, WindowEstimate
from streaming.health import EngineHealth
from streaming.loop import EngineLoop
from streaming.options import EngineOptions
from streaming.releases import dead_letter_lines
from streaming.rounds.curator import NO_SIDES
from streaming.rounds.intake import RoundsIntake
from streaming.rounds.open_windows import OpenWindows
from streaming.rounds.run import Directory, Outcome, RoundRunner
from streaming.rounds.settings import RoundsSettings
from streaming.rounds.stats import RoundsStats
from streaming.rounds.summarize import sum_entries
from streaming.rounds.user_side import StageResultsFile, WaitingRounds
from streaming.sinks.group import Sinks
from streaming.sources.source import Source, let_rest
from streaming.store.store import Store
from streaming.times import shown

_log = logging.getLogger("meanstream.rounds")
_KIND = "rounds_open"


class RoundsEngine(EngineLoop[RoundsStats, Outcome]):
    """Reads samples, keeps each window's sums per user, and runs a round when a window has ended.

    One turn: read a batch, admit it, run the rounds of the windows that the watermark has passed, commit everything in
    one transaction, deliver what was committed. Every report is a row of the ledger, charged to its user by that
    transaction before it is written anywhere; with a trusted curator, who takes part is charged before the answer is.
    After a crash the engine continues from the last commit; what was written since is cut back and written again, byte
    for byte.

    Parameters
    ----------
    source : Source
        Where samples come from.
    settings : RoundsSettings
        Those that the store was opened with.
    secret : bytes
        Key of the noise, that of the store.
    store : Store
        Opened for writing. The engine does not close it.
    sinks : Sinks
        Where events go: `reports` (with a trusted curator, charges), `stages`, `means`, `dead_letters`, `notices`, all
        public.
    options : EngineOptions
        Batches, plausible times, how long to wait; those of agents do nothing here.
    results : StageResultsFile, optional
        The users' side alone: reports only, and the next stage when its result is found here.
    clock, crash, on_turn, health
        As for `streaming.engine.Engine`.

    Notes
    -----
    **Privacy.** Everything that leaves is epsilon-differentially private with respect to all that one user sent within
    a window. Public are: who took part in which window, which records were not used, and event times only as far as
    they decide when a window closes.
    """

    state_name = "rounds"
    log = _log

    def __init__(
        self,
        *,
        source: Source,
        settings: RoundsSettings,
        secret: bytes,
        store: Store,
        sinks: Sinks,
        options: EngineOptions,
        results: StageResultsFile | None = None,
        clock: Clock | None = None,
        crash: CrashHook = no_crash,
        on_turn: Callable[[RoundsStats], None] | None = None,
        health: EngineHealth | None = None,
    ) -> None:
        settings.require_user_privacy()
        require(results is None or not settings.central, "estimator", f"be local here: {NO_SIDES}", settings.estimator)
        super().__init__(
            source=source,
            store=store,
            options=options,
            stats=RoundsStats(),
            clock=clock,
            crash=crash,
            on_turn=on_turn,
            health=health,
        )
        self._settings = settings
        self._results = results
        self._intake = RoundsIntake(settings, options, source.name, self.stats)
        self._windows = OpenWindows(settings.windows)
        self._directory = Directory(self._intake.names)
        self._runner = RoundRunner(settings, secret, self._directory)
        self._waiting = WaitingRounds(settings, self._runner, self._directory)
        self.delivery = CommittedDelivery(
            store=store,
            sinks=sinks,
            stats=self.stats,
            clock=self._clock,
            health=self.health,
            crash=crash,
            meanwhile=partial(let_rest, source),
            charged=Charge if settings.central else Report,
            charged_role="reports",
            outbox=ROUNDS_OUTBOX,
        )
        self._saved_users = 0

    def _restore(self, state: dict[str, Any]) -> None:
        self._intake.restore(self._store, state["intake"])
        self._directory = self._runner.directory = self._waiting.directory = Directory(self._intake.names)
        for number, columns in self._store.chunks(_KIND):
            self._windows.restore(number, columns)
        self._waiting.restore(self._store, state["waiting"])

    def _begun(self) -> dict[str, Any]:
        self.stats.agents = self._saved_users = len(self._intake.names)
        self.stats.spent = self._spent()
        self._see()
        return {"users": self.stats.agents, "watermark": shown(self.stats.watermark)}

    def _has_waiting(self) -> bool:
        return bool(len(self._windows) or len(self._waiting))

    def _nothing_new(self, batch: Batch) -> bool:
        if self._results is not None and len(self._waiting) and self._results.grew():
            return False
        return super()._nothing_new(batch)

    def _take_in(self, batch: Batch, *, ended: bool) -> Outcome:
        entries = self._intake.admit_to_windows(batch.samples, batch.rejects, self._clock.now())
        self._windows.add(sum_entries(self._settings.windows, entries, self._settings.grid))
        return self._rounds(self._intake.closed(self._windows, batch.active, ended=ended))

    def _deliver(self, stop: Callable[[], bool], *, ended: bool) -> None:  # noqa: ARG002 - nothing more is due then
        self.delivery.deliver_committed(stop)

    def _rounds(self, reached: int) -> Outcome:
        """Run the rounds of the windows that have ended; or begin them, and go on with those that can."""
        outcome = Outcome()
        ended = self._windows.ended(reached)
        if not ended and not len(self._waiting):
            return outcome
        self._runner.begin(self._store.ledger.spent())
        self._waiting.reserve()
        for window, sums in ended:
            this, taking = self._runner.enter(window, sums, outcome)
            if self._results is None:
                self._runner.run(this, taking, outcome)
            else:
                self._waiting.enter(this, taking, outcome)
        if self._results is not None and len(self._waiting):
            self._waiting.go_on(self._results.read(), outcome)
        return outcome

    def _commit(self, position: Position, taken: Outcome, rejects: Rejects, *, ended: bool) -> None:
        began = time.perf_counter()
        store = self._store
        with store.transaction():
            with step(CrashPoint.SAVE_POSITION, self._crash):
                self._save_state(position, ended=ended)
            with step(CrashPoint.SAVE_SNAPSHOT, self._crash):
                new, dropped = self._windows.changes()
                for number, columns in new.items():
                    store.put_chunk(_KIND, number, columns)
                store.drop_chunks(_KIND, dropped)
            with step(CrashPoint.CHARGE_LEDGER, self._crash):
                refused = store.ledger.charge(taken.rows)
            with step(CrashPoint.FILL_OUTBOX, self._crash):
                for events in (*taken.events, dead_letter_lines(rejects, self._source.name)):
                    store.post(events.kind.topic, events.lines)
        self._saved_users = len(self._intake.names)
        self._count(taken, len(refused), rejects)
        self.stats.commit_seconds = time.perf_counter() - began

    def _save_state(self, position: Position, *, ended: bool) -> None:
        self._positions[self._source.name] = position
        state = {
            "positions": self._positions,
            "intake": self._intake.save(self._store, self._saved_users),
            "waiting": self._waiting.save(self._store),
            "ended": ended,
        }
        self._store.put_state("rounds", state)
        self.delivery.save()

    def _count(self, outcome: Outcome, refused: int, rejects: Rejects) -> None:
        stats = self.stats
        stats.releases += len(outcome.rows) - refused
        stats.refusals += refused
        stats.rounds += outcome.finished
        stats.over_budget += outcome.refused
        answers = [line for e in outcome.events if e.kind is WindowEstimate for line in e.lines]
        stats.estimates += len(answers)
        stats.answer = answers[-1] if answers else stats.answer
        stats.answers_of_turn = tuple(answers)
        if len(outcome.rows):
            stats.spent = self._spent()
        stats.rejected.update(rejects.reason)
        stats.commits += 1
        self._see()

    def _spent(self) -> tuple[int, ...]:
        """Count users by the rounds they have paid for."""
        return tuple(np.bincount(self._store.ledger.spent(), minlength=1).tolist())

    def _see(self) -> None:
        stats, reached = self.stats, self._intake.watermark
        stats.open_windows, stats.waiting = len(self._windows), len(self._waiting)
        stats.event_time = stats.watermark = reached if math.isfinite(reached) else None
