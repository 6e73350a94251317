"""The law of a staircase and a normal error: exact against draws, and what a prior makes of it."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.operators.collaboration.prior.normal_prior import NormalPrior, ReleaseCells
from meanstream.operators.collaboration.release_law import release_law
from meanstream.operators.noise.distributions import STEEP, StaircaseNoise

SPAN = 1_000_000


def draws(noise: StaircaseNoise, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**64, (*shape, 2), dtype=np.uint64)
    return np.asarray(noise.sample(bits.reshape(-1, 2)).reshape(shape) / SPAN)


@pytest.mark.parametrize("epsilon", [STEEP, 0.9, 2.7, 8.0])
def test_density_integrates_to_one_and_derivatives_are_its_own(epsilon: float) -> None:
    noise = StaircaseNoise(SPAN, epsilon)
    variance = noise.variance / SPAN**2
    error = 0.3 * np.sqrt(variance)
    # Up to where the tail has e^-20 of its height.
    x = np.linspace(-1, 1, 80_001) * (1 + 20 / epsilon)
    step = float(x[1] - x[0])

    every = np.ones(len(x))
    law = release_law(x, error**2 * every, variance * every, np.full(len(x), noise.law))
    density = np.exp(law.log_density)
    assert float(density.sum() * step) == pytest.approx(1.0, abs=1e-6)
    assert float((density * x**2).sum() * step) == pytest.approx(variance + error**2, rel=1e-4)

    slope = np.gradient(law.log_density, step)
    bend = -np.gradient(law.score, step)
    assert np.abs(slope - law.score)[2:-2].max() < 1e-3 / np.sqrt(variance)
    assert np.abs(bend - law.curvature)[2:-2].max() < 1e-2 / variance


@pytest.mark.parametrize("epsilon", [0.9, 2.7])
def test_density_is_that_of_the_mechanism(epsilon: float) -> None:
    """Shares of 400,000 draws in 40 cells: each within 5 standard errors, wrong once in 40,000 runs."""
    noise = StaircaseNoise(SPAN, epsilon)
    stddev = np.sqrt(noise.variance) / SPAN
    n = 400_000
    x = draws(noise, (n,), 3) + 0.2 * stddev * np.random.default_rng(4).standard_normal(n)

    edges = np.linspace(-4, 4, 41) * stddev
    counts, _ = np.histogram(x, edges)
    fine = np.linspace(edges[0], edges[-1], 40 * 200 + 1)
    middle = (fine[1:] + fine[:-1]) / 2
    every = np.ones(len(middle))
    law = release_law(
        middle, (0.2 * stddev) ** 2 * every, stddev**2 * every, np.full(len(middle), noise.law)
    )
    share = np.exp(law.log_density).reshape(40, 200).sum(axis=1) * (fine[1] - fine[0])
    assert (np.abs(counts - n * share) < 5 * np.sqrt(n * share * (1 - share))).all()


@pytest.mark.parametrize("epsilon", [0.9, 1.8, 2.7, 5.0])
def test_the_spread_of_means_is_found_below_the_noise(epsilon: float) -> None:
    """Taken for a Laplace draw, the noise left a spread of half the size (the known-bad twin)."""
    noise = StaircaseNoise(SPAN, epsilon)
    n_agents = 4000
    found = {noise.law: [], 1: []}

    for seed in range(2):
        rng = np.random.default_rng(seed)
        count = rng.integers(2, 12, n_agents)
        mean = 0.5 + rng.standard_normal(n_agents) * np.sqrt(0.03**2 + 0.0004 / count)
        mean += draws(noise, (n_agents,), 100 + seed) / count
        variance = noise.variance / SPAN**2 / count**2
        none = np.zeros(n_agents)

        for law, spreads in found.items():
            terms = np.full(n_agents, law)
            cells = ReleaseCells(mean, count.astype(float), variance, terms, none, none + 1)
            fitted = NormalPrior.fit(cells, 0.0004, lower=0.0, upper=1.0)
            spreads.append(float(fitted.probability @ fitted.spread))

    assert 0.022 < np.mean(found[noise.law]) < 0.042
    assert np.mean(found[1]) < 0.028
