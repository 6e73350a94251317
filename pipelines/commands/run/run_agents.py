"""`meanstream run agents` and `run agent-side`.

An engine of agents on a source, and what it did.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from meanstream.operators.agents.agent_memory import AUTO, LIFE
from meanstream.pipelines.commands.run.checks import (
    check_agents_options,
    ending_run,
    private_agents_figures,
    write_private_figures,
)
from meanstream.pipelines.commands.run.progress_line import agents_intake_text, log_progress_summary
from meanstream.pipelines.commands.run.run_engine import EngineKind, Input, engine_input, run_engine
from meanstream.pipelines.commands.run.run_logs import LOGGER, logging_to_stderr
from meanstream.pipelines.commands.run.signals import followed_parent
from meanstream.pipelines.commands.run.watching import watching
from meanstream.pipelines.options.agent_side import AgentSideOptions
from meanstream.pipelines.options.agents_options import PAIRWISE, AgentsOptions
from meanstream.pipelines.options.base import print_options_json
from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.agents.move_agents import settle_move
from meanstream.streaming.agents.shared_summaries import ShardRun
from meanstream.streaming.kafka.connection.kafka_location import parse_shard
from meanstream.streaming.store.deployment_store import (
    Deployment,
    keep_shard_count,
    open_deployment,
)

if TYPE_CHECKING:
    from meanstream.operators.agents.agents import AgentsSettings
    from meanstream.streaming.crash import CrashHook
    from meanstream.streaming.engine.engine_stats import EngineStats


_log = logging.getLogger(f"{LOGGER}.run")


def host_agents(options: AgentSideOptions) -> None:
    """Run an engine and say what it did; or, for a dry run, what it would run on.

    With shards, an engine for each of them.
    """
    if isinstance(options, AgentsOptions) and options.shards is not None:
        from meanstream.pipelines.commands.run.shards import one_shard, run_shards

        if "/" not in options.shards:
            run_shards(options)
            return

        options = one_shard(options)

    if isinstance(options, AgentsOptions) and options.schedule in PAIRWISE:
        from meanstream.pipelines.commands.run.run_pairwise import host_pairs

        host_pairs(options)
        return

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
        sys.stderr.write(agents_summary_line(stats) + "\n")


def _rest_of_source(options: AgentSideOptions, deployment: Deployment) -> Input:
    """Read the source from where the store is, in batches that end where estimates are due."""
    return engine_input(options, deployment, cut=options.engine_options().refresh)


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

    def make(deployment: Deployment, taken: Input, **shared: Any) -> Engine:
        return Engine(
            source=taken.source,
            settings=deployment.settings,
            noise=deployment.noise,
            options=taken.options,
            unused=taken.unused,
            together=None if parent is None else ShardRun(parent.run, parent.shards),
            **shared,
        )

    parent = followed_parent()
    shards = getattr(options, "shards", None)
    settings = check_agents_options(options)
    if options.memory == AUTO:
        why = f"as long as {LIFE} releases of {settings.schedule}"
        _log.info("memory is chosen", extra={"memory": settings.memory, "why": why})

    kind = EngineKind(
        open_store=partial(_open_settled, shards=shards),
        open_input=open_input,
        make=make,
        private=("estimates",),
        private_apart=False,
    )

    warning = NoSampleWarning(options)
    watched = watching(options, settings, also=with_sample_warning(warning, also))
    stats = run_engine(kind, options, settings, watched, crash)
    warning.end(stats)

    return stats


def _open_settled(
    path: Path,
    settings: AgentsSettings,
    *,
    environment: Mapping[str, str],
    shards: str | None = None,
) -> Deployment:
    """Open the store; end a move that was interrupted; note of how many shards it is one."""
    deployment = open_deployment(path, settings, environment=environment)
    try:
        settle_move(deployment.store)
        if shards is not None:
            keep_shard_count(deployment.store, parse_shard("shards", shards)[1])
    except BaseException:
        deployment.store.close()
        raise

    return deployment


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
        "drifts": stats.drifts,
        "drift_warnings": stats.drift_warnings,
        "estimates": stats.estimates,
    }


def agents_summary_line(stats: EngineStats) -> str:
    """Say the same in one line."""
    stopped = f", {stats.exhausted:,} agents at their horizon" if stats.exhausted else ""
    moved = f", {stats.drifts:,} means that changed" if stats.drifts else ""
    spent = (
        f" (of {stats.spenders:,} agents, at most {stats.most_spent:,} each)"
        if stats.releases
        else ""
    )

    return (
        f"{agents_intake_text(stats)}, {stats.releases:,} releases{spent}{stopped}{moved}, "
        f"{stats.estimates:,} estimates"
    )


ENOUGH = 100
"""Records without a sample from which on a run that goes on warns."""


class NamedFields(Protocol):
    """The fields that options name."""

    @property
    def agent(self) -> str:
        """Whose sample it is."""

    @property
    def value(self) -> str:
        """The number."""

    @property
    def time(self) -> str:
        """Its event time."""


class NoSampleWarning:
    """Warns once, if all records lack one field.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from meanstream.streaming.engine.engine_stats import EngineStats
    >>> warn = NoSampleWarning(SimpleNamespace(agent="device", value="v", time="ts"))
    >>> stats = EngineStats(events=7)
    >>> stats.rejected["missing_agent"] = 7
    >>> warn.text(stats)
    "none of 7 records has the field that --agent names, got 'device'"
    >>> stats.accepted = 1
    >>> warn.text(stats)
    ''
    """

    def __init__(self, options: NamedFields) -> None:
        self._fields = {"agent": options.agent, "value": options.value, "time": options.time}
        self._warned = False

    def text(self, stats: EngineStats) -> str:
        """What is wrong, empty if nothing is."""
        for option, field in self._fields.items():
            missing = stats.rejected.get(f"missing_{option}", 0)
            if missing == stats.events > 0 == stats.accepted:
                rule = f"has the field that --{option} names, got {field!r}"
                return f"none of {stats.events:,} records {rule}"

        return ""

    def watch(self, stats: EngineStats) -> None:
        """Warn as soon as enough records were read."""
        if stats.events >= ENOUGH:
            self.end(stats)

    def end(self, stats: EngineStats) -> None:
        """Warn at the end of a source, however few records it had."""
        said = "" if self._warned else self.text(stats)
        if not said:
            return

        self._warned = True
        hint = (
            "a field within a field is a path, such as meta.device; begin again with a new --store "
            "(on a topic also another group=), since this one has read these records"
        )
        _log.warning(said, extra={"hint": hint})


def with_sample_warning(
    warning: NoSampleWarning, also: Callable[[EngineStats], None] | None
) -> Callable[[EngineStats], None]:
    """Make what an engine tells its statistics after each turn: the warning, and another one."""
    if also is None:
        return warning.watch

    def both(stats: EngineStats) -> None:
        warning.watch(stats)
        also(stats)

    return both
