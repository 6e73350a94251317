"""What `run collaborate` shows: to everyone, to who runs it, and on its page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meanstream.streaming.agents.collaboration_stats import collaboration_stats
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.metrics.engine_metrics import (
    COUNTERS,
    DISTRIBUTIONS,
    GAUGES,
    LIVE,
    Families,
    Metrics,
)
from meanstream.streaming.metrics.private_answers import PrivateMetrics
from meanstream.streaming.metrics.telemetry import AgentsTelemetry
from meanstream.streaming.sources.received_releases import NOT_RECEIVED

_OF_RELEASES = (
    *("agents", "released_half_width_median", "released_class_size_median"),
    *(
        "prior_components",
        "prior_spread",
        "prior_count_ratio",
        "dependence_ratio",
        "covariates_explained_ratio",
    ),
    "answer_lag_seconds",
)


class CollaborationMetrics(Metrics):
    """Turns the figures of answering from everyone's releases into Prometheus metrics.

    What an engine of agents has, too, keeps its name. Nothing is charged here, so nothing of
    budgets is shown: that is for the engine of the store.

    Notes
    -----
    **Privacy.** Shown are counts, the event time of the own agents' samples (public, as of the
    engine that takes them in) and post-processing of everyone's releases; nothing of the estimates
    but how many were written.
    """

    families = Families(
        connections=True,
        counters={
            "events": COUNTERS["events"],
            "received_releases": "Accepted new releases of all agents.",
            "estimates": COUNTERS["estimates"],
            "refreshes": "How often the own agents were answered.",
        },
        gauges={name: GAUGES[name] for name in _OF_RELEASES}
        | {
            "releasing_agents": "Agents of all organizations that have released, at the last refresh."
        },
        distributions={
            name: DISTRIBUTIONS[name] for name in ("released_half_width", "released_class_size")
        },
        live={name: LIVE[name] for name in ("ready", "events_per_second", "input_silent_seconds")}
        | {"start_timestamp_seconds": LIVE["start_timestamp_seconds"]},
        reasons=NOT_RECEIVED,
    )

    def _own(self, stats: EngineStats) -> dict[str, Any]:
        stats = collaboration_stats(stats)
        return super()._own(stats) | {
            "agents": stats.own_agents,
            "received_releases": stats.releases,
            "refreshes": stats.refreshes,
            "releasing_agents": stats.agents,
        }


class PrivateCollaborationMetrics(PrivateMetrics):
    """Private: how precise the own agents' estimates are, and what the process and the store's disk use.

    Notes
    -----
    **Privacy.** As `PrivateMetrics`; values are clipped by the engine that takes them in, which
    counts them.
    """

    families = replace(
        PrivateMetrics.families,
        counters={},
    )


class CollaborationTelemetry(AgentsTelemetry):
    """Telemetry of answering from everyone's releases: that of agents, without budgets.

    Notes
    -----
    **Privacy.** As of agents: it keeps personal estimates of the own agents, and of others what
    they have released.
    """

    kind = "collaborate"
