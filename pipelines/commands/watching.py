"""What watches a running engine: progress for people, metrics and probes for programs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipelines.commands.progress import make_progress

if TYPE_CHECKING:
    from operators.agents import AgentsSettings
    from streaming.health import EngineHealth
    from streaming.stats import EngineStats

_log = logging.getLogger("meanstream.run")


class Watchable(Protocol):
    """The options that say who watches."""

    @property
    def metrics(self) -> str | None:
        """Address of the metrics, or None."""

    @property
    def log_format(self) -> str:
        """Format of the logs."""

    @property
    def quiet(self) -> bool:
        """No progress."""

    @property
    def store(self) -> Path:
        """The store, for the size of its ledger."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What to give to an engine: `Engine(..., health=watch.health, on_turn=watch.on_turn)`."""

    health: EngineHealth
    on_turn: Callable[[EngineStats], None]


@contextmanager
def watching(options: Watchable, settings: AgentsSettings) -> Iterator[Watch]:
    """Show progress, and serve metrics and probes where they are asked for, as long as the context is open.

    Raises
    ------
    ValueError
        If the address of the metrics cannot be listened on.
    """
    from streaming.health import EngineHealth

    health = EngineHealth()
    with ExitStack() as things:
        watchers: list[Callable[[EngineStats], None]] = []
        if options.metrics is not None:
            from streaming.metrics import Metrics
            from streaming.metrics_server import MetricsServer

            metrics = Metrics(settings=settings, health=health, store=options.store)
            server = things.enter_context(MetricsServer(options.metrics, metrics, health))
            _log.info("metrics are served", extra={"url": f"{server.url}/metrics"})
            watchers.append(metrics.observe)
        progress = make_progress(options.log_format, quiet=options.quiet)
        things.enter_context(progress)
        watchers.append(progress)

        def on_turn(stats: EngineStats) -> None:
            for watcher in watchers:
                watcher(stats)

        yield Watch(health, on_turn)
