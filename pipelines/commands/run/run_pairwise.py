"""`meanstream run agents --schedule round_robin`.

Agents that query each other, and what the run did.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.operators.validation import require
from meanstream.pipelines.commands.run.agents_dry_run import dry_run_facts, dry_run_name
from meanstream.pipelines.commands.run.checks import (
    check_agents_options,
    check_locations,
    ending_run,
    private_agents_figures,
    refusing_to_open,
    write_private_figures,
)
from meanstream.pipelines.commands.run.opening import check_opened_source
from meanstream.pipelines.commands.run.progress_line import agents_intake_text, log_progress_summary
from meanstream.pipelines.commands.run.run_engine import EngineKind, Input, engine_input, run_engine
from meanstream.pipelines.commands.run.run_logs import LOGGER, logging_to_stderr
from meanstream.pipelines.commands.run.watching import watching
from meanstream.pipelines.options.base import option_environment, print_options_json
from meanstream.pipelines.options.option_errors import refusing_options
from meanstream.pipelines.options.pairwise_options import Pairs, pairwise_options
from meanstream.streaming.agents.pairwise.pairwise_deployment import (
    PairwiseDeployment,
    check_pairwise_deployment,
    open_pairwise_deployment,
)
from meanstream.streaming.agents.pairwise.pairwise_engine import PairwiseEngine

if TYPE_CHECKING:
    from meanstream.pipelines.options.agents_options import AgentsOptions
    from meanstream.streaming.crash import CrashHook
    from meanstream.streaming.engine.engine_stats import EngineStats
    from meanstream.streaming.metrics.engine_metrics import Metrics

_log = logging.getLogger(f"{LOGGER}.run")
LEAST_PER_PARTNER = 3
"""Samples of an agent for each of its partners: an estimated variance alone needs two releases."""
COALITIONS = (5, 50)
"""Readers who pool what they received, in the line that says what that makes of epsilon."""


def host_pairs(options: AgentsOptions) -> None:
    """Run agents that query each other and say what was done.

    Or, for a dry run, what it would run on.
    """
    # Everything is checked before a store is opened.
    with refusing_options():
        pairs = pairwise_options(options)

    if options.dry_run:
        _dry_run(pairs)
        return

    with logging_to_stderr(options.log_format, quiet=options.quiet):
        stats = run_pairs(pairs)
        warn_of_few_samples(stats)

        with ending_run():
            figures = {**private_agents_figures(stats), "messages": stats.messages}
            write_private_figures(options.private_figures, figures)

        if options.log_format == "json":
            log_progress_summary(stats)

    if options.json:
        print_options_json(pairs_summary(stats, options.schedule))
    elif options.log_format == "text" and not options.quiet:
        sys.stderr.write(pairs_summary_line(stats, options.schedule) + "\n")


def run_pairs(pairs: Pairs, *, crash: CrashHook | None = None) -> EngineStats:
    """Check every option, then open store, source and sinks and run to the end or until a signal."""
    options = pairs.options
    release = check_agents_options(pairs.options)

    def open_store(
        path: Path,
        settings: Any,  # noqa: ARG001
        *,
        environment: Mapping[str, str],  # noqa: ARG001, RUF100
    ) -> PairwiseDeployment:
        deployment = open_pairwise_deployment(path, pairs.settings, environment=environment)

        # A store may have more agents than a run could hold.
        agents = len(deployment.store.agents())
        few = pairs.settings.partners is None
        if few and agents > pairs.capacity:
            deployment.store.close()
            require(
                False,
                "max_agents",
                f"be at least {agents}, the agents of the store",
                pairs.capacity,
            )

        return deployment

    def make(deployment: PairwiseDeployment, taken: Input, **shared: Any) -> PairwiseEngine:
        _log.info("privacy of a coalition", extra=coalition(pairs.settings))
        return PairwiseEngine(
            pairs=deployment.pairs,
            source=taken.source,
            noise=deployment.noise,
            options=taken.options,
            unused=taken.unused,
            partners_file=pairs.partners_file,
            **shared,
        )

    kind = EngineKind(
        open_store=open_store,
        open_input=partial(_open_input, refresh=options.engine_options().refresh),
        make=make,
        private=("estimates",),
        private_apart=False,
    )

    # An agent has a budget for each of its readers: there is no one end to foretell.
    watched = watching(options, release, make_metrics=public_pairs_metrics, foretells=False)

    return run_engine(kind, options, release, watched, crash)


def public_pairs_metrics(**options: Any) -> Metrics:
    # The size of the ledger tells how many queries there were, which depends on values.
    """Make the public metrics without the size of the ledger.

    How many releases there were may depend on values.
    """
    from meanstream.streaming.metrics.engine_metrics import Metrics

    return Metrics(**{**options, "store": None})


def _open_input(options: AgentsOptions, deployment: Any, *, refresh: float | None) -> Input:
    return engine_input(options, deployment, cut=refresh)


def coalition(settings: Any) -> dict[str, Any]:
    """Say what epsilon is of one reader, and of several who pool what they received.

    **Privacy.** A function of the settings alone.
    """
    # Readers who pool what they received know more than any of them.
    release = settings.release
    pooled = {
        f"{readers}_readers": round(settings.coalition_epsilon(readers), 2)
        for readers in COALITIONS
    }

    return {"one_reader": release.epsilon, **pooled, "delta": release.delta}


def warn_of_few_samples(stats: EngineStats) -> None:
    """Warn where partners have exchanged too little for any answer to change.

    **Privacy.** A function of the numbers of samples and of agents, which are public.
    """
    # With few exchanges per partner no test can tell a class.
    exchanges = stats.samples_per_partner
    if exchanges is None or exchanges >= LEAST_PER_PARTNER:
        return
    _log.warning(
        "too few samples for pairwise queries: answers are hardly better than alone; "
        "name fewer partners with --partners, or leave out --schedule",
        extra={
            "samples_per_partner": round(exchanges, 2),
            "needed": LEAST_PER_PARTNER,
            "agents": stats.agents,
        },
    )


def public_releases(stats: EngineStats, schedule: str) -> int | None:
    """Count the releases where that is public.

    Under restricted_round_robin it depends on values, and is for the operator, see
    `EngineStats.messages`.
    """
    if schedule == "round_robin":
        return stats.messages
    return None


def pairs_summary(stats: EngineStats, schedule: str) -> dict[str, Any]:
    """Say what a run did."""
    releases = public_releases(stats, schedule)
    exchanges = stats.samples_per_partner
    return {
        **({} if releases is None else {"releases": releases}),
        "samples_per_partner": None if exchanges is None else round(exchanges, 2),
        "events": stats.events,
        "accepted": stats.accepted,
        "rejected": dict(sorted(stats.rejected.items())),
        "letters_unwritten": stats.letters_unwritten,
        "agents": stats.agents,
        "agents_full": stats.full,
        "estimates": stats.estimates,
    }


def pairs_summary_line(stats: EngineStats, schedule: str) -> str:
    """Say the same in one line."""
    releases = public_releases(stats, schedule)
    made = "" if releases is None else f" {releases:,} releases,"
    return f"{agents_intake_text(stats)} that query each other,{made} {stats.estimates:,} estimates"


def _dry_run(pairs: Pairs) -> None:
    """Refuse what a run would refuse.

    Otherwise say what it would run on, and what coalitions learn.
    """
    # The same checks as a run's, and nothing is written.
    options = pairs.options
    settings = pairs.settings
    check_agents_options(options)
    check_locations(options)

    with refusing_to_open():
        place: dict[str, Any] = {"path": str(options.store), "name": settings.release.name}
        known = check_pairwise_deployment(
            options.store, settings, environment=option_environment(options.secret_file)
        )

        if known:
            place["name"] = check_opened_source(options)

    lateness = options.lateness_in_force()
    refresh = options.refresh_in_force()
    facts = {
        "source": options.source,
        "store": place | {"continues": known},
        "lateness": f"{lateness.text}: {lateness.why}",
        "refresh": f"{refresh.text}: {refresh.why}; first estimates {refresh.first_due(lateness.text)}",
        "sink": options.sink,
        "privacy": coalition(settings),
        "max_agents": pairs.capacity,
    }
    dry_run_facts(facts, _fact_text, as_json=options.json)


def _fact_text(fact: Any) -> str:
    if not isinstance(fact, dict):
        return str(fact)
    if "path" in fact:
        return f"{fact['path']}, {dry_run_name(fact)}, which {'continues' if fact['continues'] else 'will begin'}"

    pooled = ", ".join(
        f"{name.replace('_', ' ')}: {value:g}" for name, value in fact.items() if name != "delta"
    )

    return f"epsilon for each sample's value, towards {pooled}; delta {fact['delta']:g}"
