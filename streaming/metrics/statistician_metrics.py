"""What the statistician's side of rounds shows to Prometheus."""

from __future__ import annotations

from typing import Any, ClassVar

from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.metrics.engine_metrics import Metrics
from meanstream.streaming.metrics.families import LIVE
from meanstream.streaming.metrics.rounds_metrics import RoundsMetrics, window_answer_figures
from meanstream.streaming.rounds.sides.statistician_stats import REFUSED_REPORTS, statistician_stats

_OF_WINDOWS = (
    *(
        "rounds_waiting",
        "rounds_window_end_timestamp_seconds",
        "rounds_window_users",
        "rounds_value",
    ),
    *(
        "rounds_lower",
        "rounds_upper",
        "rounds_half_width",
        "rounds_stages",
        "rounds_period_seconds",
    ),
)


class StatisticianMetrics(RoundsMetrics):
    """Turns the figures of a statistician's side into Prometheus metrics.

    What the engine has, too, keeps its name.

    Notes
    -----
    **Privacy.** All that this side reads are reports, which everyone may read: its counts say nothing else.
    """

    counters: ClassVar[dict[str, str]] = {
        "rounds": "Rounds that were answered.",
        "statistician_reports": "Reports of users' sides that were read.",
        "statistician_stages": "Results of stages that were found.",
    }
    gauges: ClassVar[dict[str, str]] = {
        name: RoundsMetrics.gauges[name] for name in _OF_WINDOWS
    } | {
        "rounds_waiting": "Rounds of which the reports of a stage are not complete.",
        "allowed_lateness_seconds": "How long users' sides leave a window open behind its end, by the clock.",
    }
    distributions: ClassVar[dict[str, str]] = {}
    live: ClassVar[dict[str, str]] = {
        name: LIVE[name] for name in ("ready", "start_timestamp_seconds")
    } | {"rounds_answer_age_seconds": RoundsMetrics.live["rounds_answer_age_seconds"]}
    reasons: ClassVar[tuple[str, ...]] = REFUSED_REPORTS

    def observe(self, stats: EngineStats) -> None:
        """Take the newest figures."""
        self.note_answers(stats.estimates)
        Metrics.observe(self, stats)

    def _own(self, stats: EngineStats) -> dict[str, Any]:
        stats = statistician_stats(stats)
        return {
            "rounds": stats.estimates,
            "statistician_reports": stats.reports,
            "statistician_stages": stats.stages,
            "rounds_waiting": stats.waiting,
            "rounds_period_seconds": self.period,
            **({} if stats.answer is None else window_answer_figures(stats.answer)),
        }
