"""Populations in which collaborations are compared: as one Gaussian release per agent, and as
streams of samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanstream.lab.simulation.broadcast import simulate_broadcast
from meanstream.lab.simulation.config import SimulationConfig
from meanstream.operators.collaboration.registry import Collaboration
from meanstream.operators.noise.calibration import calibrated_analytic_stddev
from meanstream.operators.records import Floats, Ints, OwnMeans, ReleaseColumns

AGENTS, STDDEV, EPSILON, DELTA = 200, 0.5, 1.0, 1e-6
HALF_WIDTH = STDDEV * 3**0.5
LOWER, UPPER = -HALF_WIDTH, 1 + HALF_WIDTH
"""Means lie in [0, 1] (the far tails of Student's t are clipped there) and samples within a
half-width of them."""

Means = Callable[[np.random.Generator], tuple[Floats, Ints | None]]
"""Draws every agent's mean, and its class where there are exact ones."""


def _classes(centers: Floats, spread: float = 0.0) -> Means:
    def draw(rng: np.random.Generator) -> tuple[Floats, Ints | None]:
        label = np.arange(AGENTS) % len(centers)
        mean = centers[label] + spread * rng.standard_normal(AGENTS)
        return mean, None if spread else label

    return draw


SCENARIOS: dict[str, Means] = {
    "three classes": _classes(np.array([0.2, 0.4, 0.8])),
    "normal": lambda rng: (rng.normal(0.5, 0.1, AGENTS), None),
    "three classes with spread .01": _classes(np.array([0.2, 0.4, 0.8]), spread=0.01),
    "uniform": lambda rng: (rng.uniform(0, 1, AGENTS), None),
    "Student t3": lambda rng: (np.clip(0.5 + 0.05 * rng.standard_t(3, AGENTS), 0, 1), None),
    "one class": _classes(np.array([0.4])),
    "twenty classes": _classes(np.linspace(0, 1, 20)),
}

STREAMS: dict[str, dict[str, Any]] = {
    "three classes": {"means": "classes:0.2,0.4,0.8"},
    "normal": {"means": "normal:0.5,0.1"},
    "three classes with spread .01": {"means": "classes:0.2,0.4,0.8", "spread": 0.01},
    "uniform": {"means": "uniform:0,1"},
    "Student t3": {"means": "t:3,0.5,0.05"},
    "one class": {"means": "classes:0.4"},
    "twenty classes": {
        "means": "classes:" + ",".join(f"{center:.6f}" for center in np.linspace(0, 1, 20))
    },
    "bernoulli": {"means": "normal:0.3,0.15", "data": "bernoulli"},
    "bernoulli, three classes, one rare": {"means": "classes:0.05,0.2,0.5", "data": "bernoulli"},
    "beta": {"means": "uniform:0.02,0.6", "data": "beta:3"},
}
"""The scenarios as options of a simulation, and three in which every agent's samples have a
variance of their own."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Mean squared errors and coverage in one scenario at one time, averaged over runs.

    `local` is learning alone, `oracle` the same releases with the true classes (NaN without exact
    classes). Where runs are compared one by one, `to_oracle_stderr` is the standard error of
    `to_oracle` over runs, and half of the runs are above `to_oracle_median`: the mean is that of
    few runs in which releases show a spread that is not there.
    """

    mse: float
    local: float
    oracle: float
    coverage: float
    to_oracle_stderr: float = np.nan
    to_oracle_median: float = np.nan

    @property
    def to_local(self) -> float:
        """Error relative to learning alone."""
        return self.mse / self.local

    @property
    def to_oracle(self) -> float:
        """Error relative to the true classes."""
        return self.mse / self.oracle


def compare_summaries(
    collaboration: Collaboration, scenario: str, t: int, *, runs: int, seed: int = 0
) -> Comparison:
    """Measure a collaboration after `t` samples per agent, each released once with analytic
    Gaussian noise.

    Parameters
    ----------
    collaboration : Collaboration
        To be measured.
    scenario : str
        A key of `SCENARIOS`.
    t : int
        Samples per agent; their mean is drawn from its normal limit.
    runs, seed : int
        Independent repetitions; run r depends on (seed, scenario, t, r) only.

    Examples
    --------
    >>> from meanstream.operators.collaboration.alone import LearningAlone
    >>> result = compare_summaries(LearningAlone(), "one class", 100, runs=5)
    >>> result.to_local, result.to_oracle > 10, 0.9 < result.coverage < 1
    (1.0, True, True)
    """
    place = list(SCENARIOS).index(scenario)
    rows = [
        _once(collaboration, SCENARIOS[scenario], t, np.random.default_rng([seed, place, t, r]))
        for r in range(runs)
    ]
    mse, _, oracle, _ = np.array(rows).T
    stderr = np.std(mse - mse.mean() / oracle.mean() * oracle) / np.sqrt(runs) / oracle.mean()
    return Comparison(
        *np.mean(rows, axis=0).tolist(), *map(float, (stderr, np.median(mse / oracle)))
    )


def follow_summaries(
    scenario: str, times: tuple[int, ...], *, runs: int, seed: int = 0
) -> list[Comparison]:
    """Measure the default as agents use it: releases at preferred numbers of samples, variances
    read off them.

    Of each agent the newest releases count together, as the engine combines them.

    Parameters
    ----------
    scenario : str
        A key of `STREAMS`.
    times : tuple of int
        Samples per agent at which to measure, increasing. Between two releases the newest is out of
        date.
    runs, seed : int
        Independent repetitions.

    Examples
    --------
    >>> result = follow_summaries("one class", (20, 100), runs=2)
    >>> [found.to_local < 1 for found in result]
    [True, True]
    """
    config = SimulationConfig.from_options(
        agents=AGENTS,
        steps=times[-1],
        checkpoints=times,
        variance="from_releases",
        epsilon=EPSILON,
        delta=DELTA,
        runs=runs,
        seed=seed,
        **{"data": "uniform"} | STREAMS[scenario],
    )
    found = simulate_broadcast(config)
    oracle = found.oracle or [np.nan] * len(times)
    return [
        Comparison(*row)
        for row in zip(found.mse, found.local, oracle, found.coverage or [], strict=True)
    ]


def _once(
    collaboration: Collaboration, means: Means, t: int, rng: np.random.Generator
) -> list[float]:
    truth, label = means(rng)
    agent, count = np.arange(AGENTS), np.full(AGENTS, t)
    variance = np.full(AGENTS, STDDEV**2 / t)
    noise = (calibrated_analytic_stddev(EPSILON, DELTA) * 2 * HALF_WIDTH / t) ** 2
    own = truth + rng.standard_normal(AGENTS) * np.sqrt(variance)
    released = own + rng.standard_normal(AGENTS) * np.sqrt(noise)
    releases = ReleaseColumns(
        agent=agent,
        index=np.ones_like(agent),
        count=count,
        total=np.zeros_like(agent),
        mean=released,
        noise_variance=np.full(AGENTS, noise),
    )
    fitted = collaboration.fit(releases, variance + noise)
    answer = fitted.estimate(OwnMeans(agent=agent, count=count, mean=own, variance=variance))
    oracle = (
        np.nan if label is None else np.mean((_oracle(own, released, t, noise, label) - truth) ** 2)
    )
    covered = np.mean((answer.lower <= truth) & (truth <= answer.upper))
    return [
        float(np.mean((answer.value - truth) ** 2)),
        float(np.mean((own - truth) ** 2)),
        float(oracle),
        float(covered),
    ]


def _oracle(own: Floats, released: Floats, t: int, noise: float, label: Ints) -> Floats:
    """Eq. (4) with the true classes: all variances are equal."""
    total, size = np.bincount(label, released)[label] - released, np.bincount(label)[label] - 1
    precision, own_precision = 1 / (STDDEV**2 / t + noise), t / STDDEV**2
    return np.asarray(
        (total * precision + own * own_precision) / (size * precision + own_precision)
    )
