"""What the statistician's side counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meanstream.streaming.engine.engine_stats import EngineStats

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
    if not isinstance(stats, StatisticianStats):
        raise TypeError(f"figures must be of a statistician, got {type(stats).__name__}")
    return stats
