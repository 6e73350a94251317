"""`meanstream run collaborate`: everybody's releases to the estimates of one organization's agents."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from meanstream.pipelines.commands.run.checks import check_apart, check_sinks, refusing_to_open
from meanstream.pipelines.commands.run.logs import logging_to_stderr
from meanstream.pipelines.commands.run.opening import open_sinks, opening_stack
from meanstream.pipelines.commands.run.waiting import wait_for_addresses
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.collaborate import CollaborateOptions
from meanstream.pipelines.options.errors import BadOption, refusing_options

if TYPE_CHECKING:
    from meanstream.operators.agents.possible import PossibleReleases
    from meanstream.streaming.agents.collaborate import CollaborationStats
    from meanstream.streaming.kafka.latest import ReleasesTopic
    from meanstream.streaming.sources.releases_file import ReleasesFile


def host_collaboration(options: CollaborateOptions) -> None:
    """Run until a signal, or once, and say what was done."""
    with logging_to_stderr(options.log_format, quiet=options.quiet):
        stats = _run_collaboration(options)
    if options.json:
        print_options_json(asdict(stats) | {"rejected": dict(sorted(stats.rejected.items()))})
    elif not options.quiet and options.log_format == "text":
        sys.stderr.write(
            f"{stats.releases:,} releases of {stats.agents:,} agents, "
            f"{stats.estimates:,} estimates for {stats.own_agents:,} own agents in {stats.refreshes:,} refreshes; "
            f"rejected: {', '.join(f'{n:,} {reason}' for reason, n in sorted(stats.rejected.items())) or 'none'}\n"
        )


def _run_collaboration(options: CollaborateOptions) -> CollaborationStats:
    """Check every option, then open releases, store and sinks and answer."""
    from meanstream.operators.agents.possible import PossibleReleases
    from meanstream.operators.collaboration.registry import make_collaboration
    from meanstream.operators.durations import parse_duration
    from meanstream.streaming.agents.collaborate import Collaborator
    from meanstream.streaming.agents.own_state import own_settings
    from meanstream.streaming.engine.options import EngineOptions
    from meanstream.streaming.open_sink import sink_place_of

    if options.releases is None:
        raise BadOption("releases must be given")
    if options.store is None:
        raise BadOption("store must be given")
    if not options.store.is_file():
        raise BadOption(f"store must be that of the own agents, got {str(options.store)!r}")
    with refusing_options():
        every = parse_duration("refresh", options.refresh)
        engine_options = EngineOptions(
            collaboration=options.collaboration or "learned_prior", level=options.level, stddev=options.stddev
        )
        check_apart(options, options.store)
        check_sinks(options.sinks, others={sink_place_of(options.releases): "releases"}, json=options.json)
    with opening_stack() as (opened, stop):
        wait_for_addresses([("releases", options.releases)], options.wait_for, stop=stop)
        with refusing_to_open():
            settings = own_settings(options.store)
            make_collaboration(engine_options.collaboration, lower=settings.lower, upper=settings.upper)
            possible = PossibleReleases(settings, max_samples=options.max_samples)
            releases = open_received_releases(options.releases, possible)
            opened.callback(releases.close)
            sinks = open_sinks(options.sinks)
            opened.callback(sinks.close)
            collaborator = Collaborator(
                releases=releases,
                store=options.store,
                settings=settings,
                options=engine_options,
                sinks=sinks,
                every=every,
            )
        return collaborator.run(stop, until_end=options.until_end)


def open_received_releases(location: str, possible: PossibleReleases) -> ReleasesTopic | ReleasesFile:
    """Open a topic or a file of everybody's releases, of which only possible ones count.

    Raises
    ------
    ValueError
        If it does not exist, or the brokers cannot be reached.
    """
    from meanstream.streaming.kafka.location import KafkaLocation, is_kafka_location
    from meanstream.streaming.sources.releases_file import ReleasesFile

    if not is_kafka_location(location):
        return ReleasesFile(Path(location), possible)
    from meanstream.streaming.kafka.latest import ReleasesTopic

    return ReleasesTopic(KafkaLocation.parse(location, role="releases"), possible)
