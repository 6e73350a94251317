"""What a running engine shows.

One live line on a terminal, plain lines elsewhere, or records of the log.
"""

from __future__ import annotations

import logging
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from meanstream.streaming.events.times import iso_time
from meanstream.streaming.metrics.metric_records import RecentRate, first_release_record

if TYPE_CHECKING:
    from meanstream.streaming.agents.first_release import FirstRelease
    from meanstream.streaming.engine.engine_stats import EngineStats

PLAIN_SECONDS = 5.0
LIVE_SECONDS = 0.1

_log = logging.getLogger("meanstream.run")


class Progress:
    """Call it with the engine's statistics after each turn; use as a context manager."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._shown = time.monotonic()
        self._rate = RecentRate(self._shown)
        self._live = not quiet and sys.stderr.isatty()
        self._quiet = quiet
        self._status: Any = None

    def __enter__(self) -> Self:
        if self._live:
            from rich.console import Console
            from rich.live import Live

            self._status = Live(
                "reading ...", console=Console(stderr=True), transient=True, auto_refresh=False
            )
            self._status.start()

        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, stats: EngineStats) -> None:
        """Show the newest figures, at most so often."""
        now = time.monotonic()
        self._rate.note(now, stats.events)

        if self._quiet or now - self._shown < (LIVE_SECONDS if self._live else PLAIN_SECONDS):
            return
        self._shown = now
        line = self.line(stats, self._rate.per_second(now))

        if self._status is not None:
            from rich.text import Text

            self._status.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)
        else:
            sys.stderr.write(line + "\n")

    def line(self, stats: EngineStats, rate: float) -> str:
        """One line: events, their rate of the last minute, agents, releases, lag of event time.

        Nothing of values.
        """
        reached = "-"
        if stats.event_time is not None and abs(stats.event_time) < 1e11:
            reached = datetime.fromtimestamp(stats.event_time, UTC).strftime("%Y-%m-%d %H:%M")

        lag = _lag(stats)
        due = _first_release(stats)
        return (
            f"{stats.events:,} events ({rate:,.0f}/s) | {stats.agents:,} agents | "
            f"{stats.releases:,} releases | {stats.pending:,} wait | lag {lag} | event time {reached}"
            f"{_rejected(stats)}{due}"
        )


class LoggedProgress:
    """Logs the statistics every few seconds.

    In place of `Progress` where logs are read by programs.
    """

    def __init__(self) -> None:
        self._shown = time.monotonic()
        self._rate = RecentRate(self._shown)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, stats: EngineStats) -> None:
        """Log the newest figures, at most so often."""
        now = time.monotonic()
        self._rate.note(now, stats.events)

        if now - self._shown >= PLAIN_SECONDS:
            self._shown = now
            rate = round(self._rate.per_second(now))
            _log.info("progress", extra={**self.figures(stats), "events_per_second": rate})

    def figures(self, stats: EngineStats) -> dict[str, Any]:
        """Public: what is logged."""
        return _public_figures(stats)


def make_progress(log_format: str, *, quiet: bool = False) -> Progress | LoggedProgress:
    """Show progress in the way of the logs; what quiet logs leave out is not shown."""
    if log_format == "json":
        return LoggedProgress()
    return Progress(quiet=quiet)


def log_progress_summary(stats: EngineStats) -> None:
    """Log what a run did."""
    _log.info("finished", extra=_public_figures(stats))


def _public_figures(stats: EngineStats) -> dict[str, Any]:
    """Give what anyone may know of a run.

    **Privacy.** The number of clipped values and the half-width of the personal estimates depend on raw values: they
    are private, and stand in the file of `--private-figures` only.
    """
    return {
        "events": stats.events,
        "accepted": stats.accepted,
        "rejected": dict(sorted(stats.rejected.items())),
        "letters_unwritten": stats.letters_unwritten,
        "agents": stats.agents,
        "releases": stats.releases,
        "spent": {"agents": stats.spenders, "most": stats.most_spent},
        "refusals": stats.refusals,
        "exhausted": stats.exhausted,
        "drifts": stats.drifts,
        "drift_warnings": stats.drift_warnings,
        "estimates": stats.estimates,
        "input_lag": stats.input_lag,
        "pending": stats.pending,
        **({} if stats.first_release is None else _due(stats.first_release)),
        "event_time": iso_time(stats.event_time),
    }


def _due(first: FirstRelease) -> dict[str, Any]:
    at = None if first.event_time is None else iso_time(first.event_time)
    return {"first_release": at, "first_release_waits_for": first.why}


def _rejected(stats: EngineStats) -> str:
    """How many records are not used, and what most of them lack."""
    if not stats.rejected:
        return ""
    (most, _), *others = stats.rejected.most_common()
    return f" | {stats.rejected.total():,} rejected: {most}{', ...' if others else ''}"


def _first_release(stats: EngineStats) -> str:
    """Before the first release: when it is due, and why."""
    if stats.first_release is None:
        return ""
    return f" | {first_release_record(stats)}"


def _lag(stats: EngineStats) -> str:
    """Event time that was read but waits for the watermark."""
    if stats.event_time is None or stats.watermark is None:
        return "-"
    return f"{max(stats.event_time - stats.watermark, 0.0):.0f} s"


def agents_intake_text(stats: EngineStats) -> str:
    """Say what came in, and of how many agents."""
    rejected = (
        ", ".join(f"{n:,} {reason}" for reason, n in sorted(stats.rejected.items())) or "none"
    )

    if stats.letters_unwritten:
        rejected += f" ({stats.letters_unwritten:,} without a dead letter: --max-dead-letters)"

    full = " (no more are taken: --max-agents)" if stats.full else ""
    return f"{stats.events:,} events, {stats.accepted:,} accepted, rejected: {rejected}; {stats.agents:,} agents{full}"
