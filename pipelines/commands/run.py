"""`meanstream run agents`: a stream of samples to every agent's private mean, on the embedded engine."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pipelines.commands.agents_options import AgentsOptions
from pipelines.commands.options import BadOption, print_json, refusing, takes
from pipelines.commands.progress import Progress

if TYPE_CHECKING:
    from streaming.mapping import ColumnMapping
    from streaming.sinks.group import Sinks
    from streaming.sources.source import Source
    from streaming.stats import EngineStats

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

PUBLIC_ROLES = ("releases", "population", "dead_letters", "notices")


@app.callback()
def run() -> None:
    """Estimate from a stream of events."""


@app.command("agents")
@takes(AgentsOptions)
def agents(options: AgentsOptions) -> None:
    """Give every agent its own private mean with an interval; killed and started again, it goes on where it was.

    \b
    Example:
      meanstream run agents --source flights.csv --agent tailnum --value dep_delay --time time_hour \\
        --lower -30 --upper 120 --epsilon 1 --delta 1e-6 \\
        --store state.db --sink estimates.jsonl --releases releases.jsonl
    """  # noqa: D301 - click reads the escape
    from streaming.store import StoreError

    try:
        stats = run_agents(options)
    except StoreError as error:
        raise BadOption(str(error)) from None
    if options.json:
        print_json(summary(stats))
    elif not options.quiet:
        sys.stderr.write(_summary_line(stats) + "\n")


def run_agents(options: AgentsOptions) -> EngineStats:
    """Check every option, then open store, source and sinks and run to the end or until a signal."""
    from operators.collaboration import make_collaboration
    from streaming.deployment import open_deployment
    from streaming.engine import Engine
    from streaming.sources.open import open_source

    with refusing():
        settings = options.settings()
        engine_options = options.engine_options()
        mapping = _mapping(options)
        make_collaboration(engine_options.collaboration, lower=settings.lower, upper=settings.upper)
        check_places(options)
        if options.source is None:
            raise BadOption("source must be given")
        open_source(options.source, mapping, sort=options.sort).close()
    with ExitStack() as open_things, refusing():
        deployment = open_deployment(options.store, settings, environment=_environment(options))
        open_things.callback(deployment.store.close)
        sinks = open_sinks(options)  # after the store, which may refuse: then no sink was touched
        open_things.callback(sinks.close)
        source: Source = open_source(
            options.source, mapping, sort=options.sort, cut=engine_options.refresh, id_key=deployment.id_key
        )
        open_things.callback(source.close)
        progress = open_things.enter_context(Progress(quiet=options.quiet))
        engine = Engine(
            source=source,
            settings=settings,
            noise=deployment.noise,
            store=deployment.store,
            sinks=sinks,
            options=engine_options,
            on_turn=progress,
        )
        with stopping_on_signals() as stop:
            return engine.run(stop)


def open_sinks(options: AgentsOptions) -> Sinks:
    """Open one sink per role; personal estimates are private, everything else is public."""
    from streaming.sinks.group import Sinks
    from streaming.sinks.open import open_sink
    from streaming.sinks.sink import Trust

    public = {
        role: open_sink(location, trust=Trust.PUBLIC)
        for role in PUBLIC_ROLES
        if (location := getattr(options, role)) is not None
    }
    return Sinks(estimates=open_sink(options.sink, trust=Trust.PRIVATE), **public)


def check_places(options: AgentsOptions) -> None:
    """Refuse a store or sink that could not be opened, before any of them is made.

    Raises
    ------
    ValueError
        Naming the option, the rule and the value.
    """
    from operators.validation import require
    from streaming.sinks.open import STDOUT, check_place

    store = options.store
    require(store.parent.is_dir() and not store.is_dir(), "store", "be a file in an existing folder", str(store))
    taken: dict[str, str] = {}
    for role in ("sink", *PUBLIC_ROLES):
        location = getattr(options, role)
        if location is None:
            continue
        check_place(role, location)
        place = location if location == STDOUT else str(Path(location).resolve())
        require(place not in taken, role, f"be another place than {taken.get(place)}", location)
        taken[place] = role
    require(not (options.json and STDOUT in taken), taken.get(STDOUT, "sink"), "be a file with --json", STDOUT)


@contextmanager
def stopping_on_signals() -> Iterator[Any]:
    """Finish the batch at hand and commit on SIGTERM or Ctrl-C, instead of dying in the middle of it."""
    asked: list[int] = []
    handlers = {s: signal.signal(s, lambda number, _: asked.append(number)) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _mapping(options: AgentsOptions) -> ColumnMapping:
    from streaming.mapping import ColumnMapping

    return ColumnMapping(agent=options.agent, value=options.value, time=options.time, id=options.id)


def _environment(options: AgentsOptions) -> Mapping[str, str]:
    """Take the environment, in which a file named on the command line wins."""
    from streaming.secret import SECRET_FILE_VARIABLE, SECRET_VARIABLE

    if options.secret_file is None:
        return os.environ
    others = {k: v for k, v in os.environ.items() if k != SECRET_VARIABLE}
    return {**others, SECRET_FILE_VARIABLE: str(options.secret_file)}


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


def _summary_line(stats: EngineStats) -> str:
    rejected = ", ".join(f"{n:,} {reason}" for reason, n in sorted(stats.rejected.items())) or "none"
    stopped = f", {stats.exhausted:,} agents at their horizon" if stats.exhausted else ""
    return (
        f"{stats.events:,} events, {stats.accepted:,} accepted ({stats.clipped:,} clipped), rejected: {rejected}; "
        f"{stats.agents:,} agents, {stats.releases:,} releases{stopped}, {stats.estimates:,} estimates"
    )
