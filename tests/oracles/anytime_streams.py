"""Simulated agents that look at their intervals again and again.

For how many all intervals hold.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from meanstream.lab.simulation.drift.dependence_laws import DependenceConfig, DependentSamples
from meanstream.operators.agents.agents import Agents
from meanstream.operators.collaboration.anytime_intervals import anytime_intervals
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.registry import (
    estimate_with_two_variances,
    make_collaboration,
)
from meanstream.operators.collaboration.variance.pooled_variance import pooled_own_means
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Floats

GROWTH = 1.12
SPREAD = 0.05
STDDEV = 0.1
"""Growth of samples from look to look; standard deviations of means and of a sample. Bounds are 0
and 1."""


def looks(last: int) -> list[int]:
    """Numbers of samples after which agents look."""
    found = [*range(1, min(last, 20) + 1)]
    while found[-1] < last:
        found.append(min(last, round(GROWTH * found[-1])))

    return found


def coverage_of_a_stream(
    dependence: str, *, seed: int, agents: int, last: int
) -> tuple[Floats, Floats]:
    """Run one stream of simulated agents that learn from each other's releases, at epsilon 1.

    Parameters
    ----------
    dependence : str
        See `DependentSamples.parse`.
    seed, agents, last : int
        Of the draws; how many agents there are, and how many samples each has at the end.

    Returns
    -------
    float array, shape (2,)
        Share of the agents whose intervals, pointwise and anytime, held at all looks.
    float array, shape (looks,)
        Median length of anytime intervals over that of pointwise ones.
    """
    rng = np.random.default_rng((seed, 335))
    process = DependentSamples.parse(dependence)
    mean = np.clip(0.5 + SPREAD * rng.standard_normal(agents), 0.1, 0.9)
    if process.kind == "markov":
        samples = process.draw(rng, last, agents, mean)
    else:
        samples = mean + STDDEV * process.draw(rng, last, agents)

    settings = DependenceConfig(dependence=dependence, agents=agents).settings
    # Seeded: for simulation only.
    host = Agents(settings, KeyedNoise(rng.bytes(32), deployment="simulation", purpose="anytime"))
    host.add_agents([str(agent) for agent in range(agents)])
    followed = FollowedReleases(settings)
    collaboration = make_collaboration("learned_prior", lower=0.0, upper=1.0)
    held = np.ones((2, agents), np.bool_)
    lengths = []

    for first, until in pairwise([0, *looks(last)]):
        block = samples[first:until]
        who = np.tile(np.arange(agents), len(block))
        when = np.repeat(np.arange(first, until, dtype=float), agents)
        batch = host.update(who, block.ravel(), when)
        followed.observe(batch.releases, batch.before)

        pool = followed.posterior
        fitted = collaboration.fit_summary(
            collaboration.summarize(followed.combined(host.latest())), pool
        )

        own = pooled_own_means(host.own(), pool)
        pointwise = estimate_with_two_variances(fitted, own)
        both = (pointwise, anytime_intervals(pointwise, own, lower=0.0, upper=1.0))
        held &= [(one.lower <= mean) & (mean <= one.upper) for one in both]
        short, long = (
            np.median(np.minimum(one.upper, 1.0) - np.maximum(one.lower, 0.0)) for one in both
        )
        lengths.append(long / short)

    return held.mean(axis=1), np.array(lengths)
