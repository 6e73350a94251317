"""What the engine of rounds counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from meanstream.streaming.engine.engine_stats import EngineStats, stats_of


@dataclass(slots=True)
class RoundsStats(EngineStats):
    """Private: counts since the process started; `agents` are the users, `releases` their reports.

    Attributes
    ----------
    rounds : int
        Rounds that came to their end.
    open_windows, waiting : int
        Windows that still take samples; rounds that wait for the result of a stage.
    over_budget : int
        How often a user's data did not enter a round, because the budget does not pay for it.
    results_refused : int
        Different results of stages that were not accepted, because the stage cannot have found
        them.
    answer : bytes or None
        The newest window estimate, as its line: public.
    answers_of_turn : tuple of bytes
        All window estimates of the last turn, likewise.
    """

    rounds: int = 0
    open_windows: int = 0
    waiting: int = 0
    over_budget: int = 0
    results_refused: int = 0
    answer: bytes | None = None
    answers_of_turn: tuple[bytes, ...] = field(
        default=(), compare=False
    )  # a turn without answers shows nothing new


def rounds_stats(stats: EngineStats) -> RoundsStats:
    """Take figures that an engine of rounds has given.

    Those of another engine are public where these are not.
    """
    return stats_of(stats, RoundsStats, "an engine of rounds")


def public_stats(stats: RoundsStats) -> RoundsStats:
    """Give what anyone may know of an engine of rounds: the rest is as if nothing had been read.

    **Privacy.** Rounds protect how many samples a user sends, and when. Users are those who have
    been charged, so that no one is seen before a window with data of it has ended. What is left out
    is private: how many records were read, used, not used, clipped; event times, lags, windows that
    are open, batches.
    """
    return RoundsStats(
        agents=sum(stats.spent[1:]),
        releases=stats.releases,
        lateness=stats.lateness,
        estimates=stats.estimates,
        spent=(0, *stats.spent[1:]) if stats.spent else (),
        rounds=stats.rounds,
        waiting=stats.waiting,
        over_budget=stats.over_budget,
        results_refused=stats.results_refused,
        answer=stats.answer,
        answers_of_turn=stats.answers_of_turn,
    )


REFUSED_REPORTS = (
    *("duplicate", "invalid", "late", "malformed"),
    *("other_epsilon", "other_round", "oversized", "wrong_stage"),
)
"""Reasons for which a report, or a line, is not used."""


@dataclass(slots=True)
class StatisticianStats(EngineStats):
    """Public: counts since the process started, all of them of reports, which everyone may read.

    `rejected` counts reports and lines that were not used, by reason (`REFUSED_REPORTS`),
    `estimates` the windows that were answered.

    Attributes
    ----------
    reports : int
        Reports that were read.
    stages : int
        Results of stages that were found.
    rounds : int
        Rounds that are known.
    waiting : int
        Rounds of which the reports of a stage are not complete.
    answer : bytes or None
        The newest window estimate, as its line.
    """

    reports: int = 0
    stages: int = 0
    rounds: int = 0
    waiting: int = 0
    answer: bytes | None = None

    def summary(self) -> dict[str, Any]:
        """Say what was done."""
        return {
            "reports": self.reports,
            "rejected": dict(sorted(self.rejected.items())),
            "stages": self.stages,
            "estimates": self.estimates,
            "rounds": self.rounds,
            "waiting": self.waiting,
        }


def statistician_stats(stats: EngineStats) -> StatisticianStats:
    """Take figures of a statistician's side; those of an engine mean something else."""
    return stats_of(stats, StatisticianStats, "a statistician")
