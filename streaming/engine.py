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
from streaming.clock import Clock
from streaming.columns import Batch, Position, Rejects
from streaming.crash import CrashHook, CrashPoint, no_crash, step
from streaming.delivery import Delivery
from streaming.health import EngineHealth
from streaming.intake import Intake
from streaming.loop import EngineLoop
from streaming.options import EngineOptions
from streaming.releases import budget_lines, dead_letter_lines, ledger_rows, refusal_lines
from streaming.sinks.group import Sinks
from streaming.sources.source import Source, let_rest
from streaming.stats import EngineStats
from streaming.store.ledger import LedgerRows
from streaming.store.store import Store
from streaming.times import shown
from streaming.unused import UnusedRecords
from streaming.variance import ReleaseVariance

_log = logging.getLogger("meanstream.engine")


class Engine(EngineLoop[EngineStats, list[ReleaseBatch]]):
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

    state_name = "engine"
    log = _log
    delivery: Delivery

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
        super().__init__(
            source=source,
            store=store,
            options=options or EngineOptions(),
            stats=EngineStats(),
            clock=clock,
            crash=crash,
            on_turn=on_turn,
            health=health,
        )
        self.agents = Agents(settings, noise)
        self._settings = settings
        self._intake = Intake(settings, self._options, source.name, self.stats)
        self.delivery = Delivery(
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
        self._event_time = -math.inf
        self._saved_agents = 0

    def _restore(self, state: dict[str, Any]) -> None:
        self._intake.restore(self._store, state["intake"])
        self.agents.add_agents(self._intake.names)
        for chunk, columns in self._store.chunks("agents"):
            self.agents.restore_chunk(chunk, columns)
        self.agents.mark_clean()
        self._variance.restore(state["variance"], self.agents.latest())
        self._event_time = -math.inf if state["event_time"] is None else state["event_time"]

    def _begun(self) -> dict[str, Any]:
        self.stats.agents = self._saved_agents = self.agents.n_agents
        self.stats.spent = self._spent()
        self.stats.event_time = _finite(self._event_time)
        self.stats.watermark = _finite(self._intake.watermark)
        return {"agents": self.stats.agents, "event_time": shown(self._event_time)}

    def _has_waiting(self) -> bool:
        return bool(self._intake.waiting)

    def _take_in(self, batch: Batch, *, ended: bool) -> list[ReleaseBatch]:
        self._intake.admit(batch.samples, batch.rejects, self._clock.now())
        return self._update(batch.active, ended=ended)

    def _deliver(self, stop: Callable[[], bool], *, ended: bool) -> None:
        self.delivery.deliver(self.agents, self._variance, self._event_time, stop, ended=ended)

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

    def _commit(self, position: Position, taken: list[ReleaseBatch], rejects: Rejects, *, ended: bool) -> None:
        began = time.perf_counter()
        store = self._store
        rows = ledger_rows(taken, self._intake.names, self._settings)
        with store.transaction():
            with step(CrashPoint.SAVE_POSITION, self._crash):
                self._save_state(position, ended=ended)
            with step(CrashPoint.SAVE_SNAPSHOT, self._crash):
                for chunk in self.agents.dirty_chunks():
                    store.put_chunk("agents", chunk, self.agents.snapshot_chunk(chunk))
            with step(CrashPoint.CHARGE_LEDGER, self._crash):
                refused = store.ledger.charge(rows)
            with step(CrashPoint.FILL_OUTBOX, self._crash):
                exhausted = self._post(taken, rows, refused, rejects)
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
        self.delivery.save()

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
