"""What pipelines count.

One table of names, those of the engine's metrics, from which every step takes its own.

Those of `NAMESPACE` are public, as the engine's metrics are: a summary prints them, and Prometheus
gets them by the engine's names. Of agents these are counts, event times and durations. How many
values were clipped depends on values and is not among them. Rounds protect how many samples a user
sends and when, too: what tells of it (records, samples, rejected, late, duplicate) is the
operator's, in `PRIVATE_NAMESPACE`, and shown by the runner alone.

Names within one table row are counted by one step each: of two steps that Flink runs as one
operator, it shows only the last one's counter of a name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import PrivateDeadLetter

NAMESPACE = "meanstream"
"""Of the public counters of a pipeline."""
PRIVATE_NAMESPACE = "meanstream_private"
"""Of the counters that only the operator of rounds may see: they are on no summary and under no
name of the engine."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the table.

    Attributes
    ----------
    family : str
        What it is in Prometheus, without the prefix `meanstream_` and, if it is a counter there,
        without `_total`.
    text : str
        What it counts.
    label : str
        Of the family: the name ends with its value.
    """

    family: str
    text: str
    label: str = ""


COUNTERS = {
    "events": Figure("events", "Records read by our sources, good and bad."),
    "reading_turns": Figure(
        "reading_turns", "Turns of reading a partition, since the job's last start."
    ),
    "samples": Figure(
        "events", "Samples that entered the pipeline; the events, if another source has read them."
    ),
    "accepted": Figure("accepted", "Accepted samples of a file."),
    "rejected_": Figure("rejects", "Rejected records, samples or reports, by reason.", "reason"),
    "agents": Figure(
        "agents", "Agents with at least one good sample; for rounds from a file, users."
    ),
    "releases": Figure("releases", "Releases charged in the ledger."),
    "refusals": Figure(
        "refusals", "Releases refused because they were made before from other input."
    ),
    "drifts": Figure(
        "drifts", "Changes of an agent's mean that its releases show (with a memory only)."
    ),
    "drift_warnings": Figure(
        "drift_warnings", "Releases that suggest a change of their agent's mean."
    ),
    "exhausted": Figure("agents_exhausted", "Agents after the last release of their horizon."),
    "estimates": Figure("estimates", "Personal estimates made."),
    "windows_overtaken": Figure(
        "windows_overtaken", "Windows answered with a later window's population."
    ),
    "rounds": Figure("rounds", "Completed rounds: answered windows."),
    "rounds_reports_": Figure(
        "rounds_reports", "Reports made, one per user and round, by stage.", "stage"
    ),
    "results_refused": Figure(
        "rounds_results_refused",
        "Impossible results of stages, counted by each shard that received them.",
    ),
    "over_budget": Figure(
        "rounds_over_budget", "Rounds that left out a user's data because the budget was spent."
    ),
    "sent": Figure("sent", "Events written to a topic."),
}
"""By name; one that ends with `_` is followed by the value of the label."""

DISTRIBUTIONS = {
    "batch_samples": Figure("batch_samples", "Samples per batch to the shards."),
    "batch_milliseconds": Figure(
        "batch_seconds", "Duration of a shard's turn, from waiting samples to releases."
    ),
    "release_lag_milliseconds": Figure(
        "release_lag_seconds", "The clock minus the event time of a shard's newest release."
    ),
    "answer_lag_milliseconds": Figure(
        "answer_lag_seconds", "The clock minus the end of the window that a shard has answered."
    ),
    "rounds_window_users": Figure(
        "rounds_window_users", "Users with a counted report in a window."
    ),
}
"""By name. Flink's Prometheus reporter shows no distribution, so each has two counters as well:
`_sum` and `_count`."""


def metric_counter(name: str, value: object = "", *, private: bool = False) -> Any:
    """Give a counter of the table.

    Examples
    --------
    >>> metric_counter("rejected_", "late").metric_name.name
    'rejected_late'
    >>> metric_counter("clipped")
    Traceback (most recent call last):
    KeyError: 'clipped'
    """
    if bool(COUNTERS[name].label) != bool(str(value)):
        raise ValueError(f"counter must have a value where its row has a label, got {name}{value}")
    return Metrics.counter(_namespace(private), f"{name}{value}")


def _namespace(private: bool) -> str:
    if private:
        return PRIVATE_NAMESPACE
    return NAMESPACE


def count_intake_metrics(names: Iterable[str], stats: Any, *, private: bool = False) -> None:
    """Count what an intake of the engine's has counted.

    These numbers, and what it rejected by reason.
    """
    for name in names:
        metric_counter(name, private=private).inc(getattr(stats, name))

    for reason, count in stats.rejected.items():
        metric_counter("rejected_", reason, private=private).inc(count)


def count_sent_metrics(lines: EventLines) -> None:
    """Count events on their way to a topic: dead letters of rounds for the operator alone."""
    metric_counter("sent", private=issubclass(lines.kind, PrivateDeadLetter)).inc(len(lines))


class DistributionOf:
    """A distribution of the table, with its sum and its number as counters.

    Parameters
    ----------
    name : str
        A key of `DISTRIBUTIONS`.
    private : bool
        As for `metric_counter`.
    """

    def __init__(self, name: str, *, private: bool = False) -> None:
        _ = DISTRIBUTIONS[name]
        namespace = _namespace(private)
        self._distribution = Metrics.distribution(namespace, name)
        self._sum, self._count = (
            Metrics.counter(namespace, f"{name}_{part}") for part in ("sum", "count")
        )

    def update(self, value: int) -> None:
        """Take a whole number."""
        self._distribution.update(value)
        self._sum.inc(value)
        self._count.inc()


def metric_counters(result: Any, namespace: str = NAMESPACE) -> dict[str, int]:
    """Add up the counters of a pipeline that has run, by default the public ones.

    Of distributions there are none.
    """
    totals: dict[str, int] = {}
    hidden = {f"{name}_{part}" for name in DISTRIBUTIONS for part in ("sum", "count")}
    for found in result.metrics().query(beam.metrics.MetricsFilter().with_namespace(namespace))[
        "counters"
    ]:
        name = found.key.metric.name
        if name not in hidden:
            totals[name] = totals.get(name, 0) + (found.result or 0)

    return dict(sorted(totals.items()))
