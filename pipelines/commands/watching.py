"""What watches a running engine: progress for people, metrics and probes for programs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pipelines.commands.progress import make_progress

if TYPE_CHECKING:
    from pipelines.commands.progress import LoggedProgress, Progress
    from streaming.health import EngineHealth
    from streaming.metrics import Bounded, Metrics
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


def metrics_of_agents(**options: Any) -> Metrics:
    """Make the metrics of an engine of agents."""
    from streaming.metrics import Metrics

    return Metrics(**options)


def metrics_of_rounds(**options: Any) -> Metrics:
    """Make the metrics of an engine of rounds."""
    from streaming.rounds.metrics import RoundsMetrics

    return RoundsMetrics(**options)


@contextmanager
def watching(
    options: Watchable,
    settings: Bounded,
    *,
    make_metrics: Callable[..., Metrics] = metrics_of_agents,
    progress: Progress | LoggedProgress | None = None,
) -> Iterator[Watch]:
    """Show progress, and serve metrics and probes where they are asked for, as long as the context is open.

    Parameters
    ----------
    options : Watchable
        Who watches.
    settings : AgentsSettings or RoundsSettings
        Those of the engine.
    make_metrics : callable
        Makes the metrics of this kind of engine; called only where they are asked for.
    progress : context manager, optional
        What shows progress, if it is not that of agents.

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
            from streaming.metrics_server import MetricsServer

            metrics = make_metrics(settings=settings, health=health, store=options.store)
            server = things.enter_context(MetricsServer(options.metrics, metrics, health))
            _log.info("metrics are served", extra={"url": f"{server.url}/metrics"})
            watchers.append(metrics.observe)
        progress = progress or make_progress(options.log_format, quiet=options.quiet)
        things.enter_context(progress)
        watchers.append(progress)

        def on_turn(stats: EngineStats) -> None:
            for watcher in watchers:
                watcher(stats)

        yield Watch(health, on_turn)
