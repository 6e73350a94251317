"""Letting out what agents were charged for, and their estimates when they are due."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.records import Ints
from meanstream.streaming.agents.agents_keepers import EventTimeKeeper
from meanstream.streaming.agents.engine_summary import NO_OTHERS, others_of_store
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.agents.public_population import AnsweredAgents, PublicPopulation
from meanstream.streaming.agents.saved_agents import saved_sample_counts
from meanstream.streaming.agents.shared_summaries import SharedSummaries
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.engine.own_events import Key, OwnEvents
from meanstream.streaming.events.encode import UNREADABLE, EventLines
from meanstream.streaming.sinks.sink_protocol import Sinks
from meanstream.streaming.store.state_store import Store

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


@dataclass(frozen=True, slots=True)
class EstimatedState:
    """What estimates are computed from, as the engine has it, and what counts them."""

    agents: Agents
    followed: FollowedReleases
    event_time: EventTimeKeeper
    stats: EngineStats
    shared: SharedSummaries | None = None


class DueEstimates:
    """Knows when estimates are due, and makes them."""

    def __init__(
        self, settings: AgentsSettings, options: EngineOptions, state: EstimatedState
    ) -> None:
        self._agents = state.agents
        self._followed = state.followed
        self._event_time = state.event_time
        self._stats = state.stats
        self._shared = state.shared
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
        self._final = False  # those at the end of the source were delivered
        self._made: MadeEstimates | None = None
        self._made_final = False

    def write(self, sinks: Sinks, *, ended: bool) -> bool:
        """Write the estimates that are due; nothing where no one asks for any."""
        asked = sinks.estimates is not None or sinks.population is not None
        self._made = made = self._make(ended=ended) if asked else None
        if made is not None:
            sinks.write("estimates", made.estimates)
            sinks.write("population", made.population)

        self._made_final = ended and (self._final or made is not None)
        return made is not None or self._made_final != self._final

    def delivered(self) -> None:
        """Count from here: what was made is written."""
        made = self._made
        self._final = self._made_final
        if made is not None:
            self._refresh_time = self._event_time.reached
            self._stats.estimates += len(made.estimates)
            self._stats.median_half_width = made.median_half_width
            self._stats.population = made.seen
            self._stats.answers = made.answered

    def note(self) -> dict[str, Any]:
        """Give what the next commit notes."""
        return {"refresh_time": self._refresh_time, "final": self._final, "answers": self._answers}

    def take(self, note: dict[str, Any]) -> None:
        """Go back to what a commit has noted."""
        self._refresh_time = note["refresh_time"]
        self._final = note["final"]

    def _make(self, *, ended: bool) -> MadeEstimates | None:
        """Refresh, if it is due.

        At the end for everyone, before that for agents with samples since the last time, once
        event time has come to another multiple of `refresh`, or by the clock.
        """
        agents = self._agents
        if not agents.n_agents or (ended and self._final):
            return None
        if ended:
            return self._refreshed(None)

        last = self._refresh_time
        reached = self._event_time.reached
        if self._refresh is None or not math.isfinite(reached):
            return None

        by_clock = self._event_time.by_clock and reached != last
        if not by_clock and not _entered(reached, last, self._refresh):
            return None

        which = agents.seen_since(-NEVER if last is None else last)
        return self._refreshed(which) if len(which) else None

    def _refreshed(self, which: Ints | None) -> MadeEstimates:
        """Estimate for some agents, or for all."""
        made = self._estimates
        agents = self._agents
        shared = self._shared
        others = NO_OTHERS if shared is None else shared.others
        self.publish()

        estimates, population = made.refresh(
            agents.names,
            self._followed.combined(agents.latest()),
            agents.own(which),
            others.posterior(self._followed),
            self._event_time.reached,
            others=others,
        )

        return MadeEstimates(
            estimates, population, made.median_half_width, made.population, made.answered
        )

    def publish(self, *, ended: bool = False) -> None:
        """Let other engines of the deployment learn from the releases of the own agents.

        All of them are charged: the commit before has them.
        """
        shared = self._shared
        if shared is None:
            return

        agents = self._agents
        latest = agents.latest()
        summary = self._estimates.own_summary(self._followed.combined(latest), agents.names)
        shares = self._estimates.shares
        shared.publish(
            summary,
            self._followed,
            shares.newest(agents.names, latest),
            shares.hashes(agents.names),
            ended=ended,
        )


def _covariates_source(options: EngineOptions) -> dict[str, Any]:
    """Say where public attributes come from, so that anyone who answers from the store finds them."""
    declared = options.covariates

    if declared is None or declared.place is None:
        return {}
    return {"covariates": list(declared.place)}


def _entered(event_time: float, last: float | None, refresh: float) -> bool:
    """Tell whether event time has come to another multiple of `refresh` seconds since the last time."""
    return last is None or refresh == 0 or event_time // refresh > last // refresh


class _Estimate(msgspec.Struct):
    agent: str
    time: datetime
    n: int
    effective_class_size: float


class _Population(msgspec.Struct):
    time: datetime
    agents: int
    fitted: Any


_ESTIMATE = msgspec.json.Decoder(_Estimate)
_POPULATION = msgspec.json.Decoder(_Population)


def _estimate_key(line: bytes) -> Key | None:
    """Tell time, agent and samples of a personal estimate; None if the line is none.

    Examples
    --------
    >>> _estimate_key(b'{"agent":"ann","time":"1970-01-01T00:00:07Z","n":3,"effective_class_size":2.5,"value":1}')
    (7.0, 'ann', 3)
    """
    try:
        estimate = _ESTIMATE.decode(line)
    except UNREADABLE:
        return None

    return _seconds(estimate.time), estimate.agent, estimate.n


def _population_key(line: bytes) -> Key | None:
    """Tell time and agents of a fitted population; None if the line is none."""
    try:
        population = _POPULATION.decode(line)
    except UNREADABLE:
        return None

    return _seconds(population.time), population.agents


def _seconds(time: datetime) -> float:
    return (
        time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    ).timestamp()  # Parquet drops the zone


def _knows_estimates(store: Store, since: int, keys: set[Key]) -> bool:  # noqa: ARG001 - not in the ledger
    """Compare with the last commit.

    Estimates are written after it, and written again of it after a crash.
    """
    counts = dict(zip(store.agents(), saved_sample_counts(store).tolist(), strict=True))
    time = committed_event_time(store)
    return all(answered_at <= time and n <= counts.get(agent, 0) for answered_at, agent, n in keys)


def _knows_populations(store: Store, since: int, keys: set[Key]) -> bool:  # noqa: ARG001 - not in the ledger
    time = committed_event_time(store)
    charged = len(store.ledger.charges()) + others_of_store(store).agents
    return all(fitted_at <= time and agents <= charged for fitted_at, agents in keys)


def committed_event_time(store: Store) -> float:
    """Give the event time of the last commit, as an event of it says it: to the microsecond."""
    state = store.state("engine")
    time = None if state is None else state["event_time"]
    return -math.inf if time is None else round(time, 6) + 1e-6


OWN_ANSWERS = (
    OwnEvents(
        role="estimates", option="sink", key=_estimate_key, knows=_knows_estimates, named=False
    ),
    OwnEvents(
        role="population",
        option="population",
        key=_population_key,
        knows=_knows_populations,
        named=False,
    ),
)
"""Of the sinks of agents, besides releases."""
