"""The embedded engine: one process, one loop, a batch of samples at a time, exactly once."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from meanstream.operators.agents.admission import COUNTS, UNCOUNTED, Fates
from meanstream.operators.agents.agents import Agents, AgentsSettings, ReleaseBatch
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Ints
from meanstream.streaming.agents.agents_delivery import Delivery
from meanstream.streaming.agents.agents_releases import (
    OWN_RELEASES,
    release_budget_lines,
    release_dead_letter_lines,
    release_refusal_lines,
    release_rows,
    restore_own_releases,
)
from meanstream.streaming.agents.drift_events import DriftsOfReleases
from meanstream.streaming.agents.first_release import FirstReleaseWatch
from meanstream.streaming.agents.release_outlook import ReleaseOutlook
from meanstream.streaming.agents.saved_agents import SavedAgents
from meanstream.streaming.clock import Clock
from meanstream.streaming.crash import CrashHook, CrashPoint, crash_step, no_crash
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.engine.engine_intake import Intake
from meanstream.streaming.engine.engine_loop import EngineLoop
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.engine.letter_room import LetterRoom
from meanstream.streaming.engine.silence import Silence
from meanstream.streaming.engine.unused_records import UnusedRecords
from meanstream.streaming.events.event_columns import Batch, Position, Rejects
from meanstream.streaming.events.times import iso_time, known_time
from meanstream.streaming.sinks.sink_group import Sinks
from meanstream.streaming.sources.source_protocol import AtHand, Shared, Source, let_source_rest
from meanstream.streaming.store.spend_ledger import LedgerRows
from meanstream.streaming.store.state_store import Store

_log = logging.getLogger("meanstream.engine")

MANY_AGENTS = 16_384
"""Agents from which on a commit may take in several batches, of a source that has more."""
PER_COMMIT = 8
"""Records per agent after which it does not wait any longer: to read so many costs as much as a
commit."""

LONGEST_WAIT = 1.0
"""Seconds for which a commit waits for what brokers hold."""


class Engine(EngineLoop[EngineStats, list[ReleaseBatch]]):
    """Reads samples from a source, updates the agents, and lets releases and estimates out.

    One turn: read a batch, admit it, update the agents with what the watermark has passed, commit
    everything in one transaction, deliver what was committed. A release is charged in the ledger by
    that transaction before it is written anywhere. After a crash the engine continues from the last
    commit: sinks are cut back to what that commit knew to be delivered, and the rest is delivered
    again.

    Parameters
    ----------
    source : Source
        Where samples come from.
    settings : AgentsSettings
        Bounds, privacy parameters, counter and schedule; those that the store was opened with, and
        its name.
    noise : KeyedNoise
        The keyed noise of this deployment
        (`meanstream.streaming.store.store_deployment.open_deployment`).
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
    respect to the value of any one sample, or, with `per_person`, to all samples of one person within an agent; times,
    ids, agents and the validity of a sample are public, and which were beyond a person's limit.
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

        # The state: agents, what waits for the watermark, and what everyone's releases say.
        self.agents = Agents(settings, noise)
        self._settings = settings
        self._intake = Intake(
            settings.grid,
            self._options,
            source.name,
            self.stats,
            partitioned=isinstance(source, Shared),
        )

        # What leaves: deliveries, dead letters, and records that reach no agent.
        self.stats.refresh = self._options.refresh
        self.delivery = self._make_delivery(sinks)
        self._unused = unused or UnusedRecords(store, source.name)
        most = self._options.max_dead_letters
        asked = sinks.dead_letters is not None
        self._letters = LetterRoom(store, most, self.stats, asked=asked, warns=True)

        # What the page and the logs show, and what a commit has to write.
        self._followed = FollowedReleases(settings)
        self._event_time = -math.inf
        self._silence = Silence(self._options.idle_after)

        self._by_clock = False
        self._saved = SavedAgents()
        self._saved_agents = 0
        self._taken: list[ReleaseBatch] = []  # since the last commit
        self._spent_before = np.zeros(0, np.int64)
        outlook = ReleaseOutlook(
            settings, self._options.allowed_lateness, self.agents, self._intake, self.stats
        )
        self._first_release = FirstReleaseWatch(outlook.first)
        self.stats.look_ahead = outlook.following

    def _make_delivery(self, sinks: Sinks, **more: Any) -> Delivery:
        return Delivery(
            store=self._store,
            sinks=sinks,
            settings=self._settings,
            options=self._options,
            stats=self.stats,
            clock=self._clock,
            health=self.health,
            crash=self._crash,
            meanwhile=partial(let_source_rest, self._source),
            **more,
        )

    def _restore(self, state: dict[str, Any]) -> None:
        self._intake.restore(self._store, state["intake"])
        self.agents.add_agents(self._intake.names)
        self._saved.restore(self._store, self.agents)

        # Counts of persons are saved in chunks of their own, as they are larger than the rest.
        if self.agents.persons is not None:
            for number, columns in self._store.chunks("persons"):
                self.agents.persons.restore(number, columns)

        self.agents.mark_clean()
        self._followed.restore(state["variance"], self.agents.latest())
        restore_own_releases(self._store, self._followed)
        self._event_time = -math.inf if state["event_time"] is None else state["event_time"]
        self._by_clock = bool(state.get("by_clock"))

    def _begun(self) -> dict[str, Any]:
        # Statistics are derived from the state, so that a resumed run shows what an unbroken one
        # would.
        self.stats.agents = self._saved_agents = self.agents.n_agents
        self.stats.spent = self._spent()
        self._spent_before = self.agents.spent()
        self._note_waiting(released=False)

        return {"agents": self.stats.agents, "event_time": iso_time(self._event_time)}

    def _has_waiting(self) -> bool:
        return bool(self._intake.waiting)

    def _nothing_new(self, batch: Batch) -> bool:
        """Say so, unless the clock has let something go in the silence of the source."""
        # Only a source whose connections all work is silent: an outage lets nothing go by the
        # clock.
        nothing = super()._nothing_new(batch)
        quiet = nothing and not batch.active and not any(self.health.connections().values())
        seconds = self._silence.look(self._clock.now(), quiet=quiet)
        return nothing and not (seconds and self._passed_by_clock(seconds))

    def _passed_by_clock(self, seconds: float) -> bool:
        """Let samples go that the clock has passed, or else the answers that are due by it.

        Say whether there are any.

        What has gone is in the next commit, and never waits again.
        """
        # Samples that wait come before answers: their time is earlier.
        if self._intake.pass_silence(seconds):
            return True
        refresh = self._options.refresh
        at = self._event_time

        # An answer by the clock is given once for each refresh that event time has not reached.
        if not refresh or not math.isfinite(at) or self._by_clock:
            return False
        self._by_clock = self._intake.by_clock(seconds) >= (at // refresh + 1) * refresh
        return self._by_clock

    def _take_in(self, batch: Batch, *, ended: bool) -> list[ReleaseBatch]:
        self._intake.admit(batch.samples, batch.rejects, self._checked.bounds().latest)
        released = self._update(batch.active, batch.rejects, ended=ended)
        self._taken = [*self._taken, *released] if self._since else released
        return self._taken

    def _may_wait(self, read: int, lag: int | None) -> bool:
        """Say whether many agents have few records since the last commit, and the source surely holds more.

        A commit writes all that is known of an agent, however many of its samples are new. Where
        answers are given on the way, each batch has its own.
        """
        # A commit costs by agent: where each has few new records, it is worth taking in more of
        # them.
        agents = len(self._intake.names)
        options = self._options
        if (
            options.refresh is not None
            or agents < MANY_AGENTS
            or self._since >= PER_COMMIT * agents
        ):
            return False

        # Waiting must not delay what a live topic holds: only a backlog, or records at hand, are
        # waited for.
        soon = time.monotonic() - self._committed < LONGEST_WAIT
        return (
            isinstance(self._source, AtHand)
            or read >= options.batch_size
            or bool(read and lag and soon)
        )

    def _seconds_until_due(self) -> float:
        """Give how far the watermark is from the next multiple of `refresh`."""
        refresh = self._options.refresh
        watermark = self._intake.watermark
        if not refresh or not math.isfinite(watermark):
            return math.inf
        return refresh - watermark % refresh

    def _deliver(self, stop: Callable[[], bool], *, ended: bool) -> None:
        known = self.agents, self._followed, self._event_time
        self.delivery.deliver(*known, stop, ended=ended, by_clock=self._by_clock)

    def _update(
        self, active: tuple[int, ...], rejects: Rejects, *, ended: bool
    ) -> list[ReleaseBatch]:
        """Give the agents what the watermark has passed; note what was beyond a person's limit."""
        # Samples that the watermark has passed, in the order of event time.
        due = self._intake.due(active, ended=ended and self._options.drain)
        self.agents.add_agents(self._intake.names[self.agents.n_agents :])
        released = []
        if len(due.time):
            released.append(self.agents.update(due.agent, due.value, due.time, due.person))
            self._note(released[0].fates, due.position, rejects)
            self._event_time = float(due.time[-1])
            self._by_clock = False

        # Schedules of event time release when the watermark has left a window.
        if math.isfinite(self._intake.watermark):
            released.append(self.agents.advance(self._intake.watermark))

        # A bounded source ends with one more release, of what no schedule would release any more.
        if ended and self._options.final_release and math.isfinite(self._event_time):
            released.append(self.agents.release_now(self._event_time))

        for batch in released:
            self._followed.observe(batch.releases, batch.before)

        self._note_waiting(released=any(len(batch.releases.agent) for batch in released))
        return released

    def _note_waiting(self, *, released: bool) -> None:
        """Tell how far event time is, how many samples wait for it and, before the first release, when that is due."""
        stats = self.stats
        stats.event_time = known_time(self._event_time)
        stats.watermark = known_time(self._intake.watermark)
        stats.pending = self._intake.waiting
        early = not released and not any(stats.spent[1:])
        stats.first_release = (
            self._first_release.newest(stats.pending, stats.accepted) if early else None
        )

    def _note(self, fates: Fates | None, position: Ints, rejects: Rejects) -> None:
        """Note which samples do not count, where persons are distinguished.

        Then the others were not counted yet.
        """
        if fates is None:
            return

        for fate, reason in UNCOUNTED.items():
            rejects.add_many(reason, position[fates == fate])

        self.stats.accepted += int(np.count_nonzero(fates == COUNTS))

    def _commit(
        self, position: Position, taken: list[ReleaseBatch], rejects: Rejects, *, ended: bool
    ) -> None:
        began = time.perf_counter()
        store = self._store

        # All or nothing: position, state, charges and events are in one transaction.
        rows = release_rows(taken, self._intake.names, self._settings)
        with store.transaction():
            with crash_step(CrashPoint.SAVE_POSITION, self._crash):
                self._save_state(position, ended=ended)

            with crash_step(CrashPoint.SAVE_SNAPSHOT, self._crash):
                self._saved.save(store, self.agents)
                self._save_persons()

                for chunk, columns in self._followed.own.changes():
                    store.put_chunk(OWN_RELEASES, chunk, columns)

            # The charge is committed with the releases: none leaves the process unless it was paid
            # for.
            with crash_step(CrashPoint.CHARGE_LEDGER, self._crash):
                refused = store.ledger.charge(rows)

            with crash_step(CrashPoint.FILL_OUTBOX, self._crash):
                drifts = DriftsOfReleases.of(taken, refused)
                exhausted = self._post(taken, rows, refused, drifts, rejects)
                self._unused.save(rejects)

        # Only now: a transaction that failed must write the same chunks again.
        self.agents.mark_clean()
        self._followed.own.mark_clean()
        self._saved_agents = len(self._intake.names)
        self._count(len(rows) - len(refused), len(refused), exhausted, rejects)
        self.stats.drifts += drifts.drifts
        self.stats.drift_warnings += drifts.warnings
        self.stats.commit_seconds = time.perf_counter() - began

    def _save_state(self, position: Position, *, ended: bool) -> None:
        """Save where the source goes on, what waits, and what is delivered."""
        self._positions[self._source.name] = position
        state: dict[str, Any] = {
            "positions": self._positions,
            "intake": self._intake.save(self._store, self._saved_agents),
            "ended": ended,
            "variance": self._followed.snapshot(),
            "event_time": known_time(self._event_time),
            "by_clock": self._by_clock,
        }

        self._store.put_state("engine", state)
        self._save_history()
        self.delivery.save()

    def _save_persons(self) -> None:
        """Save how many samples of each person count."""
        if self.agents.persons is None:
            return
        new, dropped = self.agents.persons.changes()
        for number, columns in new.items():
            self._store.put_chunk("persons", number, columns)

        self._store.drop_chunks("persons", dropped)

    def _post(
        self,
        released: list[ReleaseBatch],
        rows: LedgerRows,
        refused: list[int],
        drifts: DriftsOfReleases,
        rejects: Rejects,
    ) -> int:
        """Put dead letters and notices into the outbox.

        Return how many agents reached their horizon.
        """
        store = self._store
        names = self._intake.names
        settings = self._settings
        exhausted = release_budget_lines(released, names, settings)

        for events in (
            release_dead_letter_lines(self._letters.admit(rejects), self._source.name),
            exhausted,
            release_refusal_lines(rows, refused, names, settings),
            drifts.lines(names),
        ):
            # One outbox for each kind of event, in the order in which they are delivered.
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
            # Agents that have released since the last commit, and the one that released most.
            stats.spent = self._spent()
            now = self.agents.spent()
            now[: len(self._spent_before)] -= self._spent_before
            stats.spenders = int(np.count_nonzero(now))
            stats.most_spent = int(now.max(initial=0))

        stats.rejected.update(rejects.reason)
        stats.commits += 1

    def _spent(self) -> tuple[int, ...]:
        """Count the agents by the releases they have made."""
        most = self._settings.most_releases
        spent = self.agents.spent()
        if most is None:  # no one asks how many, but whether
            return tuple(np.bincount(np.minimum(spent, 1), minlength=2).tolist())

        return tuple(np.bincount(spent, minlength=most + 1).tolist())
