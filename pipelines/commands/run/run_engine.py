"""An engine on this machine: what it reads, the order in which all of it is opened, and its run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from meanstream.pipelines.commands.run.checks import check_locations, refusing_to_open
from meanstream.pipelines.commands.run.opening import (
    closing_opened_store,
    open_kafka_sinks,
    open_samples,
    open_sinks,
    opening_stack,
)
from meanstream.pipelines.commands.run.progress_line import wait_for_brokers
from meanstream.pipelines.options.base import option_environment
from meanstream.streaming.crash import CrashHook, no_crash

if TYPE_CHECKING:
    from meanstream.pipelines.commands.run.watching import Watch
    from meanstream.pipelines.options.stream_options import StreamOptions
    from meanstream.streaming.engine.engine_loop import EngineLoop
    from meanstream.streaming.engine.engine_options import EngineOptions
    from meanstream.streaming.engine.engine_stats import EngineStats
    from meanstream.streaming.engine.unused_records import UnusedRecords
    from meanstream.streaming.sources.source_protocol import Source
    from meanstream.streaming.store.state_store import Store

Stats = TypeVar("Stats", bound="EngineStats")
Deployed = TypeVar("Deployed", bound="DeployedStore")


class DeployedStore(Protocol):
    """A store that is open for writing, and whose it is."""

    @property
    def store(self) -> Store:
        """The store."""

    @property
    def settings(self) -> Any:
        """What the parties agreed on, with the name of the deployment."""

    @property
    def id_key(self) -> bytes:
        """Key of the ids of samples."""


@dataclass(frozen=True, slots=True)
class Input:
    """What an engine reads, and how.

    The rest of a source by default, chosen records in a replay.
    """

    source: Source
    options: EngineOptions
    unused: UnusedRecords | None = None
    done: Callable[[], bool] = lambda: False


def engine_input(
    options: StreamOptions, deployment: DeployedStore, *, cut: float | None = None
) -> Input:
    """Read the source from where the store is."""
    store = deployment.store
    name = deployment.settings.name
    source = open_samples(options, store, id_key=deployment.id_key, name=name, cut=cut)
    return Input(source, options.engine_options())


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind(Generic[Deployed, Stats]):
    """What one kind of engine is opened with.

    Attributes
    ----------
    open_store : callable
        `open_store(path, settings, environment=...)` opens or makes the store.
    open_input : callable
        `open_input(options, deployment)` opens what the engine reads.
    make : callable
        `make(deployment, taken, **shared)` makes the engine.
    private : tuple of str
        Roles of the sinks that stay in the trust domain.
    private_apart : bool
        Whether private events to a topic go in transactions of their own.
    """

    open_store: Callable[..., Deployed]
    open_input: Callable[[Any, Deployed], Input]
    make: Callable[..., EngineLoop[Stats, Any]]
    private: tuple[str, ...]
    private_apart: bool


def run_engine(
    kind: EngineKind[Deployed, Stats],
    options: StreamOptions,
    settings: Any,
    watched: AbstractContextManager[Watch],
    crash: CrashHook | None = None,
) -> Stats:
    """Open store, source and sinks, whose options were checked, and run to the end or until a signal.

    A test kills the process in `crash`.
    """
    hook = crash or no_crash
    lateness = options.lateness_in_force()
    refresh = options.refresh_in_force()
    with opening_stack() as (opened, stop):
        with refusing_to_open():
            watch = opened.enter_context(watched)
            wait_for_brokers(options, stop=stop, health=watch.health)
            check_locations(options)
            deployment = kind.open_store(
                options.store, settings, environment=option_environment(options.secret_file)
            )
            store = deployment.store
            opened.enter_context(closing_opened_store(store))

            # After the store, which may refuse: then no sink was touched.
            name = deployment.settings.name
            apart = kind.private_apart
            topics = open_kafka_sinks(
                options.sinks, store, stop, crash=hook, name=name, private_apart=apart
            )
            sinks = open_sinks(options.sinks, topics, private=kind.private)
            opened.callback(sinks.close)

            taken = kind.open_input(options, deployment)
            opened.callback(taken.source.close)
            watch.show_progress()
            shared = {"on_turn": watch.on_turn, "health": watch.health, "crash": hook}
            engine = kind.make(deployment, taken, store=store, sinks=sinks, **shared)
            engine.history = watch.history
            engine.resume()

        watch.log_run(
            deployment.settings, source=taken.source.name, lateness=lateness, refresh=refresh
        )
        return engine.run(lambda: stop() or taken.done())
