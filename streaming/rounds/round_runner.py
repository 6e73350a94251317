"""Running the round of a window that has ended.

Who takes part, reports as ledger rows, results as events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.records import Ints, Words
from meanstream.operators.rounds.round_records import Estimate, Public, Tally
from meanstream.streaming.engine.keepers import Commit, Keeper
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.rounds.predicted_round import begin_round
from meanstream.streaming.rounds.predictions_table import PredictionsTable
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.summarize_users import UserSums
from meanstream.streaming.rounds.window_round import (
    WindowRound,
    complete_event_line,
    curator_charge_lines,
    curator_noise_once,
    curator_sum,
    estimate_event_line,
    refusal_event_lines,
    report_event_lines,
    stage_event_line,
)
from meanstream.streaming.rounds.window_widths import MICROS, Window
from meanstream.streaming.store.spend_ledger import LedgerRows
from meanstream.streaming.store.state_store import Store

Ask = Callable[[int, Public], tuple[Tally, Public | Estimate]]
"""From a stage and what those before it found: the stage's tally, and what it found."""


@dataclass(slots=True)
class Outcome:
    """What rounds have made, to be committed together.

    Attributes
    ----------
    rows : LedgerRows
        Reports, each charged to its user; charges for an answer, by a trusted curator.
    events : list of EventLines
        Public events next to the reports.
    refused : int
        Users whose data did not enter, because their budget does not pay for another round.
    finished : int
        Rounds that came to their end.
    """

    rows: LedgerRows = field(
        default_factory=lambda: LedgerRows(
            agent=[], release_index=[], input_version=[], time=[], output=[]
        )
    )
    events: list[EventLines] = field(default_factory=list)
    refused: int = 0
    finished: int = 0


class Directory:
    """Names of the users by number, and the hash of each, made once."""

    def __init__(self, names: list[str]) -> None:
        self.names = names  # grows
        self._words: Words = np.zeros((0, 2), np.uint64)

    def words(self, user: Ints) -> Words:
        """Give the hashes of some users."""
        if len(self._words) < len(self.names):
            self._words = np.concatenate(
                [self._words, keyed_owner_words(self.names[len(self._words) :])]
            )

        return self._words[user]

    def of(self, user: Ints) -> list[str]:
        """Give the names of some users."""
        return list(map(self.names.__getitem__, user.tolist()))


def rounds_run_order(words: Words) -> Ints:
    """Give the order of users by the hash of their names.

    Public, whenever and however often someone was seen.

    **Privacy.** In the order of arrival, reports would tell whose sample came before whose.
    """
    order = np.argsort(words[:, 0], kind="stable")
    first = words[order, 0]

    if (first[1:] == first[:-1]).any():
        return np.lexsort((words[:, 1], words[:, 0]))
    return order


class RoundRunner(Keeper[Outcome]):
    """Makes the reports of ended windows and what follows from them.

    Parameters
    ----------
    settings : RoundsSettings
        What the parties agreed on, and the budget of a user.
    secret : bytes
        Key of the noise.
    directory : Directory
        The users.
    predictions : PredictionsTable, optional
        A forecast of users' means, where the settings have one.

    Notes
    -----
    **Privacy.** A user makes one report per round, in the stage that a public hash of its name says, and none if its
    budget does not pay for it: then its data does not enter. Reports are ledger rows; anyone who calls this commits
    them before anything is written. With a trusted curator the ledger rows are the charges of everyone who takes part.
    """

    def __init__(
        self,
        settings: RoundsSettings,
        secret: bytes,
        directory: Directory,
        predictions: PredictionsTable | None = None,
    ) -> None:
        # Who accepts too little does not get here.
        settings.require_tables(prediction=predictions is not None, user_epsilons=True)
        self._settings = settings
        self._predictions = predictions
        self._secret = secret
        self.directory = directory
        self._reserved: Ints = np.zeros(
            0, np.int64
        )  # rounds that each user has paid for or entered
        self._index: Ints = np.zeros(0, np.int64)  # rounds that each user has paid for
        self.carried: Public | None = (
            None  # what the last window's public results show the next one
        )

    def restore(self, store: Store, state: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Go on with what is carried."""
        self.carried = state.get("carried")

    def note(self, store: Store, commit: Commit[Outcome]) -> dict[str, Any]:  # noqa: ARG002
        """Give what is carried."""
        return {} if self.carried is None else {"carried": self.carried}

    def begin_turn(self, charged: Ints) -> None:
        """Start a turn: that many rounds are charged to each user, by number."""
        missing = max(len(self.directory.names) - len(charged), 0)
        self._index = np.r_[charged, np.zeros(missing, np.int64)]
        self._reserved = self._index.copy()

    def reserve(self, user: Ints) -> None:
        """Count a round that these users have entered and not reported in."""
        self._reserved[user] += 1

    def enter(
        self, window: Window, sums: UserSums, outcome: Outcome
    ) -> tuple[WindowRound, UserSums]:
        """Decide who takes part in the round of a window, and reserve it for them."""
        horizon = self._settings.horizon
        spent = self._reserved[sums.user]
        pays = np.ones(len(sums), np.bool_) if horizon is None else spent < horizon
        taking = sums if pays.all() else sums.take(pays)
        words = self.directory.words(taking.user)
        this = begin_round(self._settings, window, words, self.carried, self._predictions)

        if len(taking) < len(sums):
            out = np.flatnonzero(~pays)
            out = out[rounds_run_order(self.directory.words(sums.user[out]))]
            refused = sums.user[out]
            outcome.events.append(refusal_event_lines(this, self.directory.of(refused), spent[out]))
            outcome.refused += len(refused)

        self.reserve(taking.user)
        return this, taking

    def report(
        self, this: WindowRound, stage: int, public: Public, sums: UserSums, outcome: Outcome
    ) -> Tally:
        """Make the reports of one stage, from those of its users who are given.

        Return their tally.
        """
        words = self.directory.words(sums.user)
        of_stage = np.flatnonzero(this.stage_of(words) == stage)
        of_stage = of_stage[rounds_run_order(words[of_stage])]
        asked = sums.take(of_stage)
        summaries = asked.summaries(words[of_stage], self._settings.grid)
        reports, version = this.charged_reports(self._secret, stage, public, summaries)
        lines = report_event_lines(this, stage, self.directory.of(asked.user), reports)
        self._charge(outcome.rows, asked.user, version, this.window, lines.lines)
        outcome.events.append(complete_event_line(this, stage, len(asked)))

        return this.tally(stage, public, reports, words[of_stage])[0]

    def run(self, this: WindowRound, sums: UserSums, outcome: Outcome) -> None:
        """Run all stages at once, where both sides are here."""
        if self._settings.central:
            self._curate(this, sums, outcome)
        else:

            def ask(stage: int, public: Public) -> tuple[Tally, Public | Estimate]:
                tally = self.report(this, stage, public, sums, outcome)
                outcome_of_stage = this.decode(stage, public, tally)
                if isinstance(outcome_of_stage, Estimate):
                    self.carried = this.carried_after(outcome_of_stage)

                return tally, outcome_of_stage

            _run_stages(this, ask, len(sums), outcome)

        outcome.finished += 1

    def _curate(self, this: WindowRound, sums: UserSums, outcome: Outcome) -> None:
        """Run all releases of a trusted curator.

        Everyone who takes part is charged for the answer.
        """
        sums = sums.take(rounds_run_order(self.directory.words(sums.user)))
        summaries = sums.summaries(self.directory.words(sums.user), self._settings.grid)

        def ask(release: int, public: Public) -> tuple[Tally, Public | Estimate]:
            tally = curator_sum(this, release, public, summaries)
            return tally, curator_noise_once(this, self._secret, release, public, tally)

        _run_stages(this, ask, len(sums), outcome)
        number = self._index[sums.user] + 1
        lines = curator_charge_lines(this, self.directory.of(sums.user), number, outcome.events[-1])
        self._charge(
            outcome.rows,
            sums.user,
            this.versions(self._secret, 0, {}, summaries),
            this.window,
            lines.lines,
        )

    def _charge(
        self, rows: LedgerRows, user: Ints, version: Ints, window: Window, lines: Sequence[bytes]
    ) -> None:
        self._index[user] += 1
        index = self._index[user].tolist()
        number = user.tolist()
        rows.agent.extend(number)
        rows.release_index.extend(index)
        rows.input_version.extend(version.tolist())
        rows.time.extend([window.end / MICROS] * len(number))
        cast("list[bytes]", rows.output).extend(lines)  # the list of `Outcome`


def _run_stages(this: WindowRound, ask: Ask, users: int, outcome: Outcome) -> None:
    """Ask one stage after the other, each with what those before it found.

    The last event is the answer.
    """
    public: Public = {}
    for stage in this.stages:
        tally, result = ask(stage, public)
        if isinstance(result, Estimate):
            outcome.events.append(estimate_event_line(this, result, users))
        else:
            public = result
            outcome.events.append(stage_event_line(this, stage, tally, public))
