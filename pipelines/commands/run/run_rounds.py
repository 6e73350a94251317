"""`meanstream run rounds`.

Samples to a private mean per window, here, on Beam, or one side of it alone.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.operators.rings import ring_module
from meanstream.pipelines.commands.run.agents_dry_run import dry_run_facts, dry_run_name
from meanstream.pipelines.commands.run.checks import (
    check_rounds,
    check_rounds_options,
    ending_run,
    private_rounds_figures,
    refusing_to_open,
    write_private_figures,
)
from meanstream.pipelines.commands.run.opening import check_opened_source
from meanstream.pipelines.commands.run.progress_line import Progress
from meanstream.pipelines.commands.run.run_engine import EngineKind, Input, engine_input, run_engine
from meanstream.pipelines.commands.run.run_logs import logging_to_stderr
from meanstream.pipelines.commands.run.run_page import page_telemetry_of_rounds
from meanstream.pipelines.commands.run.run_statistician import (
    dry_run_statistician,
    run_statistician,
)
from meanstream.pipelines.commands.run.signals import resume_collection
from meanstream.pipelines.commands.run.watching import (
    Watch,
    watching,
    watching_metrics_of_rounds,
    watching_private_metrics_of_rounds,
)
from meanstream.pipelines.options.base import OPTION_OF, option_environment, print_options_json
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.pipelines.options.rounds_options import RoundsOptions
from meanstream.streaming.kafka.connection.kafka_location import is_kafka_location
from meanstream.streaming.rounds.rounds_budget import rounds_budgets
from meanstream.streaming.rounds.rounds_deployment import (
    RoundsDeployment,
    check_rounds_deployment,
    open_rounds_deployment,
)
from meanstream.streaming.rounds.rounds_engine import RoundsEngine
from meanstream.streaming.rounds.rounds_stats import RoundsStats, public_stats, rounds_stats
from meanstream.streaming.rounds.stage_results import StageResultsFile, StageResultsLocation

_log = logging.getLogger("meanstream.run")

if TYPE_CHECKING:
    from meanstream.streaming.crash import CrashHook
    from meanstream.streaming.engine.engine_stats import EngineStats
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings


def host_rounds(options: RoundsOptions) -> None:
    """Run the side and the host that were requested, and say what was done."""
    if options.runner is not None:
        resume_collection()
        ring_module("pipelines.beam.commands.run_on_beam").run_rounds_on_beam(
            options, options.runner
        )

        return

    _check_sides(options)
    if options.dry_run and options.from_reports is not None:
        dry_run_statistician(options, options.from_reports)
        return

    if options.dry_run:
        dry_run_rounds(options)
        return

    with logging_to_stderr(options.log_format, quiet=options.quiet):
        reports = options.from_reports
        told = _run_here(options) if reports is None else run_statistician(options, reports)
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

    def make(deployment: RoundsDeployment, taken: Input, **shared: Any) -> RoundsEngine:
        if not (options.private_metrics or options.private_figures or options.dead_letters):
            _log.info(
                "rejected records are not reported here, not even all of them after a misspelled column: their "
                "number is "
                "protected. See it with --private-metrics, --private-figures or --dead-letters"
            )

        return RoundsEngine(
            source=taken.source,
            settings=deployment.settings,
            secret=deployment.secret,
            options=taken.options,
            results=None if options.reports_only is None else _stage_results(str(options.stages)),
            predictions=predictions,
            user_epsilons=user_epsilons,
            **shared,
        )

    settings = check_rounds_options(options)
    with refusing_options():
        predictions = options.predictions(settings)
        user_epsilons = options.accepted_epsilons()

    kind = EngineKind(
        open_store=open_rounds_deployment,
        open_input=engine_input,
        make=make,
        private=("dead_letters",),
        private_apart=True,
    )

    return run_engine(kind, options, settings, _watching_rounds(options, settings, also), crash)


def _stage_results(stages: str) -> StageResultsLocation:
    """Open what the statistician publishes: a file, which need not be there yet, or a topic."""
    if not is_kafka_location(stages):
        return StageResultsFile(Path(stages))
    from meanstream.streaming.rounds.side_topics import StageResultsTopic, open_side_topic

    return StageResultsTopic(open_side_topic(stages, "stages"))


def _watching_rounds(
    options: RoundsOptions, settings: RoundsSettings, also: Callable[[EngineStats], None] | None
) -> AbstractContextManager[Watch]:
    """Show public figures only, but where the operator asks for private ones."""
    return watching(
        options,
        settings,
        make_metrics=watching_metrics_of_rounds,
        make_private_metrics=watching_private_metrics_of_rounds,
        make_telemetry=page_telemetry_of_rounds,
        also=also,
        progress=RoundsProgress(quiet=options.quiet or options.log_format == "json"),
    )


class RoundsProgress(Progress):
    """Progress of rounds: users and windows; only where something public has changed."""

    _before: EngineStats | None = None

    def __call__(self, stats: EngineStats) -> None:
        """Show the newest public figures."""
        view = public_stats(rounds_stats(stats))
        if view != self._before:
            self._before = view
            super().__call__(view)

    def line(self, stats: EngineStats, rate: float) -> str:  # noqa: ARG002 - rates are private here
        """One line: users who were charged, reports, estimates.

        Events and their times are for `--private-metrics`.
        """
        return (
            f"{stats.agents:,} users | {stats.releases:,} reports | {stats.estimates:,} estimates"
        )


def _run_here(options: RoundsOptions) -> dict[str, Any]:
    """Run the engine, and say what it did."""
    stats = run_rounds_engine(options)
    with ending_run():
        write_private_figures(options.private_figures, private_rounds_figures(stats))

    settings = options.settings()
    if stats.over_budget and settings.user_windows is not None:
        _log.warning("%s", _way_out(settings, stats.over_budget))

    return rounds_summary(stats, central=settings.central)


def _way_out(settings: RoundsSettings, over_budget: int) -> str:
    """Say why data was left out, and what brings it back."""
    windows = settings.user_windows
    paid = f"the {windows} windows that epsilon {settings.epsilon:g} pays for"
    return (
        f"{over_budget:,} times a user's data did not enter: the user has been in {paid}. "
        "For later windows begin a deployment with another --name and --store; its epsilon adds "
        "to this one"
    )


def rounds_summary(stats: RoundsStats, *, central: bool = False) -> dict[str, Any]:
    """Public: say what a run did; `private_rounds_figures` has the rest."""
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
    if options.page is not None and options.from_reports is not None:
        raise BadOption("page must be of the engine that reads samples: without --from-reports")
    if options.runner_arg:
        raise BadOption("runner_arg must come with --runner")
    if options.offsets is not None:
        raise BadOption(
            "offsets must come with --runner, since the engine continues from its store"
        )

    if options.reports_only is not None and options.from_reports is not None:
        raise BadOption("reports_only must not come with --from-reports: each is one side alone")

    for side in ("reports_only", "from_reports"):
        if getattr(options, side) is not None and options.stages is None:
            raise BadOption(f"stages must be given with --{side.replace('_', '-')}")

    if options.reports_only is not None and options.reports is not None:
        raise BadOption("reports must not come with --reports-only, which says where they go")
    if options.from_reports is not None and options.source is not None:
        raise BadOption(
            "source must not come with --from-reports: the statistician's side sees no sample"
        )

    for side in ("reports_only", "from_reports"):
        if (
            getattr(options, side) is not None
            and options.name is None
            and not options.store.exists()
        ):
            raise BadOption(
                f"name must be given with --{side.replace('_', '-')}: both sides need the same"
            )


def _log_summary(told: dict[str, Any]) -> None:
    """Log what a run did; all of it is public."""
    _log.info("finished", extra=told)


def _line(told: dict[str, Any]) -> str:
    """Say the same in one line."""
    waiting = f", {told['waiting']:,} rounds wait for the other side" if told["waiting"] else ""
    if "users" not in told:
        rejected = ", ".join(f"{n:,} {reason}" for reason, n in told["rejected"].items()) or "none"
        return f"{told['reports']:,} reports, rejected: {rejected}; {told['estimates']:,} estimates{waiting}"

    paid = f"{told['charges']:,} charges" if "charges" in told else f"{told['reports']:,} reports"
    over = f", {told['over_budget']:,} times a user over budget" if told["over_budget"] else ""
    refused = (
        f", {told['results_refused']:,} stage results refused" if told["results_refused"] else ""
    )

    return (
        f"{told['users']:,} users, {paid}{over}{refused}, {told['estimates']:,} estimates{waiting}"
    )


def dry_run_rounds(options: RoundsOptions) -> None:
    """Refuse what a run would refuse.

    Otherwise say what it would run on, and what is left of the budgets.
    """
    settings = check_rounds(options)
    facts: dict[str, Any] = {"source": options.source, "store": _store(options, settings)}
    lateness = options.lateness_in_force()
    facts["allowed_lateness"] = f"{lateness.text}: {lateness.why}"
    facts.update({OPTION_OF.get(role, role): place for role, place in options.sinks.items()})
    facts["privacy"] = {
        "epsilon": settings.epsilon,
        "window": settings.window,
        "user_budget": settings.user_budget,
        "user_windows": settings.user_windows,
        "delta": settings.user_delta,
    }
    dry_run_facts(facts, _fact_text, as_json=options.json)


def _store(options: RoundsOptions, settings: RoundsSettings) -> dict[str, Any]:
    """Tell what a store would go on with."""
    place = {"path": str(options.store), "name": settings.name}
    with refusing_to_open():
        if not check_rounds_deployment(
            options.store, settings, environment=option_environment(options.secret_file)
        ):
            return {**place, "users": 0}

        place["name"] = check_opened_source(options)
        return {**place, **asdict(rounds_budgets(options.store).summary)}


def _fact_text(fact: Any) -> str:
    if not isinstance(fact, dict):
        return str(fact)

    if fact.get("user_windows") is not None:
        delta = f", delta {fact['delta']:g}" if fact["delta"] else ""
        what = f"all that a user sends in {fact['user_windows']} windows of {fact['window']}"
        return f"epsilon {fact['epsilon']:g}{delta} for {what} together"

    if "window" in fact:
        limit = (
            "no limit over all windows"
            if fact["user_budget"] is None
            else f"at most {fact['user_budget']:g} in all"
        )

        return f"epsilon {fact['epsilon']:g} for all that a user sends in a window of {fact['window']}, {limit}"

    if not fact["users"]:
        return f"{fact['path']}, which will begin; {dry_run_name(fact)}"
    return (
        f"{fact['path']}, {dry_run_name(fact)}, "
        f"which continues with {fact['users']:,} users: at most epsilon {fact['spent_max']:g} spent, "
        f"{fact['at_budget']:,} cannot pay for another report"
    )
