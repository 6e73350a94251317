"""What the engines show to Prometheus at an address of the operator's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from meanstream.streaming.agents.public_population import AnsweredAgents
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.metrics.engine_metrics import (
    COUNTERS,
    DISK,
    DURATIONS,
    GAUGES,
    LIVE,
    PROCESS,
    Families,
    Metrics,
    disk_of_store,
)
from meanstream.streaming.metrics.history import NewestAnswers
from meanstream.streaming.metrics.rounds_metrics import RoundsMetrics
from meanstream.streaming.rounds.rounds_stats import rounds_stats

CLIPPED = "Samples outside the bounds, which counted as the nearest one."


class PrivateMetrics(Metrics):
    """Private: turns what only the operator of an engine of agents may know into Prometheus metrics.

    Every series has the label `trust="private"`, also those of the process, whose names are
    everyone's.

    Notes
    -----
    **Privacy.** The number of clipped values depends on values; so do the sizes of files, memory
    and the time of the processor, if only by how long a number is when it is written. Serve this
    where only those can connect who may see the samples themselves.
    """

    families = Families(
        counters={
            "clipped": CLIPPED,
            "messages": "Releases from one agent to another, with a pairwise schedule.",
        },
        gauges={
            "estimate_half_width_median": (
                "Median over agents of the half-width of their newest estimates."
            ),
            "estimate_half_width_alone_median": (
                "The same of what each agent has alone: its own samples."
            ),
            "estimate_class_size_median": (
                "Median over agents of the variance of what each has alone over its estimate's."
            ),
            "classes": "Classes of agents: each agent counts for one over the size of its class.",
            "class_agents_median": (
                "Median over agents of the number of agents in the class of each."
            ),
            "class_agents_largest": "Agents in the largest class.",
        },
        live=DISK,
        process=PROCESS,
    )

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._newest = NewestAnswers()
        self._answered: AnsweredAgents | None = None
        self._medians: dict[str, float] = {}

    def collect(self) -> Iterator[Any]:
        """Give every family, each series labelled as private."""
        for family in super().collect():
            family.samples = [
                s._replace(labels={**s.labels, "trust": "private"}) for s in family.samples
            ]
            yield family

    def _own(self, stats: EngineStats) -> dict[str, Any]:
        if stats.answers is not None and stats.answers is not self._answered:
            self._answered = stats.answers
            self._newest.take(stats.answers)
            together, alone = self._newest.half_widths()
            if len(together):
                self._medians = {
                    "estimate_half_width_median": float(np.median(together)),
                    "estimate_half_width_alone_median": float(np.median(alone)),
                    "estimate_class_size_median": float(np.median(self._newest.class_sizes())),
                    "classes": self._newest.classes(),
                    "class_agents_median": float(np.median(self._newest.class_members())),
                    "class_agents_largest": float(self._newest.class_members().max()),
                }

        return {name: getattr(stats, name) for name in self.families.counters} | self._medians

    def _live(self, watermark: float | None) -> dict[str, float | None]:
        return {
            **super()._live(watermark),
            **({} if self._store is None else disk_of_store(self._store)),
        }


class PrivateRoundsMetrics(PrivateMetrics):
    """Private: the same of an engine of rounds, and all that counts records.

    Notes
    -----
    **Privacy.** How many records came, when, and what became of them tells how many samples users
    send and when.
    """

    families = replace(
        PrivateMetrics.families,
        counters={
            **{name: COUNTERS[name] for name in ("events", "accepted")},
            "clipped": CLIPPED,
            **{name: COUNTERS[name] for name in ("letters_unwritten", "refusals")},
        },
        gauges={
            "users_seen": "Users with at least one good sample.",
            "input_lag_events": GAUGES["input_lag_events"],
            "group_commit_age_seconds": GAUGES["group_commit_age_seconds"],
            "allowed_lateness_seconds": RoundsMetrics.families.gauges["allowed_lateness_seconds"],
            "rounds_open_windows": "Windows that still take samples.",
        },
        durations=DURATIONS,
        live={n: text for n, text in LIVE.items() if n not in RoundsMetrics.families.live} | DISK,
        reasons=Metrics.families.reasons,
        partitions=True,
    )

    def _own(self, stats: EngineStats) -> dict[str, Any]:
        stats = rounds_stats(stats)
        return {
            **super()._own(stats),
            "users_seen": stats.agents,
            "rounds_open_windows": stats.open_windows,
        }
