"""The prior given the count: what it learns of counts, that it is never much worse than alone, and
its guards.

Every population is drawn with a fixed seed and known truth; errors are relative to the own mean's
sampling variance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from meanstream.operators.collaboration.alone import half_width_alone
from meanstream.operators.collaboration.count_trend import CountGroups
from meanstream.operators.collaboration.local_spread import local_spread_doubt
from meanstream.operators.collaboration.mixture_posterior import (
    MixturePrior,
    mixture_mean,
    mixture_posterior,
    posterior_doubted_interval,
    posterior_far_half_width,
)
from meanstream.operators.collaboration.prior_by_count import _few_points
from meanstream.operators.collaboration.prior_by_count_fitted import TRANSLATION
from meanstream.operators.collaboration.registry import answers_from_releases, make_collaboration
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.noise.calibration import calibrated_analytic_stddev
from meanstream.operators.records import AgentEstimates, Floats, Ints, OwnMeans, ReleaseColumns

STDDEV = 0.25
FIRST = 10
"""Agents with fewer samples have not released."""


@dataclass(frozen=True)
class World:
    truth: Floats
    own: OwnMeans
    releases: ReleaseColumns

    def answer(
        self, name: str = "learned_prior", releases: ReleaseColumns | None = None
    ) -> AgentEstimates:
        collaboration = make_collaboration(name, lower=0.0, upper=1.0)
        summary = collaboration.summarize(self.releases if releases is None else releases)
        return collaboration.fit_summary(summary, STDDEV**2).estimate(self.own)

    def ratio(self, answer: AgentEstimates, some: slice = slice(None)) -> float:
        squared = (answer.value - self.truth)[some] ** 2
        return float(squared.sum() / (STDDEV**2 / self.own.count[some]).sum())

    def coverage(self, answer: AgentEstimates) -> np.ndarray:
        return (answer.lower <= self.truth) & (self.truth <= answer.upper)


def world(truth: Floats, count: Ints, seed: int, epsilon: float = 1.0) -> World:
    rng = np.random.default_rng(seed)
    agent, variance = np.arange(len(truth)), STDDEV**2 / count
    mean = truth + rng.normal(0, 1, len(truth)) * np.sqrt(variance)
    noise = (calibrated_analytic_stddev(epsilon, 1e-6) / count) ** 2
    released = mean + rng.normal(0, 1, len(truth)) * np.sqrt(noise)
    ones = np.ones_like(agent)
    releases = ReleaseColumns(
        agent=agent, index=ones, count=count, total=ones, mean=released, noise_variance=noise
    )
    own = OwnMeans(agent=agent, count=count, mean=mean, variance=variance)
    return World(truth, own, releases.take(count >= FIRST))


def counts(rng: np.random.Generator, n: int, least: float = 5, most: float = 1000) -> Ints:
    return np.exp(rng.uniform(np.log(least), np.log(most), n)).astype(np.int64)


def with_trend(seed: int, n: int = 2000) -> World:
    """Batters: who has few samples has a low mean."""
    rng = np.random.default_rng([seed, 1])
    count = counts(rng, n)
    return world(0.15 + 0.1 * np.log10(count) + rng.normal(0, 0.02, n), count, seed)


@pytest.mark.parametrize("seed", range(3))
def test_means_that_go_with_counts_are_learned(seed: int) -> None:
    """The prior for all counts pulls small agents to where the large ones are; it is the twin that
    fails."""
    made = with_trend(seed)
    answer = made.answer()
    assert made.ratio(answer) < 0.3
    for low, high in (
        (5, 10),
        (10, 30),
        (30, 100),
        (100, 1000),
    ):  # 430 agents or more: a standard error is .012
        some = (made.own.count >= low) & (made.own.count < high)
        assert made.coverage(answer)[some].mean() > 0.93 - 2 * 0.012
    assert made.ratio(made.answer("pooled_prior")) > 0.5


def test_a_trend_is_described_and_its_probability() -> None:
    made = with_trend(0)
    collaboration = make_collaboration("learned_prior", lower=0.0, upper=1.0)
    described = collaboration.fit_summary(
        collaboration.summarize(made.releases), STDDEV**2
    ).describe()
    assert described["count_probability"]["trend"] > 0.99
    rows = {row["n"]: row for row in described["count_trend"]["counts"]}
    for n in (30, 100, 300):
        assert rows[n]["center"] == pytest.approx(
            0.15 + 0.1 * np.log10(n), abs=4 * rows[n]["center_stddev"]
        )
    assert (
        rows[1]["center_stddev"] > 5 * rows[100]["center_stddev"]
    )  # nobody with one sample has released


@pytest.mark.parametrize("seed", range(4))
def test_a_bend_among_counts_that_say_much_is_not_carried_on_to_those_that_say_nothing(
    seed: int,
) -> None:
    """Aircraft of the flights: least at 60 flights, level below 30; a parabola had answers of 40
    where 11 was true."""
    rng = np.random.default_rng(100 + seed)
    count = counts(rng, 4000, least=1, most=1000)
    x = np.log10(np.maximum(count, 30))
    made = world(0.27 + 0.1 * (x - 1.85) ** 2 + rng.normal(0, 0.02, 4000), count, seed)
    answer, few = made.answer(), count < FIRST
    error = np.asarray(answer.value - made.truth)[few]
    alone = STDDEV / np.sqrt(count[few])
    assert abs(float(error.mean())) < 0.25 * float(alone.mean())
    assert float((error**2).sum()) < 0.25 * float((alone**2).sum())


@pytest.mark.parametrize("name", ["learned_prior", "pooled_prior"])
@pytest.mark.parametrize("binned", [False, True], ids=["one by one", "in cells"])
def test_a_center_lies_within_the_bounds(name: str, binned: bool) -> None:
    """Noise carries most releases of agents who saw nothing below 0: their center is not there, nor
    is the trend."""
    n = 2000 if binned else 100
    collaboration = make_collaboration(name, lower=0.0, upper=1.0)
    for seed in range(5):
        rng = np.random.default_rng(100 + seed)
        count = counts(rng, n, 10)
        rare = world(np.where(np.arange(n) % 4 == 0, 0.6, 0.0), count, seed=seed)
        # One seed in two is below 0 by chance alone; a common shift stands for a seed that is so
        # for certain.
        releases = replace(
            rare.releases, mean=rare.releases.mean - 0.1 * (rare.releases.mean < 0.3)
        )
        fitted = collaboration.fit_summary(collaboration.summarize(releases), STDDEV**2)
        described = fitted.describe()
        centers = [part["center"] for part in described["components"]]
        centers += [
            part["center"] for part in described.get("count_trend", {"counts": []})["counts"]
        ]
        assert min(centers) >= 0.0
        assert max(centers) <= 1.0


@pytest.mark.parametrize("seed", range(3))
def test_counts_that_say_nothing_cost_little(seed: int) -> None:
    rng = np.random.default_rng([seed, 2])
    made = world(rng.normal(0.4, 0.05, 2000), counts(rng, 2000), seed)
    assert made.ratio(made.answer()) < 1.1 * made.ratio(made.answer("pooled_prior"))


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 3.0])
def test_no_seed_is_much_worse_than_alone(epsilon: float) -> None:
    """Few values each, wide spread, and releases that say little of it: the worst of 20 seeds, not
    the mean."""
    ratios = []
    for seed in range(20):
        rng = np.random.default_rng([seed, 3])
        made = world(rng.normal(0.5, 0.2, 400).clip(0, 1), counts(rng, 400, 5, 30), seed, epsilon)
        ratios.append(made.ratio(made.answer()))
    assert np.mean(ratios) < 1.02
    assert max(ratios) < 1.15 + 2 * np.sqrt(
        2 / 400
    )  # a ratio of 400 squared errors has that standard error alone


def liars(made: World, share: float, mean: float, count: int) -> ReleaseColumns:
    """Some of the agents publish this mean, of so many samples."""
    some = np.arange(len(made.releases)) < share * len(made.releases)
    noise = (calibrated_analytic_stddev(1.0, 1e-6) / count) ** 2
    return replace(
        made.releases,
        mean=np.where(some, mean, made.releases.mean),
        count=np.where(some, count, made.releases.count),
        noise_variance=np.where(some, noise, made.releases.noise_variance),
    )


@pytest.mark.parametrize(("mean", "count"), [(0.9, 10**7), (0.0, 10**7), (0.55, 10**7), (0.9, 100)])
@pytest.mark.parametrize(("share", "limit"), [(0.01, 1.05), (0.1, 1.5)])
def test_liars_cost_the_honest_little(share: float, limit: float, mean: float, count: int) -> None:
    rng = np.random.default_rng(4)
    made = world(rng.normal(0.4, 0.05, 600), counts(rng, 600, 20, 200), 4)
    honest = slice(int(share * 600) + 1, None)
    before, after = (
        made.answer(releases=r) for r in (made.releases, liars(made, share, mean, count))
    )
    if share < 0.05:
        assert made.ratio(after, honest) < limit * max(made.ratio(before, honest), 0.5)
    assert made.ratio(after, honest) < limit
    assert made.coverage(after)[honest].mean() > 0.9


def test_liars_move_the_prior_without_guards() -> None:
    """The twin: what the prior for all counts, without guards, makes of the same releases."""
    rng = np.random.default_rng(4)
    made = world(rng.normal(0.4, 0.05, 600), counts(rng, 600, 20, 200), 4)
    lies = liars(made, 0.05, 0.55, 10**7)
    honest = slice(31, None)
    assert made.ratio(made.answer("pooled_prior", lies), honest) > 1.1 * made.ratio(
        made.answer(releases=lies), honest
    )


def test_an_answer_leaves_the_own_mean_by_a_bounded_number_of_standard_errors() -> None:
    made = with_trend(5)
    far = replace(made.own, mean=np.where(np.arange(2000) < 50, 0.99, made.own.mean))
    answer = World(made.truth, far, made.releases).answer()
    assert (
        np.abs(answer.value - far.mean) <= TRANSLATION * np.sqrt(far.variance) * (1 + 1e-12)
    ).all()


@pytest.mark.parametrize("narrowest", [0.0, 1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("outside", [0.0, 1e-4])
def test_posteriors_in_32_bits_are_those_in_64(narrowest: float, outside: float) -> None:
    """To 1e-5 of an own standard error (64 bits say the same to 1e-9), for standard errors of a
    millionth to all."""
    rng, k, n, width = np.random.default_rng(3), 12, 4000, 150.0
    weight, cautious = rng.dirichlet(np.full(k, 0.3)), rng.dirichlet(np.full(k, 0.3))
    weight[3], cautious[4] = 0.0, 0.0
    center, spread = (
        rng.uniform(-30, 120, k),
        width * (narrowest + rng.uniform(0, 0.1, k) * (np.arange(k) % 2)),
    )
    prior = MixturePrior(
        weight=weight, cautious=cautious, center=center, variance=spread**2 + 1e-9,
        is_class=np.ones(k), width=width,
    )  # fmt: skip
    stddev = width * np.exp(rng.uniform(np.log(1e-6), 0, n))
    mean = center[rng.integers(0, k, n)] + rng.normal(0, 2, n) * stddev
    away = np.full(n, outside * width**2)
    value, posterior = mixture_posterior(prior, mean, stddev**2, away)
    np.testing.assert_array_equal(mixture_mean(prior, mean, stddev**2, away), value)
    some = slice(100, 101)
    alone = mixture_posterior(prior, mean[some], stddev[some] ** 2, away[some])
    assert (alone[0][0], alone[1][0]) == (value[100], posterior[100])
    expected, spread_expected = posterior_in_64_bits(prior, mean, stddev**2, away)
    assert np.abs((value - expected) / stddev).max() < 1e-5
    assert np.abs((np.sqrt(posterior) - np.sqrt(spread_expected)) / stddev).max() < 1e-5


def posterior_in_64_bits(
    prior: MixturePrior, mean: Floats, variance: Floats, outside: Floats
) -> tuple[Floats, Floats]:
    """Bayes' rule as a book has it, in logarithms."""
    around = prior.variance[:, None] + prior.is_class[:, None] * outside
    shift = (prior.center[:, None] - mean) * variance / (variance + around)
    log_density = -0.5 * (prior.center[:, None] - mean) ** 2 / (variance + around) - 0.5 * np.log(
        variance + around
    )

    def averaged(weight: Floats, what: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            log_share = (
                log_density
                + np.log(np.maximum(weight, 1e-12 * np.maximum(prior.weight, prior.cautious)))[
                    :, None
                ]
            )
        share = np.exp(log_share - log_share.max(axis=0))
        return np.asarray((share * what).sum(axis=0) / share.sum(axis=0))

    first = averaged(prior.weight, shift)
    return mean + first, averaged(
        prior.cautious, variance * around / (variance + around) + (shift - first) ** 2
    )


@pytest.mark.parametrize(
    ("ratio", "least"), [(0.1, 0.96), (0.5, 0.94), (1.0, 0.9), (3.0, 0.8), (10.0, 0.8)]
)
def test_intervals_cover_those_far_from_the_crowd(ratio: float, least: float) -> None:
    """Of a normal population, given the prior; the normal interval is the twin that does not cover
    them.

    Of 10,000 who are far at least eight in ten are covered, whatever the ratio: 3.5 standard errors
    are allowed for, so less than one seed in a thousand would be a false alarm.
    """
    rng = np.random.default_rng(6)
    truth = rng.normal(0, 1, 200_000)
    own, variance = truth + rng.normal(0, np.sqrt(ratio), len(truth)), np.full(len(truth), ratio)
    keep = 1 / (1 + ratio)
    half = posterior_far_half_width(keep * variance, variance, 0.95)
    lower, upper = posterior_doubted_interval(
        keep * own,
        half,
        mean=own,
        kept=np.full(len(own), np.sqrt(keep)),
        own_stddev=np.sqrt(variance),
        level=0.95,
    )
    far = np.abs(truth) > np.quantile(np.abs(truth), 0.95)
    covered = (lower <= truth) & (truth <= upper)
    assert 0.95 < covered.mean() < 0.993
    assert covered[far].mean() > least - 3 * 0.005
    normal = np.abs(keep * own - truth) <= 1.96 * np.sqrt(keep * variance)
    assert normal[far].mean() < least - 0.05


def test_an_interval_is_no_longer_than_the_own_one_where_nothing_contradicts() -> None:
    """The factor for those far from the crowd exceeds it by 2 % where an answer keeps seven tenths
    of the own mean."""
    kept = np.linspace(0.01, 1, 100)
    own = half_width_alone(np.ones(100), 0.95)
    half = posterior_far_half_width(kept, np.ones(100), 0.95)
    assert (half <= own).all()
    root = np.sqrt(kept)
    lower, upper = posterior_doubted_interval(
        np.zeros(100),
        half,
        mean=0.2 * np.sqrt(1 - kept),
        kept=root,
        own_stddev=np.ones(100),
        level=0.95,
    )
    assert (upper - lower <= 2 * own * (1 + 1e-12)).all()


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("ratio", [0.3, 1.0, 3.0])
def test_intervals_cover_those_far_from_the_crowd_where_the_prior_is_too_narrow(
    ratio: float, level: float
) -> None:
    """The spread of a population with long tails, taken for half of what it is; without doubt they
    are not covered.

    Standard error of the share of 5,000: .004 at .95 and .006 at .8.
    """
    rng = np.random.default_rng(9)
    truth = rng.laplace(0, 1, 100_000)
    own, variance = truth + rng.normal(0, np.sqrt(ratio), len(truth)), np.full(len(truth), ratio)
    keep = 0.25 * truth.var() / (0.25 * truth.var() + ratio)
    value, half = keep * own, posterior_far_half_width(keep * variance, variance, level)
    lower, upper = posterior_doubted_interval(
        value,
        half,
        mean=own,
        kept=np.full(len(own), np.sqrt(keep)),
        own_stddev=np.sqrt(variance),
        level=level,
    )
    far = np.abs(truth) > np.quantile(np.abs(truth), 0.95)
    covered, before = (lower <= truth) & (truth <= upper), np.abs(value - truth) <= half
    # Where an answer keeps an eighth of the own mean the samples contradict the prior too rarely.
    assert covered[far].mean() > level - (0.06 if ratio <= 1 else 0.22)
    assert before[far].mean() < level - 0.2
    longer = (upper - lower) / (2 * half)
    assert (longer > 1 - 1e-12).all()
    assert (
        np.median(longer[np.abs(own) < np.sqrt(keep * variance)]) < 1.1
    )  # whom the prior describes


def test_spread_at_counts_of_few_releases_is_doubted_and_that_of_many_is_not() -> None:
    groups = CountGroups(
        number=np.array([100.0, 100.0]), mean=np.zeros(2), squares=np.array([900.0, 30.0]),
        count=np.array([10.0, 1000.0]), noise_variance=np.array([9.0, 0.01]),
    )  # fmt: skip
    narrow, right = (
        local_spread_doubt(groups, 1.0, np.array([10.0, 1000.0]), np.zeros(2), np.full(2, v)).sum(
            axis=1
        )
        for v in (0.05, 0.3)
    )
    assert narrow[0] == pytest.approx(
        0.25, abs=0.06
    )  # what it was before: such noise tells nothing
    assert narrow[1] > 0.99
    assert right[1] < 0.01


@pytest.mark.parametrize("n", [2, 5, 20])
def test_few_agents_have_finite_answers(n: int) -> None:
    rng = np.random.default_rng(7)
    made = world(rng.uniform(0.2, 0.8, n), np.r_[10**6, counts(rng, n - 1, 10, 50)], 7)
    answer = made.answer()
    assert np.isfinite(answer.value).all()
    assert np.isfinite(answer.lower).all()
    assert (answer.lower < answer.upper).all()


def test_a_large_spread_of_own_samples_is_no_member_of_a_class() -> None:
    """Whose values are of one class today and of another tomorrow has a mean between the
    classes."""
    made = world(np.array([0.2, 0.8])[np.arange(600) % 2], np.full(600, 300), 8, epsilon=3.0)
    between = replace(made.own, mean=np.where(np.arange(600) < 20, 0.35, made.own.mean))
    steady = World(made.truth, between, made.releases).answer()
    wide = replace(
        between, variance=np.where(np.arange(600) < 20, 4 * between.variance, between.variance)
    )
    mixed = World(made.truth, wide, made.releases).answer()
    assert (np.abs(mixed.value[:20] - 0.35) < np.abs(steady.value[:20] - 0.35)).all()


def test_noise_of_a_release_is_no_spread_of_its_samples() -> None:
    """A release in the place of the own mean is noisy; that alone makes nobody a stranger to the
    classes."""
    truth = np.array([0.2, 0.8])[np.arange(300) % 2]
    made = world(truth, np.full(300, 40), 8, epsilon=1.5)
    fitted = make_collaboration("learned_prior", lower=0.0, upper=1.0)
    population = fitted.fit_summary(fitted.summarize(made.releases), STDDEV**2)
    total = STDDEV**2 / made.releases.count + made.releases.noise_variance
    answer = answers_from_releases(population, made.releases, total)
    without = OwnMeans(
        agent=made.own.agent, count=made.own.count, mean=made.releases.mean, variance=total
    )
    strangers = population.estimate(without)
    assert np.sum((answer.value - truth) ** 2) < 0.5 * np.sum((strangers.value - truth) ** 2)


def test_points_of_a_posterior_are_its_quantiles_in_whatever_order() -> None:
    """A posterior lists its points law by law: ends of one law are not its middle."""
    log_variance = np.linspace(-2, 2, 41)
    weight = np.exp(-0.5 * log_variance**2)
    sure = VariancePosterior(variance=np.exp(log_variance), weight=weight / weight.sum())
    twice = VariancePosterior(
        variance=np.tile(sure.variance, 2), weight=np.tile(sure.weight / 2, 2)
    )
    assert _few_points(twice, 3).variance == pytest.approx(_few_points(sure, 3).variance, rel=0.1)


def test_who_has_seen_a_rare_event_early_is_still_a_member() -> None:
    """One event among six samples is chance where the rate is 1.4 %, not a sign of values of
    several classes."""
    rng = np.random.default_rng(16)
    rate = np.where(rng.random(1000) < 0.5, 0.005, 0.023)
    count = np.full(1000, 5000)
    mean, noise = rng.normal(rate, np.sqrt(rate / count)), np.full(1000, 1e-6)
    ones = np.ones(1000, np.int64)
    releases = ReleaseColumns(
        agent=np.arange(1000), index=ones, count=count, total=ones, mean=mean, noise_variance=noise
    )
    early = OwnMeans(
        agent=np.zeros(1, np.int64),
        count=np.array([6]),
        mean=np.array([1 / 6]),
        variance=np.array([0.03]),
    )
    collaboration = make_collaboration("learned_prior", lower=0.0, upper=1.0)

    def answer(degrees: float) -> float:
        pool = VariancePosterior(
            variance=np.array([0.014]), weight=np.ones(1), degrees=np.array([degrees])
        )
        return float(
            collaboration.fit_summary(collaboration.summarize(releases), pool)
            .estimate(early)
            .value[0]
        )

    assert answer(0.03) < 0.04  # 2 / (kurtosis - 1) of such events
    assert answer(1.0) > 0.07  # of normal samples: six that vary so much are of several classes
