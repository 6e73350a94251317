"""`meanstream run collaborate`.

Everyone's releases to the estimates of one organization's agents.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.operators.agents.release_checks import PossibleReleases
from meanstream.operators.durations import parse_duration
from meanstream.operators.validation import require
from meanstream.pipelines.commands.run.agents_dry_run import dry_run_fact_text, dry_run_facts
from meanstream.pipelines.commands.run.checks import (
    check_apart,
    check_collaboration,
    check_metrics_addresses,
    check_sinks,
    refusing_to_open,
)
from meanstream.pipelines.commands.run.opening import open_sinks, opening_stack
from meanstream.pipelines.commands.run.progress_line import (
    LoggedProgress,
    Progress,
    wait_for_addresses,
)
from meanstream.pipelines.commands.run.run_logs import logging_to_stderr
from meanstream.pipelines.commands.run.run_page import check_page_options
from meanstream.pipelines.commands.run.watching import Watch, watching
from meanstream.pipelines.options.base import OPTION_OF, print_options_json
from meanstream.pipelines.options.collaborate_options import CollaborateOptions
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.streaming.agents.agents_budget import agents_budgets
from meanstream.streaming.agents.collaborating_site import Collaborator
from meanstream.streaming.agents.collaboration_stats import CollaborationStats, collaboration_stats
from meanstream.streaming.agents.saved_agents import own_settings
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation, is_kafka_location
from meanstream.streaming.open_sink import canonical_sink_location
from meanstream.streaming.sources.releases_file import ReleasesFile

if TYPE_CHECKING:
    from meanstream.operators.agents.agents import AgentsSettings
    from meanstream.streaming.engine.engine_options import EngineOptions
    from meanstream.streaming.engine.engine_stats import EngineStats
    from meanstream.streaming.kafka.reading.latest_releases import ReleasesTopic
    from meanstream.streaming.metrics.engine_metrics import Metrics
    from meanstream.streaming.metrics.telemetry import Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Collaboration:
    """Options that were checked: what is answered, from what and how."""

    releases: str
    store: Path
    settings: AgentsSettings
    possible: PossibleReleases
    engine_options: EngineOptions
    every: float

    def open_releases(self) -> ReleasesTopic | ReleasesFile:
        """Open the topic or file of everyone's releases; see `open_received_releases`."""
        return open_received_releases(self.releases, self.possible)


def host_collaboration(options: CollaborateOptions) -> None:
    """Run until a signal, or once, and say what was done; or only look at what it would need."""
    if options.dry_run:
        _dry_run(options, _check_collaboration(options))
        return

    with logging_to_stderr(options.log_format, quiet=options.quiet):
        stats = _run_collaboration(options)

    if options.json:
        print_options_json(stats.summary())
    elif not options.quiet and options.log_format == "text":
        sys.stderr.write(
            f"{stats.releases:,} releases of {stats.agents:,} agents, "
            f"{stats.estimates:,} estimates for {stats.own_agents:,} own agents in {stats.refreshes:,} refreshes; "
            f"rejected: {', '.join(f'{n:,} {reason}' for reason, n in sorted(stats.rejected.items())) or 'none'}\n"
        )


def _check_collaboration(options: CollaborateOptions) -> Collaboration:
    """Refuse what can be refused without asking a broker.

    Open nothing but the store, to read its settings.
    """
    if options.releases is None:
        raise BadOption("releases must be given")
    if options.store is None:
        raise BadOption("store must be given")
    if not options.store.is_file():
        raise BadOption(
            f"store must be the existing file of the own agents, got {str(options.store)!r}"
        )

    with refusing_options():
        every = parse_duration("refresh", options.refresh)
        parse_duration("wait_for", options.wait_for)
        engine_options = options.engine_options()
        _require_no_topics(options.sinks)
        check_apart(options, options.store)

        check_sinks(
            options.sinks,
            others={canonical_sink_location(options.releases): "releases"},
            json=options.json,
        )
        check_metrics_addresses(options)
        check_page_options(options.page, remote=options.page_remote)

    with refusing_to_open():
        settings = own_settings(options.store)
        told = settings.histogram_share > 0 or options.quantiles is None
        require(
            told,
            "quantiles",
            "be left out: agents of the store release no histogram",
            options.quantiles,
        )
        check_collaboration(engine_options, settings)

        return Collaboration(
            releases=options.releases,
            store=options.store,
            settings=settings,
            possible=PossibleReleases(settings, max_samples=options.max_samples),
            engine_options=engine_options,
            every=every,
        )


def _require_no_topics(sinks: Mapping[str, str]) -> None:
    """Refuse a topic: what was written twice could not be told there, because nothing is kept of what was written."""
    for role, location in sinks.items():
        require(
            not is_kafka_location(location),
            OPTION_OF.get(role, role),
            "be a file or '-' here",
            location,
        )


def _run_collaboration(options: CollaborateOptions) -> CollaborationStats:
    """Check every option, then open releases and sinks and answer."""
    made = _check_collaboration(options)
    with opening_stack() as (opened, stop):
        with refusing_to_open():
            watch = opened.enter_context(_watching_collaboration(options, made))
            wait_for_addresses(
                [("releases", made.releases)], options.wait_for, stop=stop, health=watch.health
            )
            releases = made.open_releases()
            opened.callback(releases.close)
            sinks = open_sinks(options.sinks)
            opened.callback(sinks.close)
            watch.show_progress()

            collaborator = Collaborator(
                releases=releases,
                store=made.store,
                settings=made.settings,
                options=made.engine_options,
                sinks=sinks,
                every=made.every,
                health=watch.health,
                on_turn=watch.on_turn,
            )

        watch.announce_run(made.settings, source=made.releases.partition("?")[0])
        return collaborator.run(stop, until_end=options.until_end)


def _watching_collaboration(
    options: CollaborateOptions, made: Collaboration
) -> AbstractContextManager[Watch]:
    """Show public figures, and private ones on the page and where the operator asks for them."""
    logged = options.log_format == "json"
    return watching(
        options,
        made.settings,
        make_metrics=_metrics,
        make_private_metrics=_private_metrics,
        make_telemetry=_telemetry,
        progress=_LoggedCollaborationProgress()
        if logged
        else _CollaborationProgress(quiet=options.quiet),
        only_read=True,
    )


def _metrics(**options: Any) -> Metrics:
    from meanstream.streaming.metrics.collaboration_metrics import CollaborationMetrics

    return CollaborationMetrics(**options)


def _private_metrics(**options: Any) -> Metrics:
    from meanstream.streaming.metrics.collaboration_metrics import PrivateCollaborationMetrics

    return PrivateCollaborationMetrics(**options)


def _telemetry(**options: Any) -> Telemetry:
    from meanstream.streaming.metrics.collaboration_metrics import CollaborationTelemetry

    return CollaborationTelemetry(**options)


class _CollaborationProgress(Progress):
    """Progress of answering from everyone's releases."""

    def line(self, stats: EngineStats, rate: float) -> str:
        """One line: records, releases that were taken, estimates; nothing of values."""
        return (
            f"{stats.events:,} records ({rate:,.0f}/s) | {stats.releases:,} releases of {stats.agents:,} agents | "
            f"{stats.estimates:,} estimates"
        )


class _LoggedCollaborationProgress(LoggedProgress):
    """The same as records of the log."""

    def figures(self, stats: EngineStats) -> dict[str, Any]:
        """Public: what the summary at the end says, so far."""
        return collaboration_stats(stats).summary()


def open_received_releases(
    location: str, possible: PossibleReleases
) -> ReleasesTopic | ReleasesFile:
    """Open a topic or a file of everyone's releases, of which only possible ones count."""
    if not is_kafka_location(location):
        return ReleasesFile(Path(location), possible)
    from meanstream.streaming.kafka.reading.latest_releases import ReleasesTopic

    return ReleasesTopic(KafkaLocation.parse(location, role="releases"), possible)


def _dry_run(options: CollaborateOptions, made: Collaboration) -> None:
    """Refuse what a run would refuse; otherwise say what it would answer, from what."""
    with refusing_to_open():
        made.open_releases().close()
        store = {
            "path": str(made.store),
            "name": made.settings.name,
            **asdict(agents_budgets(made.store).summary),
        }

    facts: dict[str, Any] = {"releases": made.releases, "store": store}
    facts.update({OPTION_OF.get(role, role): place for role, place in options.sinks.items()})
    facts |= {
        "refresh": options.refresh,
        "privacy": "nothing is spent: estimates are made of releases that are there",
    }
    dry_run_facts(facts, dry_run_fact_text, as_json=options.json)
