"""The variance of one sample from votes, and an agent's own: any law, rare events, nobody else's
raw data."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.operators.agents.vote_of_spread import PAIR_SENSITIVITY, spread_vote_bins
from meanstream.operators.collaboration.variance.pooled_variance import (
    PooledVariance,
    pooled_own_means,
)
from meanstream.operators.collaboration.variance.spread_law import spread_laws, weigh_spread_laws
from meanstream.operators.collaboration.variance.variance_posterior import variance_posterior_of_own
from meanstream.operators.records import VOTE_BINS, Floats, Ints, OwnSamples

SPAN = 2**20
NOISE = (4.22 * PAIR_SENSITIVITY[2]) ** 2 / 0.1  # of a bin at (1, 1e-6), a tenth of the budget


def votes_of(samples: Floats, seed: int) -> Ints:
    """One vote of each agent, of samples in [0, 1] of shape (agents, n)."""
    n = samples.shape[1] // 2 * 2
    points = np.rint(samples * SPAN).astype(np.int64)
    bins = spread_vote_bins(np.abs(points[:, 0:n:2] - points[:, 1:n:2]), SPAN)
    counts = np.stack([(bins == b).sum(axis=1) for b in range(VOTE_BINS)], axis=1)
    noise = np.random.default_rng(seed).normal(0, NOISE**0.5, counts.shape)
    pairs = np.full((len(samples), 1), n // 2)
    return np.concatenate(
        [np.ones_like(pairs), pairs, counts + np.rint(noise).astype(np.int64)], axis=1
    )


def own_of(samples: Floats) -> OwnSamples:
    agents, n = samples.shape
    mean = samples.mean(axis=1)
    squares = ((samples - mean[:, None]) ** 2).sum(axis=1)
    return OwnSamples(
        agent=np.arange(agents), count=np.full(agents, n), mean=mean, squared_deviations=squares
    )


def pool_of(votes: Ints) -> PooledVariance:
    pool = PooledVariance(0.0, 1.0)
    pool.count_votes(votes, NOISE)
    return pool


LAWS = {
    "normal": lambda rng, size: np.clip(rng.normal(0.5, 0.1, size), 0, 1),
    "narrow": lambda rng, size: np.clip(rng.normal(0.5, 0.004, size), 0, 1),
    "Student": lambda rng, size: np.clip(0.5 + 0.05 * rng.standard_t(3, size), 0, 1),
    "exponential": lambda rng, size: np.clip(rng.exponential(0.05, size), 0, 1),
    "yes/no .5": lambda rng, size: (rng.random(size) < 0.5).astype(float),
    "yes/no .05": lambda rng, size: (rng.random(size) < 0.05).astype(float),
    "counts": lambda rng, size: np.clip(rng.poisson(0.3, size), 0, 10) / 10,
    "five levels": lambda rng, size: np.clip(np.rint(rng.normal(2, 1, size)), 0, 4) / 4,
}


@pytest.mark.parametrize("name", LAWS)
def test_votes_tell_the_spread_whatever_the_law(name: str) -> None:
    """2,000 agents with 40 samples each: the standard deviation within 40 %, as the table and the
    noise allow."""
    samples = LAWS[name](np.random.default_rng(1), (2000, 40))
    found = pool_of(votes_of(samples, 2)).variance
    assert found == pytest.approx(samples.var(axis=1, ddof=1).mean(), rel=0.96, abs=0)
    assert found > 0.36 * samples.var(axis=1, ddof=1).mean()


def test_without_votes_laws_weigh_as_before_and_votes_never_exclude_one() -> None:
    table = spread_laws()
    nothing = np.zeros(2 + VOTE_BINS, np.int64)
    assert np.array_equal(weigh_spread_laws(nothing, NOISE), table.prior)
    assert table.prior.sum() == pytest.approx(1)
    np.testing.assert_allclose(table.bins.sum(axis=1), 1)
    forged = np.array([1, 10**9, *[0] * 10, 10**9])
    assert np.all(weigh_spread_laws(forged, NOISE) > 0)


@pytest.mark.parametrize("n", [10, 30, 100, 300])
@pytest.mark.parametrize("rate", [0.01, 0.02, 0.05, 0.2, 0.5])
def test_intervals_of_rates_cover_with_and_without_events(rate: float, n: int) -> None:
    """Own intervals at 95 %: at least .98 for rare events of few samples, .93 else (binomial jumps:
    .92 of 4,000)."""
    samples = (np.random.default_rng(3).random((4000, n)) < rate).astype(float)
    means = pooled_own_means(own_of(samples), pool_of(votes_of(samples, 4)).posterior())
    covered = np.mean(np.abs(means.mean - rate) <= 1.96 * np.sqrt(means.variance))
    assert covered >= (0.98 if rate * n < 1.5 else 0.92)


def test_agents_without_an_event_are_not_certain() -> None:
    """The twin, the sum of own squares alone, says 0."""
    samples = (np.random.default_rng(5).random((1000, 50)) < 0.03).astype(float)
    own, pool = own_of(samples), pool_of(votes_of(samples, 6)).posterior()
    never = own.squared_deviations == 0
    assert never.sum() > 100
    assert np.all(variance_posterior_of_own(pool, own)[never] > 0.3 * 0.03 * 0.97)


def test_an_own_variance_reads_no_other_agent() -> None:
    """However many are asked together, to the last bit."""
    rng = np.random.default_rng(7)
    count = np.concatenate([np.arange(1, 60), rng.integers(1, 10**6, 300)])
    own = OwnSamples(
        agent=np.arange(len(count)),
        count=count,
        mean=rng.random(len(count)),
        squared_deviations=(count - 1) * 10.0 ** rng.uniform(-9, -1, len(count)),
    )
    pool = pool_of(votes_of(LAWS["Student"](rng, (500, 20)), 8)).posterior()
    together = variance_posterior_of_own(pool, own)
    for i in range(0, len(count), 7):
        one = OwnSamples(**{name: getattr(own, name)[i : i + 1] for name in OwnSamples.__slots__})
        assert variance_posterior_of_own(pool, one)[0] == together[i]


def test_many_own_samples_decide() -> None:
    rng = np.random.default_rng(9)
    own = own_of(np.clip(rng.normal(0.5, 0.2, (3, 100_000)), 0, 1))
    pool = pool_of(votes_of(LAWS["narrow"](rng, (2000, 40)), 10)).posterior()
    np.testing.assert_allclose(
        variance_posterior_of_own(pool, own), own.squared_deviations / own.count, rtol=0.01
    )


def test_values_at_a_bound_are_yes_no_data_only_where_votes_say_so() -> None:
    """One score of 100 had a variance of 6,300 where that of scores is 100; of yes/no data it keeps
    that of two pseudo-samples of either kind."""
    rng = np.random.default_rng(4)
    best = own_of(np.ones((1, 1)))
    scores = pool_of(votes_of(np.clip(rng.normal(0.8, 0.1, (2000, 20)), 0, 1), 5)).posterior()
    answers = pool_of(votes_of((rng.random((2000, 20)) < 0.8).astype(float), 5)).posterior()
    assert scores.yes_no is not None
    assert answers.yes_no is not None
    assert scores.yes_no < 0.01
    assert answers.yes_no > 0.8
    assert variance_posterior_of_own(scores, best)[0] < 5 * 0.1**2
    assert variance_posterior_of_own(answers, best)[0] > 0.8 * 2.6 * (3 / 5) * (2 / 5)


def test_without_votes_values_at_a_bound_may_be_yes_no_data() -> None:
    """Intervals are those of yes/no data then: the longer ones."""
    pool = PooledVariance(0.0, 1.0).posterior()
    assert pool.yes_no is None
    best = own_of(np.ones((1, 1)))
    assert variance_posterior_of_own(pool, best)[0] > 0.9 * 2.6 * (3 / 5) * (2 / 5)
