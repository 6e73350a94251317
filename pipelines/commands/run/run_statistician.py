"""`run rounds --from-reports`: the statistician's side alone, which sees no sample."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.operators.durations import parse_duration
from meanstream.pipelines.commands.run.agents_dry_run import dry_run_facts, dry_run_name
from meanstream.pipelines.commands.run.checks import (
    check_apart,
    check_metrics_addresses,
    check_sinks,
    check_store_path,
    refusing_to_open,
)
from meanstream.pipelines.commands.run.opening import (
    closing_opened_store,
    open_kafka_sinks,
    open_sinks,
    opening_stack,
)
from meanstream.pipelines.commands.run.progress_line import (
    LoggedProgress,
    Progress,
    broker_locations,
    wait_for_addresses,
)
from meanstream.pipelines.commands.run.watching import Watch, watching
from meanstream.pipelines.options.base import OPTION_OF
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.streaming.kafka.connection.kafka_location import is_kafka_location
from meanstream.streaming.open_sink import canonical_sink_location
from meanstream.streaming.rounds.rounds_deployment import named_rounds_deployment
from meanstream.streaming.rounds.rounds_statistician import (
    PUBLIC_SECRET,
    ReportsFile,
    Statistician,
    statistician_identity,
)
from meanstream.streaming.rounds.rounds_stats import statistician_stats
from meanstream.streaming.store.state_store import Store

if TYPE_CHECKING:
    from meanstream.pipelines.options.rounds_options import RoundsOptions
    from meanstream.streaming.engine.engine_stats import EngineStats
    from meanstream.streaming.metrics.engine_metrics import Metrics
    from meanstream.streaming.rounds.rounds_settings import RoundsSettings
    from meanstream.streaming.rounds.side_topics import ReportsTopic


@dataclass(frozen=True, slots=True)
class _Checked:
    """Options that were checked: what is answered, and what the store must be of."""

    settings: RoundsSettings
    identity: dict[str, Any]


def run_statistician(options: RoundsOptions, reports: str) -> dict[str, Any]:
    """Run the statistician's side alone."""
    made = _check_statistician(options, reports)
    with opening_stack() as (opened, stop):
        with refusing_options():
            watch = opened.enter_context(_watching_statistician(options, made.settings))

        waited = [("from_reports", reports), *broker_locations(options.sinks)]
        wait_for_addresses(waited, options.wait_for, stop=stop, health=watch.health)
        _check_outputs(options, reports)

        with refusing_to_open():
            store = Store.open(options.store, settings=made.identity, secret=PUBLIC_SECRET)
            opened.enter_context(closing_opened_store(store))
            sinks = open_sinks(options.sinks, open_kafka_sinks(options.sinks, store, stop))
            opened.callback(sinks.close)

            place = open_reports(reports, follow=not options.until_end)
            opened.callback(place.close)
            statistician = Statistician(
                reports=place,
                settings=named_rounds_deployment(store, made.settings),
                store=store,
                sinks=sinks,
                on_pass=watch.on_turn,
                health=watch.health,
            )

        watch.show_progress()
        return statistician.run(stop).summary()


def dry_run_statistician(options: RoundsOptions, reports: str) -> None:
    """Refuse what a run would refuse.

    Otherwise say what it would read, and which store would go on.
    """
    from meanstream.streaming.rounds.side_topics import look_for_side_topic

    made = _check_statistician(options, reports)
    _check_outputs(options, reports)

    with refusing_to_open():
        if is_kafka_location(reports):
            look_for_side_topic(reports, "from_reports")

        kept = _kept_name(options.store, made.identity)

    store = {
        "path": str(options.store),
        "name": kept or made.settings.name,
        "begun": kept is not None,
    }
    facts: dict[str, Any] = {"from_reports": reports, "store": store}
    facts.update({OPTION_OF.get(role, role): place for role, place in options.sinks.items()})
    facts["privacy"] = "no budget is spent here: users' sides have charged these reports"
    dry_run_facts(facts, _fact_text, as_json=options.json)


def _kept_name(path: Path, identity: dict[str, Any]) -> str | None:
    """Give the name of the deployment that a store has begun with, None if there is no store.

    Refuse another one's.
    """
    if not path.exists():
        return None

    with closing(Store.read(path)) as store:
        store.require_same(identity, PUBLIC_SECRET)
        return str(store.begun_settings()["name"])


def _fact_text(fact: Any) -> str:
    if not isinstance(fact, dict):
        return str(fact)
    goes_on = "which continues" if fact["begun"] else "which will begin"
    return f"{fact['path']}, {goes_on}; {dry_run_name(fact)}"


def _check_statistician(options: RoundsOptions, reports: str) -> _Checked:
    """Refuse what can be refused without asking a broker."""
    for name in ("private_metrics", "private_figures"):
        if getattr(options, name) is not None:
            raise BadOption(
                f"{name} must be of the engine that reads samples: without --from-reports"
            )

    with refusing_options():
        settings = options.settings()
        settings.require_user_privacy()
        identity = statistician_identity(settings)
        _check_reports_location(reports)
        check_store_path(options.store)
        check_apart(options, options.store)
        check_metrics_addresses(options)
        parse_duration("wait_for", options.wait_for)

    return _Checked(settings, identity)


def _check_outputs(options: RoundsOptions, reports: str) -> None:
    """Refuse places that cannot be written to."""
    with refusing_options():
        check_sinks(
            options.sinks,
            others={canonical_sink_location(reports): "from_reports"},
            json=options.json,
        )


def _watching_statistician(
    options: RoundsOptions, settings: RoundsSettings
) -> AbstractContextManager[Watch]:
    """Show the figures of this side, all of which are public."""
    logged = options.log_format == "json"
    progress = (
        _LoggedStatisticianProgress() if logged else _StatisticianProgress(quiet=options.quiet)
    )

    return watching(options, settings, make_metrics=_metrics, progress=progress)


def _metrics(**options: Any) -> Metrics:
    from meanstream.streaming.metrics.rounds_metrics import StatisticianMetrics

    return StatisticianMetrics(**options)


class _StatisticianProgress(Progress):
    """Progress of the statistician's side."""

    def line(self, stats: EngineStats, rate: float) -> str:  # noqa: ARG002 - reports come in bursts
        """One line: reports, results, estimates, what waits."""
        counts = statistician_stats(stats)
        return (
            f"{counts.reports:,} reports ({counts.rejected.total():,} rejected) | {counts.stages:,} stage results | "
            f"{counts.estimates:,} estimates | {counts.waiting:,} rounds wait"
        )


class _LoggedStatisticianProgress(LoggedProgress):
    """The same as records of the log."""

    def figures(self, stats: EngineStats) -> dict[str, Any]:
        """Give what the summary at the end says, so far."""
        return statistician_stats(stats).summary()


def _check_reports_location(reports: str) -> None:
    """Refuse a place of reports that is neither a topic's address nor a file that is there."""
    if is_kafka_location(reports):
        from meanstream.streaming.rounds.side_topics import check_side_topic

        check_side_topic(reports, "from_reports")
    elif not Path(reports).is_file():
        raise BadOption(f"from_reports must be a readable file or a topic, got {reports!r}")


def open_reports(reports: str, *, follow: bool) -> ReportsFile | ReportsTopic:
    """Open what users' sides have written.

    A topic is followed unless the run shall end where it ends now.
    """
    if not is_kafka_location(reports):
        return ReportsFile(Path(reports))
    from meanstream.streaming.rounds.side_topics import ReportsTopic, open_side_topic

    return ReportsTopic(open_side_topic(reports, "from_reports"), follow=follow)
