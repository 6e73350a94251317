"""Simulated populations have the laws they claim, and simulations are functions of their
configuration."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta, chi2

from meanstream.lab.simulation.round_laws import (
    CELLS,
    SPAN,
    BetaSamples,
    BetweenLaw,
    RoundPopulation,
    parse_round_law,
)
from meanstream.lab.simulation.simulated_rounds import (
    RoundsConfig,
    simulate_rounds,
    simulate_rounds_alike,
)
from meanstream.operators.estimators.registry import ESTIMATORS
from meanstream.operators.rounds.user_sizes import SizeDistribution

# Law, and mean and variance of one sample.
LAWS = [
    ("rademacher:0.4", 0.4, 1 - 0.16),
    ("rademacher:-1", -1.0, 0.0),
    ("bernoulli:0.3", 0.3, 0.21),
    ("three:0.05", 0.0, 0.05),
    ("three:0", 0.0, 0.0),
    ("beta:2,6", -0.5, 4 * beta(2, 6).var()),
    ("beta:0.5,0.5", 0.0, 4 * beta(0.5, 0.5).var()),
]


@pytest.mark.parametrize(("text", "mean", "variance"), LAWS)
@pytest.mark.parametrize("size", [1, 7, CELLS, CELLS + 1, 1000, 1_000_000])
def test_means_of_any_number_of_samples_have_the_right_moments(text, mean, variance, size):
    # 4.5 standard errors of mean and variance: 1.4e-5 for the whole table.
    n = 4000
    population = RoundPopulation(
        n, SizeDistribution.parse(f"point:{size}"), parse_round_law(text), None, "shuffled"
    )
    drawn = population.draw(np.random.default_rng([size, 3]))
    assert population.theta == pytest.approx(mean)
    # A beta sample rounded at random to a grid of step 2 / CELLS has up to a quarter of its square
    # more variance.
    slack = (2 / CELLS) ** 2 / 4 if text.startswith("beta") else 1e-12
    found = drawn.mean
    assert abs(found.mean() - mean) <= 4.5 * math.sqrt((variance + slack) / size / n) + 1e-6
    kurtosis = np.mean((found - mean) ** 4) / max(found.var() ** 2, 1e-30)
    error = 4.5 * math.sqrt(max(kurtosis - 1, 0.1) / n)
    ratio = found.var() * size
    assert variance * (1 - error) - 1e-9 <= ratio <= (variance + slack) * (1 + error) + 1e-9
    assert drawn.count.tolist() == [size] * n


@pytest.mark.parametrize("text", [law[0] for law in LAWS])
def test_the_first_sample_is_one_of_those_that_were_summed(text):
    law = parse_round_law(text)
    rng = np.random.default_rng(1)
    one = np.full(2000, 1)
    total, first = law.draw(np.full(2000, law.mean), one, rng)
    assert np.array_equal(total, first)
    for size in (2, 200):
        count = np.full(20_000, size)
        total, first = law.draw(np.full(20_000, law.mean), count, rng)
        rest = total - first
        assert rest.min() >= 0
        assert (rest <= SPAN * (size - 1)).all()
        # By exchange, first and total / size have one mean, and their covariance is the variance of
        # one over size.
        gap = first / SPAN - total / size / SPAN
        assert abs(gap.mean()) <= 4.5 * gap.std() / math.sqrt(20_000) + 1e-9
        if total.std() > 0:
            slope = np.cov(first, total)[0, 1] / total.var()
            assert slope == pytest.approx(
                1 / size, abs=4.5 * first.std() / total.std() / math.sqrt(20_000)
            )


def test_sums_of_two_points_are_binomial():
    # Chi-square at 1e-6.
    total, _ = parse_round_law("rademacher:0.2").draw(
        np.full(50_000, 0.2), np.full(50_000, 4), np.random.default_rng(2)
    )
    times = np.bincount(total // SPAN, minlength=5)
    expected = 50_000 * np.array([math.comb(4, k) * 0.6**k * 0.4 ** (4 - k) for k in range(5)])
    assert ((times - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 4)


def test_cells_of_beta_samples_keep_the_mean_exactly():
    for a, b in ((2.0, 6.0), (0.3, 0.4), (50.0, 20.0)):
        law = BetaSamples(a, b)
        points = np.linspace(-1, 1, CELLS + 1)
        assert law.probability @ points == pytest.approx(law.mean, abs=1e-12)
        assert law.probability.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["normal", "skewed"])
@pytest.mark.parametrize(
    ("text", "stddev"), [("rademacher:0.7", 0.5), ("bernoulli:0.1", 0.2), ("three:0.1", 0.05)]
)
def test_theta_is_the_mean_over_users_who_differ(kind, text, stddev):
    # 4.5 standard errors: 7e-6 each. Cutting at the ends moves theta away from the mean of the
    # data.
    law = parse_round_law(text)
    population = RoundPopulation(
        200_000, SizeDistribution.parse("point:100"), law, BetweenLaw(kind, stddev), "shuffled"
    )
    found = population.draw(np.random.default_rng(3)).mean
    assert abs(found.mean() - population.theta) < 4.5 * found.std() / math.sqrt(200_000)
    assert found.min() >= law.lower - 1e-6
    assert found.max() <= law.upper + 1e-6
    if text != "three:0.1":
        assert abs(population.theta - law.mean) > 1e-3


def test_users_who_differ_have_the_declared_spread():
    # Variance of means of 1e6 samples: that of the users'. 5 standard errors.
    for kind, fourth in (("normal", 3.0), ("skewed", 9.0)):
        for text in ("rademacher:0", "beta:2,2"):
            between = BetweenLaw(kind, 0.05)
            population = RoundPopulation(
                20_000,
                SizeDistribution.parse("point:1000000"),
                parse_round_law(text),
                between,
                "shuffled",
            )
            found = population.draw(np.random.default_rng(4)).mean
            assert found.std() == pytest.approx(0.05, rel=5 * math.sqrt((fourth - 1) / 4 / 20_000))


def test_sorted_users_are_sorted_by_size_only():
    sizes = SizeDistribution.parse("uniform:1,50")
    shuffled, in_order = (
        RoundPopulation(5000, sizes, parse_round_law("rademacher:0.3"), None, order).draw(
            np.random.default_rng(5)
        )
        for order in ("shuffled", "sorted")
    )
    assert np.array_equal(np.sort(shuffled.count), in_order.count)
    assert not np.array_equal(shuffled.count, in_order.count)


SMALL = {"users": 300, "epsilon": 2.0, "sizes": "two:50,200,0.5", "runs": 4}


def test_configurations_of_one_population_find_together_what_each_finds_alone() -> None:
    asked = [RoundsConfig(estimator=name, **SMALL) for name in ("kent", "duchi", "one_shot")]
    together = simulate_rounds_alike([(one, one.build()) for one in asked])
    assert together == [simulate_rounds(one) for one in asked]
    other = replace(asked[0], seed=2)
    with pytest.raises(ValueError, match="configurations must have one population"):
        simulate_rounds_alike([(one, one.build()) for one in (asked[0], other)])


def test_the_same_configuration_gives_the_same_numbers_and_more_runs_extend_them():
    config = RoundsConfig(estimator="kent", **SMALL)
    assert simulate_rounds(config) == simulate_rounds(config)
    assert (
        simulate_rounds(config).mse
        != simulate_rounds(RoundsConfig(estimator="kent", **SMALL, seed=2)).mse
    )
    one, two = (
        simulate_rounds(RoundsConfig(estimator="duchi", **SMALL | {"runs": r})) for r in (1, 2)
    )
    # The first run is the same: the mean of two is between the two.
    second = 2 * two.bias - one.bias
    assert two.mse == pytest.approx((one.mse + second**2) / 2)
    assert one.stderr is None


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_every_estimator_of_the_registry_can_be_simulated(name):
    """Conformance: an added estimator is simulated without a change here; those of vectors are
    refused."""
    config = RoundsConfig(estimator=name, **SMALL | {"users": 1000})
    if name in ("category_shares", "quantile_tree", "quantile_search") or (
        name.startswith("kent.") and name != "kent.univariate"
    ):
        with pytest.raises(ValueError, match=f"estimator must answer one mean.*, got '{name}'"):
            simulate_rounds(config)
        return
    result = simulate_rounds(config)
    assert math.isfinite(result.mse)
    assert result.predicted_mse is None or result.predicted_mse > 0
    assert result.config["estimator"] == name
    assert list(result.as_dict())[:10] == [
        "mse", "stderr", "bias", "bias_stderr", "coverage", "predicted_mse", "theta", "effective_size", "bins",
        "mse_cut",
    ]  # fmt: skip


def test_only_large_users_can_be_asked():
    config = RoundsConfig(estimator="kent", **SMALL, least_size=200)
    assert config.population.users == 150
    assert config.population.sizes.least == config.population.sizes.greatest == 200
    assert config.build().describe()["effective_size"] == 200
    everybody = RoundsConfig(estimator="kent", **SMALL, least_size=50)
    assert everybody.population.users == 300


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"estimator": "mean"}, "estimator must be one of one_shot, dame"),
        (
            {"data": "cauchy:1"},
            "data must be rademacher:mean, three:q, beta:a,b, bernoulli:p or normal:mean,sd, got 'cauchy:1'",
        ),
        (
            {"data": "rademacher:2"},
            "data must have numbers from -1 to 1 for rademacher, got 'rademacher:2'",
        ),
        ({"data": "beta:0,1"}, "data must have numbers from 0 to 1e.06 for beta, got 'beta:0,1'"),
        ({"data": "three:x"}, "data must be rademacher:mean"),
        ({"sizes": "point:0"}, "sizes must have whole sizes from 1, got 'point:0'"),
        (
            {"between_users_law": "uniform:1"},
            "between_users_law must be normal:SD, skewed:SD or far:SHARE, got 'uniform:1'",
        ),
        (
            {"between_users_law": "normal:-1"},
            "between_users_law must be positive and finite, got -1.0",
        ),
        ({"order": "random"}, "order must be one of shuffled, sorted, got 'random'"),
        ({"runs": 0}, "runs must be at least 1, got 0"),
        ({"users": 0}, "users must be at least 1, got 0"),
        ({"seed": -1}, "seed must not be negative, got -1"),
        (
            {"least_size": 201},
            "least_size must be a size that some users have .at most 200., got 201",
        ),
        ({"mode": "quick"}, "mode must be one of paper, tuned, got 'quick'"),
        ({"options": {"literal": True}}, "duchi takes no option 'literal'"),
    ],
)
def test_wrong_configurations_are_one_line(options, line):
    with pytest.raises(ValueError, match=line) as refused:
        RoundsConfig(**{"estimator": "duchi", **SMALL, **options}).build()
    assert "\n" not in str(refused.value)
