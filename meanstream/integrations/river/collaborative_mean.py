"""An estimator of river's kind.

A private mean per agent, made better by what all agents release.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, cast
from unicodedata import normalize

import numpy as np
from river import base

from meanstream.integrations.river.environment_key import (
    environment_noise,
    key_digest,
    noise_of_environment,
)
from meanstream.operators.agents.agents import CHUNK, Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.registry import (
    answers_from_releases,
    estimate_with_two_variances,
)
from meanstream.operators.collaboration.variance.pooled_variance import (
    pooled_own_means,
    pooled_variance,
)
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Floats, OwnMeans
from meanstream.operators.validation import require, valid_float
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.store.secret_source import SECRET_VARIABLE

if TYPE_CHECKING:
    from meanstream.streaming.agents.public_population import PublicPopulation

STATE_VERSION = 1
_PARAMETERS = (
    *("agent", "lower", "upper", "epsilon", "delta", "odds"),
    *("name", "schedule", "horizon", "collaboration"),
)
_STATE = (
    "_followed",
    "_numbers",
    "_learned",
    "_made",
    "_fitted_with",
    "_people",
    "_pool",
    "_answers",
)
_STALE = 1.25
"""The population is fitted again when there are that many times the releases of the last fit."""


class CollaborativeMean(base.MiniBatchRegressor):
    """A mean per agent, private for each sample, made better by what all agents release.

    `predict_one` answers from public releases alone: it may go into metrics, features and plots.
    `estimate_one` also uses the agent's own samples, without noise: it is for that agent only.

    Parameters
    ----------
    agent : str
        Feature that names the agent. A row without it is not learned from, and gets the mean of the
        population.
    lower, upper : float
        Declared bounds of the target, in its unit; values are clipped to them. Public: do not read
        them off the data.
    epsilon, delta : float
        Guarantee of each sample, over all releases of its agent.
    name : str
        Name of the deployment, part of the key of the noise: one for each model and target.
    schedule : str
        Numbers of samples after which an agent releases: `preferred:FIRST` or
        `geometric:FIRST,FACTOR`.
    horizon : int
        Greatest number of releases of an agent.
    collaboration : str
        How agents learn of each other, as for `meanstream run agents`.
    noise : KeyedNoise, optional
        The keyed source. By default it has the key of `MEANSTREAM_SECRET`, or of the file
        `MEANSTREAM_SECRET_FILE`.

    Notes
    -----
    **Privacy.** (epsilon, delta) for the value of one sample (replace-one) against everyone who sees predictions and
    releases; which agents there are and how many samples each has is public. The mechanism is that of `Agents`, as the
    engine runs it. Noise is a function of key, name, settings and data: a clone that sees the same data repeats the
    same releases at no cost, one that sees other data is another release. No ledger counts these. A pickle holds raw
    sums, and no key.

    Raises
    ------
    ValueError
        If a parameter is out of range, or there is no key.

    Examples
    --------
    >>> key = KeyedNoise(bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="doc", purpose="agents")
    >>> model = CollaborativeMean(lower=0, upper=10, epsilon=1.0, delta=1e-6, name="doc", noise=key)
    >>> for i in range(2000):
    ...     model.learn_one({"agent": f"a{i % 20}"}, 4 + i % 3)
    >>> round(model.predict_one({"agent": "a3"})), round(model.predict_one({"agent": "new"}))
    (5, 5)
    """

    def __init__(
        self,
        agent: str = "agent",
        *,
        lower: float,
        upper: float,
        epsilon: float | None = None,
        delta: float = 0.0,
        odds: float | str | None = None,
        name: str,
        schedule: str = "preferred:10",
        horizon: int = 40,
        collaboration: str = "learned_prior",
        noise: KeyedNoise | None = None,
    ) -> None:
        self.agent = agent
        self.lower = lower
        self.upper = upper
        self.epsilon = epsilon
        self.delta = delta
        self.odds = odds
        self.name = name
        self.schedule = schedule
        self.horizon = horizon

        self.collaboration = collaboration
        self.noise = noise

        # Without a clock only counts of samples can be a schedule.
        require(
            not schedule.startswith("every"),
            "schedule",
            "count samples: a river model has no clock",
            schedule,
        )

        settings = AgentsSettings(
            lower=lower,
            upper=upper,
            epsilon=cast("float", epsilon),  # it checks, as it does odds
            delta=delta,
            odds=odds,
            schedule=schedule,
            horizon=horizon,
            name=name,
        )

        # Without a key of its own the model has that of the environment.
        self._key = environment_noise(name) if noise is None else noise
        self._agents = Agents(settings, self._key)

        # Who releases, and who answers from the releases.
        self._followed = FollowedReleases(settings)
        self._host = PersonalEstimates(settings, EngineOptions(collaboration=collaboration))
        self._numbers: dict[str, int] = {}
        self._learned = self._made = self._fitted_with = 0
        self._people: PublicPopulation | None = None
        self._pool = self._followed.posterior
        self._answers: dict[int, float] = {}

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        """Give parameters for river's checks, whose data are approval ratings.

        The key is of the environment.
        """
        ask = {"lower": 30.0, "upper": 50.0, "epsilon": 1.0, "delta": 1e-6, "name": "checks"}
        yield {
            "agent": "gallup",
            "schedule": "geometric:1,2",
            "horizon": 20,
            "collaboration": "james_stein",
            **ask,
        }

    def learn_one(self, x: dict[Any, Any], y: float) -> None:
        """Take one sample, and release if the schedule says so."""
        self._learn([_name(x.get(self.agent))], np.array([valid_float("y", y)]))

    def learn_many(self, X: Any, y: Any) -> None:
        """Take samples in the order of the rows of a frame of pandas."""
        if self.agent in X.columns:
            self._learn([_name(one) for one in X[self.agent].tolist()], np.asarray(y, np.float64))

    def predict_one(self, x: dict[Any, Any]) -> float:
        """Public: the agent's mean by the releases; the middle of the bounds before the first."""
        return self._predicted(_name(x.get(self.agent)))

    def predict_many(self, X: Any) -> Any:
        """Public: as `predict_one`, of each row."""
        column = X[self.agent].tolist() if self.agent in X.columns else [None] * len(X)
        return X.assign(mean=[self._predicted(_name(one)) for one in column])["mean"].astype(float)

    def estimate_one(self, x: dict[Any, Any]) -> dict[str, float]:
        """Private: the agent's mean given its own samples, with a 95 % interval.

        For this agent only.

        Raises
        ------
        KeyError
            If the row names no agent, the agent has no sample, or no one has released anything yet.
        """
        # An agent must be named and known: its own samples are the answer's first part.
        name = _name(x.get(self.agent))
        if name is None:
            raise KeyError(
                f"x must have the field {self.agent!r} (agent= names another), got {', '.join(map(str, x))}"
            )
        if name not in self._numbers:
            raise KeyError(f"the agent must have a sample, got {name!r}")

        number = self._numbers[name]
        people = self._population()
        if people is None:
            raise KeyError("no agent has released anything yet")

        own = pooled_own_means(self._agents.own(np.array([number])), self._pool)
        found = estimate_with_two_variances(people.fitted, own, level=0.95)
        return {
            "value": float(found.value[0]),
            "lower": float(found.lower[0]),
            "upper": float(found.upper[0]),
        }

    @property
    def population(self) -> dict[str, Any]:
        """Public: what the releases say of all agents; empty before the first."""
        people = self._population()

        if people is None:
            return {}
        return people.description

    def __getstate__(self) -> dict[str, Any]:
        """Private: everything as plain data, but for the key of the noise."""
        chunks = range(-(-self._agents.n_agents // CHUNK))
        return {
            "version": STATE_VERSION,
            "parameters": {one: getattr(self, one) for one in _PARAMETERS},
            "noise": None if self.noise is None else (self.noise.deployment, self.noise.purpose),
            "key": key_digest(self._key),
            "names": list(self._agents.names),
            "chunks": [self._agents.snapshot_chunk(chunk) for chunk in chunks],
            **{one: getattr(self, one) for one in _STATE},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Continue with the key of the environment."""
        require(
            state["version"] == STATE_VERSION,
            "state version",
            f"be {STATE_VERSION}",
            state["version"],
        )
        noise = None

        if state["noise"] is not None:
            noise = noise_of_environment(*state["noise"])

        # Parameters make the model; its samples are put back afterwards.
        self.__init__(**state["parameters"], noise=noise)  # type: ignore[misc]
        if key_digest(self._key) != state["key"]:
            raise ValueError(
                f"{SECRET_VARIABLE} must have the key that the model began with, got another one"
            )

        # Agents first, then their state.
        self._agents.add_agents(state["names"])
        for chunk, rows in enumerate(state["chunks"]):
            self._agents.restore_chunk(chunk, rows)

        self.__dict__.update({one: state[one] for one in _STATE})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy a model that has no samples; a copy of others would release them a second time."""
        if self._learned:
            raise TypeError(
                "a CollaborativeMean that has samples cannot be copied; use clone(), or pickle it"
            )

        return type(self)(**{one: getattr(self, one) for one in _PARAMETERS}, noise=self.noise)

    def _learn(self, names: Sequence[str | None], y: Floats) -> None:
        """Take samples of named agents; the others are left out."""
        # Samples without a name count for nobody.
        known = np.array([name is not None for name in names], bool)
        for name in dict.fromkeys(name for name in names if name is not None):
            if name not in self._numbers:
                self._numbers[name] = len(self._numbers)
                self._agents.add_agents([name])

        numbers = np.array([self._numbers[name] for name in names if name is not None], np.int64)
        if not len(numbers):
            return

        # The order of samples is their time.
        time = self._learned + np.arange(len(numbers), dtype=np.float64)
        self._learned += len(numbers)
        made = self._agents.update(numbers, y[known], time)
        self._followed.observe(made.releases, made.before)
        self._made += len(made.releases)

        # New releases change the answers of their agents at once; those of others with the next
        # fit.
        for number in made.releases.agent.tolist():
            self._answers.pop(number, None)

    def _population(self) -> PublicPopulation | None:
        """Public: the population, fitted again once there are many more releases."""
        # A fit reads all releases: it is repeated once there are many more.
        if self._made and (self._people is None or self._made > _STALE * self._fitted_with):
            newest = self._followed.combined(self._agents.latest())
            self._pool = self._followed.posterior
            self._people = self._host.public_population(
                newest, self._followed.posterior, self._agents.names
            )
            self._fitted_with = self._made
            self._answers.clear()

        return self._people

    def _predicted(self, name: str | None) -> float:
        """Public: answer an agent, or someone who has released nothing, from releases."""
        people = self._population()
        if people is None:
            return 0.5 * (float(self.lower) + float(self.upper))

        # Who has released nothing is answered by the prior alone.
        number = self._numbers.get(name, -1) if name is not None else -1

        if number not in self._answers:
            self._answers[number] = self._answer(people, number)

        return self._answers[number]

    def _answer(self, people: PublicPopulation, number: int) -> float:
        newest = self._followed.combined(self._agents.latest())
        released = newest.take(newest.agent == number)
        if len(released):
            found = answers_from_releases(
                people.fitted, released, pooled_variance(released, self._pool.median)
            )
        else:
            found = people.fitted.estimate(self._nothing_known())

        return float(np.clip(found.value[0], self.lower, self.upper))

    def _nothing_known(self) -> OwnMeans:
        """Describe an agent of whom nothing is known: its mean may be anywhere."""
        middle = np.array([0.5 * (self.lower + self.upper)])
        wide = np.array([1e6 * (self.upper - self.lower) ** 2])
        one = np.ones(1, np.int64)
        return OwnMeans(
            agent=-one,
            count=one,
            mean=middle,
            variance=wide,
            noise_variance=wide,
            value_variance=wide,
        )


def _name(value: Any) -> str | None:
    """Give an agent's name in Unicode's NFC, so that it has one spelling; None where there is none."""
    missing = value is None or (isinstance(value, float) and math.isnan(value))

    if missing:
        return None
    return normalize("NFC", str(value))
