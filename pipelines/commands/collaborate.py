"""`meanstream run collaborate`: everybody's releases to the estimates of one organization's agents."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.commands.agents_options import CollaborateOptions
from pipelines.commands.hosting import check_sinks, failing, open_sinks, opening, stopping_on_signals
from pipelines.commands.logs import logging_to_stderr
from pipelines.commands.options import BadOption, print_json, refusing

if TYPE_CHECKING:
    from streaming.collaborate import CollaborationStats
    from streaming.kafka.latest import ReleasesTopic
    from streaming.sources.releases_file import ReleasesFile


def collaborate(options: CollaborateOptions) -> None:
    """Run until a signal, or once, and say what was done."""
    with logging_to_stderr(options.log_format, quiet=options.quiet):
        stats = run_collaboration(options)
    if options.json:
        print_json(asdict(stats))
    elif not options.quiet and options.log_format == "text":
        sys.stderr.write(
            f"{stats.releases:,} releases of {stats.agents:,} agents, "
            f"{stats.estimates:,} estimates for {stats.own_agents:,} own agents in {stats.refreshes:,} refreshes\n"
        )


def run_collaboration(options: CollaborateOptions) -> CollaborationStats:
    """Check every option, then open releases, store and sinks and answer."""
    from operators.release_times import parse_duration
    from streaming.collaborate import Collaborator
    from streaming.options import EngineOptions
    from streaming.own_state import store_settings
    from streaming.sinks.open import place_of

    if options.releases is None:
        raise BadOption("releases must be given")
    if options.store is None:
        raise BadOption("store must be given")
    with refusing():
        every = parse_duration("refresh", options.refresh)
        engine_options = EngineOptions(
            collaboration=options.collaboration or "learned_prior", level=options.level, stddev=options.stddev
        )
        check_sinks(options.sinks, others={place_of(options.releases): "releases"}, json=options.json)
    with ExitStack() as things, failing():
        with opening():
            settings = store_settings(options.store)
            releases = open_releases(options.releases)
            things.callback(releases.close)
            sinks = open_sinks(options.sinks)
            things.callback(sinks.close)
            collaborator = Collaborator(
                releases=releases,
                store=options.store,
                settings=settings,
                options=engine_options,
                sinks=sinks,
                every=every,
            )
        with stopping_on_signals() as stop:
            return collaborator.run(stop, until_end=options.until_end)


def open_releases(location: str) -> ReleasesTopic | ReleasesFile:
    """Open a topic or a file of everybody's releases.

    Raises
    ------
    ValueError
        If it does not exist, or the brokers cannot be reached.
    """
    from streaming.kafka.location import KafkaLocation, is_kafka
    from streaming.sources.releases_file import ReleasesFile

    if not is_kafka(location):
        return ReleasesFile(Path(location))
    from streaming.kafka.latest import ReleasesTopic

    return ReleasesTopic(KafkaLocation.parse(location, role="releases"))
