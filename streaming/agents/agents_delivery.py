"""Letting out what agents were charged for, and their estimates when they are due."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.records import Ints
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.agents.public_population import AnsweredAgents, PublicPopulation
from meanstream.streaming.agents.saved_agents import saved_sample_counts
from meanstream.streaming.clock import Clock
from meanstream.streaming.crash import CrashHook, CrashPoint, crash_step
from meanstream.streaming.engine.engine_delivery import OUTBOX, CommittedDelivery
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.engine.own_events import Key, OwnEvents
from meanstream.streaming.events.base import Event
from meanstream.streaming.events.encode import UNREADABLE, EventLines
from meanstream.streaming.events.wire import Release
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


class Delivery(CommittedDelivery):
    """Writes committed releases, notices and dead letters to the sinks, and the estimates that are due.

    The estimates are no committed events: after a crash they are computed again, from the same
    committed state.
    """

    def __init__(
        self,
        *,
        store: Store,
        sinks: Sinks,
        settings: AgentsSettings,
        options: EngineOptions,
        stats: EngineStats,
        clock: Clock,
        health: EngineHealth,
        crash: CrashHook,
        meanwhile: Callable[[], None],
        due: DueEstimates | None = None,
        charged: type[Event] = Release,
        answers: Collection[OwnEvents] | None = None,
    ) -> None:
        super().__init__(
            store=store,
            sinks=sinks,
            stats=stats,
            clock=clock,
            health=health,
            crash=crash,
            meanwhile=meanwhile,
            charged=charged,
            charged_role="releases",
            outbox=OUTBOX,
            answers=OWN_ANSWERS if answers is None else answers,
        )
        self._due = due or DueEstimates(settings, options)

    def deliver(
        self,
        agents: Agents,
        followed: FollowedReleases,
        event_time: float,
        stop: Callable[[], bool],
        *,
        ended: bool,
        by_clock: bool = False,
    ) -> None:
        """Write what was committed, then the estimates that are due, and make all durable.

        See `keep_trying`.
        """
        self.keep_trying(
            partial(self._deliver, agents, followed, event_time, ended=ended, by_clock=by_clock),
            stop,
        )

    def _deliver(
        self,
        agents: Agents,
        followed: FollowedReleases,
        event_time: float,
        *,
        ended: bool,
        by_clock: bool,
    ) -> None:
        written = self._write_charged(), self._write_outbox()
        with crash_step(CrashPoint.WRITE_ESTIMATES, self._crash):
            made = self._write_estimates(
                agents, followed, event_time, ended=ended, by_clock=by_clock
            )

        final = self._due.final_after(made, ended=ended)
        same = (*written, final) == (self._ledger_seq, self._outbox_seq, self._due.final)
        if same and made is None:
            return

        self._flush(written)
        self._due.let_out(made, event_time, final=final)

        if made is not None:
            self._stats.estimates += len(made.estimates)
            self._stats.median_half_width = made.median_half_width
            self._stats.population = made.seen
            self._stats.answers = made.answered

    def _note(self) -> dict[str, Any]:
        return {**super()._note(), **self._due.note()}

    def _take(self, note: dict[str, Any]) -> None:
        super()._take(note)
        self._due.take(note)

    def _write_estimates(
        self,
        agents: Agents,
        followed: FollowedReleases,
        event_time: float,
        *,
        ended: bool,
        by_clock: bool,
    ) -> MadeEstimates | None:
        """Write the estimates that are due; None if none was, or no one asks for any."""
        if self._sinks.estimates is None and self._sinks.population is None:
            return None
        made = self._due.make(agents, followed, event_time, ended=ended, by_clock=by_clock)
        if made is not None:
            self._sinks.write("estimates", made.estimates)
            self._sinks.write("population", made.population)

        return made


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
        found = _ESTIMATE.decode(line)
    except UNREADABLE:
        return None

    return _seconds(found.time), found.agent, found.n


def _population_key(line: bytes) -> Key | None:
    """Tell time and agents of a fitted population; None if the line is none."""
    try:
        found = _POPULATION.decode(line)
    except UNREADABLE:
        return None

    return _seconds(found.time), found.agents


def _seconds(time: datetime) -> float:
    return (
        time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    ).timestamp()  # Parquet drops the zone


def _knows_estimates(store: Store, since: int, keys: set[Key]) -> bool:  # noqa: ARG001 - not in the ledger
    """Compare with the last commit.

    Estimates are written after it, and written again of it after a crash.
    """
    known = dict(zip(store.agents(), saved_sample_counts(store).tolist(), strict=True))
    time = _event_time(store)
    return all(at <= time and n <= known.get(agent, 0) for at, agent, n in keys)


def _knows_populations(store: Store, since: int, keys: set[Key]) -> bool:  # noqa: ARG001 - not in the ledger
    time = _event_time(store)
    charged = len(store.ledger.charges())
    return all(at <= time and agents <= charged for at, agents in keys)


def _event_time(store: Store) -> float:
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
