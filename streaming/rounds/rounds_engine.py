"""The engine of rounds.

Samples to windows, each window once to reports and an estimate, exactly once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from meanstream.operators.validation import require
from meanstream.streaming.agents.forget_agent import (
    ForgottenAgent,
    drop_name,
    drop_shown_widths,
    require_stored_name,
)
from meanstream.streaming.clock import Clock
from meanstream.streaming.crash import CrashHook, no_crash
from meanstream.streaming.engine.engine_delivery import ROUNDS_OUTBOX
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.keepers import (
    Commit,
    EndKeeper,
    IntakeKeeper,
    Keeper,
    KeptEngine,
    PiecesKeeper,
)
from meanstream.streaming.engine.letter_room import LetterRoom
from meanstream.streaming.engine.own_events import Key, OwnEvents, own_event_keys
from meanstream.streaming.events.encode import UNREADABLE, EventLines
from meanstream.streaming.events.event_columns import Batch, Position, Rejects
from meanstream.streaming.events.round_events import Charge, Report, WindowEstimate
from meanstream.streaming.events.times import known_time
from meanstream.streaming.events.wire import PrivateDeadLetter
from meanstream.streaming.rounds.open_windows import OpenWindows
from meanstream.streaming.rounds.predictions_table import PredictionsTable
from meanstream.streaming.rounds.round_runner import Directory, Outcome, RoundRunner
from meanstream.streaming.rounds.rounds_intake import RoundsIntake
from meanstream.streaming.rounds.rounds_settings import NO_ORDER, RoundsSettings
from meanstream.streaming.rounds.rounds_stats import RoundsStats
from meanstream.streaming.rounds.stage_results import StageResultsLocation
from meanstream.streaming.rounds.summarize_users import UserSums, summarize_entries
from meanstream.streaming.rounds.user_epsilons import UserEpsilons
from meanstream.streaming.rounds.user_places import OwnUsers, slot_key
from meanstream.streaming.rounds.user_side import WAITING_ROUNDS, WaitingRounds
from meanstream.streaming.rounds.window_round import NO_SIDES
from meanstream.streaming.rounds.window_widths import Window
from meanstream.streaming.sinks.sink_protocol import Sinks, check_sink_trust
from meanstream.streaming.sources.source_protocol import Source
from meanstream.streaming.store.spend_ledger import LedgerRows
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_identity import OF_USERS


class _OfRound(msgspec.Struct):
    round_id: str


_OF_ROUND = msgspec.json.Decoder(_OfRound)


def _round_key(line: bytes) -> Key | None:
    """Tell the round of an event; None if the line is none of a round.

    Examples
    --------
    >>> _round_key(b'{"round_id":"delays/2013","value":6.5}'), _round_key(b'a note of somebody else')
    (('delays/2013',), None)
    """
    try:
        return (_OF_ROUND.decode(line).round_id,)
    except UNREADABLE:
        return None


def _knows_rounds(store: Store, since: int, keys: set[Key]) -> bool:
    keys = keys - own_event_keys((line for _, _, line in store.outbox()), _round_key)
    return any(keys <= own_event_keys(store.ledger.after(seq), _round_key) for seq in (since, 0))


OWN_ANSWERS = (
    OwnEvents(role="means", option="sink", key=_round_key, knows=_knows_rounds),
    OwnEvents(role="stages", option="stages", key=_round_key, knows=_knows_rounds),
)
"""Of the sinks of rounds, besides reports."""


_log = logging.getLogger("meanstream.rounds")
OPEN_WINDOWS = "rounds_open"


class RoundsEngine(KeptEngine[RoundsStats, Outcome]):
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
    predictions : PredictionsTable, optional
        A forecast of users' means, where the settings have one.
    user_epsilons : UserEpsilons, optional
        Which epsilon each user accepts, where the settings have that.
    clock, crash, on_turn, health
        As for `meanstream.streaming.agents.agents_engine.Engine`.

    Notes
    -----
    **Privacy.** Everything that leaves is epsilon-differentially private with respect to all that one user sent within
    a window. Public are: who took part in which window, in an order that hangs on names alone. When windows close is
    public too (`WindowClosing`), and so are sessions' ends. `stats` is private: `public_stats`
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
        predictions: PredictionsTable | None = None,
        user_epsilons: UserEpsilons | None = None,
        clock: Clock | None = None,
        crash: CrashHook = no_crash,
        on_turn: Callable[[RoundsStats], None] | None = None,
        health: EngineHealth | None = None,
    ) -> None:
        # What cannot keep the promise is refused before a record is read.
        settings.require_user_privacy()
        settings.require_tables(
            prediction=predictions is not None, user_epsilons=user_epsilons is not None
        )
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
        self._intake = RoundsIntake(
            settings,
            options,
            source,
            self.stats,
            slot_key(secret),
            user_epsilons=user_epsilons,
        )
        self._windows = OpenWindows(settings.windows, self._intake.places)
        self._directory = Directory(self._intake.names)
        self._runner = RoundRunner(settings, secret, self._directory, predictions)
        self._waiting = WaitingRounds(settings, self._runner, self._directory)

        # Rejected records are private here: that their letters are full is in no log.
        letters = LetterRoom(
            store,
            options.max_dead_letters,
            self.stats,
            source.name,
            asked=sinks.dead_letters is not None,
            kind=PrivateDeadLetter,
        )
        self.keepers = [
            IntakeKeeper(self._intake, self.stats),
            self._waiting,
            EndKeeper(),
            self._runner,
            PiecesKeeper(OPEN_WINDOWS, self._windows),
            OutcomeKeeper(self._intake, store, self.stats),
            letters,
        ]

        # With a trusted curator, who takes part is charged and reports nothing.
        charged = Charge if settings.central else Report
        self.delivery = self._delivery_to(sinks, ROUNDS_OUTBOX, (charged, "reports"), OWN_ANSWERS)
        self._again = False  # a window or a stage was taken: there may be another one
        self._own_users = OwnUsers(source)
        self._homes_unknown = False  # whether a window waits to know who lives here

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self._again = True  # the last commit may have left windows that have ended

    def _begun(self) -> dict[str, Any]:
        begun = super()._begun()
        self._see()
        return begun

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
        self.delivery.deliver(stop)

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
        self._runner.begin_turn(self._store.ledger.spent())
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
            lives_here = np.isin(sums.user, user[own])
            self.stats.rejected["other_store"] += int(sums.count[~lives_here].sum())

            if (
                lives_here.any()
            ):  # a window of others alone is none: that there was one would tell of them
                return window, sums.take(lives_here)

        return None

    def _charges(self, taken: Outcome) -> LedgerRows:
        return taken.rows

    def _commit(self, position: Position, taken: Outcome, rejects: Rejects, *, ended: bool) -> None:
        super()._commit(position, taken, rejects, ended=ended)
        self._see()

    def _see(self) -> None:
        stats = self.stats
        reached = self._intake.watermark
        stats.open_windows = len(self._windows)
        stats.waiting = len(self._waiting)
        stats.results_refused = self._waiting.refused
        stats.event_time = stats.watermark = known_time(reached)


class OutcomeKeeper(Keeper[Outcome]):
    """Lets the events of rounds out, and counts what became of them and what users have spent."""

    def __init__(self, intake: RoundsIntake, store: Store, stats: RoundsStats) -> None:
        self._intake = intake
        self._store = store
        self._stats = stats

    def begin(self) -> dict[str, Any]:
        """Count what users have spent; users and times of samples are not for logs."""
        self._stats.spent = self._spent()
        return {}

    def post(self, commit: Commit[Outcome]) -> Iterable[EventLines]:
        """Give the events."""
        return commit.taken.events

    def count(self, commit: Commit[Outcome]) -> None:
        """Count rounds, answers and charges."""
        stats = self._stats
        outcome = commit.taken
        stats.releases += len(commit.rows) - len(commit.refused)
        stats.refusals += len(commit.refused)
        stats.rounds += outcome.finished
        stats.over_budget += outcome.refused

        answers = [line for e in outcome.events if e.kind is WindowEstimate for line in e.lines]
        stats.estimates += len(answers)
        stats.answer = answers[-1] if answers else stats.answer
        stats.answers_of_turn = tuple(answers)

        # The ledger is asked only where something was charged.
        if len(commit.rows):
            stats.spent = self._spent()

        if refused_samples := self._intake.places.take_refused():
            stats.rejected["too_many_agents"] += refused_samples

        stats.full = self._intake.places.full

    def _spent(self) -> tuple[int, ...]:
        """Count users by the rounds they have paid for.

        The ledger keeps places for more users than there are.
        """
        # Users without a charge are in no row of the ledger.
        n_users = len(self._intake.names)
        spent = self._store.ledger.spent()[:n_users]
        return tuple(np.bincount(np.pad(spent, (0, n_users - len(spent))), minlength=1).tolist())


def forget_user(store: Store, name: str) -> ForgottenAgent:
    """Erase all that is private of a user of rounds from a store at rest.

    Raises
    ------
    StoreError
        If the store is of another kind or does not have the user, or someone reads the store
        meanwhile.

    Notes
    -----
    **Privacy.** Sums of the user's windows are overwritten in the file; a window that closes later is answered without
    the user. Reports were protected by epsilon when they left, and stay. The spent budget stays with the name; a user
    who has spent nothing leaves no name. Samples that come later count again, within what is left of the budget.
    """
    _, number, rounds = require_stored_name(store, OF_USERS, "user", name)
    with store.transaction():
        dropped = sum(_drop_sums(store, kind, number) for kind in (OPEN_WINDOWS, WAITING_ROUNDS))
        drop_shown_widths(store)

        if not rounds:
            drop_name(store, number)

    store.erase_deleted()
    return ForgottenAgent(name, rounds, dropped, name_kept=rounds > 0)


def _drop_sums(store: Store, kind: str, number: int) -> int:
    """Drop a user's rows of all windows; return how many samples they were."""
    samples = 0
    for chunk, columns in list(store.chunks(kind)):
        kept = columns["user"] != number
        if kept.all():
            continue
        samples += int(columns["count"][~kept].sum())

        if kind == OPEN_WINDOWS and not kept.any():  # a window of this user alone is none
            store.drop_chunks(kind, [chunk])
            continue

        rows = {
            name: column if name == "window" else column[kept] for name, column in columns.items()
        }
        store.put_chunk(kind, chunk, rows)

    return samples
