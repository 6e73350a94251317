"""The embedded engine: one process, one loop, a batch of samples at a time, exactly once."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from operators.agents import Agents, AgentsSettings, ReleaseBatch
from operators.noise import KeyedNoise
from streaming.clock import Clock, SystemClock
from streaming.columns import Batch, Position, Rejects
from streaming.crash import CrashHook, CrashPoint, no_crash, step
from streaming.delivery import Delivery
from streaming.health import EngineHealth
from streaming.intake import Intake
from streaming.ledger import LedgerRows
from streaming.options import EngineOptions
from streaming.releases import budget_lines, dead_letter_lines, ledger_rows, refusal_lines
from streaming.sinks.group import Sinks
from streaming.sources.source import Begins, Source, TellsOffsets, let_rest
from streaming.stats import EngineStats
from streaming.store import Store
from streaming.times import shown
from streaming.unused import UnusedRecords
from streaming.variance import ReleaseVariance

_log = logging.getLogger("meanstream.engine")


def never() -> bool:
    """Do not stop before the source ends."""
    return False


class Engine:
    """Reads samples from a source, updates the agents, and lets releases and estimates out.

    One turn: read a batch, admit it, update the agents with what the watermark has passed, commit everything in one
    transaction, deliver what was committed. A release is charged in the ledger by that transaction before it is written
    anywhere. After a crash the engine continues from the last commit: sinks are cut back to what that commit knew to be
    delivered, and the rest is delivered again.

    Parameters
    ----------
    source : Source
        Where samples come from.
    settings : AgentsSettings
        Bounds, privacy parameters, counter and schedule; those that the store was opened with.
    noise : KeyedNoise
        The keyed noise of this deployment (`streaming.secret.deployment_noise`).
    store : Store
        Opened for writing. The engine does not close it.
    sinks : Sinks
        Where events go. The engine does not close them.
    options : EngineOptions
        Everything else.
    unused : UnusedRecords, optional
        Notes which records were not used; for a replay, one that removes those which now are.
    clock : Clock
        For waiting, and to refuse event times of the future.
    crash : callable
        Called on both sides of every `CrashPoint`; a test raises there.
    on_turn : callable
        Called with the statistics at the start and after each turn: a live line, metrics.
    health : EngineHealth
        Told what the engine does, for probes.

    Notes
    -----
    **Privacy.** Releases and all that is written to public sinks is (epsilon, delta)-differentially private with
    respect to the value of any one sample; times, ids, agents and the validity of a sample are public.
    """

    def __init__(
        self,
        *,
        source: Source,
        settings: AgentsSettings,
        noise: KeyedNoise,
        store: Store,
        sinks: Sinks,
        options: EngineOptions | None = None,
        unused: UnusedRecords | None = None,
        clock: Clock | None = None,
        crash: CrashHook = no_crash,
        on_turn: Callable[[EngineStats], None] | None = None,
        health: EngineHealth | None = None,
    ) -> None:
        self.stats = EngineStats()
        self.health = health or EngineHealth()
        self.agents = Agents(settings, noise)
        self._source = source
        self._settings = settings
        self._store = store
        self._options = options or EngineOptions()
        self._clock = clock or SystemClock()
        self._crash = crash
        self._on_turn = on_turn
        self._intake = Intake(settings, self._options, source.name, self.stats)
        self._delivery = Delivery(
            store=store,
            sinks=sinks,
            settings=settings,
            options=self._options,
            stats=self.stats,
            clock=self._clock,
            health=self.health,
            crash=crash,
            meanwhile=partial(let_rest, source),
        )
        self._unused = unused or UnusedRecords(store, source.name)
        self._variance = ReleaseVariance(settings)
        self._positions: dict[str, Position] = {}
        self._event_time = -math.inf
        self._saved_agents = 0
        self._resumed = False
        self._ended = False  # the last commit took in the end of a bounded source
        self._active: tuple[int, ...] = ()

    def run(self, stop: Callable[[], bool] = never) -> EngineStats:
        """Work until the source ends or `stop()` is true between two batches; everything is then committed.

        Raises
        ------
        StoreError, SourceLostError, SinkLostError
            If the store, the source or a sink cannot be used any more. Another run continues.
        """
        if not self._resumed:
            self.resume()
        self._deliver(stop, ended=self._ended)
        self._report()
        while not stop():
            began = time.perf_counter()
            with step(CrashPoint.READ_BATCH, self._crash):
                batch = self._source.next_batch(self._options.batch_size)
            self.stats.input_lag = batch.lag
            if batch.exhausted:
                self._finish(batch, stop, began)
                break
            if self._nothing_new(batch):
                self.health.turned()
                self._clock.sleep(self._options.poll)
                continue
            self._turn(batch, stop, ended=False)
            self._report(began)
        self.health.stopping()
        self._delivery.mark()
        return self.stats

    def resume(self) -> None:
        """Continue from the last commit, if there is one.

        Raises
        ------
        ValueError
            If source or sinks are not those that the store was used with.
        """
        self._resumed = True
        state = self._store.state("engine")
        if state is not None:
            self._intake.restore(self._store, state["intake"])
            self.agents.add_agents(self._intake.names)
            for chunk, columns in self._store.chunks("agents"):
                self.agents.restore_chunk(chunk, columns)
            self.agents.mark_clean()
            self._variance.restore(state["variance"], self.agents.latest())
            self._positions = state["positions"]
            self._event_time = -math.inf if state["event_time"] is None else state["event_time"]
            self._ended = bool(state["ended"])
        position = self._positions.get(self._source.name)
        if position is not None:
            self._source.restore(position)
        elif isinstance(self._source, Begins):
            self._source.begin()
        self.stats.agents = self._saved_agents = self.agents.n_agents
        self.stats.spent = self._spent()
        self.stats.event_time = _finite(self._event_time)
        self.stats.watermark = _finite(self._intake.watermark)
        self._delivery.resume()
        self.health.started()
        # Not the position: the offset in a file tells how many digits its values have.
        begin = {"source": self._source.name, "store": str(self._store.path), "agents": self.stats.agents}
        _log.info("started" if state is None else "resumed", extra={**begin, "event_time": shown(self._event_time)})

    def _report(self, began: float | None = None) -> None:
        """Tell whoever watches that all is committed and delivered, after a turn that began then."""
        if began is not None:
            self.stats.batch_seconds = time.perf_counter() - began
        self.health.turned()
        if self._on_turn is not None:
            self._on_turn(self.stats)

    def _nothing_new(self, batch: Batch) -> bool:
        """Say that neither records nor the end of waiting for a partition have come."""
        same = batch.position == self._positions.get(self._source.name) and batch.active == self._active
        return same and not len(batch.samples) and not len(batch.rejects)

    def _finish(self, batch: Batch, stop: Callable[[], bool], began: float) -> None:
        """Take in what still waits, and bring every agent's estimate up to date."""
        if self._ended and not self._intake.waiting:
            return  # this source had ended before, and nothing has come since
        self._turn(batch, stop, ended=True)
        self._report(began)

    def _turn(self, batch: Batch, stop: Callable[[], bool], *, ended: bool) -> None:
        rejects = batch.rejects
        with step(CrashPoint.UPDATE_AGENTS, self._crash):
            self._intake.admit(batch.samples, rejects, self._clock.now())
            released = self._update(batch.active, ended=ended)
        with step(CrashPoint.COMMIT, self._crash):
            self._commit(batch.position, released, rejects, ended=ended)
        self._active, self._ended = batch.active, ended
        if isinstance(self._source, TellsOffsets):
            self._source.commit(batch.position)
        self._deliver(stop, ended=ended)

    def _deliver(self, stop: Callable[[], bool], *, ended: bool) -> None:
        self._delivery.deliver(self.agents, self._variance, self._event_time, stop, ended=ended)

    def _update(self, active: tuple[int, ...], *, ended: bool) -> list[ReleaseBatch]:
        """Give the agents what the watermark has passed."""
        due = self._intake.due(active, ended=ended and self._options.drain)
        self.agents.add_agents(self._intake.names[self.agents.n_agents :])
        released = []
        if len(due.time):
            released.append(self.agents.update(due.agent, due.value, due.time))
            self._event_time = float(due.time[-1])
        if math.isfinite(self._intake.watermark):
            released.append(self.agents.advance(self._intake.watermark))
        if ended and self._options.final_release and math.isfinite(self._event_time):
            released.append(self.agents.release_now(self._event_time))
        for batch in released:
            self._variance.observe(batch.releases)
        self.stats.event_time = _finite(self._event_time)
        self.stats.watermark = _finite(self._intake.watermark)
        return released

    def _commit(self, position: Position, released: list[ReleaseBatch], rejects: Rejects, *, ended: bool) -> None:
        """Position, state, ledger and outgoing events: all or nothing."""
        began = time.perf_counter()
        store = self._store
        rows = ledger_rows(released, self._intake.names, self._settings)
        with store.transaction():
            with step(CrashPoint.SAVE_POSITION, self._crash):
                self._save_state(position, ended=ended)
            with step(CrashPoint.SAVE_SNAPSHOT, self._crash):
                for chunk in self.agents.dirty_chunks():
                    store.put_chunk("agents", chunk, self.agents.snapshot_chunk(chunk))
            with step(CrashPoint.CHARGE_LEDGER, self._crash):
                refused = store.ledger.charge(rows)
            with step(CrashPoint.FILL_OUTBOX, self._crash):
                exhausted = self._post(released, rows, refused, rejects)
                self._unused.save(rejects)
        self.agents.mark_clean()
        self._saved_agents = len(self._intake.names)
        self._count(len(rows) - len(refused), len(refused), exhausted, rejects)
        self.stats.commit_seconds = time.perf_counter() - began

    def _save_state(self, position: Position, *, ended: bool) -> None:
        """Save where the source goes on, what waits, and what is delivered."""
        self._positions[self._source.name] = position
        state: dict[str, Any] = {
            "positions": self._positions,
            "intake": self._intake.save(self._store, self._saved_agents),
            "ended": ended,
            "variance": self._variance.snapshot(),
            "event_time": _finite(self._event_time),
        }
        self._store.put_state("engine", state)
        self._delivery.save()

    def _post(self, released: list[ReleaseBatch], rows: LedgerRows, refused: list[int], rejects: Rejects) -> int:
        """Put dead letters and notices into the outbox; return how many agents reached their horizon."""
        store, names, settings = self._store, self._intake.names, self._settings
        exhausted = budget_lines(released, names, settings)
        for events in (
            dead_letter_lines(rejects, self._source.name),
            exhausted,
            refusal_lines(rows, refused, names, settings.horizon),
        ):
            store.post(events.kind.topic, events.lines)
        return len(exhausted)

    def _count(self, released: int, refused: int, exhausted: int, rejects: Rejects) -> None:
        stats = self.stats
        stats.releases += released
        stats.refusals += refused
        stats.exhausted += exhausted
        if refused:
            _log.warning("releases were refused", extra={"refused": refused})
        if released:
            stats.spent = self._spent()
        stats.rejected.update(rejects.reason)
        stats.commits += 1

    def _spent(self) -> tuple[int, ...]:
        """Count the agents by the releases they have made."""
        return tuple(np.bincount(self.agents.spent(), minlength=self._settings.horizon + 1).tolist())


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
