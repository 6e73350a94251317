"""When agents' estimates are due, and computing them then."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.records import Ints
from meanstream.streaming.agents.answered import AnsweredAgents
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.agents.public_population import PublicPopulation
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.encode import EventLines

NEVER = 1e18
"""Seconds; no event time is that far away."""


@dataclass(frozen=True, slots=True)
class MadeEstimates:
    """What one refresh has made, to be written.

    Attributes
    ----------
    estimates : EventLines
        Private: of the agents that were answered.
    population : EventLines
        Public: what was fitted to the releases.
    median_half_width, seen, answered
        What `PersonalEstimates` says of the refresh.
    """

    estimates: EventLines
    population: EventLines
    median_half_width: float | None
    seen: PublicPopulation | None
    answered: AnsweredAgents | None


class DueEstimates:
    """Knows when estimates are due, and makes them; `let_out` says that they were written.

    Attributes
    ----------
    final : bool
        Whether the estimates at the end of the source were written.
    """

    def __init__(self, settings: AgentsSettings, options: EngineOptions) -> None:
        self._refresh = options.refresh
        self._answers: dict[str, Any] = {
            "collaboration": options.collaboration,
            "level": options.level,
            "coverage": options.coverage,
            "stddev": options.stddev,
            "refresh": options.refresh,
            **({"quantiles": options.quantiles} if options.quantiles else {}),
            **_covariates_source(options),
        }

        self._estimates = PersonalEstimates(settings, options)
        self._refresh_time: float | None = None
        self.final = False

    def make(
        self,
        agents: Agents,
        followed: FollowedReleases,
        event_time: float,
        *,
        ended: bool,
        by_clock: bool,
    ) -> MadeEstimates | None:
        """Refresh, if it is due.

        At the end for everyone, before that for agents with samples since the last time.

        It is due once event time has come to another multiple of `refresh`, or `by_clock`.
        """
        if not agents.n_agents or (ended and self.final):
            return None
        which = None
        if not ended:
            last = self._refresh_time
            if self._refresh is None or not math.isfinite(event_time):
                return None
            if not _entered(event_time, last, self._refresh) and not (
                by_clock and event_time != last
            ):
                return None

            which = agents.seen_since(-NEVER if last is None else last)
            if not len(which):
                return None

        return self._refreshed(agents, followed, which, event_time)

    def _refreshed(
        self, agents: Agents, followed: FollowedReleases, which: Ints | None, event_time: float
    ) -> MadeEstimates:
        """Estimate for some agents, or for all."""
        made = self._estimates
        estimates, population = made.refresh(
            agents.names,
            followed.combined(agents.latest()),
            agents.own(which),
            followed.posterior,
            event_time,
        )

        return MadeEstimates(
            estimates, population, made.median_half_width, made.population, made.answered
        )

    def final_after(self, made: MadeEstimates | None, *, ended: bool) -> bool:
        """Tell whether those of the end are written, once what was made is."""
        return ended and (self.final or made is not None)

    def let_out(self, made: MadeEstimates | None, event_time: float, *, final: bool) -> None:
        """Count from here: what was made is written."""
        self.final = final
        if made is not None:
            self._refresh_time = event_time

    def note(self) -> dict[str, Any]:
        """Give what the next commit notes."""
        return {"refresh_time": self._refresh_time, "final": self.final, "answers": self._answers}

    def take(self, note: dict[str, Any]) -> None:
        """Go back to what a commit has noted."""
        self._refresh_time = note["refresh_time"]
        self.final = note["final"]


def _covariates_source(options: EngineOptions) -> dict[str, Any]:
    """Say where public attributes come from, so that anyone who answers from the store finds them."""
    declared = options.covariates

    if declared is None or declared.place is None:
        return {}
    return {"covariates": list(declared.place)}


def _entered(event_time: float, last: float | None, refresh: float) -> bool:
    """Tell whether event time has come to another multiple of `refresh` seconds since the last time."""
    return last is None or refresh == 0 or event_time // refresh > last // refresh
