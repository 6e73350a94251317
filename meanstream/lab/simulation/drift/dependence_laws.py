"""Simulated agents whose samples depend on each other.

Error, coverage and length of intervals by number of samples.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from meanstream.lab.simulation.drift.dependent_samples import DependentSamples
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
    found = np.array([_run(config, config.seed + r) for chunk in track(chunks) for r in chunk])
    mean = dict(zip(_MEASURED, found.mean(axis=0).T.tolist(), strict=True))
    spread = found.std(axis=0, ddof=1 if config.runs > 1 else 0) / np.sqrt(config.runs)

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
    found = []

    for first, until in pairwise([0, *cuts[1:]] if cuts[0] == 0 else [0, *cuts]):
        block = samples[first:until]
        batch = agents.update(
            np.tile(np.arange(config.agents), len(block)),
            block.ravel(),
            np.repeat(np.arange(first, until, dtype=np.float64), config.agents),
        )
        followed.observe(batch.releases, batch.before)

        if until in config.checkpoints:
            found.append(_measured(config, agents, followed, mean, variance * ratio))

    return np.array(found)


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
