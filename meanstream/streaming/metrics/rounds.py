"""What the engine of rounds shows to Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from meanstream.streaming.engine.stats import EngineStats
from meanstream.streaming.metrics.families import COUNTERS, DISTRIBUTIONS, GAUGES, LIVE
from meanstream.streaming.metrics.metrics import Metrics
from meanstream.streaming.rounds.stats import public_stats, rounds_stats

_STATS = {
    "rounds": "rounds",
    "rounds_reports": "releases",
    "rounds_over_budget": "over_budget",
    "rounds_results_refused": "results_refused",
}
"""Name of a counter, and of the figure that it shows."""


class RoundsMetrics(Metrics):
    """Turns the public figures of an engine of rounds into Prometheus metrics; an agent is a user here.

    What both engines have keeps its name. Of the answers only the newest is shown: the windows of a replay come faster
    than anybody scrapes, and all of them are in the sink of the means.

    Notes
    -----
    **Privacy.** Rounds protect how many samples a user sends and when: shown is `public_stats` of the figures, whatever
    is observed, that is who reported, how often, and what was answered. The rest is shown by `PrivateRoundsMetrics`.
    The answer shown is a public event (`meanstream.streaming.events.rounds.WindowEstimate`), made of reports alone.
    """

    counters: ClassVar[dict[str, str]] = {
        "rounds": "Rounds that came to their end.",
        "rounds_reports": "Reports charged in the ledger, one per user and round.",
        "rounds_over_budget": "How often a user's data did not enter a round, because the budget does not pay for it.",
        "rounds_results_refused": "Different results of stages that no stage can have found, and were not accepted.",
    }
    gauges: ClassVar[dict[str, str]] = {
        "agents": "Users who have been charged for a round.",
        "agents_exhausted": "Users whose budget pays for no further round; only where there is a budget.",
        "budget_spent_ratio_max": "Share of its rounds that the user who spent most has spent.",
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
    durations: ClassVar[dict[str, str]] = {}
    live: ClassVar[dict[str, str]] = {name: LIVE[name] for name in ("ready", "ledger_rows")}
    reasons: ClassVar[tuple[str, ...]] = ()

    def observe(self, stats: EngineStats) -> None:
        """Take the newest public figures."""
        super().observe(public_stats(rounds_stats(stats)))

    def _own(self, stats: EngineStats) -> dict[str, Any]:
        stats = rounds_stats(stats)
        return {
            **{name: getattr(stats, figure) for name, figure in _STATS.items()},
            "rounds_waiting": stats.waiting,
            **({} if stats.answer is None else _answer(stats.answer)),
        }


class PrivateRoundsMetrics(Metrics):
    """Private: turns what only the operator of an engine of rounds may know into Prometheus metrics.

    Every series has the label `trust="private"`.

    Notes
    -----
    **Privacy.** How many records came, when, and what became of them tells how many samples users send and when: serve
    this where only those can connect who may see the samples themselves.
    """

    counters: ClassVar[dict[str, str]] = {
        "events": COUNTERS["events"],
        "accepted": "Samples that were taken.",
        "clipped": "Samples outside the bounds, which counted as the nearest one.",
        "letters_unwritten": COUNTERS["letters_unwritten"],
        "refusals": COUNTERS["refusals"],
    }
    gauges: ClassVar[dict[str, str]] = {
        "users_seen": "Users with at least one good sample.",
        "input_lag_events": GAUGES["input_lag_events"],
        "rounds_open_windows": "Windows that still take samples.",
    }
    distributions: ClassVar[dict[str, str]] = {}
    shows_connections: ClassVar[bool] = False  # the public metrics have them
    live: ClassVar[dict[str, str]] = {name: text for name, text in LIVE.items() if name not in RoundsMetrics.live}

    def collect(self) -> Iterator[Any]:
        """Give every family, each series labelled as private."""
        for family in super().collect():
            family.samples = [s._replace(labels={**s.labels, "trust": "private"}) for s in family.samples]
            yield family

    def _own(self, stats: EngineStats) -> dict[str, Any]:
        stats = rounds_stats(stats)
        figures = {name: getattr(stats, name) for name in self.counters}
        return {**figures, "users_seen": stats.agents, "rounds_open_windows": stats.open_windows}


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
