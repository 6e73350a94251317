"""The newest answer of any agent of a store, as its last commit has it.

An engine may be running on the store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np

from meanstream.operators.agents.agents import Agents
from meanstream.operators.collaboration.covariates.covariate_design import AgentCovariates
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.joint_means import JointMeans
from meanstream.operators.collaboration.shares.shares_prior import SharesPrior
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.streaming.agents.agents_releases import restore_own_releases
from meanstream.streaming.agents.declared_covariates import read_covariates_file
from meanstream.streaming.agents.engine_summary import deployment_digest, others_of_store
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.agents.public_population import PublicPopulation
from meanstream.streaming.agents.saved_agents import agents_at_rest
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.store.database import StoreError
from meanstream.streaming.store.deployment_store import saved_deployment_settings
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_identity import OF_AGENTS

AGAIN = 10.0
"""Earliest next read of a store, in multiples of the seconds that the last one took: the engine has
its own work."""


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


class CommittedAnswers(Protocol):
    """Private: what a commit says of all agents."""

    @property
    def number(self) -> int:
        """Which commit of the store it is."""

    def answer(self, name: str) -> dict[str, Any] | None:
        """Give an agent's estimate and its budget; None if no sample of it counts."""

    def names(self) -> list[str]:
        """Public: the agents that the commit knows."""

    def public(self) -> PublicAnswers | None:
        """Public: give what the releases say of the agents; None if nothing was released."""


@dataclass(frozen=True, slots=True)
class _Commit:
    """Private: what a commit of agents says of all of them."""

    number: int
    agents: Agents
    places: dict[str, int]
    pool: VariancePosterior
    estimates: PersonalEstimates
    population: PublicPopulation
    shares: SharesPrior | None
    event_time: float

    def names(self) -> list[str]:
        return list(self.places)

    def answer(self, name: str) -> dict[str, Any] | None:
        number = self.places.get(name)
        if number is None:
            return None

        own = self.agents.own(np.array([number]))
        if not own.count.any():  # it lives in another store, or is forgotten
            return None

        lines = self.estimates.answer(
            self.agents.names,
            own,
            self.pool,
            self.population.fitted,
            self.event_time,
            shares=self.shares,
        )
        spent = int(self.agents.spent()[number])
        most = self.agents.settings.most_releases  # none: there is no end
        budget = {
            "spent": spent,
            "remaining": None if most is None else most - spent,
            "horizon": most,
        }

        return {**msgspec.json.decode(lines.lines[0]), **age_of(self.event_time), "budget": budget}

    def public(self) -> PublicAnswers | None:
        population = self.population
        if not len(population.releases):
            return None

        released = population.releases.agent.tolist()
        names = tuple(self.agents.names[number] for number in released)
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


def age_of(event_time: float) -> dict[str, float]:
    """Say how old an answer is."""
    return {"age_seconds": round(time.time() - event_time, 3)}


class StoreAnswers:
    """Private: answers agents from a store that an engine fills, each from its own samples and everyone's releases.

    **Privacy.** An answer mixes in its agent's raw mean: it is for that agent and who runs the
    store. It spends nothing.

    Parameters
    ----------
    path : Path
        The store; it is only read.
    options : EngineOptions, optional
        How agents are answered; by default as in the last run that answered some.
    """

    kinds: ClassVar[tuple[str, ...]] = (OF_AGENTS,)
    """Kinds of stores that are answered from."""

    def __init__(self, path: Path, options: EngineOptions | None = None) -> None:
        self._path = path
        self._options = options
        self._known: CommittedAnswers | None = None
        self._read_again = 0.0
        self._lock = threading.Lock()  # one reads, the others wait and take what it has read

    def answer(self, name: str) -> dict[str, Any] | None:
        """Give an agent's estimate, its age and its budget.

        None if the store has no sample of it that counts.
        """
        with self._lock:
            commit = self._newest()
            return None if commit is None else commit.answer(name)

    def names(self) -> list[str]:
        """Public: the agents that the store knows."""
        with self._lock:
            commit = self._newest()

        return [] if commit is None else commit.names()

    def public(self) -> PublicAnswers | None:
        """Public: give what the releases say of the agents.

        None if nothing was released.
        """
        with self._lock:
            commit = self._newest()

        if commit is None:
            return None
        return commit.public()

    def _newest(self) -> CommittedAnswers | None:
        """Read the store, unless that was done a moment ago and found a commit."""
        if self._known is None or time.monotonic() >= self._read_again:
            began = time.monotonic()
            self._known = self._read(self._known)
            self._read_again = time.monotonic() + AGAIN * (time.monotonic() - began)

        return self._known

    def _read(self, known: CommittedAnswers | None) -> CommittedAnswers | None:
        with Store.read(self._path) as store:
            saved = store.begun_settings(*self.kinds)
            state = store.state("engine")
            if state is None or state["event_time"] is None:
                return None

            if known is not None and known.number == store.commits():
                return known

            return self._committed(store, saved, state)

    def _committed(
        self, store: Store, saved: dict[str, Any], state: dict[str, Any]
    ) -> CommittedAnswers:
        return _committed_agents(store, saved, state, self._options)


def answer_of_stores(stores: Sequence[StoreAnswers], name: str) -> dict[str, Any] | None:
    """Private: give an agent's estimate from the one store in which it lives; None if in none."""
    answers = (store.answer(name) for store in stores)
    return next((answer for answer in answers if answer is not None), None)


def _committed_agents(
    store: Store,
    saved: dict[str, Any],
    state: dict[str, Any],
    given: EngineOptions | None,
) -> _Commit:
    """Read what the last commit says of agents whose releases everyone reads."""
    settings = saved_deployment_settings(saved)
    agents, _ = agents_at_rest(store, settings)
    followed = FollowedReleases(settings)
    followed.restore(state["variance"], agents.latest())
    restore_own_releases(store, followed)

    options = given or _answer_options(store)
    estimates = PersonalEstimates(settings, options)
    others = others_of_store(store, deployment_digest(settings, options))
    pool = others.posterior(followed)
    population = estimates.public_population(
        followed.combined(agents.latest()), pool, agents.names, others
    )

    return _Commit(
        number=store.commits(),
        agents=agents,
        places={name: place for place, name in enumerate(agents.names)},
        pool=pool,
        estimates=estimates,
        population=population,
        shares=estimates.shares.fit_newest(agents.names, agents.latest(), others.histograms),
        event_time=float(state["event_time"]),
    )


def _answer_options(store: Store) -> EngineOptions:
    """Read how the last run answered agents.

    A store of before says nothing of it, and is answered as by default.
    """
    said = (store.state("delivered") or {}).get("answers", {})
    names = ("collaboration", "level", "coverage", "stddev", "quantiles")
    options: dict[str, Any] = {name: said[name] for name in names if name in said}
    return EngineOptions(**options, covariates=covariates_of_last_run(store))


def covariates_of_last_run(store: Store) -> AgentCovariates | None:
    """Public: read the attributes that the last run has answered agents with, if there were any."""
    place = (store.state("delivered") or {}).get("answers", {}).get("covariates")
    if place is None:
        return None

    try:
        return read_covariates_file(*place)
    except ValueError as error:
        raise StoreError(f"{error}; the last run has answered agents with it") from None
