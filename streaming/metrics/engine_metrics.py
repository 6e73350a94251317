"""What the engine shows to Prometheus; the only file that imports prometheus_client."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Protocol, get_args

import numpy as np
from prometheus_client import (
    CollectorRegistry,
    Histogram,
    ProcessCollector,
    generate_latest,
    make_wsgi_app,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from meanstream.operators.counters.base import ENDLESS, counter_limit
from meanstream.operators.records import Floats
from meanstream.streaming.agents.agents_budget import budget_outlook
from meanstream.streaming.agents.public_population import PublicPopulation
from meanstream.streaming.clock import Clock, SystemClock
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.events.wire import Reason
from meanstream.streaming.metrics.recent_rate import RecentRate
from meanstream.streaming.store.state_store import Store, StoreError

COUNTERS = {
    "events": "Records read, good and bad.",
    "accepted": "Samples that were taken.",
    "letters_unwritten": "Rejected records without a dead letter, beyond --max-dead-letters.",
    "releases": "Releases charged in the ledger.",
    "refusals": "Releases refused, because the same release was made before from another input.",
    "drifts": "Changes of an agent's mean that its releases show; with a memory only.",
    "drift_warnings": "Releases that show that their agent's mean may have changed, before it is sure.",
    "estimates": "Personal estimates written.",
}
GAUGES = {
    "agents": "Agents with at least one good sample.",
    "agents_exhausted": "Agents that have made the last release of their horizon.",
    "budget_spent_ratio_max": "Share of its horizon that the agent which spent most has spent.",
    "released_half_width_median": "Median over agents of meanstream_released_half_width.",
    "released_class_size_median": "Median over agents of meanstream_released_class_size.",
    "prior_components": "Components of the learned prior; 0 where no prior is learned.",
    "prior_spread": "Standard deviation of the means within a component of the learned prior, in the values' unit.",
    "prior_count_ratio": "Probability that means, or their spread, go with the agents' numbers of samples.",
    "dependence_ratio": "Long-run variance over that of neighboring samples; 1 until releases show dependence.",
    "covariates_explained_ratio": "Share of the variance of means that covariates explain; none without covariates.",
    "answer_lag_seconds": "The clock minus the event time that agents were answered up to, when they last were.",
    "samples_pending": "Samples that were taken and wait for event time.",
    "first_release_timestamp_seconds": "Event time at which the first release is due; none once there was one.",
    "input_lag_events": "Records that the source holds and the engine has not read.",
    "group_commit_age_seconds": "Seconds since the broker last took the offsets of the group.",
    "refresh_seconds": "How often agents get estimates, in event time; none where they do at the end of the source.",
    "allowed_lateness_seconds": "How far a sample may lie behind event time; releases wait for as long.",
}
DISTRIBUTIONS = {
    "budget_spent_ratio": "Agents by the share of their horizon that they have spent.",
    "released_half_width": "Agents by the half-width of the interval that the releases alone give, in values' units.",
    "released_class_size": "Agents by the gain in variance from all releases over their own releases.",
}
FORECASTS = {
    "budget_left_seconds": "Agents by time from the newest release to their last one, at each agent's rate so far.",
}
DURATIONS = {
    "commit_seconds": "Duration of a transaction: position, state, ledger and outgoing events.",
    "delivery_seconds": "Time from a commit until its events are durable in the sinks, with retries.",
    "batch_seconds": "Duration of a turn, from reading a batch to its delivery.",
}
LIVE = {
    "watermark_lag_seconds": "The clock minus the event time that all later samples are expected to be after.",
    "checkpoint_age_seconds": "Seconds since all that had been read was in the store and delivered.",
    "ready": "1 if state is restored, connections stand and no delivery is stuck, as /readyz says.",
    "ledger_rows": "Rows of the ledger.",
    "ledger_bytes": "Bytes of the outputs in the ledger.",
    "events_per_second": "Records read per second, over the last minute.",
    "input_silent_seconds": "Seconds since the last record was read, or since the start.",
    "start_timestamp_seconds": "When this process began to be watched.",
}
DISK = {
    "store_bytes": "Bytes of the store's file and its write-ahead log.",
    "store_free_bytes": "Bytes that are left on the disk of the store.",
    "store_disk_bytes": "Bytes of the disk of the store.",
}
PROCESS = (
    "process_virtual_memory_bytes",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_cpu_seconds",
    "process_open_fds",
    "process_max_fds",
)
"""What the Prometheus client tells of a process, under the names that it has everywhere."""

PARTITION_LAG = "Records of a partition that the source holds and the engine has not read."

CONNECTED = "1 if a broker answers the client of the option that `client` names, 0 if none does."


def disk_ledger_size(path: Path) -> tuple[int, int] | tuple[None, None]:
    """Give the rows and bytes of a ledger as its end says, read next to the engine.

    None where it cannot be read.
    """
    try:
        with Store.read(path) as store:
            head = store.ledger.head()
    except StoreError:
        return None, None

    return head.rows, head.size


def disk_of_store(path: Path) -> dict[str, int]:
    """Private: give the bytes of a store's files, and the free and all bytes of their disk.

    None where there is none.

    **Privacy.** How long the numbers in private outputs on the disk are is in what is left of it.
    """
    try:
        disk = os.statvfs(path.parent)
        files = [path.with_name(path.name + end) for end in ("", "-wal")]
        used = sum(file.stat().st_size for file in files if file.exists())
    except OSError:
        return {}

    return {
        "store_bytes": used,
        "store_free_bytes": disk.f_bavail * disk.f_frsize,
        "store_disk_bytes": disk.f_blocks * disk.f_frsize,
    }


PREFIX = "meanstream"
REASONS: tuple[str, ...] = get_args(Reason)

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SPENT = tuple(k / 10 for k in range(11))
CLASS_SIZES = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
LEFT_SECONDS = tuple(86_400.0 * days for days in (0, 1, 7, 30, 90, 180, 365, 730, 1825, 3650))
HALVINGS = 12
"""The buckets of half-widths are half the range of a value and that many halvings of it."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """How many of some numbers are at most each bound; the last bound is infinite."""

    bounds: tuple[float, ...]
    at_most: tuple[int, ...]
    total: float

    @classmethod
    def of(
        cls, values: Floats, bounds: Sequence[float], weight: Sequence[int] | None = None
    ) -> Distribution:
        """Count values, each as often as its weight says.

        Examples
        --------
        >>> Distribution.of(np.array([0.1, 0.3, 0.9]), (0.2, 0.9))
        Distribution(bounds=(0.2, 0.9, inf), at_most=(1, 3, 3), total=1.3)
        """
        # A value at a bound belongs below it, rounding included.
        number = np.ones(len(values), np.int64) if weight is None else np.asarray(weight, np.int64)
        bucket = np.searchsorted(np.asarray(bounds) * (1 + 1e-12), values, "left")
        counts = np.bincount(bucket, number, minlength=len(bounds) + 1).astype(np.int64)
        return cls(
            (*bounds, float("inf")), tuple(accumulate(counts.tolist())), float(values @ number)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Families:
    """What an endpoint shows: names and texts of metrics by kind, and which parts it has.

    Attributes
    ----------
    counters, gauges, distributions, durations, live : mapping
        Text by name; those that are `live` change while nothing happens.
    reasons : tuple of str
        Of rejected records that are counted.
    process : tuple of str
        What is told of the process, under the names that it has everywhere.
    foretells, connections, partitions : bool
        Whether it says when budgets end, which clients are connected, and the lag of partitions.
    """

    counters: Mapping[str, str]
    gauges: Mapping[str, str]
    distributions: Mapping[str, str] = field(default_factory=dict)
    durations: Mapping[str, str] = field(default_factory=dict)
    live: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    process: tuple[str, ...] = ()
    foretells: bool = False
    connections: bool = False
    partitions: bool = False


class HasBounds(Protocol):
    """The settings that metrics need."""

    @property
    def lower(self) -> float | tuple[float, ...]:
        """Lower bound of a value, or of each coordinate."""

    @property
    def upper(self) -> float | tuple[float, ...]:
        """Upper bound of a value, or of each coordinate."""

    @property
    def horizon(self) -> int | None:
        """Releases that one agent may ever make; None for no limit."""

    @property
    def protected(self) -> str:
        """What epsilon covers and what it does not, in one sentence."""


class Metrics(Collector):
    """Turns the engine's figures into Prometheus metrics.

    `observe` is called in the engine's thread, at the start and after each turn; it keeps a few
    numbers. A scrape, in another thread, reads these numbers, the ledger's size by a connection of
    its own, and nothing of the engine.

    Parameters
    ----------
    settings : AgentsSettings or RoundsSettings
        For the horizon and the bounds of a value.
    health : EngineHealth
        The engine's, for readiness and the age of the checkpoint.
    store : Path, optional
        The store, for the size of its ledger.
    clock : Clock
        For the lag of event time.

    Notes
    -----
    **Privacy.** Metrics are outputs that anyone may read. Shown are counts, event times, what was
    released or refused, and post-processing of the releases. Half-widths and effective class sizes
    are those that anyone could compute from the releases (`PublicPopulation.precision`); those of
    the personal estimates, and the number of clipped values, depend on raw values and are not
    shown. No metric has a label of an agent. Durations are shown and assumed not to depend on
    values.

    Metrics of the population exist after the first refresh of estimates; `prior_spread` and
    `prior_count_ratio` only where a prior was learned, because a spread of 0 says that the agents
    of a component have the same mean. `dependence_ratio` is 1 until releases show that an agent's
    samples depend on each other.
    """

    families: ClassVar[Families] = Families(
        counters=COUNTERS,
        gauges=GAUGES,
        distributions=DISTRIBUTIONS,
        durations=DURATIONS,
        live=LIVE,
        reasons=REASONS,
        foretells=True,
        connections=True,
        partitions=True,
    )

    def __init__(
        self,
        *,
        settings: HasBounds,
        health: EngineHealth,
        store: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        # An endless horizon has no limit to compare with.
        self._horizon = counter_limit(settings.horizon)
        self._endless = settings.horizon == ENDLESS
        most = float(np.max(np.subtract(settings.upper, settings.lower))) / 2
        self._half_widths = tuple(most / 2**k for k in range(HALVINGS, -1, -1))
        self._health = health
        self._clock = clock or SystemClock()

        # What must be known to say when budgets end, how fast records come, and when the last ones
        # did.
        self._store = store
        self._outlook = budget_outlook(settings, store) if self.families.foretells else None
        self._began = self._clock.now()
        self._rate = RecentRate(self._began)
        self._records = 0
        self._came = self._began  # how many were read, and when the last ones were
        self._process = ProcessCollector(registry=None) if self.families.process else None

        self._shown: dict[
            str, Any
        ] = {}  # replaced as a whole, so that a scrape never sees half of a turn
        self._of_population: dict[str, Any] = {}
        self._computed_from: PublicPopulation | None = None
        self._commits = self._deliveries = 0

        self._lag_of_answers: tuple[float | None, float | None] = (
            None,
            None,
        )  # event time of the last ones, and it
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._durations = {
            name: Histogram(f"{PREFIX}_{name}", text, registry=None, buckets=SECONDS)
            for name, text in self.families.durations.items()
        }

    def observe(self, stats: EngineStats) -> None:
        """Take the newest figures."""
        # The rate is of the last minutes, whatever the scrapes do.
        self._rate.note(self._clock.now(), stats.events)
        if stats.events > self._records:
            self._records = stats.events
            self._came = self._clock.now()

        # All figures of a turn are replaced together.
        self._shown = {
            "rejects": {reason: stats.rejected[reason] for reason in self.families.reasons},
            "agents": stats.agents,
            "input_lag_events": stats.input_lag,
            "group_commit_age_seconds": stats.group_commit_age,
            "partition_lag_events": stats.input_lags,
            "allowed_lateness_seconds": stats.lateness,
            "watermark": stats.watermark,
            **(
                self._budgets(stats, self._horizon)
                if stats.spent and self._horizon is not None
                else {}
            ),
            **(
                {"agents_exhausted": 0} if self._endless else {}
            ),  # alerts compare it with the number of agents
            **self._own(stats),
        }

        # Durations are observed once for each commit and delivery, not for each turn.
        of = {
            "commit_seconds": stats.commits > self._commits,
            "delivery_seconds": stats.deliveries > self._deliveries,
        }

        for name, histogram in self._durations.items():
            if of.get(name, of["commit_seconds"]):
                histogram.observe(getattr(stats, name))

        self._commits = stats.commits
        self._deliveries = stats.deliveries

    def application(self) -> Callable[..., Any]:
        """Return the WSGI application that answers a scrape, in the format that was requested."""
        return make_wsgi_app(self._registry)

    def exposition(self) -> bytes:
        """Write all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Give every family; called by a scrape."""
        # A scrape reads what the last turn left; nothing is computed from private state.
        shown = self._shown
        families = self.families
        yield InfoMetricFamily(f"{PREFIX}_build", "Versions.", value=_build())

        for name, text in families.counters.items():
            yield CounterMetricFamily(f"{PREFIX}_{name}", text, value=shown.get(name, 0))

        if families.reasons:
            rejects = CounterMetricFamily(
                f"{PREFIX}_rejects", "Records that were not used, by reason.", labels=["reason"]
            )
            for reason in families.reasons:
                rejects.add_metric([reason], shown["rejects"][reason] if shown else 0)

            yield rejects

        for name, text in families.distributions.items():
            yield _histogram(name, text, shown.get(name))

        # When budgets end is foretold from the public ledger.
        if families.foretells:
            ahead = None if self._outlook is None else self._outlook()
            left = (
                None
                if ahead is None
                else Distribution.of(86_400.0 * np.asarray(ahead.days), LEFT_SECONDS)
            )
            yield from (_histogram(name, text, left) for name, text in FORECASTS.items())

        for name, text in families.gauges.items():
            yield _gauge(name, text, shown.get(name))

        # Figures that change while nothing happens are computed at the scrape.
        for name, value in self._live(shown.get("watermark")).items():
            if name in families.live:
                yield _gauge(name, families.live[name], value)

        if families.partitions:
            lags = sorted(shown.get("partition_lag_events", {}).items())
            places = (((topic, str(number)), lag) for (topic, number), lag in lags)
            labels = ("topic", "partition")
            yield _labelled("partition_lag_events", PARTITION_LAG, labels, places)

        if families.connections:
            problems = self._health.connections().items()
            clients = (((name,), float(problem is None)) for name, problem in problems)
            yield _labelled("kafka_connected", CONNECTED, ("client",), clients)

        if self._process is not None:
            yield from self._process.collect()

        for histogram in self._durations.values():
            yield from histogram.collect()

    def _own(self, stats: EngineStats) -> dict[str, Any]:
        """Figures that only this kind of engine has."""
        # The population is described once per refresh, as that reads many releases.
        if stats.population is not None and stats.population is not self._computed_from:
            self._computed_from = stats.population
            self._of_population = self._describe(stats.population)

        if stats.answers is not None and self._lag_of_answers[0] != stats.answers.time:
            self._lag_of_answers = stats.answers.time, self._clock.now() - stats.answers.time

        due = stats.first_release
        waits = {
            "samples_pending": stats.pending,
            "first_release_timestamp_seconds": due and due.event_time,
        }
        waits["refresh_seconds"] = stats.refresh
        shown = {**waits, "answer_lag_seconds": self._lag_of_answers[1], **self._of_population}

        return {**{name: getattr(stats, name) for name in COUNTERS}, **shown}

    def _budgets(self, stats: EngineStats, horizon: int) -> dict[str, Any]:
        """Figures of the budgets; agents that came after the last release have spent nothing."""
        # Agents that have not released are among those that have spent nothing.
        released = stats.spent[1:]
        agents = (stats.agents - sum(released), *released)
        share = np.arange(len(agents)) / horizon
        return {
            "agents_exhausted": sum(agents[horizon:]),
            "budget_spent_ratio": Distribution.of(share, SPENT, agents),
            "budget_spent_ratio_max": float(share[np.flatnonzero(agents)].max(initial=0.0)),
        }

    def _describe(self, population: PublicPopulation) -> dict[str, Any]:
        half_width, class_size = population.precision()
        return {
            "released_half_width": Distribution.of(half_width, self._half_widths),
            "released_half_width_median": _median(half_width),
            "released_class_size": Distribution.of(class_size, CLASS_SIZES),
            "released_class_size_median": _median(class_size),
            "prior_components": population.n_components,
            "prior_spread": population.spread,
            "prior_count_ratio": population.goes_with_count,
            "dependence_ratio": population.dependence or 1.0,
            "covariates_explained_ratio": population.explained_by_covariates,
        }

    def _live(self, watermark: float | None) -> dict[str, float | None]:
        """Give what changes while the engine does nothing."""
        rows, size = (None, None) if self._store is None else disk_ledger_size(self._store)
        now = self._clock.now()
        return {
            "watermark_lag_seconds": None if watermark is None else now - watermark,
            "checkpoint_age_seconds": self._health.checkpoint_age,
            "ready": float(self._health.not_ready() is None),
            "ledger_rows": rows,
            "ledger_bytes": size,
            "events_per_second": self._rate.per_second(now),
            "input_silent_seconds": max(now - self._came, 0.0),
            "start_timestamp_seconds": self._began,
        }


def _labelled(
    name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)
    for of_labels, value in values:
        family.add_metric(of_labels, value)

    return family


def _gauge(name: str, text: str, value: float | None) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text)
    if value is not None:
        family.add_metric([], value)

    return family


def _histogram(name: str, text: str, distribution: Distribution | None) -> Metric:
    family = GaugeHistogramMetricFamily(f"{PREFIX}_{name}", text)
    if distribution is not None:
        bounds = map(floatToGoString, distribution.bounds)
        family.add_metric(
            [], list(zip(bounds, distribution.at_most, strict=True)), distribution.total
        )

    return family


def _median(values: Floats) -> float | None:
    if len(values):
        return float(np.median(values))
    return None


def _build() -> dict[str, str]:
    return {"version": version("meanstream"), "python": platform.python_version()}


class _Read(Collector):
    """Families that were read from several processes."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        """Give them."""
        yield from self._families


def labelled_exposition(texts: Mapping[str, str], label: str) -> bytes:
    r"""Write the metrics of several processes as those of one, each sample with its process.

    Examples
    --------
    >>> text = "# HELP n_total Events.\n# TYPE n_total counter\nn_total 3\n"
    >>> labelled_exposition({"0": text, "1": text}, "shard").decode().splitlines()[2:]
    ['n_total{shard="0"} 3.0', 'n_total{shard="1"} 3.0']
    """
    families: dict[str, Metric] = {}
    for process, text in texts.items():
        for family in text_string_to_metric_families(text):
            whole = Metric(family.name, family.documentation, family.type)
            samples = families.setdefault(family.name, whole).samples
            samples += [
                sample._replace(labels={**sample.labels, label: process})
                for sample in family.samples
            ]

    registry = CollectorRegistry()
    registry.register(_Read(families.values()))
    return generate_latest(registry)
