"""What the commands that run an engine share: places checked before anything is opened, signals, how a run ends."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.commands.agents_options import AgentSideOptions
from pipelines.commands.logs import logging_to_stderr
from pipelines.commands.options import BadOption, environment_of, print_json, refusing
from pipelines.commands.page import check_page_options
from pipelines.commands.progress import log_summary
from pipelines.commands.watching import watching

if TYPE_CHECKING:
    from operators.agents import AgentsSettings
    from streaming.crash import CrashHook
    from streaming.deployment import Deployment
    from streaming.kafka.sink import KafkaSinks
    from streaming.mapping import ColumnMapping
    from streaming.options import EngineOptions
    from streaming.sinks.group import Sinks
    from streaming.sources.source import Source
    from streaming.stats import EngineStats
    from streaming.unused import UnusedRecords

_log = logging.getLogger("meanstream.run")

OPTION_OF = {"estimates": "sink", "means": "sink"}
"""Option that names the sink of a role, where it is not the role's own name."""


class RunFailed(Exception):  # noqa: N818 - the run failed, not the program
    """A run cannot go on: the command ends with this one line and exit code 1. Another run continues."""


@dataclass(frozen=True, slots=True)
class Input:
    """What an engine reads, and how: the rest of a source by default, chosen records in a replay."""

    source: Source
    options: EngineOptions
    unused: UnusedRecords | None = None
    done: Callable[[], bool] = lambda: False


def host(options: AgentSideOptions) -> None:
    """Run an engine and say what it did; or, for a dry run, what it would run on."""
    if options.dry_run:
        from pipelines.commands.dry_run import dry_run

        dry_run(options)
        return
    with logging_to_stderr(options.log_format, quiet=options.quiet):
        stats = run_engine(options)
        if options.log_format == "json":
            log_summary(stats)
    if options.json:
        print_json(summary(stats))
    elif options.log_format == "text" and not options.quiet:
        sys.stderr.write(summary_line(stats) + "\n")


def rest_of_source(options: AgentSideOptions, deployment: Deployment) -> Input:
    """Read the source from where the store is."""
    from streaming.sources.open import open_source

    assert options.source is not None  # noqa: S101 - `run_engine` has checked it
    engine_options = options.engine_options()
    source = open_source(
        options.source,
        column_mapping(options),
        sort=options.sort,
        cut=engine_options.refresh,
        id_key=deployment.id_key,
        owner=deployment.store.public_id(),
        until_end=options.until_end,
    )
    return Input(source, engine_options)


def run_engine(
    options: AgentSideOptions,
    open_input: Callable[[Any, Deployment], Input] = rest_of_source,
    *,
    crash: CrashHook | None = None,
    also: Callable[[EngineStats], None] | None = None,
) -> EngineStats:
    """Check every option, then open store, source and sinks and run to the end or until a signal.

    A test kills the process in `crash`; `also` is told the statistics after each turn.
    """
    from streaming.crash import no_crash
    from streaming.deployment import open_deployment
    from streaming.engine import Engine

    settings = check_options(options)
    hook = crash or no_crash
    with ExitStack() as things, failing(), stopping_on_signals() as stop:
        with opening():
            deployment = open_deployment(options.store, settings, environment=environment_of(options.secret_file))
            things.callback(deployment.store.close)
            # After the store, which may refuse: then no sink was touched.
            sinks = open_sinks(options.sinks, _kafka_sinks(options.sinks, deployment, stop, hook))
            things.callback(sinks.close)
            taken = open_input(options, deployment)
            things.callback(taken.source.close)
            watch = things.enter_context(watching(options, settings, also=also))
            engine = Engine(
                source=taken.source,
                settings=settings,
                noise=deployment.noise,
                store=deployment.store,
                sinks=sinks,
                options=taken.options,
                unused=taken.unused,
                on_turn=watch.on_turn,
                health=watch.health,
                crash=hook,
            )
            engine.resume()
        return engine.run(lambda: stop() or taken.done())


def check_options(options: AgentSideOptions) -> AgentsSettings:
    """Refuse options, places, topics and rights that a run could not do with; open nothing and make nothing."""
    from operators.collaboration import make_collaboration
    from streaming.metrics_server import parse_address
    from streaming.sources.open import open_source

    with refusing():
        settings = options.settings()
        engine_options = options.engine_options()
        make_collaboration(engine_options.collaboration, lower=settings.lower, upper=settings.upper)
        check_store(options.store)
        check_sinks(options.sinks, json=options.json)
        if options.metrics is not None:
            parse_address(options.metrics)
        check_page_options(options.page, remote=options.page_remote)
        if options.source is None:
            raise BadOption("source must be given")
        open_source(options.source, column_mapping(options), sort=options.sort).close()
    return settings


def open_sinks(places: Mapping[str, str], kafka: KafkaSinks | None = None) -> Sinks:
    """Open one sink per role; personal estimates are private, everything else is public."""
    from streaming.sinks.group import Sinks
    from streaming.sinks.open import open_sink
    from streaming.sinks.sink import Trust

    return Sinks(
        **{
            role: open_sink(
                place,
                trust=Trust.PRIVATE if role == "estimates" else Trust.PUBLIC,
                role=OPTION_OF.get(role, role),
                kafka=kafka,
            )
            for role, place in places.items()
        }
    )


def _kafka_sinks(
    places: Mapping[str, str], deployment: Deployment, stop: Callable[[], bool], crash: CrashHook
) -> KafkaSinks | None:
    """Make what opens topics, if there are any."""
    from streaming.kafka.location import is_kafka

    if not any(map(is_kafka, places.values())):
        return None
    from streaming.kafka.sink import KafkaSinks

    return KafkaSinks(deployment.store.public_id(), stop=stop, crash=crash)


def check_store(store: Path) -> None:
    """Refuse a store that could not be made.

    Raises
    ------
    ValueError
        Naming the rule and the value.
    """
    from operators.validation import require

    require(store.parent.is_dir() and not store.is_dir(), "store", "be a file in an existing folder", str(store))


def check_sinks(places: Mapping[str, str], *, others: Mapping[str, str] | None = None, json: bool = False) -> None:
    """Refuse sinks that could not be opened, before any of them is made.

    Parameters
    ----------
    places : mapping
        Role of each sink, and its place.
    others : mapping
        Places that are taken, and the option that names each.
    json : bool
        Whether standard output is taken by the result.

    Raises
    ------
    ValueError
        Naming the option, the rule and the value.
    """
    from operators.validation import require
    from streaming.sinks.open import STDOUT, check_place, place_of

    taken = dict(others or {})
    for role, location in places.items():
        option = OPTION_OF.get(role, role)
        place = place_of(location)
        require(place not in taken, option, f"be another place than {taken.get(place)}", location)
        taken[place] = option
        check_place(option, location)
    require(not (json and STDOUT in taken), taken.get(STDOUT, "sink"), "be a file with --json", STDOUT)


@contextmanager
def opening() -> Iterator[None]:
    """Refuse an option whose store, source or sink cannot be opened."""
    from streaming.store.store import StoreError

    try:
        with refusing():
            yield
    except StoreError as error:
        raise BadOption(str(error)) from None


@contextmanager
def failing() -> Iterator[None]:
    """Turn the end of a store, a source or a sink into one line and exit code 1."""
    from streaming.sinks.sink import DeliveryFailedError, SinkLostError
    from streaming.sources.source import SourceLostError
    from streaming.store.store import StoreError

    try:
        yield
    except (StoreError, SourceLostError, SinkLostError, DeliveryFailedError) as error:
        raise RunFailed(str(error)) from None


@contextmanager
def stopping_on_signals() -> Iterator[Callable[[], bool]]:
    """Finish the batch at hand and commit on SIGTERM or Ctrl-C, instead of dying in the middle of it."""
    asked: list[int] = []
    handlers = {s: signal.signal(s, lambda number, _: asked.append(number)) for s in (signal.SIGTERM, signal.SIGINT)}
    said: list[int] = []

    def stop() -> bool:
        if asked and not said:
            said.append(asked[0])
            _log.info("stopping", extra={"signal": signal.Signals(asked[0]).name})
        return bool(asked)

    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def column_mapping(options: AgentSideOptions) -> ColumnMapping:
    """Say which column means what."""
    from streaming.mapping import ColumnMapping

    return ColumnMapping(agent=options.agent, value=options.value, time=options.time, id=options.id)


def summary(stats: EngineStats) -> dict[str, Any]:
    """Say what a run did, for the operator."""
    return {
        "events": stats.events,
        "accepted": stats.accepted,
        "rejected": dict(sorted(stats.rejected.items())),
        "clipped": stats.clipped,
        "agents": stats.agents,
        "releases": stats.releases,
        "refusals": stats.refusals,
        "exhausted": stats.exhausted,
        "estimates": stats.estimates,
        "median_half_width": stats.median_half_width,
    }


def summary_line(stats: EngineStats) -> str:
    """Say the same in one line."""
    rejected = ", ".join(f"{n:,} {reason}" for reason, n in sorted(stats.rejected.items())) or "none"
    stopped = f", {stats.exhausted:,} agents at their horizon" if stats.exhausted else ""
    return (
        f"{stats.events:,} events, {stats.accepted:,} accepted ({stats.clipped:,} clipped), rejected: {rejected}; "
        f"{stats.agents:,} agents, {stats.releases:,} releases{stopped}, {stats.estimates:,} estimates"
    )
