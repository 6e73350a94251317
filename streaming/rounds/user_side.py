"""The users' side alone.

Rounds that wait for what the statistician finds, and go on when it is published.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanstream.operators.rounds.round_records import Public
from meanstream.streaming.engine.keepers import Commit, Keeper
from meanstream.streaming.rounds.round_runner import Directory, Outcome, RoundRunner
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.stage_results import (
    StageResults,
    StageResultsLocation,
    first_accepted_result,
    shape_of_result,
)
from meanstream.streaming.rounds.summarize_users import UserSums
from meanstream.streaming.rounds.window_round import WindowRound
from meanstream.streaming.rounds.window_widths import Window
from meanstream.streaming.store.state_store import Store

WAITING_ROUNDS = "rounds_waiting"
MOST_LOGGED = 1000
"""So many refused results of stages are a line of the log each; those after them are counted
only."""
_MOST_NOTED = 10_000  # before those of rounds that have ended are forgotten

_log = logging.getLogger("meanstream.rounds")


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Private: a round, the users that no stage has asked yet, and the stage whose result is waited for.

    `pinned` is what was accepted of the stages before it, in order; None in states that did not
    keep it.
    """

    this: WindowRound
    sums: UserSums
    stage: int
    pinned: tuple[Public, ...] | None = ()


class WaitingRounds(Keeper[Outcome]):
    """Rounds between two stages; saved with the sums of the users who have not reported yet.

    **Privacy.** A user reports once, in its own stage, upon the first result of the stage before that is accepted:
    that stage can have found it, and it follows upon what was accepted before. It is kept with the round; another one
    that comes later is refused. What the statistician publishes can make reports useless; it can neither make them
    less private nor find out, by what stops or is left out, what someone holds.
    """

    def __init__(self, settings: RoundsSettings, runner: RoundRunner, directory: Directory) -> None:
        self._settings = settings
        self._runner = runner
        self.directory = directory
        self._rounds: dict[int, _Waiting] = {}
        self._next = 0
        self._changed: set[int] = set()
        self._dropped: list[int] = []
        self._noted: set[tuple[str, int, str]] = set()
        self._refused = 0

    def __len__(self) -> int:
        return len(self._rounds)

    @property
    def refused(self) -> int:
        """Public: how many different results of stages were refused since the process began."""
        return self._refused

    def reserve(self) -> None:
        """Count these rounds for their users."""
        for waiting in self._rounds.values():
            self._runner.reserve(waiting.sums.user)

    def enter(self, this: WindowRound, sums: UserSums, outcome: Outcome) -> None:
        """Begin a round: the users of its first stage report."""
        self._ask(self._next, _Waiting(this, sums, -1), {}, outcome)
        self._next += 1

    def go_on(self, file: StageResultsLocation, outcome: Outcome) -> bool:
        """Let the users of one round report whose stage comes after a result that is there.

        Say whether any did.
        """
        # One round a commit, the earliest first.
        results = file.read({waiting.this.id for waiting in self._rounds.values()})
        for number, waiting in sorted(self._rounds.items()):
            current = self._with_pins(waiting, results)
            public = self._accepted(current, results)
            if public is not None:
                self._ask(number, current, public, outcome)
                return True

        return False

    def _accepted(self, waiting: _Waiting, results: StageResults) -> Public | None:
        """Give the first result of the stage that is accepted, if what was accepted before is known."""
        # What users have reported upon decides which results can follow.
        this = waiting.this
        stage = waiting.stage
        pinned = waiting.pinned
        if pinned is None:
            return None

        # Another result for a stage that was reported upon is refused, and said.
        for before, public in enumerate(pinned):
            others = (r for r in results.get((this.id, before), ()) if r.public != public)
            for _ in others:
                self._note(
                    this.id,
                    before,
                    "stage result: it must be the one that users have reported upon",
                )

        # The first result that can have come from these reports.
        came = results.get((this.id, stage), ())
        public = pinned[-1] if pinned else {}
        accepted, refused = first_accepted_result(
            this, public, came, shape=shape_of_result(waiting.sums.total)
        )

        for why in refused:
            self._note(this.id, stage, why)

        return accepted

    def _with_pins(self, waiting: _Waiting, results: StageResults) -> _Waiting:
        """Find what users have reported upon in a round whose state did not keep it.

        The first result of each stage.
        """
        # Older states did not keep what was accepted: it is found again from the results.
        if waiting.pinned is not None:
            return waiting
        this = waiting.this
        pinned: list[Public] = []

        for stage in range(waiting.stage):
            came = results.get((this.id, stage), ())
            accepted, _ = first_accepted_result(
                this, pinned[-1] if pinned else {}, came, shape=shape_of_result(waiting.sums.total)
            )

            if accepted is None:
                return waiting
            pinned.append(accepted)

        return _Waiting(this, waiting.sums, waiting.stage, tuple(pinned))

    def _note(self, round_id: str, stage: int, why: str) -> None:
        # A refusal is said once; all of them are counted.
        """Say once that a result was refused, and why: all of it is public."""
        noted = (round_id, stage, why)
        if noted in self._noted:
            return

        if (
            len(self._noted) >= _MOST_NOTED
        ):  # of a round that waits at most some are looked at (`MOST_TRIED`)
            waiting = {note.this.id for note in self._rounds.values()}
            self._noted = {note for note in self._noted if note[0] in waiting}

        self._noted.add(noted)
        self._refused += 1

        if self._refused <= MOST_LOGGED:
            _log.warning(
                "a stage result was refused",
                extra={"round_id": round_id, "stage": stage, "rule": why},
            )
        elif self._refused == MOST_LOGGED + 1:
            _log.warning(
                "further refused stage results are only counted", extra={"told": MOST_LOGGED}
            )

    def note(self, store: Store, commit: Commit[Outcome]) -> dict[str, Any]:  # noqa: ARG002
        """Write what changed within a transaction; give the rest as plain values."""
        for number in sorted(self._changed):
            store.put_chunk(WAITING_ROUNDS, number, dict(self._rounds[number].sums.columns()))

        store.drop_chunks(WAITING_ROUNDS, self._dropped)
        self._changed = set()
        self._dropped = []
        waiting = [
            [n, *w.this.window, w.this.users, w.stage, w.pinned]
            for n, w in sorted(self._rounds.items())
        ]
        return {"waiting": waiting}

    def restore(self, store: Store, state: Mapping[str, Any]) -> None:
        """Continue from what was saved."""
        sums = dict(store.chunks(WAITING_ROUNDS))
        for number, start, end, users, stage, *kept in state["waiting"]:
            this = WindowRound(self._settings, Window(start, end), users)
            pinned = _pinned(stage, kept)
            self._rounds[number] = _Waiting(this, UserSums(**sums[number]), stage, pinned)
            self._next = number + 1

    def _ask(
        self, number: int, waiting: _Waiting, public: Public, outcome: Outcome
    ) -> _Waiting | None:
        """Make the reports of the next stage; give what still waits."""
        # Users of this stage report; the others wait for the next one.
        this = waiting.this
        stage = waiting.stage + 1
        self._runner.report(this, stage, public, waiting.sums, outcome)

        # After the last stage nothing waits.
        if stage == this.stages[-1]:
            if self._rounds.pop(number, None) is not None:
                self._changed.discard(number)
                self._dropped.append(number)

            outcome.finished += 1
            return None

        # Who has been asked is done: everyone reports once.
        asked = this.stage_of(self.directory.words(waiting.sums.user)) <= stage
        pinned = (*(waiting.pinned or ()), public) if stage else ()
        rest = _Waiting(this, waiting.sums.take(np.flatnonzero(~asked)), stage, pinned)
        self._rounds[number] = rest
        self._changed.add(number)

        return rest


def _pinned(stage: int, kept: list[Any]) -> tuple[Public, ...] | None:
    """Read what was accepted before.

    A state that does not say it knows only that nothing was, for the first stage.
    """
    if kept and kept[0] is not None:
        return tuple(kept[0])

    if stage:
        return None
    return ()
