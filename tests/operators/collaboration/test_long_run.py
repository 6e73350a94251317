"""Long-run variances: the law of the energies, posteriors of one agent and of the pool, and answers
with both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meanstream.lab.simulation.drift.dependence_laws import (
    DependenceConfig,
    DependentSamples,
    simulate_dependence,
)
from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.alone import FittedAlone
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.registry import (
    estimate_with_two_variances,
    make_collaboration,
)
from meanstream.operators.collaboration.variance.long_run import (
    RHO,
    SLOW,
    SLOWEST,
    long_run_expected,
    long_run_ratio,
    long_run_variance,
    variances_of_own,
)
from meanstream.operators.collaboration.variance.pooled_variance import (
    PooledVariance,
    pooled_own_means,
)
from meanstream.operators.collaboration.variance.variance_posterior import (
    VariancePosterior,
    variance_posterior_of_own,
)
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Floats, Ints, OwnMeans, OwnSamples

SETTINGS = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6)
NOISE = KeyedNoise(
    bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="long run", purpose="agents"
)
KNOWN = VariancePosterior(variance=np.array([0.0095, 0.0105]), weight=np.array([0.5, 0.5]))


def fed(samples: Floats) -> tuple[Agents, FollowedReleases]:
    """Agents with samples of shape (steps, agents), and their releases."""
    agents, followed = Agents(SETTINGS, NOISE), FollowedReleases(SETTINGS)
    steps, many = samples.shape
    agents.add_agents([str(i) for i in range(many)])
    batch = agents.update(
        np.tile(np.arange(many), steps), samples.ravel(), np.repeat(np.arange(float(steps)), many)
    )
    followed.observe(batch.releases, batch.before)
    return agents, followed


def own_of(text: str, steps: int, agents: int, seed: int = 1) -> OwnSamples:
    deviations = DependentSamples.parse(text).draw(np.random.default_rng(seed), steps, agents)
    return fed(0.5 + 0.1 * deviations)[0].own()


@pytest.mark.parametrize(("share", "rho"), [(0.03, 0.985), (0.1, 0.93), (0.3, 0.78)])
def test_expected_energies_of_slow_samples_under_noise_mix_both(share: float, rho: float) -> None:
    ar = long_run_expected(4)[int(np.flatnonzero(rho == RHO)[0])]
    place = int(np.flatnonzero(share == SLOW)[0]) * len(SLOWEST)
    place += int(np.flatnonzero(rho == RHO[SLOWEST])[0])
    np.testing.assert_allclose(long_run_expected(4)[len(RHO) + place], 1 - share + share * ar)
    ratio = 1 - share + share * (1 + rho) / (1 - rho)
    assert long_run_ratio()[len(RHO) + place] == pytest.approx(ratio)


def test_slow_samples_under_noise_have_intervals_that_cover() -> None:
    """70 % white noise and 30 % AR(1) of correlation .95: of 400 agents 73 to 80 % were covered at 500
    samples, with AR(1) curves alone. Three standard errors below .94 are .905."""
    rng = np.random.default_rng(12)
    steps, agents = 500, 400
    slow = DependentSamples.parse("ar:0.95").draw(rng, steps, agents)
    samples = np.sqrt(0.7) * rng.normal(size=slow.shape) + np.sqrt(0.3) * slow
    hosted, followed = fed(0.5 + 0.1 * samples)
    own = hosted.own()
    pool = followed.posterior
    interval, _ = variances_of_own(pool, own, variance_posterior_of_own(pool, own))
    covered = np.abs(own.mean - 0.5) <= 1.96 * np.sqrt(interval / own.count)
    assert covered.mean() > 0.905


@pytest.mark.parametrize("rho", [-0.6, 0.2, 0.78, 0.93])
def test_expected_energies_are_those_of_an_ar_process(rho: float) -> None:
    """By its exact covariances, for blocks of 16: half the mean squared difference of h-means,
    times h."""
    n, block = 512, 16
    covariance = rho ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))

    def variance_of(weights: Floats) -> float:
        return float(weights @ covariance @ weights)

    expected = []
    for length in (block, 2 * block, 4 * block, 8 * block):
        weights = np.zeros(n)
        weights[:length], weights[length : 2 * length] = 1 / length, -1 / length
        expected.append(0.5 * length * variance_of(weights))
    mean = np.zeros(n)
    mean[:block] = 1 / block
    pairs = 1 - rho
    between = (1 - variance_of(mean) - pairs / 2) / (0.5 - 1 / block)
    found = long_run_expected(4)[int(np.flatnonzero(rho == RHO)[0])]
    np.testing.assert_allclose(found, [pairs, between, *expected], rtol=1e-9)


@pytest.mark.parametrize(
    ("text", "ratio"), [("none", 1.0), ("ar:0.65", 4.714), ("bursts:5", 5.0), ("ma:3", 4.0)]
)
def test_long_run_variances_are_found(text: str, ratio: float) -> None:
    """Median over 200 agents, one of which is known to a factor of about 1.4: the median to 10
    %."""
    own = own_of(text, 1200, 200)
    found = long_run_variance(KNOWN, own, np.arange(200))
    assert np.median(found.mean) == pytest.approx(0.01 * ratio, rel=0.25)
    assert (np.median(found.independent) > 0.9) == (text == "none")


def test_independent_samples_pay_little() -> None:
    own = own_of("none", 300, 200)
    short = variance_posterior_of_own(KNOWN, own)
    interval, value = variances_of_own(KNOWN, own, short)
    assert np.median(np.sqrt(interval / short)) < 1.01
    assert np.all(value <= short)


def test_an_agents_variances_are_its_own() -> None:
    """The same bits alone, among others, and in another order."""
    own = own_of("half-ar:0.87", 200, 31)
    short = variance_posterior_of_own(KNOWN, own)
    together = variances_of_own(KNOWN, own, short)

    def of(which: Ints) -> OwnSamples:
        names = (
            "agent",
            "count",
            "mean",
            "squared_deviations",
            "block_log",
            "energies",
            "energy_degrees",
        )
        return OwnSamples(**{name: getattr(own, name)[which] for name in names})

    backwards = np.arange(31)[::-1]
    for found, again in zip(
        together, variances_of_own(KNOWN, of(backwards), short[backwards]), strict=True
    ):
        assert found[::-1].tobytes() == again.tobytes()
    for one in (0, 17):
        alone = variances_of_own(KNOWN, of(np.array([one])), short[[one]])
        assert [float(a[0]) for a in alone] == [float(t[one]) for t in together]


def test_few_and_equal_samples_have_the_variance_of_before() -> None:
    few, equal = own_of("ar:0.9", 15, 5), fed(np.full((100, 3), 0.25))[0].own()
    for own in (few, equal):
        short = variance_posterior_of_own(KNOWN, own)
        for found in variances_of_own(KNOWN, own, short):
            assert found.tobytes() == short.tobytes()


def test_the_pool_knows_two_variances_where_samples_depend() -> None:
    rng = np.random.default_rng(3)
    mean = 0.5 + 0.05 * rng.standard_normal(2000)
    pools = {}
    for text in ("none", "ar:0.9"):
        _, followed = fed(mean + 0.1 * DependentSamples.parse(text).draw(rng, 220, 2000))
        pools[text] = followed.posterior
    dependent = pools["ar:0.9"]
    assert dependent.dependence is not None
    assert dependent.independent < 0.01
    assert (
        60 < dependent.dependence < 600
    )  # 19 times the variance of a sample, of which a pair shows a tenth
    assert pools["none"].dependence is None
    assert pools["none"].independent > 0.5
    assert pools["none"].long_run is not None


def test_without_votes_releases_serve_all() -> None:
    pool = PooledVariance(0.0, 1.0)
    assert pool.posterior().long_run is None
    assert pool.posterior().dependence is None


def test_the_prior_is_fitted_with_the_variance_of_one_sample() -> None:
    """The fitted population does not depend on what is known of the long run."""
    _, followed = fed(own_samples())
    agents = fed(own_samples())[0]
    way = make_collaboration("learned_prior", lower=0, upper=1)
    summary, pool = way.summarize(agents.latest()), followed.posterior
    other = replace(
        pool,
        long_run=VariancePosterior(variance=np.array([5.0]), weight=np.ones(1)),
        independent=0.0,
    )
    assert way.fit_summary(summary, pool).describe() == way.fit_summary(summary, other).describe()


def own_samples() -> Floats:
    rng = np.random.default_rng(8)
    return np.asarray(0.5 + 0.05 * rng.standard_normal(60) + 0.1 * rng.standard_normal((120, 60)))


class Halving:
    """Draws an answer to 0 the more, the greater its variance is."""

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> object:
        alone = FittedAlone().estimate(own, level=level)
        value = own.mean / (1 + own.variance)
        return replace(alone, value=value, lower=value - 3.0, upper=value + 4.0)

    def describe(self) -> dict[str, object]:
        return {}


def test_the_value_rests_on_the_short_variance_and_the_interval_reaches_as_far() -> None:
    own = OwnMeans(
        agent=np.arange(2), count=np.array([4, 4]), mean=np.array([6.0, 6.0]), variance=np.array([2.0, 1.0]),
        value_variance=np.array([1.0, 1.0]),
    )  # fmt: skip
    answer = estimate_with_two_variances(Halving(), own)  # type: ignore[arg-type]
    assert answer.value.tolist() == [3.0, 3.0]
    np.testing.assert_allclose(answer.lower, [3 - np.sqrt(10), 0.0])
    np.testing.assert_allclose(answer.upper, [3 + np.sqrt(17), 7.0])


def test_a_known_variance_is_taken_as_it_is() -> None:
    own = pooled_own_means(own_of("ar:0.9", 100, 3), KNOWN, known=0.01)
    assert own.variance.tolist() == own.value_variance.tolist() == [1e-4] * 3


@pytest.mark.parametrize("text", ["ar:0.9", "half-ar:0.9", "markov:0.5"])
def test_intervals_hold_where_samples_depend(text: str) -> None:
    """Of 200 agents 95 % are covered, by chance at least 91 %: 3 standard errors; taken for
    independent, 35 to 80 %."""
    found = simulate_dependence(
        DependenceConfig(dependence=text, agents=200, checkpoints=(500,), runs=1, seed=7)
    )
    assert found.coverage[0] > 0.91
    assert found.ratio[0] < 1.02


def test_ratios_of_both_variances() -> None:
    assert long_run_ratio()[0] == 1.0
    assert DependentSamples.parse("markov:0.5").ratio == pytest.approx(3.0)
    drawn = DependentSamples.parse("cycle:10").draw(np.random.default_rng(0), 5000, 3)
    assert drawn.var() == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize(
    "text", ["ar", "ar:1", "bursts:2.5", "cycle:0", "shocks:-0.1", "other:1", "none:1", "ar:x"]
)
def test_a_dependence_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="dependence must"):
        DependentSamples.parse(text)


@pytest.mark.parametrize("steps", [16, 17, 18, 21, 31, 42, 61, 63, 90, 129, 300])
@pytest.mark.parametrize("before", ["equal", "steady"])
def test_a_newest_sample_unlike_all_others_leaves_a_long_interval(steps: int, before: str) -> None:
    """Pairs and blocks may leave it out: what they say of the other samples is not its mean's
    precision."""
    samples = np.zeros((steps, 4))
    if before == "steady":
        samples += 0.3 + 0.001 * np.random.default_rng(3).normal(size=samples.shape)
    samples[-1] = 1.0
    own = fed(samples)[0].own()
    pool = VariancePosterior(variance=np.array([0.01]), weight=np.ones(1), lower=0.0, upper=1.0)
    short = variance_posterior_of_own(pool, own)

    interval, value = variances_of_own(pool, own, short)

    assert np.all(interval > 0.3 * short)
    assert np.all(value > 0.3 * short)


def test_samples_that_swing_make_a_mean_that_is_more_precise() -> None:
    """The floor leaves negative dependence its short intervals: a quarter of the variance, where an
    AR(1) process of correlation -0.6 has 0.25."""
    own = own_of("ar:-0.6", 500, 100)
    interval, value = variances_of_own(KNOWN, own, variance_posterior_of_own(KNOWN, own))
    assert 0.2 < np.median(interval) / 0.01 < 0.4
    assert 0.2 < np.median(value) / 0.01 < 0.4
