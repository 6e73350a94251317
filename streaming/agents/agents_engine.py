"""The embedded engine: one process, one loop, a batch of samples at a time, exactly once."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection
from typing import ClassVar

import numpy as np

from meanstream.operators.agents.admission import COUNTS, UNCOUNTED, Fates
from meanstream.operators.agents.agents import Agents, AgentsSettings, ReleaseBatch
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Ints
from meanstream.streaming.agents.agents_delivery import OWN_ANSWERS, DueEstimates, EstimatedState
from meanstream.streaming.agents.agents_keepers import (
    AgentsKeeper,
    BudgetKeeper,
    DriftKeeper,
    EventTimeKeeper,
    FollowedKeeper,
    ReleaseOutlook,
)
from meanstream.streaming.agents.agents_releases import release_rows
from meanstream.streaming.agents.first_release import FirstReleaseWatch
from meanstream.streaming.agents.shared_summaries import ShardRun, SharedSummaries
from meanstream.streaming.clock import Clock
from meanstream.streaming.crash import CrashHook, no_crash
from meanstream.streaming.engine.engine_delivery import OUTBOX
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.engine.engine_intake import Intake
from meanstream.streaming.engine.engine_loop import never_stop_loop
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.engine.keepers import (
    EndKeeper,
    IntakeKeeper,
    Keeper,
    KeptEngine,
    PiecesKeeper,
)
from meanstream.streaming.engine.letter_room import LetterRoom
from meanstream.streaming.engine.own_events import OwnEvents
from meanstream.streaming.engine.silence import Silence
from meanstream.streaming.engine.unused_records import UnusedRecords
from meanstream.streaming.events.base import Event
from meanstream.streaming.events.event_columns import Batch, Rejects
from meanstream.streaming.events.wire import Release
from meanstream.streaming.sinks.sink_protocol import Sinks
from meanstream.streaming.sources.source_protocol import (
    AtHand,
    Shared,
    Source,
    let_source_rest,
)
from meanstream.streaming.store.spend_ledger import LedgerRows
from meanstream.streaming.store.state_store import Store

_log = logging.getLogger("meanstream.engine")

MANY_AGENTS = 4_000
"""Agents from which on a commit may take in several batches, of a source that has more."""
LEAST_PER_COMMIT = 8
"""Records per agent for which it waits: to read so many costs as much as a commit."""
MOST_PER_COMMIT = 64
"""Records per agent for which it waits up to `WAITING_RECORDS`: a commit costs little then."""
WAITING_RECORDS = 1 << 21
"""Records beyond the least ones: what they release is in memory until the commit."""

LONGEST_WAIT = 1.0
"""Seconds for which a commit waits for what brokers hold."""


class Engine(KeptEngine[EngineStats, list[ReleaseBatch]]):
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
        (`meanstream.streaming.store.deployment_store.open_deployment`).
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
    together : ShardRun, optional
        The run of all shards of which this engine is one: at the end of a bounded source each waits
        for the ends of the others, so that all have learned from all releases.

    Notes
    -----
    **Privacy.** Releases and all that is written to public sinks is (epsilon, delta)-differentially
    private with respect to the value of any one sample, or, with `per_person`, to all samples of
    one person within an agent; times, ids, agents and the validity of a sample are public, and
    which were beyond a person's limit.
    """

    state_name = "engine"
    charged: ClassVar[type[Event]] = Release
    own_answers: ClassVar[Collection[OwnEvents]] = OWN_ANSWERS
    log = _log

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
        together: ShardRun | None = None,
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
        self.agents = self._make_agents(settings, noise)
        self._settings = settings
        self._intake = Intake(
            settings.grid,
            self._options,
            source.name,
            self.stats,
            partitioned=isinstance(source, Shared),
        )
        self._followed = FollowedReleases(settings)
        self._silence = Silence(self._options.idle_after)
        self._taken: list[ReleaseBatch] = []  # since the last commit

        # What the page and the logs show.
        self.stats.refresh = self._options.refresh
        outlook = ReleaseOutlook(
            settings, self._options.allowed_lateness, self.agents, self._intake, self.stats
        )
        self.stats.look_ahead = outlook.following
        first_release = FirstReleaseWatch(outlook.first)
        self._event_time = EventTimeKeeper(self._intake, self.stats, first_release)

        # What leaves, and who keeps what: the state, then dead letters, notices and drifts.
        self._shared = (
            SharedSummaries(store, settings, self._options, together)
            if isinstance(source, Shared) and source.is_part
            else None
        )
        state = EstimatedState(
            self.agents, self._followed, self._event_time, self.stats, self._shared
        )
        charged = self.charged, "releases"
        self._due = self._make_due(state)
        self.delivery = self._delivery_to(sinks, OUTBOX, charged, self.own_answers, self._due)

        self._letters = LetterRoom(
            store,
            self._options.max_dead_letters,
            self.stats,
            source.name,
            asked=sinks.dead_letters is not None,
        )
        self._unused = unused or UnusedRecords(store, source.name)
        self.keepers = self._make_keepers()

    def _make_keepers(self) -> list[Keeper[list[ReleaseBatch]]]:
        agents = self.agents
        intake = self._intake
        persons = [] if agents.persons is None else [PiecesKeeper("persons", agents.persons)]
        shared = [] if self._shared is None else [self._shared]

        return [
            IntakeKeeper(intake, self.stats),
            EndKeeper(),
            AgentsKeeper(agents, intake),
            *persons,
            FollowedKeeper(self._followed, agents),
            *shared,
            self._letters,
            BudgetKeeper(agents, self._settings, intake, self.stats),
            DriftKeeper(intake, self.stats),
            self._unused,
            self._event_time,
        ]

    def _make_agents(self, settings: AgentsSettings, noise: KeyedNoise) -> Agents:
        return Agents(settings, noise)

    def _make_due(self, state: EstimatedState) -> DueEstimates:
        return DueEstimates(self._settings, self._options, state)

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
        reached = self._event_time.reached

        # An answer by the clock is given once for each refresh that event time has not reached.
        if not refresh or not math.isfinite(reached) or self._event_time.by_clock:
            return False

        due = (reached // refresh + 1) * refresh
        self._event_time.by_clock = self._intake.by_clock(seconds) >= due
        return self._event_time.by_clock

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
            or self._since >= _records_of_commit(agents)
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

    def run(self, stop: Callable[[], bool] = never_stop_loop) -> EngineStats:
        """Work as every engine does; at the end let the other shards know that it is there."""
        stats = super().run(stop)
        shared = self._shared
        if shared is not None and shared.together is not None and self._ended and not stop():
            self._due.publish(ended=True)

        return stats

    def _deliver(self, stop: Callable[[], bool], *, ended: bool) -> None:
        # The last answers rest on the last releases of all shards.
        if ended and not self._settle(stop):
            ended = False

        self.delivery.deliver(stop, ended=ended)

    def _settle(self, stop: Callable[[], bool]) -> bool:
        """Wait for the ends of the other shards; False if this shall stop before they are there."""
        shared = self._shared
        if shared is None or shared.settled():
            return True

        self._due.publish(ended=True)
        asked = time.monotonic()
        while not shared.settle():
            if stop():
                return False

            # The brokers are heard about once a second, as while a sink is away.
            self.health.turned()
            self._clock.sleep(self._options.poll)
            if time.monotonic() - asked > 1.0:
                asked = time.monotonic()
                let_source_rest(self._source)

        return True

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
            self._event_time.pass_to(float(due.time[-1]))

        # Schedules of event time release when the watermark has left a window.
        if math.isfinite(self._intake.watermark):
            released.append(self.agents.advance(self._intake.watermark))

        # A bounded source ends with one more release, of what no schedule would release any more.
        reached = self._event_time.reached
        if ended and self._options.final_release and math.isfinite(reached):
            released.append(self.agents.release_now(reached))

        for batch in released:
            self._followed.observe(batch.releases, batch.before)

        self._event_time.show(released=any(len(batch.releases.agent) for batch in released))
        return released

    def _note(self, fates: Fates | None, position: Ints, rejects: Rejects) -> None:
        """Note which samples do not count, where persons are distinguished.

        Then the others were not counted yet.
        """
        if fates is None:
            return

        for fate, reason in UNCOUNTED.items():
            rejects.add_many(reason, position[fates == fate])

        self.stats.accepted += int(np.count_nonzero(fates == COUNTS))

    def _charges(self, taken: list[ReleaseBatch]) -> LedgerRows:
        return release_rows(taken, self._intake.names, self._settings)


def _records_of_commit(agents: int) -> int:
    """Give the number of records after which a commit of so many agents waits for no more."""
    return max(LEAST_PER_COMMIT * agents, min(MOST_PER_COMMIT * agents, WAITING_RECORDS))
