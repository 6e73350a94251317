"""The newest answer of any agent of a store, as its last commit has it.

An engine may be running on the store.
"""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from meanstream.operators.agents.agents import Agents
from meanstream.operators.collaboration.covariates.agent_covariates import AgentCovariates
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.joint.joint_means import JointMeans
from meanstream.operators.collaboration.shares.shares_prior import SharesPrior
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.streaming.agents.agents_releases import restore_own_releases
from meanstream.streaming.agents.covariates_file import read_covariates_file
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.agents.public_population import PublicPopulation
from meanstream.streaming.agents.saved_agents import SavedAgents
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.store.database import StoreError
from meanstream.streaming.store.kind import OF_AGENTS, require_store_kind
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_deployment import saved_deployment_settings

AGAIN = 10.0
"""Earliest next read of a store, in multiples of the seconds that the last one took: the engine has
its own work."""


@dataclass(frozen=True, slots=True)
class _Commit:
    """Private: what a commit says of all agents."""

    number: int
    agents: Agents
    places: dict[str, int]
    followed: FollowedReleases
    estimates: PersonalEstimates
    population: PublicPopulation
    shares: SharesPrior | None
    time: float
    event_time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicAnswers:
    """Public: what a store's releases alone say of its agents.

    Attributes
    ----------
    names : tuple of str
        Agents that have released, in the order of the population's releases.
    joint : JointMeans
        Joint posterior of their means.
    level : float
        Of the intervals.
    """

    names: tuple[str, ...]
    joint: JointMeans
    level: float


class StoreAnswers:
    """Private: answers agents from a store that an engine fills, each from its own samples and everyone's releases.

    **Privacy.** An answer mixes in its agent's raw mean: it is for that agent and who runs the store. It spends
    nothing.

    Parameters
    ----------
    path : Path
        The store; it is only read.
    options : EngineOptions, optional
        How agents are answered; by default as in the last run that answered some.
    """

    def __init__(self, path: Path, options: EngineOptions | None = None) -> None:
        self._path = path
        self._options = options
        self._known: _Commit | None = None
        self._read_again = 0.0
        self._lock = threading.Lock()  # one reads, the others wait and take what it has read

    def answer(self, name: str) -> dict[str, Any] | None:
        """Give an agent's estimate, its age and its budget.

        None if the store has no sample of it that counts.
        """
        with self._lock:
            known = self._newest()
            number = None if known is None else known.places.get(name)
            if known is None or number is None:
                return None

            own = known.agents.own(np.array([number]))
            if not own.count.any():  # it lives in another store, or is forgotten
                return None
            pool = known.followed.posterior
            fitted = known.population.fitted
            names = known.agents.names
            time_of = known.event_time
            lines = known.estimates.answer(names, own, pool, fitted, time_of, shares=known.shares)

        settings = known.agents.settings
        spent = int(known.agents.spent()[number])
        most = settings.most_releases  # none: there is no end
        budget = {
            "spent": spent,
            "remaining": None if most is None else most - spent,
            "horizon": most,
        }
        age = {"age_seconds": round(time.time() - known.event_time, 3)}

        return {**msgspec.json.decode(lines.lines[0]), **age, "budget": budget}

    def names(self) -> list[str]:
        """Public: the agents that the store knows."""
        with self._lock:
            known = self._newest()

        return [] if known is None else list(known.places)

    def public(self) -> PublicAnswers | None:
        """Public: give what the releases say of the agents.

        None if nothing was released.
        """
        with self._lock:
            known = self._newest()

        if known is None or not len(known.population.releases):
            return None

        released = known.population.releases.agent.tolist()
        names = tuple(known.agents.names[number] for number in released)
        population = known.population
        answer = population.answers(all_rows=True)
        lower, value, upper = np.clip(
            [answer.lower, answer.value, answer.upper], population.lower, population.upper
        )
        own = JointMeans.independent(value, lower, upper, answer.level)

        return PublicAnswers(
            names=names,
            joint=(population.joint() or own).centered_on(value),
            level=answer.level,
        )

    def _newest(self) -> _Commit | None:
        """Read the store, unless that was done a moment ago."""
        if time.monotonic() >= self._read_again:
            began = time.monotonic()
            self._known = self._read(self._known)
            self._read_again = time.monotonic() + AGAIN * (time.monotonic() - began)

        return self._known

    def _read(self, known: _Commit | None) -> _Commit | None:
        store = Store.read(self._path)
        try:
            identity = store.state("identity")
            state = store.state("engine")

            if identity is None:
                raise StoreError(
                    f"store must have been begun by an engine, got {str(self._path)!r}"
                )

            require_store_kind(self._path, identity["settings"], OF_AGENTS)
            if state is None or state["event_time"] is None:
                return None
            number = store.commits()

            if known is not None and known.number == number:
                return known
            settings = saved_deployment_settings(identity["settings"])
            # A copy to read: it releases nothing, so its noise is never asked for.
            agents = Agents(
                settings, KeyedNoise(secrets.token_bytes(32), deployment="copy", purpose="none")
            )
            agents.add_agents(store.agents())
            SavedAgents().restore(store, agents)
            followed = FollowedReleases(settings)
            followed.restore(state["variance"], agents.latest())
            restore_own_releases(store, followed)
            options = self._options or _answer_options(store)
        finally:
            store.close()

        estimates = PersonalEstimates(settings, options)
        population = estimates.public_population(
            followed.combined(agents.latest()), followed.posterior, agents.names
        )

        return _Commit(
            number=number,
            agents=agents,
            places={name: place for place, name in enumerate(agents.names)},
            followed=followed,
            estimates=estimates,
            population=population,
            shares=estimates.shares.fit_newest(agents.names, agents.latest()),
            time=time.monotonic(),
            event_time=float(state["event_time"]),
        )


def _answer_options(store: Store) -> EngineOptions:
    """Read how the last run answered agents.

    A store of before says nothing of it, and is answered as by default.
    """
    said = (store.state("delivered") or {}).get("answers", {})
    names = ("collaboration", "level", "coverage", "stddev", "quantiles")
    given: dict[str, Any] = {name: said[name] for name in names if name in said}
    return EngineOptions(**given, covariates=covariates_of_last_run(store))


def covariates_of_last_run(store: Store) -> AgentCovariates | None:
    """Public: read the attributes that the last run has answered agents with, if there were any."""
    place = (store.state("delivered") or {}).get("answers", {}).get("covariates")
    if place is None:
        return None

    try:
        return read_covariates_file(*place)
    except ValueError as error:
        raise StoreError(f"{error}; the last run has answered agents with it") from None
