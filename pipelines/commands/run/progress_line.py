"""What a running engine shows.

One live line on a terminal, plain lines elsewhere, or records of the log.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from meanstream.operators.durations import parse_duration
from meanstream.pipelines.options.base import OPTION_OF, option_location
from meanstream.pipelines.options.option_errors import RunFailed, refusing_options
from meanstream.streaming.events.times import iso_time
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation, is_kafka_location
from meanstream.streaming.metrics.recent_rate import RecentRate

if TYPE_CHECKING:
    from meanstream.pipelines.options.stream_options import StreamOptions
    from meanstream.streaming.agents.first_release import FirstRelease
    from meanstream.streaming.engine.engine_health import EngineHealth
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
    due = None if first.event_time is None else iso_time(first.event_time)
    return {"first_release": due, "first_release_waits_for": first.why}


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
    from meanstream.streaming.metrics.metric_records import first_release_record

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


def wait_for_brokers(
    options: StreamOptions, *, stop: Callable[[], bool], health: EngineHealth | None = None
) -> None:
    """Wait until the brokers of the source and of every sink answer."""
    places = [("source", option_location(options.source)), *broker_locations(options.sinks)]
    if getattr(options, "reports_only", None) is not None:
        places.append(("stages", str(getattr(options, "stages", ""))))

    wait_for_addresses(places, options.wait_for, stop=stop, health=health)


def broker_locations(sinks: Mapping[str, str]) -> list[tuple[str, str]]:
    """Give the places of sinks with the option that names each."""
    return [(OPTION_OF.get(role, role), location) for role, location in sinks.items()]


def wait_for_addresses(
    places: Iterable[tuple[str, str]],
    wait_for: str,
    *,
    stop: Callable[[], bool],
    health: EngineHealth | None = None,
) -> None:
    """Wait for the topics among some places, each the value of an option.

    See `wait_for_brokers`.
    """

    def noted(what: str) -> None:
        if health is not None:
            health.waiting(what)

        if stop():
            raise RunFailed(f"stopped while {what}")

    with refusing_options():
        seconds = parse_duration("wait_for", wait_for)
        topics = [
            broker
            for option, location in places
            if is_kafka_location(location)
            for broker in KafkaLocation.parse(
                location, role=option, several=option == "source"
            ).each()
        ]

        if not topics:
            return
        from meanstream.streaming.kafka.connection.kafka_topics import wait_for_first_answers

        wait_for_first_answers(topics, seconds, noted)

    if health is not None:
        health.waiting(None)


@contextmanager
def announcing_address(
    what: str, url: str, secret: str, *, store: Path | None, suffix: str
) -> Iterator[Callable[[], None]]:
    """Tell an address, with its token, once; what is told in a file goes when the context is left.

    On a terminal, or without a store, it is printed. Elsewhere standard error is a log, which
    others may read: there what is given, to be called once the store is this run's own, writes it
    into a file next to the store.
    """
    place = None if store is None or sys.stderr.isatty() else store.with_name(store.name + suffix)
    written: list[Path] = []

    if place is None:
        sys.stderr.write(f"{what}: {secret}\n")

    def announce() -> None:
        if place is not None:
            _write_for_owner(what, place, secret)
            written.append(place)
            _log.info(f"{what} is served", extra={"url": url, "token_in": str(place)})

    try:
        yield announce
    finally:
        for path in written:
            path.unlink(missing_ok=True)


def _write_for_owner(what: str, place: Path, line: str) -> None:
    """Write a line that only the owner of the file can read, in place of one that a killed run has left."""
    fresh = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        descriptor = os.open(
            fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "w") as file:
            file.write(line + "\n")

        fresh.replace(place)
    except OSError as error:
        raise RunFailed(
            f"{what} could not be written to {str(place)!r} ({error.strerror})"
        ) from None
