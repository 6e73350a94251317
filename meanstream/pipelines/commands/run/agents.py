"""`meanstream run agents` and `run agent-side`: an engine of agents on a source, and what it did."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meanstream.pipelines.commands.run.checks import (
    check_agents_options,
    check_places,
    ending_run,
    refusing_to_open,
)
from meanstream.pipelines.commands.run.logs import logging_to_stderr
from meanstream.pipelines.commands.run.opening import (
    closing_store,
    kafka_sinks,
    open_samples,
    open_sinks,
    opening_stack,
)
from meanstream.pipelines.commands.run.private import private_agents_figures, write_private_figures
from meanstream.pipelines.commands.run.progress import log_progress_summary
from meanstream.pipelines.commands.run.waiting import wait_for_places
from meanstream.pipelines.commands.run.watching import watching
from meanstream.pipelines.options.agents import AgentSideOptions
from meanstream.pipelines.options.base import option_environment, print_options_json

if TYPE_CHECKING:
    from meanstream.streaming.crash import CrashHook
    from meanstream.streaming.engine.options import EngineOptions
    from meanstream.streaming.engine.stats import EngineStats
    from meanstream.streaming.engine.unused_records import UnusedRecords
    from meanstream.streaming.sources.source import Source
    from meanstream.streaming.store.deployment import Deployment


@dataclass(frozen=True, slots=True)
class Input:
    """What an engine reads, and how: the rest of a source by default, chosen records in a replay."""

    source: Source
    options: EngineOptions
    unused: UnusedRecords | None = None
    done: Callable[[], bool] = lambda: False


def host_agents(options: AgentSideOptions) -> None:
    """Run an engine and say what it did; or, for a dry run, what it would run on."""
    if options.dry_run:
        from meanstream.pipelines.commands.run.agents_dry_run import dry_run_agents

        dry_run_agents(options)
        return
    with logging_to_stderr(options.log_format, quiet=options.quiet):
        stats = run_agents_engine(options)
        with ending_run():
            write_private_figures(options.private_figures, private_agents_figures(stats))
        if options.log_format == "json":
            log_progress_summary(stats)
    if options.json:
        print_options_json(agents_summary(stats))
    elif options.log_format == "text" and not options.quiet:
        sys.stderr.write(summary_line(stats) + "\n")


def _rest_of_source(options: AgentSideOptions, deployment: Deployment) -> Input:
    """Read the source from where the store is."""
    engine_options = options.engine_options()
    source = open_samples(
        options,
        deployment.store,
        id_key=deployment.id_key,
        name=deployment.settings.name,
        cut=engine_options.refresh,
    )
    return Input(source, engine_options)


def run_agents_engine(
    options: AgentSideOptions,
    open_input: Callable[[Any, Deployment], Input] = _rest_of_source,
    *,
    crash: CrashHook | None = None,
    also: Callable[[EngineStats], None] | None = None,
) -> EngineStats:
    """Check every option, then open store, source and sinks and run to the end or until a signal.

    A test kills the process in `crash`; `also` is told the statistics after each turn.
    """
    from meanstream.streaming.agents.engine import Engine
    from meanstream.streaming.crash import no_crash
    from meanstream.streaming.store.deployment import open_deployment

    settings = check_agents_options(options)
    hook = crash or no_crash
    with opening_stack() as (opened, stop):
        with refusing_to_open():
            watch = opened.enter_context(watching(options, settings, also=also))
            wait_for_places(options, stop=stop, health=watch.health)
            check_places(options)
            deployment = open_deployment(options.store, settings, environment=option_environment(options.secret_file))
            opened.enter_context(closing_store(deployment.store))
            # After the store, which may refuse: then no sink was touched.
            topics = kafka_sinks(options.sinks, deployment.store, stop, crash=hook, name=deployment.settings.name)
            sinks = open_sinks(options.sinks, topics)
            opened.callback(sinks.close)
            taken = open_input(options, deployment)
            opened.callback(taken.source.close)
            watch.show_progress()
            engine = Engine(
                source=taken.source,
                settings=deployment.settings,
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


def agents_summary(stats: EngineStats) -> dict[str, Any]:
    """Say what a run did, for the operator."""
    return {
        "events": stats.events,
        "accepted": stats.accepted,
        "rejected": dict(sorted(stats.rejected.items())),
        "letters_unwritten": stats.letters_unwritten,
        "agents": stats.agents,
        "agents_full": stats.full,
        "releases": stats.releases,
        "spent": {"agents": stats.spenders, "most": stats.most_spent},
        "refusals": stats.refusals,
        "exhausted": stats.exhausted,
        "estimates": stats.estimates,
    }


def summary_line(stats: EngineStats) -> str:
    """Say the same in one line."""
    rejected = ", ".join(f"{n:,} {reason}" for reason, n in sorted(stats.rejected.items())) or "none"
    if stats.letters_unwritten:
        rejected += f" ({stats.letters_unwritten:,} without a dead letter: --max-dead-letters)"
    full = " (no more are taken: --max-agents)" if stats.full else ""
    stopped = f", {stats.exhausted:,} agents at their horizon" if stats.exhausted else ""
    spent = f" (of {stats.spenders:,} agents, at most {stats.most_spent:,} each)" if stats.releases else ""
    return (
        f"{stats.events:,} events, {stats.accepted:,} accepted, rejected: {rejected}; "
        f"{stats.agents:,} agents{full}, {stats.releases:,} releases{spent}{stopped}, {stats.estimates:,} estimates"
    )
