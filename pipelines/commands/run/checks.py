"""What a run refuses before anything is opened or made, and the one line in which it ends where it cannot go on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.operators.collaboration.registry import make_collaboration
from meanstream.operators.durations import parse_duration
from meanstream.operators.validation import require
from meanstream.pipelines.commands.command_outputs import writing_output
from meanstream.pipelines.commands.run.run_page import check_page_options
from meanstream.pipelines.options.base import OPTION_OF, option_location
from meanstream.pipelines.options.option_errors import BadOption, RunFailed, refusing_options
from meanstream.pipelines.options.stream_defaults import NEVER, is_endless_source
from meanstream.streaming.events.times import iso_time
from meanstream.streaming.kafka.connection.kafka_location import is_kafka_location
from meanstream.streaming.open_sink import STDOUT, canonical_sink_location, check_sink_location
from meanstream.streaming.open_source import open_source
from meanstream.streaming.own_paths import (
    own_files_named,
    own_files_of_store,
    require_no_store_file,
    require_own_paths_apart,
)
from meanstream.streaming.sinks.sink_protocol import DeliveryFailedError, SinkLostError
from meanstream.streaming.sources.source_protocol import SourceLostError
from meanstream.streaming.store.state_store import StoreError

if TYPE_CHECKING:
    from meanstream.operators.agents.agents import AgentsSettings
    from meanstream.pipelines.commands.run.watching import WatchedOptions
    from meanstream.pipelines.options.agent_side import AgentSideOptions
    from meanstream.pipelines.options.rounds_options import RoundsOptions
    from meanstream.pipelines.options.stream_options import StreamOptions
    from meanstream.streaming.engine.engine_options import EngineOptions
    from meanstream.streaming.engine.engine_stats import EngineStats
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings
    from meanstream.streaming.rounds.rounds_stats import RoundsStats


def check_agents(options: AgentSideOptions) -> AgentsSettings:
    """Refuse options, places, topics and rights that a run could not do with.

    Open nothing and make nothing.
    """
    settings = check_agents_options(options)
    check_locations(options)
    return settings


def check_agents_options(options: AgentSideOptions) -> AgentsSettings:
    """Refuse what can be refused without asking anyone."""
    # In the order in which a user would mend them.
    with refusing_options():
        settings = options.settings()
        engine_options = options.engine_options()
        check_collaboration(engine_options, settings)
        _check_that_something_comes_out(options)
        check_store_path(options.store)
        check_apart(options, options.store)
        check_metrics_addresses(options)
        parse_duration("wait_for", options.wait_for)
        check_page_options(options.page, remote=options.page_remote)
        check_private_figures(getattr(options, "private_figures", None))
        _check_answers(options)

    return settings


def check_collaboration(options: EngineOptions, settings: AgentsSettings) -> None:
    """Refuse a way to collaborate that is none, or that knows of no covariates."""
    design = None if options.covariates is None else options.covariates.design
    make_collaboration(
        options.collaboration, lower=settings.lower, upper=settings.upper, covariates=design
    )


def check_locations(options: StreamOptions) -> None:
    """Refuse sinks and a source that cannot be opened; brokers are queried."""
    # What is an output of the statistician cannot be another one.
    others: dict[str, str] = {}
    with refusing_options():
        if getattr(options, "reports_only", None) is not None:
            others = _check_stages(str(getattr(options, "stages", "")))

        check_sinks(options.sinks, others=others, json=options.json)
        open_source(
            option_location(options.source), options.column_mapping(), sort=options.sort
        ).close()


def _check_stages(stages: str) -> dict[str, str]:
    """Refuse a topic of stage results that cannot be read.

    Give the place, and the option that names it.
    """
    if is_kafka_location(stages):
        from meanstream.streaming.rounds.side_topics import look_for_side_topic

        look_for_side_topic(stages, "stages")

    return {canonical_sink_location(stages): "stages"}


def check_rounds(options: RoundsOptions) -> RoundsSettings:
    """Refuse options, places, topics and rights that a run could not do with.

    Open nothing and make nothing.
    """
    settings = check_rounds_options(options)
    check_locations(options)
    with refusing_options():
        options.predictions(settings)
        options.accepted_epsilons()

    return settings


def check_rounds_options(options: RoundsOptions) -> RoundsSettings:
    """Refuse what can be refused without asking anyone."""
    with refusing_options():
        settings = options.settings()
        settings.require_user_privacy()
        options.engine_options()
        option_location(options.source)
        _check_output_capacity(options)
        check_store_path(options.store)
        check_apart(options, options.store)
        check_metrics_addresses(options)
        parse_duration("wait_for", options.wait_for)
        check_private_figures(options.private_figures)
        check_page_options(options.page, remote=options.page_remote)

    return settings


def _check_answers(options: AgentSideOptions) -> None:
    """Refuse an address of answers that is none, and tokens that are none or for nothing."""
    address = getattr(options, "answers", None)
    tokens = getattr(options, "answer_tokens", None)
    remote = getattr(options, "answers_remote", False)

    # A token opens what an address offers.
    require(address is not None or not remote, "answers_remote", "come with --answers", remote)
    require(
        address is not None or tokens is None, "answer_tokens", "come with --answers", str(tokens)
    )

    if address is not None:
        from meanstream.pipelines.page.page_answers import check_answers

        check_answers(address, tokens, remote=remote)


def check_metrics_addresses(options: WatchedOptions) -> None:
    """Refuse addresses of metrics that are none."""
    for name in ("metrics", "private_metrics"):
        if (address := getattr(options, name)) is not None:
            from meanstream.streaming.metrics.background import parse_server_address

            parse_server_address(address, name)


def _check_that_something_comes_out(options: AgentSideOptions) -> None:
    """Refuse a stream without end that would run for ever and never let anything out."""
    # A stream without end needs a release or a refresh.
    ends = options.until_end or getattr(options, "offsets", None) is not None
    if (
        not is_endless_source(option_location(options.source), ends=ends)
        or options.releases is not None
    ):
        return

    if (refresh := options.refresh_in_force()) is not None:
        rule = "be a duration with a source that has no end and no --releases: else nothing ever comes out"
        require(refresh.seconds is not None, "refresh", rule, NEVER)
        return

    require(
        False,
        "releases",
        "be given with a source that has no end: else nothing ever comes out",
        None,
    )


def _check_output_capacity(options: RoundsOptions) -> None:
    """Refuse places that cannot hold what would come."""
    option = "reports" if options.reports_only is None else "reports_only"
    reports = options.sinks.get("reports", "")

    # Two types of event do not go into one file of Parquet.
    # Reports are followed by notes that a stage is complete: two types of event.
    require(not reports.endswith(".parquet"), option, "be a .jsonl file, a topic or '-'", reports)

    if options.reports_only is not None:
        stages = str(options.stages)
        if is_kafka_location(stages):
            from meanstream.streaming.rounds.side_topics import check_side_topic

            check_side_topic(stages, "stages")
        else:
            require(
                stages.endswith(".jsonl"),
                "stages",
                "be a .jsonl file or a topic with --reports-only",
                stages,
            )


def check_store_path(store: Path) -> None:
    """Refuse a store that could not be made."""
    require(
        store.parent.is_dir() and not store.is_dir(),
        "store",
        "be a file in an existing folder",
        str(store),
    )


def check_sinks(
    places: Mapping[str, str], *, others: Mapping[str, str] | None = None, json: bool = False
) -> None:
    """Refuse sinks that could not be opened, before any of them is made."""
    # Places must differ, by whatever name.
    taken = dict(others or {})
    for role, location in places.items():
        option = OPTION_OF.get(role, role)
        place = canonical_sink_location(location)
        require(place not in taken, option, f"be another place than {taken.get(place)}", location)
        taken[place] = option
        check_sink_location(option, location)

    require(
        not (json and STDOUT in taken), taken.get(STDOUT, "sink"), "be a file with --json", STDOUT
    )


def check_apart(options: Any, store: Path | None) -> None:
    """Refuse an output that is an input, a file of a store or another output, by whatever name."""
    # Files that are written, and files that are read.
    places = {
        role: location
        for role, location in options.sinks.items()
        if location != STDOUT and not is_kafka_location(location)
    }
    written = {OPTION_OF.get(role, role): Path(location) for role, location in places.items()}

    if (figures := getattr(options, "private_figures", None)) is not None:
        written["private_figures"] = figures

    no_input = {"store", "from_", *written, *(f"{role}_only" for role in places)}
    inputs = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in no_input}

    # Files of the store may be named by no other option.
    read = own_files_named(inputs, os.environ)
    own_files = {} if store is None else own_files_of_store(store)
    secret = own_files.pop("the secret of the store", None)
    require_own_paths_apart(own_files, read)
    beside = {} if secret is None else {"the secret of the store": secret}
    require_own_paths_apart(written, own_files | beside | read)

    for option, path in {**written, "store": store}.items():
        if path is not None:
            require_no_store_file(option, path)


@contextmanager
def refusing_to_open() -> Iterator[None]:
    """Refuse an option whose store, source or sink cannot be opened."""
    try:
        with refusing_options():
            yield
    except StoreError as error:
        raise BadOption(str(error)) from None


@contextmanager
def ending_run() -> Iterator[None]:
    """Turn the end of a store, a source or a sink into one line and exit code 1."""
    try:
        yield
    except (StoreError, SourceLostError, SinkLostError, DeliveryFailedError) as error:
        raise RunFailed(str(error)) from None


def check_private_figures(path: Path | None) -> None:
    """Refuse a file that is there, or could not be made."""
    if path is not None:
        require(
            path.suffix == ".json" and path.parent.is_dir(),
            "private_figures",
            "be a .json file in a folder",
            str(path),
        )
        require(not os.path.lexists(path), "private_figures", "be a new file", str(path))


def write_private_figures(path: Path | None, figures: dict[str, Any]) -> None:
    """Write a new file for the operator alone; nothing, where none was requested."""
    if path is None:
        return
    data = json.dumps({"trust": "private", **figures}, indent=2).encode() + b"\n"
    with writing_output("private_figures", path):
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
        except OSError:
            path.unlink()
            raise


def private_agents_figures(stats: EngineStats) -> dict[str, Any]:
    """Private: say of a run of agents what depends on values."""
    return {"clipped": stats.clipped, "median_half_width": stats.median_half_width}


def private_rounds_figures(stats: RoundsStats) -> dict[str, Any]:
    """Private: say of a run of rounds what tells how many samples users send, and when."""
    return {
        "events": stats.events,
        "accepted": stats.accepted,
        "rejected": dict(sorted(stats.rejected.items())),
        "letters_unwritten": stats.letters_unwritten,
        "clipped": stats.clipped,
        "users_seen": stats.agents,
        "users_full": stats.full,  # as many as --max-users allows
        "open_windows": stats.open_windows,
        "refusals": stats.refusals,
        "input_lag": stats.input_lag,
        "event_time": iso_time(stats.event_time),
    }
