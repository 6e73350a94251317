"""The pooled variance: its differences, its limits, and that it can be merged and stored."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import t as student_t

from meanstream.operators.collaboration.variance.pooled_variance import (
    PooledVariance,
    ReleaseDifferences,
    pooled_release_differences,
)
from meanstream.operators.collaboration.variance.variance_posterior import variance_posterior_of_own
from meanstream.operators.counters.registry import COUNTERS, make_counter
from meanstream.operators.records import OwnSamples, ReleaseColumns

AGENTS, TIMES = 4000, np.array([10, 15, 40, 60, 200])


def streams(name: str, *, stddev: float, noise: float, seed: int = 0) -> ReleaseColumns:
    """All releases of many agents with very different means, made by the real counter."""
    rng = np.random.default_rng(seed)
    counter = make_counter(name, horizon=len(TIMES))
    state, agents = counter.init(AGENTS), np.arange(AGENTS)
    total, columns, mean = np.zeros(AGENTS), [], rng.uniform(-5, 5, AGENTS)
    lengths = np.diff(TIMES, prepend=0)
    for k, (t, d) in enumerate(zip(TIMES, lengths, strict=True), 1):
        total += d * mean + rng.normal(0, stddev * np.sqrt(d), AGENTS)
        index = np.full(AGENTS, k)
        drawn = counter.step(state, agents, index, rng.normal(0, noise, AGENTS))
        columns.append(
            (
                agents,
                index,
                np.full(AGENTS, t),
                (total + drawn) / t,
                counter.noise_variance(index) / t**2,
            )
        )
    agent, index, count, released, unit = (
        np.concatenate(column) for column in zip(*columns, strict=True)
    )
    order = rng.permutation(len(agent))
    return ReleaseColumns(
        agent=agent[order],
        index=index[order],
        count=count[order],
        total=np.zeros_like(agent),
        mean=released[order],
        noise_variance=unit[order] * noise**2,
    )


@pytest.mark.parametrize("name", COUNTERS)
def test_differences_have_the_stated_variance(name: str) -> None:
    """Four standard errors of a variance from 4000 normal differences; false alarms: 4 x 6e-5 per
    counter."""
    differences = pooled_release_differences(
        streams(name, stddev=2.0, noise=6.0), make_counter(name, horizon=len(TIMES))
    )
    assert len(differences.squared) == AGENTS * (len(TIMES) - 1)
    for sampling in np.unique(differences.sampling):
        here = differences.sampling == sampling
        expected = 4.0 * sampling + differences.noise[here][0]
        assert differences.squared[here].mean() == pytest.approx(
            expected, rel=4 * np.sqrt(2 / here.sum())
        )


@pytest.mark.parametrize("name", COUNTERS)
@pytest.mark.parametrize("noise", [0.0, 6.0])
def test_the_pool_finds_the_variance(name: str, noise: float) -> None:
    """With noise, sigma^2 = 4 is found within .3: five standard errors, as measured over seeds."""
    pool = PooledVariance(-10.0, 10.0)
    pool.update(
        pooled_release_differences(
            streams(name, stddev=2.0, noise=noise), make_counter(name, horizon=len(TIMES))
        )
    )
    assert pool.variance == pytest.approx(4.0, abs=0.3 if noise else 0.25)


def test_without_releases_it_may_be_anything_that_the_bounds_allow() -> None:
    posterior = PooledVariance(-30.0, 120.0).posterior()
    assert 0 < posterior.variance.min() < 1e-6 * 150**2
    assert 0.2 * 150**2 < posterior.variance.max() <= 0.25 * 150**2


def test_hopeless_noise_leaves_it_there() -> None:
    rng = np.random.default_rng(0)
    pool = PooledVariance(0.0, 1.0)
    noise = np.full(200, 1e4)
    pool.update(
        ReleaseDifferences(squared=rng.normal(0, 100, 200) ** 2, sampling=np.ones(200), noise=noise)
    )
    assert pool.variance == pytest.approx(PooledVariance(0.0, 1.0).variance, rel=0.05)


def test_it_stays_within_what_bounded_data_can_have() -> None:
    pool = PooledVariance(0.0, 1.0)
    pool.update(
        ReleaseDifferences(squared=np.full(500, 9.0), sampling=np.ones(500), noise=np.zeros(500))
    )
    assert 0.24 < pool.variance <= 0.25
    constant = PooledVariance(0.0, 1.0)
    constant.update(
        ReleaseDifferences(squared=np.zeros(500), sampling=np.ones(500), noise=np.zeros(500))
    )
    assert 0 < constant.variance < 1e-4


def test_merging_and_storing_change_nothing() -> None:
    counter = make_counter("toeplitz", horizon=len(TIMES))
    differences = pooled_release_differences(streams("toeplitz", stddev=2.0, noise=6.0), counter)
    whole, parts = PooledVariance(-10.0, 10.0), [PooledVariance(-10.0, 10.0) for _ in range(2)]
    whole.update(differences)
    for i, part in enumerate(parts):
        part.update(
            ReleaseDifferences(
                squared=differences.squared[i::2],
                sampling=differences.sampling[i::2],
                noise=differences.noise[i::2],
            )
        )
    stored = PooledVariance.restore(json.loads(json.dumps(parts[0].snapshot())))
    stored.merge(parts[1])
    assert stored.n == whole.n
    assert stored.variance == pytest.approx(whole.variance, rel=1e-9)


def test_the_sums_are_the_same_bits_however_releases_come_together() -> None:
    """After a kill a pipeline may take the releases of several windows at once that it took one by
    one before."""
    rng, n = np.random.default_rng(9), 5000
    drawn = rng.normal(size=n) ** 2, rng.uniform(0.001, 1, n), np.exp(rng.normal(0, 3, n))
    pools = []
    for seed, parts in ((0, 1), (1, 7), (2, 500)):
        order = np.random.default_rng(seed).permutation(n)
        pool = PooledVariance(0.0, 2.0)
        for part in np.array_split(order, parts):
            squared, sampling, noise = (column[part] for column in drawn)
            pool.update(ReleaseDifferences(squared=squared, sampling=sampling, noise=noise))
        pools.append(pool.snapshot())
    assert pools[0] == pools[1] == pools[2]


def test_other_bounds_and_other_versions_are_refused() -> None:
    pool = PooledVariance(0.0, 1.0)
    with pytest.raises(ValueError, match="bounds must be"):
        pool.merge(PooledVariance(0.0, 2.0))
    with pytest.raises(ValueError, match="snapshot version must be 1, got 2"):
        PooledVariance.restore({**pool.snapshot(), "version": 2})


def test_releases_with_gaps_are_not_paired() -> None:
    releases = streams("pm1", stddev=1.0, noise=1.0)
    counter = make_counter("pm1", horizon=len(TIMES))
    odd = releases.index % 2 == 1
    kept = ReleaseColumns(
        agent=releases.agent[odd],
        index=releases.index[odd],
        count=releases.count[odd],
        total=releases.total[odd],
        mean=releases.mean[odd],
        noise_variance=releases.noise_variance[odd],
    )
    assert len(pooled_release_differences(kept, counter).squared) == 0


def test_own_variances_shrink_to_the_pool_by_degrees_of_freedom() -> None:
    rng = np.random.default_rng(1)
    count = np.array([0, 1, 2, 100_000])
    deviations = np.array([0.0, 0.0, 0.5, float(((rng.normal(0, 3, 100_000)) ** 2).sum())])
    own = OwnSamples(
        agent=np.arange(4), count=count, mean=np.zeros(4), squared_deviations=deviations
    )
    found = variance_posterior_of_own(4.0, own)
    widened = (student_t.ppf(0.975, [3, 3, 4]) / 1.96) ** 2
    np.testing.assert_allclose(found[:3], np.array([4.0, 4.0, 3.125]) * widened, rtol=1e-4)
    assert found[3] == pytest.approx(9.0, rel=0.02)
