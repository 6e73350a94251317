"""`run rounds --from-reports`: the statistician's side alone, which sees no sample."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.pipelines.commands.run.checks import check_apart, check_sinks, check_store_place, refusing_to_open
from meanstream.pipelines.commands.run.opening import closing_opened_store, open_kafka_sinks, open_sinks, opening_stack
from meanstream.pipelines.commands.run.waiting import wait_for_addresses, waiting_places
from meanstream.pipelines.options.errors import BadOption, refusing_options

if TYPE_CHECKING:
    from meanstream.pipelines.options.rounds import RoundsOptions
    from meanstream.streaming.rounds.received_reports import ReportsFile
    from meanstream.streaming.rounds.side_topics import ReportsTopic
    from meanstream.streaming.rounds.statistician import StatisticianStats


def run_statistician(options: RoundsOptions, reports: str) -> dict[str, Any]:
    """Run the statistician's side alone."""
    from meanstream.streaming.open_sink import sink_place_of
    from meanstream.streaming.rounds.deployment import (
        continued_rounds_deployment,
        named_rounds_deployment,
        respelled_rounds_deployment,
    )
    from meanstream.streaming.rounds.statistician import PUBLIC_SECRET, Statistician, statistician_identity
    from meanstream.streaming.store.store import Store

    for name in ("private_metrics", "private_figures"):
        if getattr(options, name) is not None:
            raise BadOption(f"{name} must be of the engine that reads samples: without --from-reports")
    with refusing_options():
        settings = options.settings()
        settings.require_user_privacy()
        settings = continued_rounds_deployment(options.store, settings)
        identity = statistician_identity(settings)
        _check_reports_place(reports)
        check_store_place(options.store)
        others = {sink_place_of(reports): "from_reports"}
        check_apart(options, options.store)
    with opening_stack() as (opened, stop):
        wait_for_addresses([("from_reports", reports), *waiting_places(options.sinks)], options.wait_for, stop=stop)
        with refusing_options():
            check_sinks(options.sinks, others=others, json=options.json)
        with refusing_to_open():
            store = Store.open(
                options.store, settings=identity, secret=PUBLIC_SECRET, respelled=respelled_rounds_deployment
            )
            settings = named_rounds_deployment(store, settings)
            opened.enter_context(closing_opened_store(store))
            sinks = open_sinks(options.sinks, open_kafka_sinks(options.sinks, store, stop))
            opened.callback(sinks.close)
            place = open_reports(reports, follow=not options.until_end)
            opened.callback(place.close)
            statistician = Statistician(reports=place, settings=settings, store=store, sinks=sinks)
        return _statistician_summary(statistician.run(stop))


def _check_reports_place(reports: str) -> None:
    """Refuse a place of reports that is neither a topic's address nor a file that is there."""
    from meanstream.streaming.kafka.location import is_kafka_location

    if is_kafka_location(reports):
        from meanstream.streaming.rounds.side_topics import check_side_topic

        check_side_topic(reports, "from_reports")
    elif not Path(reports).is_file():
        raise BadOption(f"from_reports must be a readable file or a topic, got {reports!r}")


def open_reports(reports: str, *, follow: bool) -> ReportsFile | ReportsTopic:
    """Open what users' sides have written; a topic is followed unless the run shall end where it ends now."""
    from meanstream.streaming.kafka.location import is_kafka_location
    from meanstream.streaming.rounds.received_reports import ReportsFile

    if not is_kafka_location(reports):
        return ReportsFile(Path(reports))
    from meanstream.streaming.rounds.side_topics import ReportsTopic, open_side_topic

    return ReportsTopic(open_side_topic(reports, "from_reports"), follow=follow)


def _statistician_summary(stats: StatisticianStats) -> dict[str, Any]:
    return {
        "reports": stats.reports,
        "rejected": dict(sorted(stats.rejected.items())),
        "stages": stats.stages,
        "estimates": stats.estimates,
        "rounds": stats.rounds,
        "waiting": stats.waiting,
    }
