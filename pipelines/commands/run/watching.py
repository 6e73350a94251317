"""What watches a running engine: progress for people, metrics and probes for programs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from meanstream.pipelines.commands.run.progress_line import announcing_address, make_progress
from meanstream.pipelines.commands.run.run_page import (
    page_run_facts,
    page_telemetry_of_agents,
    showing_page,
)
from meanstream.pipelines.commands.run.signals import followed_parent
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.own_paths import ANSWERS_SUFFIX

if TYPE_CHECKING:
    from pathlib import Path

    from meanstream.pipelines.commands.run.progress_line import LoggedProgress, Progress
    from meanstream.pipelines.options.stream_defaults import Lateness, Refresh
    from meanstream.streaming.engine.engine_stats import EngineStats
    from meanstream.streaming.metrics.engine_metrics import HasBounds, Metrics
    from meanstream.streaming.metrics.telemetry import Telemetry

STORE = "store"
"""What a shard tells once its store is its own."""

_log = logging.getLogger("meanstream.run")


class WatchedOptions(Protocol):
    """What a user says about who watches a run."""

    @property
    def store(self) -> Path | None:
        """The store that it fills, or reads."""

    @property
    def metrics(self) -> str | None:
        """Address of the metrics for everyone."""

    @property
    def private_metrics(self) -> str | None:
        """Address of those for the operator."""

    @property
    def page(self) -> str | None:
        """Address of the page."""

    @property
    def page_remote(self) -> bool:
        """Whether other machines may connect to it."""

    @property
    def log_format(self) -> str:
        """How progress is told."""

    @property
    def quiet(self) -> bool:
        """Whether it is not."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What to give to an engine: `Engine(..., health=watch.health, on_turn=watch.on_turn)`."""

    health: EngineHealth
    on_turn: Callable[[EngineStats], None]
    show_progress: Callable[[], None]
    """Begin to show progress: call it when source and sinks are there."""
    history: Telemetry | None = None
    """What a page has shown, which the engine keeps in its store; None without a page."""
    tell: tuple[Callable[[], None], ...] = ()
    """Tell what opens private addresses: call it once the store is this run's own."""

    def log_run(
        self, settings: Any, *, source: str, lateness: Lateness, refresh: Refresh | None
    ) -> None:
        """Log how late samples may be and when estimates are due, with reasons.

        Show the page which run it is.
        """
        _log.info("samples may be late", extra={"lateness": lateness.text, "why": lateness.why})
        facts = {"lateness": lateness.text, "why": lateness.why}

        if refresh is not None:
            due = {
                "refresh": refresh.text,
                "why": refresh.why,
                "first": refresh.first_due(lateness.text),
            }
            _log.info("estimates are due", extra=due)
            facts |= {"refresh": refresh.text, "first_estimates": due["first"]}

        self.announce_run(settings, source=source, **facts)

    def announce_run(self, settings: Any, *, source: str, **more: str) -> None:
        """Say where page and answers are, once the store is this run's.

        And to the page, which run it shows.
        """
        for tell in self.tell:
            tell()

        if self.history is not None:
            self.history.about = page_run_facts(settings, source=source) | more


def _metrics_of_agents(**options: Any) -> Metrics:
    """Make the metrics of an engine of agents."""
    from meanstream.streaming.metrics.engine_metrics import Metrics

    return Metrics(**options)


def watching_metrics_of_rounds(**options: Any) -> Metrics:
    """Make the public metrics of an engine of rounds."""
    from meanstream.streaming.metrics.rounds_metrics import RoundsMetrics

    return RoundsMetrics(**options)


def _private_metrics_of_agents(**options: Any) -> Metrics:
    """Make the metrics for who runs an engine of agents."""
    from meanstream.streaming.metrics.private_answers import PrivateMetrics

    return PrivateMetrics(**options)


def watching_private_metrics_of_rounds(**options: Any) -> Metrics:
    """Make the metrics for who runs an engine of rounds."""
    from meanstream.streaming.metrics.private_answers import PrivateRoundsMetrics

    return PrivateRoundsMetrics(**options)


def _serve_answers(opened: ExitStack, options: WatchedOptions) -> Callable[[], None] | None:
    """Let agents ask for their answers, where that is requested.

    Give what tells the token that is made for all.
    """
    address = getattr(options, "answers", None)
    if address is None or options.store is None:
        return None

    # The process that has started this one as a shard serves the answers of all shards.
    if followed_parent() is not None:
        return None

    return serve_answers(opened, options, [options.store])


def serve_answers(
    opened: ExitStack, options: WatchedOptions, stores: Sequence[Path]
) -> Callable[[], None] | None:
    """Let agents ask for their answers from stores, of which each agent lives in one."""
    from meanstream.pipelines.page.page_answers import AnswersServer

    address = getattr(options, "answers", "")
    tokens = getattr(options, "answer_tokens", None)
    remote = getattr(options, "answers_remote", False)
    server = opened.enter_context(AnswersServer(address, stores, tokens, remote=remote))
    url = f"{server.url}AGENT"

    if server.token is None:
        sys.stderr.write(f"answers: {url}\n")
        return None

    secret = f"{url}, Authorization: Bearer {server.token}"
    return opened.enter_context(
        announcing_address("answers", url, secret, store=options.store, suffix=ANSWERS_SUFFIX)
    )


@contextmanager
def watching(
    options: WatchedOptions,
    settings: HasBounds,
    *,
    make_metrics: Callable[..., Metrics] = _metrics_of_agents,
    make_private_metrics: Callable[..., Metrics] = _private_metrics_of_agents,
    make_telemetry: Callable[..., Telemetry] = page_telemetry_of_agents,
    also: Callable[[EngineStats], None] | None = None,
    progress: Progress | LoggedProgress | None = None,
    only_read: bool = False,
    foretells: bool = True,
) -> Iterator[Watch]:
    """Show progress, and serve metrics, probes and a page where they are requested, as long as the context is open."""
    health = EngineHealth()
    parent = followed_parent()
    telemetry = None
    tell: list[Callable[[], None] | None] = []
    with ExitStack() as opened:
        watchers: list[Callable[[EngineStats], None]] = [] if also is None else [also]
        for option, make in (
            ("metrics", make_metrics),
            ("private_metrics", make_private_metrics),
        ):
            if (address := getattr(options, option)) is not None:
                from meanstream.streaming.metrics.metrics_server import MetricsServer

                metrics = make(settings=settings, health=health, store=options.store)
                server = opened.enter_context(
                    MetricsServer(address, metrics, health, option=option)
                )
                told = (
                    "metrics are served" if make is make_metrics else "private metrics are served"
                )
                if parent is not None:
                    parent.tell(option, server.url)

                _log.info(told, extra={"url": f"{server.url}/metrics"})
                watchers.append(metrics.observe)

        if options.page is not None:
            telemetry = make_telemetry(settings=settings)
            telemetry.not_ready = health.not_ready
            page: Any = {
                "remote": options.page_remote,
                "store": options.store,
                "only_read": only_read,
                "foretells": foretells,
            }
            tell.append(
                opened.enter_context(showing_page(options.page, telemetry, settings, **page))
            )
            watchers.append(telemetry.observe)

        tell.append(_serve_answers(opened, options))
        tell.append(None if parent is None else partial(parent.tell, STORE))
        progress = progress or make_progress(options.log_format, quiet=options.quiet)
        watchers.append(progress)

        def on_turn(stats: EngineStats) -> None:
            for watcher in watchers:
                watcher(stats)

        def show_progress() -> None:
            opened.enter_context(progress)

        yield Watch(health, on_turn, show_progress, telemetry, tuple(filter(None, tell)))
