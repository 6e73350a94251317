"""Who learns means that move.

Agents as the engine answers them, and an agent alone with a mean that forgets.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.alone import alone_where_ahead, half_width_alone
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.registry import (
    estimate_with_two_variances,
    make_collaboration,
)
from meanstream.operators.collaboration.variance.pooled_variance import pooled_own_means
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Floats

LEVEL = 0.95
Answers = tuple[Floats, Floats, Floats]
"""Values, and the lower and upper ends of their intervals."""


class DriftLearner(Protocol):
    """Anyone who takes samples of all agents and answers each of them."""

    def take(self, samples: Floats, time: float) -> None:
        """Take samples of shape (samples, agents)."""
        ...

    def answers(self) -> Answers:
        """Answer every agent."""
        ...


class HostedAgents:
    """Agents with a memory, answered as the engine and Beam answer them.

    Parameters
    ----------
    agents : int
    settings : AgentsSettings
    collaboration : str
        As in `make_collaboration`.
    seed : int
        Of the key of the noise.

    Notes
    -----
    **Privacy.** None: the key follows from the seed, for simulation only.
    """

    def __init__(
        self, agents: int, settings: AgentsSettings, collaboration: str, seed: int
    ) -> None:
        key = np.random.default_rng(1000 + seed).bytes(16)
        self._agents = Agents(settings, KeyedNoise(key, deployment="simulation", purpose="agents"))
        self._agents.add_agents([f"agent {i}" for i in range(agents)])
        self._followed = FollowedReleases(settings)
        self._way = make_collaboration(collaboration, lower=settings.lower, upper=settings.upper)

    def take(self, samples: Floats, time: float) -> None:
        """Take samples of shape (samples, agents), in order, within one second from `time` on."""
        n_samples, n_agents = samples.shape
        agent = np.tile(np.arange(n_agents), n_samples)
        times = np.repeat(time + np.arange(n_samples) / n_samples, n_agents)

        batch = self._agents.update(agent, samples.ravel(), times)
        self._followed.observe(batch.releases, batch.before)

    def answers(self) -> Answers:
        """Fit the population and answer everyone."""
        pool = self._followed.posterior
        fitted = self._way.fit_summary(
            self._way.summarize(self._followed.combined(self._agents.latest())), pool
        )
        own = pooled_own_means(self._agents.own(), pool)
        found = alone_where_ahead(estimate_with_two_variances(fitted, own, level=LEVEL), own)

        return found.value, found.lower, found.upper


class ExponentialMean:
    """Every agent alone, with an exponentially weighted mean; the variance of a sample is known.

    Parameters
    ----------
    length : float
        A sample weighs 1 - 1 / length times as much as the next one.
    stddev : float
        Of a sample.

    Examples
    --------
    >>> alone = ExponentialMean(2.0, stddev=0.5)
    >>> alone.take(np.array([[0.0], [3.0]]), 0.0)
    >>> alone.answers()[0].tolist()
    [2.0]
    """

    def __init__(self, length: float, *, stddev: float) -> None:
        self._length = length
        self._half = float(half_width_alone(np.array(stddev**2 / (2 * length - 1)), LEVEL))
        self._value: Floats | None = None
        self._weight = 0.0

    def take(self, samples: Floats, time: float) -> None:  # noqa: ARG002 - it forgets by samples
        """Take samples of shape (samples, agents), one row after the other."""
        value = np.zeros(samples.shape[1]) if self._value is None else self._value
        for row in samples:
            self._weight = self._weight * (1 - 1 / self._length) + 1
            value = value + (row - value) / self._weight

        self._value = value

    def answers(self) -> Answers:
        """Give the means, with intervals for weights that go back for ever."""
        value = np.zeros(0) if self._value is None else self._value
        return value, value - self._half, value + self._half


class WindowMean:
    """Every agent alone, with the mean of its newest samples; the variance of a sample is known.

    Parameters
    ----------
    length : int
        How many samples.
    stddev : float
        Of a sample.

    Examples
    --------
    >>> alone = WindowMean(2, stddev=0.5)
    >>> alone.take(np.array([[9.0], [0.0], [3.0]]), 0.0)
    >>> alone.answers()[0].tolist()
    [1.5]
    """

    def __init__(self, length: int, *, stddev: float) -> None:
        self._length = length
        self._stddev = stddev
        self._newest: Floats | None = None

    def take(self, samples: Floats, time: float) -> None:  # noqa: ARG002 - it forgets by samples
        """Take samples of shape (samples, agents)."""
        known = samples if self._newest is None else np.vstack([self._newest, samples])
        self._newest = known[-self._length :].copy()

    def answers(self) -> Answers:
        """Give the means and their intervals."""
        newest = np.zeros((1, 0)) if self._newest is None else self._newest
        value = newest.mean(axis=0)
        half = float(half_width_alone(np.array(self._stddev**2 / len(newest)), LEVEL))
        return value, value - half, value + half
