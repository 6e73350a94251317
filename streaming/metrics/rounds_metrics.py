"""What the engine of rounds shows to Prometheus."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

import msgspec

from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.metrics.engine_metrics import (
    DISTRIBUTIONS,
    LIVE,
    Families,
    HasBounds,
    Metrics,
)
from meanstream.streaming.metrics.metric_records import carried_figures
from meanstream.streaming.rounds.rounds_stats import (
    REFUSED_REPORTS,
    public_stats,
    rounds_stats,
    statistician_stats,
)
from meanstream.streaming.rounds.window_widths import MICROS, Windows

_STATS = {
    "rounds": "rounds",
    "rounds_reports": "releases",
    "rounds_over_budget": "over_budget",
    "rounds_results_refused": "results_refused",
}
"""Name of a counter, and of the figure that it shows."""


class HasWindows(HasBounds, Protocol):
    """The settings that metrics of rounds need."""

    @property
    def window(self) -> str:
        """Windows, as `Windows.parse` reads them."""


class RoundsMetrics(Metrics):
    """Turns the public figures of an engine of rounds into Prometheus metrics.

    An agent is a user here.

    What both engines have keeps its name. Of the answers only the newest is shown: the windows of a
    replay come faster than anyone scrapes, and all of them are in the sink of the means.

    Notes
    -----
    **Privacy.** Rounds protect how many samples a user sends and when: shown is `public_stats` of
    the figures, whatever is observed, that is who reported, how often, what was answered and how
    long ago. The rest is shown by `PrivateRoundsMetrics`. The answer shown is a public event
    (`round_events.WindowEstimate`), made of reports alone.
    """

    families = Families(
        connections=True,
        counters={
            "rounds": "Rounds that came to their end.",
            "rounds_reports": "Reports charged in the ledger, one per user and round.",
            "rounds_over_budget": (
                "How often a user's data did not enter a round, because the budget does not pay "
                "for it."
            ),
            "rounds_results_refused": (
                "Different results of stages that no stage can have found, and were not accepted."
            ),
        },
        gauges={
            "agents": "Users who have been charged for a round.",
            "agents_exhausted": (
                "Users whose budget pays for no further round; only where there is a budget."
            ),
            "budget_spent_ratio_max": "Share of its rounds that the user who spent most has spent.",
            "rounds_waiting": "Rounds that wait for the result of a stage.",
            "rounds_window_end_timestamp_seconds": "End of the newest window that was answered.",
            "rounds_window_users": "Users whose reports were counted in it.",
            "rounds_value": "Its mean, in the values' unit.",
            "rounds_lower": "Lower end of its interval.",
            "rounds_upper": "Upper end of its interval.",
            "rounds_half_width": "Half the length of its interval.",
            "rounds_stages": "Stages of its round.",
            "rounds_carried_windows": (
                "Windows behind the knowledge that is carried into the next one."
            ),
            "rounds_carried_half_width": (
                "Half-width of where the next round's narrow reports lie, in the values' unit."
            ),
            "rounds_carried_gain": (
                "Standard error with nothing carried and all users on the bounds, over its own."
            ),
            "rounds_period_seconds": (
                "Time from the begin of a window to that of the next; none of sessions."
            ),
            "allowed_lateness_seconds": (
                "How long a window stays open behind its end, where the source has no end."
            ),
        },
        distributions={"budget_spent_ratio": DISTRIBUTIONS["budget_spent_ratio"]},
        live={name: LIVE[name] for name in ("ready", "ledger_rows", "start_timestamp_seconds")}
        | {
            "rounds_answer_age_seconds": "Seconds since the last round came to its end, or since the start."
        },
    )

    def __init__(self, *, settings: HasWindows, **options: Any) -> None:
        super().__init__(settings=settings, **options)
        windows = Windows.parse(settings.window)
        self.period = None if windows.kind == "session" else windows.period / MICROS
        self._bounds = settings.lower, settings.upper
        self._answered_at = self._began
        self._rounds = 0

    def observe(self, stats: EngineStats) -> None:
        """Take the newest public figures."""
        public = public_stats(rounds_stats(stats))
        self.note_answers(public.rounds)
        super().observe(public)

    def note_answers(self, rounds: int) -> None:
        """Note how many rounds have come to their end, and when it was that there was one more."""
        if rounds > self._rounds:
            self._rounds = rounds
            self._answered_at = self._clock.now()

    def _own(self, stats: EngineStats) -> dict[str, Any]:
        stats = rounds_stats(stats)
        return {
            **{name: getattr(stats, figure) for name, figure in _STATS.items()},
            "rounds_waiting": stats.waiting,
            "rounds_period_seconds": self.period,
            **({} if stats.answer is None else window_answer_figures(stats.answer)),
            **(
                {} if stats.answer is None else _carried_window_figures(stats.answer, *self._bounds)
            ),
        }

    def _live(self, watermark: float | None) -> dict[str, float | None]:
        age = max(self._clock.now() - self._answered_at, 0.0)
        return {**super()._live(watermark), "rounds_answer_age_seconds": age}


class _Answer(msgspec.Struct):
    end: datetime
    value: float | list[float]
    interval: list[Any]
    users: int
    stages: list[dict[str, Any]]


_ANSWER = msgspec.json.Decoder(_Answer)


def window_answer_figures(line: bytes) -> dict[str, float]:
    """Take the figures from the line of a window estimate."""
    answer = _ANSWER.decode(line)
    shown = {
        "rounds_window_end_timestamp_seconds": answer.end.timestamp(),
        "rounds_window_users": answer.users,
        "rounds_stages": len(answer.stages),
    }

    if isinstance(answer.value, list):  # a vector has no one number to show
        return shown
    lower, upper = answer.interval
    return shown | {
        "rounds_value": answer.value,
        "rounds_lower": lower,
        "rounds_upper": upper,
        "rounds_half_width": (upper - lower) / 2,
    }


def _carried_window_figures(
    line: bytes, lower: float | tuple[float, ...], upper: float | tuple[float, ...]
) -> dict[str, float | None]:
    """Take what is carried on from the line of a window estimate; nothing where nothing is."""
    if isinstance(lower, tuple) or isinstance(upper, tuple):  # of a vector nothing is carried
        return {}
    figures = carried_figures(msgspec.json.decode(line), lower, upper)
    names = ("windows", "half_width", "gain")

    if figures is None:
        return {}
    return {f"rounds_carried_{name}": figures[name] for name in names}


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
    **Privacy.** All that this side reads are reports, which everyone may read: its counts say
    nothing else.
    """

    families = Families(
        connections=True,
        counters={
            "rounds": "Rounds that were answered.",
            "statistician_reports": "Reports of users' sides that were read.",
            "statistician_stages": "Results of stages that were found.",
        },
        gauges={name: RoundsMetrics.families.gauges[name] for name in _OF_WINDOWS}
        | {
            "rounds_waiting": "Rounds of which the reports of a stage are not complete.",
            "allowed_lateness_seconds": (
                "How long users' sides leave a window open behind its end, by the clock."
            ),
        },
        live={name: LIVE[name] for name in ("ready", "start_timestamp_seconds")}
        | {"rounds_answer_age_seconds": RoundsMetrics.families.live["rounds_answer_age_seconds"]},
        reasons=REFUSED_REPORTS,
    )

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
