"""Asks a running engine when its first and its next release can be expected."""

from __future__ import annotations

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.streaming.agents.first_release import (
    FirstRelease,
    expected_first_release,
    next_release,
)
from meanstream.streaming.engine.engine_intake import Intake
from meanstream.streaming.engine.engine_stats import EngineStats


class ReleaseOutlook:
    """Looks at who has sent how much, and what waits for event time; for the engine's own thread.

    **Privacy.** Numbers and times of agents' samples are public.
    """

    def __init__(
        self,
        settings: AgentsSettings,
        lateness: float,
        agents: Agents,
        intake: Intake,
        stats: EngineStats,
    ) -> None:
        self._settings = settings
        self._lateness = lateness
        self._agents = agents
        self._intake = intake
        self._stats = stats

    def first(self) -> FirstRelease:
        """Say when the first release can be expected, while there was none."""
        agent, times = self._intake.waiting_samples()
        return expected_first_release(
            self._settings.times,
            self._lateness,
            counted=self._agents.counts(),
            agent=agent,
            times=times,
            since=self._stats.event_time,
        )

    def following(self) -> FirstRelease | None:
        """Say when the next release of any agent can be expected.

        None if all have made their last one.
        """
        agent, times = self._intake.waiting_samples()
        return next_release(
            self._settings.times,
            self._lateness,
            counted=self._agents.counts(),
            spent=self._agents.spent(),
            horizon=self._settings.horizon,
            agent=agent,
            times=times,
            since=self._stats.event_time,
        )
