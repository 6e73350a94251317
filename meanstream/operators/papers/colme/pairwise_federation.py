"""A small federation whose agents ask each other one at a time: exact sums, keyed noise, whole numbers on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.collaboration.alone import half_width_alone
from meanstream.operators.noise.canonical import canonical_spelling
from meanstream.operators.noise.keyed import NoiseIds, NoiseSource, keyed_owner_words
from meanstream.operators.papers.colme.pairwise_agents import PairwiseAgents, PairwiseSettings
from meanstream.operators.records import AgentEstimates, Bools, Floats, Ints, Words
from meanstream.operators.validation import (
    require,
    require_between,
    require_name,
    require_positive,
    valid_float,
    valid_int,
)

MOST_BYTES = 1 << 28
WEIGHTS = ("last", "mean_of_means", "windowed")
_BETWEEN = "\x1f"  # no name holds a control character


@dataclass(frozen=True, kw_only=True)
class FederationSettings:
    """Who asks whom, and how releases are made and tested; plain values, checked at once.

    Parameters
    ----------
    agents : tuple of str
        The names of all agents: public, and fixed.
    lower, upper : float
        Declared bounds of a sample, in the value's unit; samples are clipped to them.
    epsilon, delta : float
        What one sample's value costs over all releases to one reader.
    horizon : int
        Greatest number of releases of one agent to another: the budget of the pair.
    counter : str
        "pm1" or "pm2"; "toeplitz" where `stddev` is known or the mode is "tuned".
    noise, calibration : str
        "gaussian" or "laplace"; "analytic" or "classical" (Gaussian only, epsilon <= 1).
    weights, test : str
        "last", "mean_of_means" or "windowed"; "lazy" (whom one just asked) or "eager" (everyone, at every answer).
    stddev : float, optional
        Standard deviation of one sample, where it is known; otherwise it is read off the releases.
    significance : float
        The tests at step t run at significance / ln(t + 1).
    mode : str
        "paper": basic composition, and equation (16) for variances; "tuned": concentrated, and its unbiased form.
    name : str, optional
        Name of the deployment, part of the key of every draw and of every release's id; a pipeline needs it.

    Raises
    ------
    ValueError
        Naming the parameter, the rule and the value. More agents, if the state of their pairs takes more than
        256 MiB are refused: broadcast releases serve them.

    Examples
    --------
    >>> FederationSettings(agents=tuple(map(str, range(2000))), lower=0, upper=1, epsilon=1, delta=1e-6)
    Traceback (most recent call last):
    ValueError: agents must be at most 1379 for a state of 256 MiB, got 2000
    """

    agents: tuple[str, ...]
    lower: float
    upper: float
    epsilon: float
    delta: float
    horizon: int = 40
    counter: str = "pm1"
    noise: str = "gaussian"
    calibration: str = "analytic"
    weights: str = "last"
    test: str = "lazy"
    stddev: float | None = None
    significance: float = 0.05
    mode: str = "paper"
    name: str | None = None

    def __post_init__(self) -> None:
        for field in ("lower", "upper", "epsilon", "delta", "significance", "stddev"):
            if field != "stddev" or self.stddev is not None:
                object.__setattr__(self, field, valid_float(field, getattr(self, field)))
        object.__setattr__(self, "horizon", valid_int("horizon", self.horizon))
        object.__setattr__(self, "agents", tuple(self.agents))
        if self.name is not None:
            require_name(self.name)
        plain = {name for name in self.agents if name and _BETWEEN not in name}
        require(len(plain) == len(self.agents), "agents", "be names, each once", f"{len(self.agents)} of them")
        require(len(plain) >= 2, "agents", "be at least 2", len(plain))
        require(self.weights in WEIGHTS, "weights", f"be one of {', '.join(WEIGHTS)}", self.weights)
        pairs = self.counter != "optimal"
        require(pairs, "counter", "be pm1, pm2 or toeplitz (every pair would keep all its draws)", self.counter)
        require(self.test in ("lazy", "eager"), "test", "be lazy or eager", self.test)
        require_between(0, 1, significance=self.significance)
        if self.stddev is not None:
            require_positive(stddev=self.stddev)
        pair = sum(one.nbytes for one in self._made(2).snapshot().values() if isinstance(one, np.ndarray)) / 2
        most = int(np.sqrt(MOST_BYTES / pair))
        n = len(self.agents)
        require(n <= most, "agents", f"be at most {most} for a state of {MOST_BYTES >> 20} MiB", n)

    @cached_property
    def release(self) -> AgentsSettings:
        """How one pair releases: the grid, the counter and the noise."""
        return AgentsSettings(
            lower=self.lower,
            upper=self.upper,
            epsilon=self.epsilon,
            delta=self.delta,
            counter=self.counter,
            horizon=self.horizon,
            noise=self.noise,
            calibration=self.calibration,
            mode=self.mode,
            spread_share=0.0,
        )

    def make(self) -> PairwiseAgents:
        """All pairs before the first step, in grid units."""
        return self._made(len(self.agents))

    def _made(self, n: int) -> PairwiseAgents:
        release = self.release
        settings = PairwiseSettings(
            agents=n,
            runs=1,
            counter=release.mechanism,
            fresh_variance=release.fresh.variance,
            weights=self.weights,
            test=self.test,
            variance="from_releases" if self.stddev is None else "known",
            corrected=self.mode == "tuned",
            significance=self.significance,
            half_width=release.grid.span / 2,
            whole=True,
        )
        known = None if self.stddev is None else np.full((1, n), (self.stddev / release.grid.resolution) ** 2)
        return PairwiseAgents(settings, sample_variance=known)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReleases:
    """Each for its reader and for no one else: what agents told those who asked them at one step.

    Attributes
    ----------
    agent, reader : int array (n,)
        Who was queried, and who asked.
    index, count, total : int array (n,)
        Which release of the one to the other it is, from 1; samples in the sum; the noised sum in grid units.
    version : uint64 array (n,)
        Keyed digest of the input: it stays in the ledger.
    """

    agent: Ints
    reader: Ints
    index: Ints
    count: Ints
    total: Ints
    version: Words

    def __len__(self) -> int:
        return len(self.agent)


class PairwiseFederation:
    """Algorithm 1 as it can be deployed: at step t everyone has its t-th sample and asks one other agent.

    Released: to the one who asks, and to no one else, the noised sum of the samples of the one who is queried.

    Parameters
    ----------
    settings : FederationSettings
    noise : NoiseSource
        The keyed source, from which it takes a key of its own; a release id is the ordered pair and the index within
        it.

    Notes
    -----
    **Privacy.** Neighboring streams differ in the value of one sample (replace-one). All releases of one agent to one
    reader are (epsilon, delta)-differentially private; readers who pool what they were told average the noise of
    their pairs away, as `PairwiseAgents` says in numbers. Whom one asks depends on time alone. Past the horizon no one
    asks.

    Examples
    --------
    >>> from meanstream.operators.noise.keyed import KeyedNoise
    >>> settings = FederationSettings(agents=("a", "b", "c"), lower=0, upper=1, epsilon=1, delta=1e-6, stddev=0.3)
    >>> noise = KeyedNoise(bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="doc", purpose="agents")
    >>> federation = PairwiseFederation(settings, noise)
    >>> made = federation.step(np.array([0.1, 0.2, 0.9]))
    >>> made.agent.tolist(), made.reader.tolist(), made.index.tolist()
    ([1, 0, 0], [0, 1, 2], [1, 1, 1])
    """

    def __init__(self, settings: FederationSettings, noise: NoiseSource) -> None:
        self.settings = settings
        self._noise = noise.derived("pairwise agents", canonical_spelling(settings))
        self._pairs = settings.make()
        self._total = np.zeros(len(settings.agents), np.int64)

    @property
    def time(self) -> int:
        """Steps so far."""
        return self._pairs.time

    def step(self, values: Floats) -> PairReleases:
        """Take one sample of every agent, in the value's unit and in the order of `settings.agents`."""
        return self.step_points(self.settings.release.grid.encode(values))

    def step_points(self, point: Ints) -> PairReleases:
        """Do the same with samples that are on the grid already."""
        release, n = self.settings.release, len(self.settings.agents)
        self._total += point
        # Equation (16) depends on where 0 is: as in the paper, in the middle of the declared interval.
        centered = (point - release.grid.span // 2)[None].astype(np.float64)
        turn, offset = divmod(self.time, n - 1)
        if turn >= self.settings.horizon:
            self._pairs.learn(centered)
            none = np.zeros(0, np.int64)
            return PairReleases(
                agent=none, reader=none, index=none, count=none, total=none, version=np.zeros(0, np.uint64)
            )
        reader = np.arange(n)
        agent = offset + (reader <= offset).astype(np.int64)
        count = np.full(n, self.time + 1)
        version = self._noise.version_of(count, self._total[agent])
        ids = NoiseIds(owner=self.words(agent, reader), index=np.full(n, turn + 1), version=version)
        self._pairs.step(centered, release.fresh.sample(self._noise.bits(ids))[None])
        made = self._pairs.exchanged
        if made is None or not np.array_equal(made.target, agent):
            raise RuntimeError("schedule must query the agent that the noise was made for, got another one")
        total = made.total + count * (release.grid.span // 2)
        return PairReleases(
            agent=agent, reader=made.asker, index=made.release.copy(), count=count, total=total, version=version
        )

    def words(self, agent: Ints, reader: Ints) -> Words:
        """Hash of ordered pairs."""
        names = self.settings.agents
        pairs = zip(agent.tolist(), reader.tolist(), strict=True)
        return keyed_owner_words([f"{names[a]}{_BETWEEN}{names[r]}" for a, r in pairs])

    def estimate(self, alone: Bools, *, level: float = 0.95) -> tuple[AgentEstimates, AgentEstimates]:
        """Private: each agent's estimate by equation (4), and what it knows alone; for that agent only.

        Parameters
        ----------
        alone : bool array, shape (n,)
            Agents that must not use what they were told.
        level : float
            Coverage of the intervals.
        """
        (value,), (variance,) = self._pairs.estimate()
        own, own_variance = self._pairs.own_mean[0], self._pairs.own_variance[0]
        size = 1.0 + self._pairs.accepted.sum(axis=0)
        value, variance = np.where(alone, own, value), np.where(alone, own_variance, variance)
        return (
            self._answer(value, variance, own_variance, np.where(alone, 1.0, size), level),
            self._answer(own, own_variance, own_variance, np.ones(len(own)), level),
        )

    def _answer(self, value: Floats, variance: Floats, own: Floats, size: Floats, level: float) -> AgentEstimates:
        grid = self.settings.release.grid
        half = half_width_alone(variance, level) * grid.resolution
        center = grid.lower + (value + grid.span // 2) * grid.resolution
        known = np.isfinite(own) & (variance > 0)
        return AgentEstimates(
            value=np.clip(center, grid.lower, grid.upper),
            lower=np.clip(center - half, grid.lower, grid.upper),
            upper=np.clip(center + half, grid.lower, grid.upper),
            level=level,
            effective_class_size=np.where(known, own / np.where(known, variance, 1.0), 1.0),
            class_size=size,
            component=np.full(len(value), -1),
            membership=np.ones(len(value)),
        )

    def snapshot(self) -> dict[str, Any]:
        """Private: the whole state as plain data, with a version."""
        return {**self._pairs.snapshot(), "exact": self._total.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a snapshot taken under the same settings."""
        rest = dict(state)
        exact = np.asarray(rest.pop("exact"), np.int64)
        require(exact.shape == self._total.shape, "exact", f"have shape {self._total.shape}", exact.shape)
        self._pairs.restore(rest)
        self._total[:] = exact
