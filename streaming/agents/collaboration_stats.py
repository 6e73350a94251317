"""What is counted where a store's agents are answered from everyone's releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meanstream.streaming.engine.engine_stats import EngineStats, stats_of


@dataclass(slots=True)
class CollaborationStats(EngineStats):
    """Counts since the process started.

    `releases` are those received, `agents` all that have released.

    `events` counts records read, and `rejected` those of them that were no releases, no new ones,
    or none that can have been made, by reason. `event_time` is up to when the own agents' samples
    are included. `population` is public; `answers` is private, as of every engine.

    Attributes
    ----------
    own_agents : int
        Agents of the store, which are answered.
    refreshes : int
        How often they were answered.
    """

    own_agents: int = 0
    refreshes: int = 0

    def summary(self) -> dict[str, Any]:
        """Public: say what was done."""
        return {
            "releases": self.releases,
            "agents": self.agents,
            "own_agents": self.own_agents,
            "estimates": self.estimates,
            "refreshes": self.refreshes,
            "rejected": dict(sorted(self.rejected.items())),
        }


def collaboration_stats(stats: EngineStats) -> CollaborationStats:
    """Take figures of answering from everyone's releases.

    Those of an engine mean something else.
    """
    return stats_of(stats, CollaborationStats, "a collaboration")
