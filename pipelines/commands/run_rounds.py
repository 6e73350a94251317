"""`meanstream run rounds`: samples to a private mean per window, here, on Beam, or one side of it alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.commands.hosting import (
    check_sinks,
    check_store,
    failing,
    open_sinks,
    opening,
    stopping_on_signals,
)
from pipelines.commands.logs import logging_to_stderr
from pipelines.commands.options import BadOption, environment_of, print_json, refusing
from pipelines.commands.page import check_page_options, telemetry_of_rounds
from pipelines.commands.progress import Progress
from pipelines.commands.rounds_options import RoundsOptions
from pipelines.commands.watching import metrics_of_rounds, watching

if TYPE_CHECKING:
    from streaming.crash import CrashHook
    from streaming.kafka.sink import KafkaSinks
    from streaming.mapping import ColumnMapping
    from streaming.rounds.settings import RoundsSettings
    from streaming.rounds.statistician import StatisticianStats
    from streaming.rounds.stats import RoundsStats
    from streaming.stats import EngineStats
    from streaming.store.store import Store


def run_rounds(options: RoundsOptions) -> None:
    """Run the side and the host that were asked for, and say what was done."""
    _check_sides(options)
    if options.dry_run:
        from pipelines.commands.rounds_dry_run import dry_run

        dry_run(options)
        return
    if options.runner is not None:
        if options.runner != "DataflowRunner":  # whose workers' files are not here to be opened
            check_options(options)
        from pipelines.beam.rounds.runner import run_on_beam

        run_on_beam(options, options.runner)
        return
    with logging_to_stderr(options.log_format, quiet=options.quiet):
        told = _statistician(options) if options.from_reports is not None else _run_here(options)
        if options.log_format == "json":
            _log_summary(told)
    if options.json:
        print_json(told)
    elif options.log_format == "text" and not options.quiet:
        sys.stderr.write(_line(told) + "\n")


def check_options(options: RoundsOptions) -> RoundsSettings:
    """Refuse options, places, topics and rights that a run could not do with; open nothing and make nothing."""
    from streaming.metrics_server import parse_address
    from streaming.sources.open import open_source

    with refusing():
        settings = options.settings()
        settings.require_user_privacy()
        options.engine_options()
        if options.source is None:
            raise BadOption("source must be given")
        _check_places(options)
        check_store(options.store)
        check_sinks(options.sinks, json=options.json)
        if options.metrics is not None:
            parse_address(options.metrics)
        check_page_options(options.page, remote=options.page_remote)
        open_source(options.source, column_mapping(options), sort=options.sort).close()
    return settings


def run_engine(
    options: RoundsOptions,
    *,
    crash: CrashHook | None = None,
    also: Callable[[EngineStats], None] | None = None,
) -> RoundsStats:
    """Check every option, then open store, source and sinks and run to the end or until a signal.

    A test kills the process in `crash`; `also` is told the statistics after each turn.
    """
    from streaming.crash import no_crash
    from streaming.rounds.deployment import open_rounds_store
    from streaming.rounds.engine import RoundsEngine
    from streaming.rounds.user_side import StageResultsFile
    from streaming.sources.open import open_source

    settings = check_options(options)
    assert options.source is not None  # noqa: S101 - checked above
    with ExitStack() as things, failing(), stopping_on_signals() as stop:
        with opening():
            opened = open_rounds_store(options.store, settings, environment=environment_of(options.secret_file))
            things.callback(opened.store.close)
            # After the store, which may refuse: then no sink was touched.
            sinks = open_sinks(options.sinks, _kafka_sinks(options, opened.store, stop, crash))
            things.callback(sinks.close)
            source = open_source(
                options.source,
                column_mapping(options),
                sort=options.sort,
                id_key=opened.id_key,
                owner=opened.store.public_id(),
                until_end=options.until_end,
            )
            things.callback(source.close)
            progress = RoundsProgress(quiet=options.quiet or options.log_format == "json")
            watch = things.enter_context(
                watching(
                    options,
                    settings,
                    make_metrics=metrics_of_rounds,
                    make_telemetry=telemetry_of_rounds,
                    also=also,
                    progress=progress,
                )
            )
            engine = RoundsEngine(
                source=source,
                settings=settings,
                secret=opened.secret,
                store=opened.store,
                sinks=sinks,
                options=options.engine_options(),
                results=None if options.reports_only is None else StageResultsFile(Path(str(options.stages))),
                on_turn=watch.on_turn,
                health=watch.health,
                crash=crash or no_crash,
            )
            engine.resume()
        return engine.run(stop)


class RoundsProgress(Progress):
    """Progress of rounds: windows and estimates."""

    def line(self, stats: EngineStats, seconds: float) -> str:
        """One line: events per second, users, windows that are open, estimates."""
        from streaming.times import shown

        rate = stats.events / max(seconds, 1e-9)
        return (
            f"{stats.events:,} events ({rate:,.0f}/s) | {stats.agents:,} users | {stats.releases:,} reports | "
            f"{stats.estimates:,} estimates | event time {shown(stats.event_time) or '-'}"
        )


def column_mapping(options: RoundsOptions) -> ColumnMapping:
    """Say which column means what; a user is what sources call an agent."""
    from streaming.mapping import ColumnMapping

    return ColumnMapping(
        agent=options.user, value=options.value, values=options.coordinates, time=options.time, id=options.id
    )


def _run_here(options: RoundsOptions) -> dict[str, Any]:
    """Run the engine, and say what it did."""
    stats = run_engine(options)
    return engine_summary(stats, central=options.settings().central)


def engine_summary(stats: RoundsStats, *, central: bool = False) -> dict[str, Any]:
    """Say what a run did, for the operator."""
    return {
        "events": stats.events,
        "accepted": stats.accepted,
        "rejected": dict(sorted(stats.rejected.items())),
        "clipped": stats.clipped,
        "users": stats.agents,
        "charges" if central else "reports": stats.releases,
        "over_budget": stats.over_budget,
        "estimates": stats.estimates,
        "rounds": stats.rounds,
        "waiting": stats.waiting,
        "open_windows": stats.open_windows,
    }


def _check_sides(options: RoundsOptions) -> None:
    """Refuse combinations that mean nothing, before anything else."""
    if options.runner is not None:
        from pipelines.beam.runners import arguments_of

        with refusing():
            arguments_of(options.runner, options.runner_arg or [])
    if options.page is not None and (options.runner is not None or options.from_reports is not None):
        raise BadOption("page must be of the engine that reads samples: without --runner and --from-reports")
    if options.dry_run and (options.runner is not None or options.from_reports is not None):
        raise BadOption("dry_run must be of the engine that reads samples: without --runner and --from-reports")
    if options.runner_arg and options.runner is None:
        raise BadOption("runner_arg must come with --runner")
    if options.offsets is not None and options.runner is None:
        raise BadOption("offsets must come with --runner: the engine goes on where its store stands")
    if options.reports_only is not None and options.from_reports is not None:
        raise BadOption("reports_only must not come with --from-reports: each is one side alone")
    for side in ("reports_only", "from_reports"):
        if getattr(options, side) is not None and options.stages is None:
            raise BadOption(f"stages must be given with --{side.replace('_', '-')}")
    if options.reports_only is not None and options.reports is not None:
        raise BadOption("reports must not come with --reports-only, which says where they go")
    if options.from_reports is not None and options.source is not None:
        raise BadOption("source must not come with --from-reports: the statistician's side sees no sample")


def _check_places(options: RoundsOptions) -> None:
    """Refuse places that cannot hold what would come."""
    from operators.validation import require

    option = "reports" if options.reports_only is None else "reports_only"
    reports = options.sinks.get("reports", "")
    # Reports are followed by notes that a stage is complete: two types of event.
    require(not reports.endswith(".parquet"), option, "be a .jsonl file, a topic or '-'", reports)
    if options.reports_only is not None:
        stages = str(options.stages)
        require(stages.endswith(".jsonl"), "stages", "be a .jsonl file with --reports-only", stages)


def _statistician(options: RoundsOptions) -> dict[str, Any]:
    """Run the statistician's side alone."""
    from streaming.rounds.statistician import PUBLIC_SECRET, Statistician, statistician_identity
    from streaming.sinks.open import place_of
    from streaming.store.store import Store

    assert options.from_reports is not None  # noqa: S101 - that is how we came here
    with refusing():
        settings = options.settings()
        settings.require_user_privacy()
        identity = statistician_identity(settings)
        if not options.from_reports.is_file():
            raise BadOption(f"from_reports must be a readable file, got {str(options.from_reports)!r}")
        check_store(options.store)
        others = {place_of(str(options.from_reports)): "from_reports"}
        check_sinks(options.sinks, others=others, json=options.json)
    with ExitStack() as things, failing(), stopping_on_signals() as stop:
        with opening():
            store = Store.open(options.store, settings=identity, secret=PUBLIC_SECRET)
            things.callback(store.close)
            sinks = open_sinks(options.sinks, _kafka_sinks(options, store, stop))
            things.callback(sinks.close)
            statistician = Statistician(reports=options.from_reports, settings=settings, store=store, sinks=sinks)
        return _statistician_summary(statistician.run(stop))


def _statistician_summary(stats: StatisticianStats) -> dict[str, Any]:
    return {
        "reports": stats.reports,
        "rejected": dict(sorted(stats.rejected.items())),
        "stages": stats.stages,
        "estimates": stats.estimates,
        "rounds": stats.rounds,
        "waiting": stats.waiting,
    }


def _kafka_sinks(
    options: RoundsOptions, store: Store, stop: Callable[[], bool], crash: CrashHook | None = None
) -> KafkaSinks | None:
    from streaming.kafka.location import is_kafka

    if not any(map(is_kafka, options.sinks.values())):
        return None
    from streaming.crash import no_crash
    from streaming.kafka.sink import KafkaSinks

    return KafkaSinks(store.public_id(), stop=stop, crash=crash or no_crash)


def _log_summary(told: dict[str, Any]) -> None:
    """Log what a run did; the number of clipped values depends on values and is for the terminal only."""
    import logging

    public = {name: value for name, value in told.items() if name != "clipped"}
    logging.getLogger("meanstream.run").info("finished", extra=public)


def _line(told: dict[str, Any]) -> str:
    """Say the same in one line."""
    rejected = ", ".join(f"{n:,} {reason}" for reason, n in told["rejected"].items()) or "none"
    waiting = f", {told['waiting']:,} rounds wait for the other side" if told["waiting"] else ""
    if "events" not in told:
        return f"{told['reports']:,} reports, rejected: {rejected}; {told['estimates']:,} estimates{waiting}"
    paid = f"{told['charges']:,} charges" if "charges" in told else f"{told['reports']:,} reports"
    refused = f", {told['over_budget']:,} times a user over budget" if told["over_budget"] else ""
    return (
        f"{told['events']:,} events, {told['accepted']:,} accepted ({told['clipped']:,} clipped), "
        f"rejected: {rejected}; "
        f"{told['users']:,} users, {paid}{refused}, {told['estimates']:,} estimates{waiting}"
    )
