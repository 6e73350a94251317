"""The public half of a federated deployment: everyone's releases, and the own agents' answers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.agents.released_rows import with_noise_terms
from meanstream.operators.collaboration.followed_releases import FollowedReleases, NewestReleases
from meanstream.operators.records import Bools, OwnSamples
from meanstream.streaming.agents.collaboration_stats import CollaborationStats
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.agents.public_population import AnsweredAgents
from meanstream.streaming.agents.saved_agents import OwnState, read_own_state
from meanstream.streaming.clock import Clock, SystemClock
from meanstream.streaming.engine.engine_health import Connected, EngineHealth
from meanstream.streaming.engine.engine_loop import never_stop_loop
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.sinks.sink_protocol import Sinks
from meanstream.streaming.sources.received_releases import Releases

POLL_SECONDS = 0.1

_log = logging.getLogger("meanstream.collaborate")


class ReleasesFeed(Protocol):
    """Everyone's releases, as they come."""

    @property
    def rejected(self) -> Counter[str]:
        """Records that were left out, by reason."""
        ...

    @property
    def caught_up(self) -> bool:
        """Whether everything that is there was read."""
        ...

    def poll(self) -> Releases:
        """Give the releases that come next, each once."""
        ...

    def latest(self) -> Releases:
        """Give everyone's newest release."""
        ...


class Collaborator:
    """Answers the agents of one store from everyone's releases and their own samples.

    It keeps no state: everything is read again from the releases and from the store, and may be
    computed again at any time. The store is read while its engine runs on it.

    Parameters
    ----------
    releases : ReleasesFeed
        Everyone's releases, those of the own agents among them.
    store : Path
        The store of the own agents (`run agent-side`).
    settings : AgentsSettings
        Of that store. The federation agrees on the bounds, and on everything else that says how
        releases are made: the variance of one sample is pooled over the releases that were made at
        the same epsilon, delta and mode.
    options : EngineOptions
        How to collaborate, and the level of the intervals.
    sinks : Sinks
        For estimates (private) and the population (public).
    every : float
        Seconds of the clock: estimates are refreshed at most so often, when releases or own samples
        have come.
    health : EngineHealth, optional
        Is told whether it is alive and can do its work.
    on_turn : callable, optional
        Called with the statistics at the start, and whenever something has come or was answered.

    Notes
    -----
    **Privacy.** It spends nothing. What it learns of other organizations' agents are their
    releases; an estimate mixes in its agent's own raw mean and goes to the estimates' sink only.
    """

    def __init__(
        self,
        *,
        releases: ReleasesFeed,
        store: Path,
        settings: AgentsSettings,
        options: EngineOptions,
        sinks: Sinks,
        every: float,
        clock: Clock | None = None,
        health: EngineHealth | None = None,
        on_turn: Callable[[CollaborationStats], None] | None = None,
    ) -> None:
        self.stats = CollaborationStats()
        self._releases = releases
        self._store = store
        self._settings = settings
        self._sinks = sinks
        self._every = every
        self._clock = clock or SystemClock()

        self._estimates = PersonalEstimates(settings, options, strangers=True)
        self._followed = FollowedReleases(settings)
        self._newest = NewestReleases()
        self._own: OwnState | None = None
        self._numbers: dict[str, int] = {}
        self._health = health or EngineHealth()
        self._on_turn = on_turn or (lambda _: None)

        for connection in (releases, *sinks.opened()):
            if isinstance(connection, Connected) and connection.watched:
                self._health.watch(connection)

    def run(
        self, stop: Callable[[], bool] = never_stop_loop, *, until_end: bool = False
    ) -> CollaborationStats:
        """Refresh until `stop()` is true, or once when everything that is there was read."""
        try:
            self._on_turn(self.stats)
            self._answer(stop, until_end=until_end)
        finally:
            self._health.stopping()

        return self.stats

    def _answer(self, stop: Callable[[], bool], *, until_end: bool) -> None:
        refreshed_at = -np.inf
        new = True
        while not stop():
            # Releases of others come at any time; answers are due at intervals.
            came = self._receive()
            new |= came

            # Before all releases are read an answer would be of a part of them.
            if not self._releases.caught_up:
                self._health.waiting("releases are being read")
                continue

            waited = self._clock.now() - refreshed_at
            due = (
                waited >= self._every or waited < 0.0
            )  # a clock that was set back would hold all answers up

            # Only where something is new: the same answer is not written again.
            if due and (new or self._own_samples_came()):
                self._refresh()
                refreshed_at = self._clock.now()
                new = False
                came = True

            self._health.started()
            if came:
                self._on_turn(self.stats)

            if until_end:
                break

            if not came:
                self._clock.sleep(POLL_SECONDS)

    def _receive(self) -> bool:
        """Take what has come; say whether there was anything."""
        # Votes that could not be cast count for nothing.
        releases = self._releases.poll()
        settings = self._settings
        columns = releases.columns
        if settings.vote is not None:
            columns = columns.with_votes(settings.vote.possible(columns, releases.vote_variance))

        # Releases of other settings are left out: they have other noise.
        columns = with_noise_terms(settings, columns.take(self._alike(releases)))
        self._followed.observe(columns, self._newest.replaced(columns))
        self.stats.releases += len(releases)
        self.stats.rejected = self._releases.rejected
        self.stats.events = self.stats.releases + self.stats.rejected.total()

        return len(releases) > 0

    def _alike(self, releases: Releases) -> Bools:
        """Tell which releases were made as the own agents' are."""
        settings = self._settings
        same = (releases.epsilon == settings.epsilon) & (releases.delta == settings.delta)
        return np.asarray(same & (releases.tuned == (settings.mode == "tuned")), np.bool_)

    def _latest(self) -> Releases:
        """Give everyone's newest release, with histograms that can have been made as the own agents' are."""
        latest = self._releases.latest()
        latest = replace(latest, columns=with_noise_terms(self._settings, latest.columns))
        histogram = self._settings.histogram

        # Histograms of strangers must be possible ones.
        if histogram is None:
            return latest

        valid = self._alike(latest) & histogram.possible_of(
            latest.columns, latest.histogram_variance
        )
        return replace(latest, columns=latest.columns.with_histograms(valid))

    def _own_samples_came(self) -> bool:
        before = self._own
        self._own = read_own_state(self._store, self._settings, before)
        return self._own is not before

    def _refresh(self) -> None:
        """Write new estimates for all own agents."""
        self._own_samples_came()
        if self._own is None:
            return
        latest = self._latest()

        # Own agents have the numbers that releases gave them.
        names, own = _joined(latest.names, self._own)
        estimates, population = self._estimates.refresh(
            names,
            self._followed.combined(latest.columns),
            own,
            self._followed.posterior,
            self._own.event_time,
        )

        # Estimates and population leave together.
        self._sinks.write("estimates", estimates)
        self._sinks.write("population", population)

        self._sinks.flush()
        self.stats.agents = len(latest)
        self.stats.own_agents = len(self._own.names)
        self.stats.estimates += len(estimates)
        self.stats.refreshes += 1
        self.stats.event_time = self._own.event_time
        self.stats.population = self._estimates.population
        self.stats.answers = self._by_own_numbers(self._estimates.answered)
        _log.info(
            "refreshed", extra={"releasing_agents": len(latest), "own_agents": len(self._own.names)}
        )

    def _by_own_numbers(self, answered: AnsweredAgents | None) -> AnsweredAgents | None:
        """Give the agents numbers that stay.

        Those that releases give them change as more agents release.
        """
        if answered is None:
            return None
        numbers = [self._numbers.setdefault(name, len(self._numbers)) for name in answered.names]
        return replace(answered, agent=np.array(numbers, np.int64))


def _joined(known: list[str], state: OwnState) -> tuple[list[str], OwnSamples]:
    """Give the own agents the numbers that the releases give them.

    Who has released nothing comes after all others.
    """
    number = {name: i for i, name in enumerate(known)}
    fresh = [name for name in state.names if name not in number]
    names = [*known, *fresh]
    number.update(zip(fresh, range(len(known), len(names)), strict=True))
    agent = np.array([number[state.names[i]] for i in state.own.agent.tolist()], np.int64)

    return names, replace(state.own, agent=agent)
