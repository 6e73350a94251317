"""Snapshots of a running engine of rounds for a page: what is public, and nothing else."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.metrics.engine_metrics import HasBounds
from meanstream.streaming.metrics.telemetry import Telemetry
from meanstream.streaming.rounds.rounds_stats import RoundsStats, public_stats, rounds_stats

MOST_WINDOWS = 400


class RoundsTelemetry(Telemetry):
    """Telemetry of rounds: the answers of the windows, as public events.

    Parameters
    ----------
    truth : mapping, optional
        In a demo, the true mean by the start of the window.

    Notes
    -----
    **Privacy.** Everything it keeps is public: it takes `public_stats` of the figures, and takes it in only where that
    has changed. How many windows end in one turn depends on how many samples everyone sends: the version of what is
    shown is a function of what is shown, and not of how often something was.
    """

    kind = "rounds"

    def __init__(
        self,
        *,
        settings: HasBounds,
        truth: dict[datetime, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(settings=settings, clock=clock)
        self._truth = truth or {}
        self._windows: deque[dict[str, Any]] = deque(maxlen=MOST_WINDOWS)
        self._estimates = 0
        self._unsaved = False
        self._before: RoundsStats | None = None

    def observe(self, stats: EngineStats) -> None:
        """Take the newest public figures, if there are any."""
        view = public_stats(rounds_stats(stats))
        if view != self._before:
            self._before = view
            super().observe(view)

    def _next_version(self, stats: EngineStats) -> int:
        """Count what has happened: a round that begins counts as one, one that ends as another."""
        stats = rounds_stats(stats)
        happened = stats.releases + stats.estimates + stats.over_budget + stats.results_refused
        return 1 + happened + 2 * stats.rounds + stats.waiting

    def _look(self, stats: EngineStats) -> list[dict[str, Any]]:
        stats = rounds_stats(stats)
        lines = stats.answers_of_turn if stats.estimates > self._estimates else ()
        self._estimates = stats.estimates
        found = [msgspec.json.decode(line) for line in lines[-MOST_WINDOWS:]]

        return [
            event | {"true": self._truth.get(datetime.fromisoformat(event["start"]))}
            for event in found
        ]

    def _keep(self, own: list[dict[str, Any]]) -> None:
        known = {(event["start"], event["end"]) for event in self._windows}
        fresh = [event for event in own if (event["start"], event["end"]) not in known]
        self._windows.extend(fresh)
        self._unsaved |= bool(fresh)

    def history_since(self, *, ending: bool = False) -> dict[str, Any] | None:  # noqa: ARG002 - always, by no clock
        """Give the newest windows' answers where there are new ones: public events."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, False

            if unsaved:
                return {"windows": list(self._windows)}
            return None

    def restore_history(self, kept: dict[str, Any]) -> None:
        """Go on from the windows that a run before has shown."""
        with self._lock:
            self._windows.extend(kept.get("windows", ()))

    def _shown(self) -> dict[str, Any]:
        return {"windows": tuple(self._windows)}
