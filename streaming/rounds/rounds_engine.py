"""The engine of rounds.

Samples to windows, each window once to reports and an estimate, exactly once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from meanstream.operators.validation import require
from meanstream.streaming.agents.agents_releases import release_dead_letter_lines
from meanstream.streaming.clock import Clock
from meanstream.streaming.crash import CrashHook, CrashPoint, crash_step, no_crash
from meanstream.streaming.engine.engine_delivery import ROUNDS_OUTBOX, CommittedDelivery
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.engine.engine_loop import EngineLoop
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.letter_room import LetterRoom
from meanstream.streaming.events.event_columns import Batch, Position, Rejects
from meanstream.streaming.events.round_events import Charge, Report, WindowEstimate
from meanstream.streaming.events.times import known_time
from meanstream.streaming.events.wire import PrivateDeadLetter
from meanstream.streaming.rounds.open_windows import OpenWindows
from meanstream.streaming.rounds.round_runner import Directory, Outcome, RoundRunner
from meanstream.streaming.rounds.rounds_curator import NO_SIDES
from meanstream.streaming.rounds.rounds_homes import OwnUsers
from meanstream.streaming.rounds.rounds_intake import RoundsIntake
from meanstream.streaming.rounds.rounds_own_answers import OWN_ANSWERS
from meanstream.streaming.rounds.rounds_settings import NO_ORDER, RoundsSettings
from meanstream.streaming.rounds.rounds_stats import RoundsStats
from meanstream.streaming.rounds.sides.user_side import WaitingRounds
from meanstream.streaming.rounds.stage_results import StageResultsLocation
from meanstream.streaming.rounds.summarize_users import UserSums, summarize_entries
from meanstream.streaming.rounds.user_places import slot_key
from meanstream.streaming.rounds.window_widths import Window
from meanstream.streaming.sinks.sink_group import Sinks
from meanstream.streaming.sinks.sink_protocol import check_sink_trust
from meanstream.streaming.sources.source_protocol import Source, let_source_rest
from meanstream.streaming.store.state_store import Store

_log = logging.getLogger("meanstream.rounds")
OPEN_WINDOWS = "rounds_open"


class RoundsEngine(EngineLoop[RoundsStats, Outcome]):
    """Reads samples, keeps each window's sums per user, and runs a round when a window has ended.

    One turn: read a batch, admit it, run the rounds of the windows that have closed, commit
    everything in one transaction, deliver what was committed. Every report is a row of the ledger,
    charged to its user by that transaction before it is written anywhere; with a trusted curator,
    who takes part is charged before the answer is. After a crash the engine continues from the last
    commit; what was written since is cut back and written again, byte for byte.

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
        Where events go: `reports` (with a trusted curator, charges), `stages`, `means`, `notices`,
        all public; `dead_letters`, which is private here.
    options : EngineOptions
        Batches, plausible times, how long to wait; those of agents do nothing here.
    results : StageResultsLocation, optional
        The users' side alone: reports only, and the next stage when its result is found here.
    clock, crash, on_turn, health
        As for `meanstream.streaming.agents.agents_engine.Engine`.

    Notes
    -----
    **Privacy.** Everything that leaves is epsilon-differentially private with respect to all that one user sent within
    a window. Public are: who took part in which window, in an order that hangs on names alone. When windows close is
    public too (`meanstream.streaming.rounds.closing`), and so are sessions' ends. `stats` is private: `public_stats`
    gives what anyone may know of it.
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
        results: StageResultsLocation | None = None,
        clock: Clock | None = None,
        crash: CrashHook = no_crash,
        on_turn: Callable[[RoundsStats], None] | None = None,
        health: EngineHealth | None = None,
    ) -> None:
        # What cannot keep the promise is refused before a record is read.
        settings.require_user_privacy()
        if sinks.dead_letters is not None:
            check_sink_trust(sinks.dead_letters.trust, PrivateDeadLetter)  # before anything is read

        require(
            results is None or not settings.central,
            "estimator",
            f"be local here: {NO_SIDES}",
            settings.estimator,
        )

        # On two sides the statistician is another process, which cannot carry what earlier windows
        # said.
        if results is not None:
            settings.require_nothing_carried("on two sides", NO_ORDER)

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

        # The sides of the rounds: users with open windows, and rounds that wait for results.
        self._settings = settings
        self._results = results
        most = options.max_dead_letters
        asked = sinks.dead_letters is not None
        self._letters = LetterRoom(store, most, self.stats, asked=asked, warns=False)
        self._intake = RoundsIntake(settings, options, source, self.stats, slot_key(secret))
        self._windows = OpenWindows(settings.windows, self._intake.places)
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
            meanwhile=partial(let_source_rest, source),
            charged=Charge if settings.central else Report,
            charged_role="reports",
            outbox=ROUNDS_OUTBOX,
            answers=OWN_ANSWERS,
        )

        self._saved_users = 0
        self._again = False  # a window or a stage was taken: there may be another one
        self._own_users = OwnUsers(source)
        self._homes_unknown = False  # whether a window waits to know who lives here

    def _restore(self, state: dict[str, Any]) -> None:
        self._intake.restore(self._store, state["intake"])
        self._directory = self._runner.directory = self._waiting.directory = Directory(
            self._intake.names
        )

        # Windows that had not ended, and rounds of which not all stages are done.
        for number, columns in self._store.chunks(OPEN_WINDOWS):
            self._windows.restore(number, columns)

        self._waiting.restore(self._store, state["waiting"])
        self._runner.carried = state.get("carried")
        self._again = True  # the last commit may have left windows that have ended

    def _begun(self) -> dict[str, Any]:
        self.stats.agents = self._saved_users = len(self._intake.names)
        self.stats.spent = self._spent()
        self._see()
        return {}  # users and times of samples are not for logs

    def _has_waiting(self) -> bool:
        return bool(len(self._windows) or len(self._waiting))

    def _nothing_new(self, batch: Batch) -> bool:
        # A turn without records may still be due: a window has ended, or results have come.
        if (
            self._again
            or self._homes_unknown
            or self._intake.closing.moment_has_come(self._checked.bounds().earliest)
            or (self._results is not None and len(self._waiting) and self._results.grew())
        ):
            return False

        return super()._nothing_new(batch)

    def _take_in(self, batch: Batch, *, ended: bool) -> Outcome:
        # A clock that was just set neither closes windows nor makes samples implausible.
        now = self._checked.bounds()
        entries = self._intake.admit_to_windows(batch.samples, batch.rejects, now.latest)
        self._windows.add(summarize_entries(self._settings.windows, entries, self._settings.grid))
        reached = self._intake.closed(self._windows, now.earliest, ended=ended)

        return self._rounds(reached, now.latest, patient=ended)

    def _deliver(self, stop: Callable[[], bool], *, ended: bool) -> None:  # noqa: ARG002 - nothing more is due then
        self.delivery.deliver_committed(stop)

    def _turn(self, batch: Batch, stop: Callable[[], bool], *, ended: bool) -> bool:
        """Take a batch in, and then one window, or stage, after the other, each in a commit of its own.

        **Privacy.** Windows that end in one batch would otherwise leave together, and those of two batches apart: where
        batches end depends on how many samples everyone sends.
        """
        super()._turn(batch, stop, ended=ended)
        answers = self.stats.answers_of_turn

        # One window a commit: a kill repeats one window at most, and draws the same noise for it.
        nothing = replace(batch, samples=batch.samples.take(slice(0, 0)), rejects=Rejects())
        while self._again:
            super()._turn(nothing, stop, ended=ended)
            answers += self.stats.answers_of_turn

        self.stats.answers_of_turn = answers
        return True

    def _rounds(self, reached: int, now: float, *, patient: bool) -> Outcome:
        """Run the round of the first window that has ended.

        Or begin it; or go on with one that can.
        """
        outcome = Outcome()
        self._again = False

        # Who takes part follows from names and times alone, never from values.
        ended = self._first_ended(reached, patient=patient)
        if ended is None and not len(self._waiting):
            return outcome

        # What each user has paid so far decides who may still take part.
        self._runner.begin(self._store.ledger.spent())
        self._waiting.reserve()

        if ended is not None:
            # More windows may have ended: the turn goes on until none is left.
            self._again = self._results is not None or self._windows.has_ended(reached)
            window, sums = ended
            this, taking = self._runner.enter(
                window, self._intake.places.enter(window, sums, now), outcome
            )

            # One process answers at once; two sides wait for the statistician's results.
            if self._results is None:
                self._runner.run(this, taking, outcome)
            else:
                self._waiting.enter(this, taking, outcome)
        elif self._results is not None:
            self._again = self._waiting.go_on(self._results, outcome)

        return outcome

    def _first_ended(self, reached: int, *, patient: bool) -> tuple[Window, UserSums] | None:
        """Take out the first window that has ended, with the users who live here.

        None where no one can say who.
        """
        # A store that shares its topic answers for the users who live in it.
        if not self._own_users.asks:
            return self._windows.first_ended(reached)

        # Windows are looked at in their order: none may overtake one whose users are not known
        # yet.
        while len(user := self._windows.first_users(reached)):
            user = user[self._intake.places.order(user)]
            own = self._own_users.own(user, self._directory.names, patient=patient)
            self._homes_unknown = own is None
            first = None if own is None else self._windows.first_ended(reached)

            if first is None or own is None or own.all():
                return first

            # Samples of users of another store count there.
            window, sums = first
            here = np.isin(sums.user, user[own])
            self.stats.rejected["other_store"] += int(sums.count[~here].sum())

            if (
                here.any()
            ):  # a window of others alone is none: that there was one would tell of them
                return window, sums.take(here)

        return None

    def _commit(self, position: Position, taken: Outcome, rejects: Rejects, *, ended: bool) -> None:
        began = time.perf_counter()
        store = self._store

        # All or nothing: position, open windows, charges and events are in one transaction.
        with store.transaction():
            with crash_step(CrashPoint.SAVE_POSITION, self._crash):
                self._save_state(position, ended=ended)

            with crash_step(CrashPoint.SAVE_SNAPSHOT, self._crash):
                new, dropped = self._windows.changes()
                for number, columns in new.items():
                    store.put_chunk(OPEN_WINDOWS, number, columns)

                store.drop_chunks(OPEN_WINDOWS, dropped)

            # The charge is committed before a report leaves.
            with crash_step(CrashPoint.CHARGE_LEDGER, self._crash):
                refused = store.ledger.charge(taken.rows)

            with crash_step(CrashPoint.FILL_OUTBOX, self._crash):
                letters = release_dead_letter_lines(
                    self._letters.admit(rejects), self._source.name, PrivateDeadLetter
                )
                for events in (*taken.events, letters):
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
        } | ({} if self._runner.carried is None else {"carried": self._runner.carried})
        self._store.put_state("rounds", state)
        self._save_history()
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

        # The ledger is asked only where something was charged.
        if len(outcome.rows):
            stats.spent = self._spent()

        stats.rejected.update(rejects.reason)
        if refused_samples := self._intake.places.take_refused():
            stats.rejected["too_many_agents"] += refused_samples

        stats.full = self._intake.places.full
        stats.commits += 1
        self._see()

    def _spent(self) -> tuple[int, ...]:
        """Count users by the rounds they have paid for.

        The ledger keeps places for more users than there are.
        """
        # Users without a charge are in no row of the ledger.
        known = len(self._intake.names)
        spent = self._store.ledger.spent()[:known]
        return tuple(np.bincount(np.pad(spent, (0, known - len(spent))), minlength=1).tolist())

    def _see(self) -> None:
        stats = self.stats
        reached = self._intake.watermark
        stats.open_windows = len(self._windows)
        stats.waiting = len(self._waiting)
        stats.results_refused = self._waiting.refused
        stats.event_time = stats.watermark = known_time(reached)
