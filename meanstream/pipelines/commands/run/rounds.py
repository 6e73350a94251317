"""`meanstream run rounds`: samples to a private mean per window, here, on Beam, or one side of it alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.pipelines.commands.run.checks import (
    check_apart,
    check_places,
    check_rounds,
    check_rounds_options,
    check_sinks,
    check_store_place,
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
from meanstream.pipelines.commands.run.page import telemetry_of_rounds
from meanstream.pipelines.commands.run.private import private_rounds_figures, write_private_figures
from meanstream.pipelines.commands.run.progress import Progress
from meanstream.pipelines.commands.run.waiting import named_places, wait_for_addresses, wait_for_places
from meanstream.pipelines.commands.run.watching import Watch, metrics_of_rounds, private_metrics_of_rounds, watching
from meanstream.pipelines.options.base import option_environment, print_options_json
from meanstream.pipelines.options.errors import BadOption, refusing_options
from meanstream.pipelines.options.rounds import RoundsOptions

if TYPE_CHECKING:
    from meanstream.streaming.crash import CrashHook
    from meanstream.streaming.engine.stats import EngineStats
    from meanstream.streaming.rounds.settings import RoundsSettings
    from meanstream.streaming.rounds.statistician import StatisticianStats
    from meanstream.streaming.rounds.stats import RoundsStats


def host_rounds(options: RoundsOptions) -> None:
    """Run the side and the host that were asked for, and say what was done."""
    _check_sides(options)
    if options.dry_run:
        from meanstream.pipelines.commands.run.rounds_dry_run import dry_run_rounds

        dry_run_rounds(options)
        return
    if options.runner is not None:
        if options.runner != "DataflowRunner":  # whose workers' files are not here to be opened
            check_rounds(options)
        from meanstream.pipelines.commands.run.beam_rounds import run_rounds_on_beam

        run_rounds_on_beam(options, options.runner)
        return
    with logging_to_stderr(options.log_format, quiet=options.quiet):
        reports = options.from_reports
        told = _run_here(options) if reports is None else _statistician(options, reports)
        if options.log_format == "json":
            _log_summary(told)
    if options.json:
        print_options_json(told)
    elif options.log_format == "text" and not options.quiet:
        sys.stderr.write(_line(told) + "\n")


def run_rounds_engine(
    options: RoundsOptions,
    *,
    crash: CrashHook | None = None,
    also: Callable[[EngineStats], None] | None = None,
) -> RoundsStats:
    """Check every option, then open store, source and sinks and run to the end or until a signal.

    A test kills the process in `crash`; `also` is told the statistics after each turn.
    """
    from meanstream.streaming.crash import no_crash
    from meanstream.streaming.rounds.deployment import open_rounds_store
    from meanstream.streaming.rounds.engine import RoundsEngine
    from meanstream.streaming.rounds.stage_results import StageResultsFile

    settings = check_rounds_options(options)
    hook = crash or no_crash
    with opening_stack() as (opened, stop):
        with refusing_to_open():
            watch = opened.enter_context(_watching_rounds(options, settings, also))
            wait_for_places(options, stop=stop, health=watch.health)
            check_places(options)
            deployment = open_rounds_store(options.store, settings, environment=option_environment(options.secret_file))
            store, name = deployment.store, deployment.settings.name
            opened.enter_context(closing_store(store))
            # After the store, which may refuse: then no sink was touched.
            topics = kafka_sinks(options.sinks, store, stop, crash=hook, name=name, private_apart=True)
            sinks = open_sinks(options.sinks, topics, private=("dead_letters",))
            opened.callback(sinks.close)
            source = open_samples(options, store, id_key=deployment.id_key, name=name)
            opened.callback(source.close)
            watch.show_progress()
            engine = RoundsEngine(
                source=source,
                settings=deployment.settings,
                secret=deployment.secret,
                store=store,
                sinks=sinks,
                options=options.engine_options(),
                results=None if options.reports_only is None else StageResultsFile(Path(str(options.stages))),
                on_turn=watch.on_turn,
                health=watch.health,
                crash=hook,
            )
            engine.resume()
        return engine.run(stop)


def _watching_rounds(
    options: RoundsOptions, settings: RoundsSettings, also: Callable[[EngineStats], None] | None
) -> AbstractContextManager[Watch]:
    """Show public figures only, but where the operator asks for private ones."""
    return watching(
        options,
        settings,
        make_metrics=metrics_of_rounds,
        make_private_metrics=private_metrics_of_rounds,
        make_telemetry=telemetry_of_rounds,
        also=also,
        progress=RoundsProgress(quiet=options.quiet or options.log_format == "json"),
    )


class RoundsProgress(Progress):
    """Progress of rounds: users and windows; only where something public has changed."""

    _before: EngineStats | None = None

    def __call__(self, stats: EngineStats) -> None:
        """Show the newest public figures."""
        from meanstream.streaming.rounds.stats import public_stats, rounds_stats

        view = public_stats(rounds_stats(stats))
        if view != self._before:
            self._before = view
            super().__call__(view)

    def line(self, stats: EngineStats, rate: float) -> str:  # noqa: ARG002 - rates are private here
        """One line: users who were charged, reports, estimates. Events and their times are for `--private-metrics`."""
        return f"{stats.agents:,} users | {stats.releases:,} reports | {stats.estimates:,} estimates"


def _run_here(options: RoundsOptions) -> dict[str, Any]:
    """Run the engine, and say what it did."""
    stats = run_rounds_engine(options)
    with ending_run():
        write_private_figures(options.private_figures, private_rounds_figures(stats))
    return engine_summary(stats, central=options.settings().central)


def engine_summary(stats: RoundsStats, *, central: bool = False) -> dict[str, Any]:
    """Public: say what a run did; `private_rounds_figures` has the rest."""
    from meanstream.streaming.rounds.stats import public_stats

    view = public_stats(stats)
    return {
        "users": view.agents,
        "charges" if central else "reports": view.releases,
        "over_budget": view.over_budget,
        "estimates": view.estimates,
        "rounds": view.rounds,
        "waiting": view.waiting,
        "results_refused": view.results_refused,
    }


def _check_sides(options: RoundsOptions) -> None:
    """Refuse combinations that mean nothing, before anything else."""
    if options.runner is not None:
        from meanstream.pipelines.beam.runners import runner_arguments

        with refusing_options():
            runner_arguments(options.runner, options.runner_arg or [])
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
    for side in ("reports_only", "from_reports"):
        if getattr(options, side) is not None and options.name is None and not options.store.exists():
            raise BadOption(f"name must be given with --{side.replace('_', '-')}: both sides need the same")


def _statistician(options: RoundsOptions, reports: Path) -> dict[str, Any]:
    """Run the statistician's side alone."""
    from meanstream.streaming.open_sink import sink_place_of
    from meanstream.streaming.rounds.deployment import named_rounds, respelled_rounds
    from meanstream.streaming.rounds.statistician import PUBLIC_SECRET, Statistician, statistician_identity
    from meanstream.streaming.store.store import Store

    for name in ("private_metrics", "private_figures"):
        if getattr(options, name) is not None:
            raise BadOption(f"{name} must be of the engine that reads samples: without --from-reports")
    with refusing_options():
        settings = options.settings()
        settings.require_user_privacy()
        identity = statistician_identity(settings)
        if not reports.is_file():
            raise BadOption(f"from_reports must be a readable file, got {str(reports)!r}")
        check_store_place(options.store)
        others = {sink_place_of(str(reports)): "from_reports"}
        check_apart(options, options.store)
    with opening_stack() as (opened, stop):
        wait_for_addresses(named_places(options.sinks), options.wait_for, stop=stop)
        with refusing_options():
            check_sinks(options.sinks, others=others, json=options.json)
        with refusing_to_open():
            store = Store.open(options.store, settings=identity, secret=PUBLIC_SECRET, respelled=respelled_rounds)
            settings = named_rounds(store, settings)
            opened.enter_context(closing_store(store))
            sinks = open_sinks(options.sinks, kafka_sinks(options.sinks, store, stop))
            opened.callback(sinks.close)
            statistician = Statistician(reports=reports, settings=settings, store=store, sinks=sinks)
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


def _log_summary(told: dict[str, Any]) -> None:
    """Log what a run did; all of it is public."""
    import logging

    logging.getLogger("meanstream.run").info("finished", extra=told)


def _line(told: dict[str, Any]) -> str:
    """Say the same in one line."""
    waiting = f", {told['waiting']:,} rounds wait for the other side" if told["waiting"] else ""
    if "users" not in told:
        rejected = ", ".join(f"{n:,} {reason}" for reason, n in told["rejected"].items()) or "none"
        return f"{told['reports']:,} reports, rejected: {rejected}; {told['estimates']:,} estimates{waiting}"
    paid = f"{told['charges']:,} charges" if "charges" in told else f"{told['reports']:,} reports"
    over = f", {told['over_budget']:,} times a user over budget" if told["over_budget"] else ""
    refused = f", {told['results_refused']:,} stage results refused" if told["results_refused"] else ""
    return f"{told['users']:,} users, {paid}{over}{refused}, {told['estimates']:,} estimates{waiting}"
