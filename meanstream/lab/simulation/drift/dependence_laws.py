"""Simulated agents whose samples depend on each other.

Error, coverage and length of intervals by number of samples.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from scipy.signal import lfilter

from meanstream.lab.simulation.simulation_result import Track
from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.registry import (
    estimate_with_two_variances,
    make_collaboration,
)
from meanstream.operators.collaboration.variance.pooled_variance import pooled_own_means
from meanstream.operators.collaboration.variance.variance_posterior import variance_posterior_of_own
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import AgentEstimates, Floats, OwnMeans
from meanstream.operators.validation import require

KINDS = ("none", "ar", "half-ar", "heavy-ar", "bursts", "ma", "markov", "cycle", "shocks")
_WHOLE = ("bursts", "ma", "cycle")
MOST_LAG = 10_000
SHOCKS_CORRELATION = 0.95
"""Of shocks that all agents share, from one sample to the next."""
CYCLE_SHARE = 0.5
"""Part of the variance of a sample that a cycle makes."""
_FORMS = (
    "be ar:RHO, half-ar:RHO, heavy-ar:RHO, markov:RHO, bursts:N, ma:N, cycle:N, shocks:SHARE or none, "
    "such as ar:0.9 or cycle:144"
)


@dataclass(frozen=True, slots=True)
class DependentSamples:
    """Deviations of samples from their agent's long-run mean, of variance 1.

    Parameters
    ----------
    kind : str
        `ar` (each agent an AR(1) process), `half-ar` (half of the agents, the rest independent),
        `heavy-ar` (AR(1) of Student t3 innovations), `markov` (yes or no), `bursts` (each value N
        times in a row), `ma` (a moving sum of N + 1), `cycle` (a sine of period N, of a phase for
        each agent, and independent noise), `shocks` (a share of the variance is an AR(1) process
        that all agents have in common) or `none`.
    number : float
        Correlation of neighbors, length or share.

    Examples
    --------
    >>> round(DependentSamples.parse("ar:.9").ratio, 6)
    19.0
    """

    kind: str
    number: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the option `dependence`."""
        kind, _, rest = text.partition(":")
        require(kind in KINDS and (kind == "none") == (rest == ""), "dependence", _FORMS, text)

        try:
            number = float(rest or 0)
        except ValueError:
            number = math.nan

        if kind in _WHOLE:
            fine = 1 <= number <= MOST_LAG and number == int(number)
            require(fine, "dependence", f"have a whole number of 1 to {MOST_LAG} with {kind}", text)
        elif kind != "none":
            require(
                -1 < number < 1, "dependence", f"have a number between -1 and 1 with {kind}", text
            )
            require(
                kind != "shocks" or number > 0,
                "dependence",
                "have a positive share with shocks",
                text,
            )

        return cls(kind, number)

    def __str__(self) -> str:
        if self.kind == "none":
            return self.kind
        return f"{self.kind}:{self.number:g}"

    @property
    def ratio(self) -> float:
        """Long-run variance over the variance of a sample, of an agent that depends."""
        correlated = (1 + self.number) / (1 - self.number)
        shocks = 1 + self.number * ((1 + SHOCKS_CORRELATION) / (1 - SHOCKS_CORRELATION) - 1)
        ratios = {
            "none": 1.0, "bursts": self.number, "ma": self.number + 1, "cycle": 1 - CYCLE_SHARE, "shocks": shocks,
        }  # fmt: skip

        return ratios.get(self.kind, correlated)

    def draw(
        self, rng: np.random.Generator, steps: int, agents: int, share: Floats | None = None
    ) -> Floats:
        """Draw deviations, shape (steps, agents).

        Parameters
        ----------
        rng : numpy.random.Generator
        steps, agents : int
        share : float array, shape (agents,)
            Of yes, with `markov` only.
        """
        number = self.number
        shape = (steps, agents)
        if self.kind == "markov":
            return _markov(rng, shape, number, np.full(agents, 0.5) if share is None else share)
        if self.kind == "heavy-ar":
            return _correlated(rng.standard_t(3, (steps, agents)) / math.sqrt(3), number)

        noise = rng.standard_normal(shape)
        if self.kind in {"ar", "half-ar"}:
            every = slice(None, None, 2 if self.kind == "half-ar" else 1)
            noise[:, every] = _correlated(noise[:, every], number)
        elif self.kind == "bursts":
            noise = np.repeat(noise[: -(-steps // int(number))], int(number), axis=0)[:steps]
        elif self.kind == "ma":
            before = rng.standard_normal((int(number), agents))
            sums = np.cumsum(np.concatenate([np.zeros((1, agents)), before, noise]), axis=0)
            noise = np.asarray(
                (sums[int(number) + 1 :] - sums[: -int(number) - 1]) / math.sqrt(number + 1)
            )
        elif self.kind == "cycle":
            turn = 2 * math.pi * (np.arange(steps)[:, np.newaxis] / number + rng.random(agents))
            noise = math.sqrt(2 * CYCLE_SHARE) * np.sin(turn) + math.sqrt(1 - CYCLE_SHARE) * noise
        elif self.kind == "shocks":
            common = _correlated(rng.standard_normal((steps, 1)), SHOCKS_CORRELATION)
            noise = math.sqrt(number) * common + math.sqrt(1 - number) * noise

        return noise


def _correlated(noise: Floats, rho: float) -> Floats:
    """Make a stationary AR(1) process of independent innovations of variance 1."""
    innovation = math.sqrt(1 - rho * rho)
    later, _ = lfilter([innovation], [1.0, -rho], noise[1:], axis=0, zi=rho * noise[:1])
    return np.concatenate([noise[:1], later])


def _markov(rng: np.random.Generator, shape: tuple[int, int], rho: float, share: Floats) -> Floats:
    """Make yes/no samples, 1 and 0, that stay as they are with probability rho, and are drawn otherwise."""
    drawn = (rng.random(shape) < share).astype(np.float64)
    stays = rng.random(shape) < rho
    for step in range(1, shape[0]):
        drawn[step] = np.where(stays[step], drawn[step - 1], drawn[step])

    return drawn


CHECKPOINTS = (60, 150, 500, 1500)
"""Samples of each agent at which answers are measured."""
CENTER = 0.5
MOST_SAMPLES = 10**8
LONGEST_BLOCK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class DependenceConfig:
    """Everything that determines a simulation of samples that depend.

    Parameters
    ----------
    dependence : str
        See `DependentSamples.parse`.
    agents, runs, seed : int
        Run r depends on seed + r only.
    checkpoints : tuple of int
        Samples of each agent at which answers are measured.
    stddev, spread : float
        Standard deviation of a sample, and of the agents' means about 0.5; bounds are 0 and 1.
        Yes/no samples have the standard deviation that their share has.
    epsilon, delta : float
        Privacy of one sample over all releases of its agent.
    collaboration : str
        A name of the registry.
    """

    dependence: str
    agents: int = 400
    checkpoints: tuple[int, ...] = CHECKPOINTS
    stddev: float = 0.1
    spread: float = 0.05
    epsilon: float = 1.0
    delta: float = 1e-6
    collaboration: str = "learned_prior"
    runs: int = 5
    seed: int = 1

    def __post_init__(self) -> None:
        for name, least in (("agents", 2), ("runs", 1), ("seed", 0)):
            require(getattr(self, name) >= least, name, f"be at least {least}", getattr(self, name))

        object.__setattr__(self, "checkpoints", tuple(sorted(set(self.checkpoints))))
        shown = ",".join(map(str, self.checkpoints))
        require(
            bool(self.checkpoints) and self.checkpoints[0] >= 1,
            "checkpoints",
            "be numbers of samples",
            shown,
        )

        most = MOST_SAMPLES // self.agents
        require(
            self.checkpoints[-1] <= most,
            "checkpoints",
            f"be at most {most} for {self.agents} agents",
            shown,
        )

        require(
            0 < self.stddev <= 0.15,
            "stddev",
            "be more than 0 and at most 0.15 (bounds are 0 and 1)",
            self.stddev,
        )

        require(
            0 <= self.spread <= 0.15,
            "spread",
            "be from 0 to 0.15 (bounds are 0 and 1)",
            self.spread,
        )
        DependentSamples.parse(self.dependence)
        make_collaboration(self.collaboration, lower=0.0, upper=1.0)
        _ = self.settings

    @property
    def settings(self) -> AgentsSettings:
        """Settings of the agents."""
        return AgentsSettings(lower=0.0, upper=1.0, epsilon=self.epsilon, delta=self.delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class DependenceResult:
    """What was measured at each checkpoint: means over runs.

    Attributes
    ----------
    coverage, coverage_stderr : list of float
        Of the 95 % intervals, and its standard error over runs.
    ratio, ratio_stderr : list of float
        Squared error of the answers over that of the own means.
    independent_width, ideal_width : list of float
        Median length of the intervals over that of intervals which take samples for independent,
        and over that of intervals which know the long-run variance.
    alone_coverage : list of float
        Of intervals of the own means without collaboration.
    """

    checkpoints: tuple[int, ...]
    coverage: list[float]
    coverage_stderr: list[float]
    ratio: list[float]
    ratio_stderr: list[float]
    independent_width: list[float]
    ideal_width: list[float]
    alone_coverage: list[float]
    config: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


_MEASURED = ("coverage", "ratio", "independent_width", "ideal_width", "alone_coverage")


def simulate_dependence(config: DependenceConfig, track: Track = iter) -> DependenceResult:
    """Simulate; `track` gives the runs one by one.

    Examples
    --------
    >>> found = simulate_dependence(DependenceConfig(dependence="ar:0.9", agents=50, checkpoints=(200,), runs=1))
    >>> found.independent_width[0] > 2
    True
    """
    chunks = [range(r, r + 1) for r in range(config.runs)]
    measured = np.array([_run(config, config.seed + r) for chunk in track(chunks) for r in chunk])
    mean = dict(zip(_MEASURED, measured.mean(axis=0).T.tolist(), strict=True))
    spread = measured.std(axis=0, ddof=1 if config.runs > 1 else 0) / np.sqrt(config.runs)

    return DependenceResult(
        checkpoints=config.checkpoints,
        coverage_stderr=spread[:, 0].tolist(),
        ratio_stderr=spread[:, 1].tolist(),
        config=asdict(config),
        **mean,
    )


def _run(config: DependenceConfig, seed: int) -> Floats:
    """Let agents learn; give what is measured at each checkpoint, shape (checkpoints, 5)."""
    rng = np.random.default_rng((seed, 33))
    process = DependentSamples.parse(config.dependence)
    last = config.checkpoints[-1]
    mean = np.clip(CENTER + config.spread * rng.standard_normal(config.agents), 0.1, 0.9)

    if process.kind == "markov":
        samples = process.draw(rng, last, config.agents, mean)
        variance = mean * (1 - mean)
    else:
        samples = mean + config.stddev * process.draw(rng, last, config.agents)
        variance = np.full(config.agents, config.stddev**2)

    ratio = np.full(config.agents, process.ratio)
    if process.kind == "half-ar":
        ratio[1::2] = 1.0

    settings = config.settings
    # Seeded: for simulation only.
    noise = KeyedNoise(rng.bytes(32), deployment="simulation", purpose="dependence")
    agents = Agents(settings, noise)
    followed = FollowedReleases(settings)
    agents.add_agents([str(agent) for agent in range(config.agents)])
    cuts = sorted({*range(0, last, LONGEST_BLOCK), *config.checkpoints})
    measured = []

    for first, until in pairwise([0, *cuts[1:]] if cuts[0] == 0 else [0, *cuts]):
        block = samples[first:until]
        batch = agents.update(
            np.tile(np.arange(config.agents), len(block)),
            block.ravel(),
            np.repeat(np.arange(first, until, dtype=np.float64), config.agents),
        )
        followed.observe(batch.releases, batch.before)

        if until in config.checkpoints:
            measured.append(_measured(config, agents, followed, mean, variance * ratio))

    return np.array(measured)


def _measured(
    config: DependenceConfig,
    agents: Agents,
    followed: FollowedReleases,
    mean: Floats,
    long_run: Floats,
) -> list[float]:
    """Answer everyone, and compare with answers that know more or less."""
    pool = followed.posterior
    samples = agents.own()
    collaboration = make_collaboration(config.collaboration, lower=0.0, upper=1.0)
    summary = collaboration.summarize(followed.combined(agents.latest()))
    fitted = collaboration.fit_summary(summary, pool)
    own = pooled_own_means(samples, pool)

    def of(variance: Floats) -> OwnMeans:
        return OwnMeans(
            agent=own.agent, count=own.count, mean=own.mean, variance=variance / own.count
        )

    answer = estimate_with_two_variances(fitted, own)
    short = fitted.estimate(of(variance_posterior_of_own(pool, samples)))
    ideal = fitted.estimate(of(long_run))
    half = 1.959964 * np.sqrt(own.variance)

    return [
        float(np.mean((answer.lower <= mean) & (mean <= answer.upper))),
        float(np.mean((answer.value - mean) ** 2) / np.mean((own.mean - mean) ** 2)),
        _length(answer) / _length(short),
        _length(answer) / _length(ideal),
        float(np.mean(np.abs(own.mean - mean) <= half)),
    ]


def _length(answer: AgentEstimates) -> float:
    return float(np.median(answer.upper - answer.lower))
