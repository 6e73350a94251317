"""What the engine of agents keeps: their state, their releases, budgets, drifts, and event time."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from meanstream.operators.agents.agents import Agents, AgentsSettings, ReleaseBatch
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.streaming.agents.agents_releases import (
    OWN_RELEASES,
    DriftsOfReleases,
    release_budget_lines,
    release_refusal_lines,
    restore_own_releases,
)
from meanstream.streaming.agents.first_release import (
    FirstRelease,
    FirstReleaseWatch,
    expected_first_release,
    next_release,
)
from meanstream.streaming.agents.saved_agents import SavedAgents
from meanstream.streaming.engine.engine_intake import Intake
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.engine.keepers import Commit, Keeper
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.times import iso_time, known_time
from meanstream.streaming.store.state_store import Store


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


Releases = Commit[list[ReleaseBatch]]
"""A commit of agents whose releases everyone reads."""

_log = logging.getLogger("meanstream.engine")


class AgentsKeeper(Keeper[list[ReleaseBatch]]):
    """Keeps the sums, counters and memories of all agents, who are numbered by the intake."""

    def __init__(self, agents: Agents, intake: Intake) -> None:
        self._agents = agents
        self._intake = intake
        self._saved = SavedAgents()

    def restore(self, store: Store, state: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Give the agents the state of the last commit."""
        self._agents.add_agents(self._intake.names)
        self._saved.restore(store, self._agents)
        self._agents.mark_clean()

    def save(self, store: Store) -> None:
        """Write the agents that changed."""
        self._saved.save(store, self._agents)

    def count(self, commit: Releases) -> None:  # noqa: ARG002
        """Know that they are saved."""
        self._agents.mark_clean()


class FollowedKeeper(Keeper[list[ReleaseBatch]]):
    """Keeps what everyone's releases say of the variance, and what each agent has released."""

    def __init__(self, followed: FollowedReleases, agents: Agents) -> None:
        self._followed = followed
        self._agents = agents

    def restore(self, store: Store, state: Mapping[str, Any]) -> None:
        """Go on with what the releases said."""
        self._followed.restore(state["variance"], self._agents.latest())
        restore_own_releases(store, self._followed)

    def note(self, store: Store, commit: Releases) -> dict[str, Any]:  # noqa: ARG002
        """Give what they say of the variance."""
        return {"variance": self._followed.snapshot()}

    def save(self, store: Store) -> None:
        """Write what each agent has released."""
        for chunk, columns in self._followed.own.changes():
            store.put_chunk(OWN_RELEASES, chunk, columns)

    def count(self, commit: Releases) -> None:  # noqa: ARG002
        """Know that it is saved."""
        self._followed.own.mark_clean()


class EventTimeKeeper(Keeper[Any]):
    """Keeps how far event time is.

    Attributes
    ----------
    reached : float
        Newest event time taken into the sums, in seconds.
    by_clock : bool
        Whether the answers that are due are due by the clock, in the silence of the source.
    first_release : FirstReleaseWatch or None
        Looks for the first release; None where no one waits for one.
    """

    def __init__(
        self, intake: Intake, stats: EngineStats, first: FirstReleaseWatch | None = None
    ) -> None:
        self.reached = -math.inf
        self.by_clock = False
        self._intake = intake
        self._stats = stats
        self.first_release = first

    def restore(self, store: Store, state: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Go on from there."""
        self.reached = -math.inf if state["event_time"] is None else state["event_time"]
        self.by_clock = bool(state.get("by_clock"))

    def begin(self) -> dict[str, Any]:
        """Show it as an unbroken run would."""
        self.show(released=False)
        return {"agents": self._stats.agents, "event_time": iso_time(self.reached)}

    def note(self, store: Store, commit: Commit[Any]) -> dict[str, Any]:  # noqa: ARG002
        """Give both."""
        return {"event_time": known_time(self.reached), "by_clock": self.by_clock}

    def pass_to(self, time: float) -> None:
        """Take in the newest sample."""
        self.reached = time
        self.by_clock = False

    def show(self, *, released: bool) -> None:
        """Tell how far event time is, how many samples wait, and when the first release is due."""
        stats = self._stats
        stats.event_time = known_time(self.reached)
        stats.watermark = known_time(self._intake.watermark)
        stats.pending = self._intake.waiting

        stats.first_release = None
        if self.first_release is not None and not released and not any(stats.spent[1:]):
            stats.first_release = self.first_release.newest(stats.pending, stats.accepted)


class BudgetKeeper(Keeper[list[ReleaseBatch]]):
    """Tells which agents reached their horizon and what was refused; counts what all have spent."""

    def __init__(
        self, agents: Agents, settings: AgentsSettings, intake: Intake, stats: EngineStats
    ) -> None:
        self._agents = agents
        self._settings = settings
        self._intake = intake
        self._stats = stats
        self._spent_before = np.zeros(0, np.int64)
        self._exhausted = 0  # in the last commit

    def begin(self) -> dict[str, Any]:
        """Derive it from the state, so that a resumed run shows what an unbroken one would."""
        self._stats.spent = self._spent()
        self._spent_before = self._agents.spent()
        return {}

    def post(self, commit: Releases) -> Iterable[EventLines]:
        """Give the notices of both."""
        names = self._intake.names
        exhausted = release_budget_lines(commit.taken, names, self._settings)
        self._exhausted = len(exhausted)
        return exhausted, release_refusal_lines(commit.rows, commit.refused, names, self._settings)

    def count(self, commit: Releases) -> None:
        """Count releases, refusals, and agents by what they have spent."""
        stats = self._stats
        refused = len(commit.refused)
        released = len(commit.rows) - refused
        stats.releases += released
        stats.refusals += refused
        stats.exhausted += self._exhausted

        if refused:
            _log.warning("releases were refused", extra={"refused": refused})

        if released:
            # Agents that have released since the process started, and the one that released most.
            stats.spent = self._spent()
            now = self._agents.spent()
            now[: len(self._spent_before)] -= self._spent_before
            stats.spenders = int(np.count_nonzero(now))
            stats.most_spent = int(now.max(initial=0))

    def _spent(self) -> tuple[int, ...]:
        """Count the agents by the releases they have made; without an end, whether they have."""
        most = self._settings.most_releases
        spent = self._agents.spent()
        if most is None:
            most = 1
            spent = np.minimum(spent, 1)

        return tuple(np.bincount(spent, minlength=most + 1).tolist())


class DriftKeeper(Keeper[list[ReleaseBatch]]):
    """Tells and counts the changes that releases show."""

    def __init__(self, intake: Intake, stats: EngineStats) -> None:
        self._intake = intake
        self._stats = stats
        self._drifts = DriftsOfReleases.of([], [])

    def post(self, commit: Releases) -> Iterable[EventLines]:
        """Give the events of what was charged."""
        self._drifts = DriftsOfReleases.of(commit.taken, commit.refused)
        return [self._drifts.lines(self._intake.names)]

    def count(self, commit: Releases) -> None:  # noqa: ARG002
        """Count changes and warnings."""
        self._stats.drifts += self._drifts.drifts
        self._stats.drift_warnings += self._drifts.warnings
