"""What the engine of rounds shows to Prometheus."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

from streaming.metrics import COUNTERS, DISTRIBUTIONS, GAUGES, Metrics
from streaming.rounds.stats import RoundsStats
from streaming.stats import EngineStats

_STATS = {"rounds": "rounds", "rounds_reports": "releases", "rounds_over_budget": "over_budget"}
"""Name of a counter, and of the figure that it shows."""


class RoundsMetrics(Metrics):
    """Turns the figures of an engine of rounds into Prometheus metrics; an agent is a user here.

    What both engines have keeps its name. Of the answers only the newest is shown: the windows of a replay come faster
    than anybody scrapes, and all of them are in the sink of the means.

    Notes
    -----
    **Privacy.** As for `streaming.metrics.Metrics`: counts, times and what was released. The answer shown is a public
    event (`streaming.events.WindowEstimate`), made of reports alone.
    """

    counters: ClassVar[dict[str, str]] = {
        "events": COUNTERS["events"],
        "refusals": COUNTERS["refusals"],
        "rounds": "Rounds that came to their end.",
        "rounds_reports": "Reports charged in the ledger, one per user and round.",
        "rounds_over_budget": "How often a user's data did not enter a round, because the budget does not pay for it.",
    }
    gauges: ClassVar[dict[str, str]] = {
        "agents": "Users with at least one good sample.",
        "agents_exhausted": "Users whose budget pays for no further round; only where there is a budget.",
        "budget_spent_ratio_max": "Share of its rounds that the user who spent most has spent.",
        "input_lag_events": GAUGES["input_lag_events"],
        "rounds_open_windows": "Windows that still take samples.",
        "rounds_waiting": "Rounds that wait for the result of a stage.",
        "rounds_window_end_timestamp_seconds": "End of the newest window that was answered.",
        "rounds_window_users": "Users whose reports were counted in it.",
        "rounds_value": "Its mean, in the values' unit.",
        "rounds_lower": "Lower end of its interval.",
        "rounds_upper": "Upper end of its interval.",
        "rounds_half_width": "Half the length of its interval.",
        "rounds_stages": "Stages of its round.",
    }
    distributions: ClassVar[dict[str, str]] = {"budget_spent_ratio": DISTRIBUTIONS["budget_spent_ratio"]}

    def _own(self, stats: EngineStats) -> dict[str, Any]:
        assert isinstance(stats, RoundsStats)  # noqa: S101 - given by the engine of rounds only
        return {
            "events": stats.events,
            "refusals": stats.refusals,
            **{name: getattr(stats, figure) for name, figure in _STATS.items()},
            "rounds_open_windows": stats.open_windows,
            "rounds_waiting": stats.waiting,
            **({} if stats.answer is None else _answer(stats.answer)),
        }


class _Answer(msgspec.Struct):
    end: datetime
    value: float | list[float]
    interval: list[Any]
    users: int
    stages: list[dict[str, Any]]


_ANSWER = msgspec.json.Decoder(_Answer)


def _answer(line: bytes) -> dict[str, float]:
    """Take the figures from the line of a window estimate."""
    found = _ANSWER.decode(line)
    shown = {
        "rounds_window_end_timestamp_seconds": found.end.timestamp(),
        "rounds_window_users": found.users,
        "rounds_stages": len(found.stages),
    }
    if isinstance(found.value, list):  # a vector has no one number to show
        return shown
    lower, upper = found.interval
    return shown | {
        "rounds_value": found.value,
        "rounds_lower": lower,
        "rounds_upper": upper,
        "rounds_half_width": (upper - lower) / 2,
    }
