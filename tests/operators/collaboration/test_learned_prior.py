"""The learned prior: what it finds, that its shortcuts are exact, and its edges."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from meanstream.operators.collaboration.prior.mixture_prior import LearnedPrior
from meanstream.operators.collaboration.prior.prior_fit import fit_prior_mixtures
from meanstream.operators.collaboration.prior.prior_fitted import FittedPrior
from meanstream.operators.collaboration.prior.prior_points import Points
from meanstream.operators.collaboration.prior.release_bins import bin_releases
from meanstream.operators.records import Floats, OwnMeans, ReleaseColumns


def fit(
    mean: Floats, variance: Floats | float, lower: float = 0.0, upper: float = 1.0
) -> FittedPrior:
    agent = np.arange(len(mean))
    ones, total = np.ones_like(agent), np.broadcast_to(variance, mean.shape).astype(float)
    releases = ReleaseColumns(
        agent=agent, index=ones, count=ones, total=ones, mean=mean, noise_variance=total
    )
    fitted = LearnedPrior(lower, upper).fit(releases, total)
    assert isinstance(fitted, FittedPrior)
    return fitted


def own_of(mean: Floats, variance: Floats | float) -> OwnMeans:
    agent = np.arange(len(mean))
    total = np.broadcast_to(variance, mean.shape).astype(float)
    return OwnMeans(agent=agent, count=np.ones_like(agent), mean=mean, variance=total)


def classes(n: int, stddev: float, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return np.array([0.2, 0.4, 0.8])[np.arange(n) % 3] + rng.normal(0, stddev, n)


def test_exact_classes_are_found_and_described() -> None:
    described = fit(classes(300, 0.02), 0.02**2).describe()
    assert described["n_components"] == 3
    assert described["spread"] == 0.0
    np.testing.assert_allclose(
        [c["center"] for c in described["components"]], [0.2, 0.4, 0.8], atol=0.01
    )
    np.testing.assert_allclose([c["weight"] for c in described["components"]], 1 / 3, atol=0.02)
    density = np.trapezoid(described["density"]["density"], described["density"]["value"])
    assert density == pytest.approx(1.0, abs=0.01)
    assert sum(row["probability"] for row in described["spread_probability"]) == pytest.approx(
        1.0, abs=0.03
    )


def test_a_smooth_population_has_its_spread_found() -> None:
    rng = np.random.default_rng(0)
    fitted = fit(rng.normal(0.5, 0.1, 5000) + rng.normal(0, 0.05, 5000), 0.05**2)
    grid = np.linspace(0.3, 0.7, 9)
    np.testing.assert_allclose(fitted.density(grid), norm.pdf(grid, 0.5, 0.1), rtol=0.08)


def test_membership_is_the_component_of_the_description() -> None:
    mean = classes(300, 0.02)
    fitted = fit(mean, 0.02**2)
    answer = fitted.estimate(own_of(mean, 0.02**2))
    assert (answer.component == np.arange(300) % 3).all()
    assert (answer.membership > 0.99).all()
    np.testing.assert_allclose(answer.class_size, 100, rtol=0.01)
    assert (answer.effective_class_size > 3).all()


def test_posterior_is_bayes_rule_by_numerical_integration() -> None:
    """Mean under the averaged prior, on a grid; the variance is not checked here: it uses the
    cautious weights."""
    fitted = fit(classes(60, 0.1), 0.1**2)
    theta = np.linspace(-2, 3, 200_001)
    prior = (fitted.weight / fitted.weight.sum()) @ np.array(
        [
            norm.pdf(theta, c, np.sqrt(v))
            for c, v in zip(fitted.center, fitted.variance, strict=True)
        ]
    )
    for mean, variance in ((0.3, 0.01), (0.55, 0.04), (0.9, 0.002)):
        weight = prior * norm.pdf(mean, theta, np.sqrt(variance))
        expected = (weight @ theta) / weight.sum()
        value = fitted.estimate(own_of(np.array([mean]), variance)).value[0]
        assert value == pytest.approx(expected, abs=1e-6)


def test_a_million_agents_see_the_same_prior_through_bins() -> None:
    """Binned and one by one, on the same releases with two different variances."""
    rng = np.random.default_rng(1)
    n = 3000
    variance = rng.choice([0.01, 0.04], n)
    mean = classes(n, 0.0) + rng.normal(0, 1, n) * np.sqrt(variance)
    exact = Points(mean=mean, variance=variance, weight=np.ones(n))
    binned = bin_releases(mean, variance, lower=0.0, upper=1.0)
    assert binned.total == n
    assert len(binned.mean) < 300
    for spread in (0.0, 0.1):
        a = fit_prior_mixtures(exact, np.array([spread]), lower=0.0, upper=1.0)
        b = fit_prior_mixtures(binned, np.array([spread]), lower=0.0, upper=1.0)
        by_size = {m.size: m for m in a}
        for mixture in b:
            if mixture.size <= 3:
                np.testing.assert_allclose(mixture.center, by_size[mixture.size].center, atol=0.01)
                np.testing.assert_allclose(mixture.weight, by_size[mixture.size].weight, atol=0.03)


def test_bins_conserve_numbers_and_moments() -> None:
    """A bin's mean varies by a twelfth of its squared width more; the variance it carries says
    so."""
    rng = np.random.default_rng(2)
    mean, variance = rng.normal(0, 3, 100_000), np.full(100_000, 4.0)
    for spread in (0.0, 5.0):
        points = bin_releases(mean, variance, lower=0.0, upper=1.0).coarser(spread)
        assert points.total == 100_000
        average = np.average(points.mean, weights=points.weight)
        spread_found = np.average((points.mean - average) ** 2, weights=points.weight)
        excess = points.variance[0] - 4.0
        assert spread_found - excess == pytest.approx(mean.var(), rel=0.01)


def test_many_variances_are_grouped_not_lost() -> None:
    rng = np.random.default_rng(3)
    variance = 10 ** rng.uniform(-6, 0, 50_000)
    points = bin_releases(rng.uniform(0, 1, 50_000), variance, lower=0.0, upper=1.0)
    assert points.total == 50_000
    assert len(points.mean) <= 1 << 15
    assert points.variance.min() >= variance.min()


@pytest.mark.parametrize(("scale", "shift"), [(150.0, -30.0), (1e-6, 0.0), (1.0, 1e6)])
def test_units_do_not_matter(scale: float, shift: float) -> None:
    mean = classes(100, 0.05)
    plain = fit(mean, 0.05**2).estimate(own_of(mean, 0.05**2))
    moved = fit(shift + scale * mean, (scale * 0.05) ** 2, shift, shift + scale).estimate(
        own_of(shift + scale * mean, (scale * 0.05) ** 2)
    )
    np.testing.assert_allclose((moved.value - shift) / scale, plain.value, atol=1e-6)
    np.testing.assert_allclose(
        (moved.upper - moved.lower) / scale, plain.upper - plain.lower, rtol=1e-4
    )


def test_an_outlier_keeps_its_own_mean() -> None:
    """No release shows it, the other agents agree, and yet its own samples decide."""
    fitted = fit(np.random.default_rng(5).normal(0.4, 0.05, 200), 0.05**2)
    answer = fitted.estimate(own_of(np.array([0.9]), 1e-5))
    assert answer.value[0] == pytest.approx(0.9, abs=0.01)


def test_unknown_and_zero_own_variance_have_answers() -> None:
    fitted = fit(classes(100, 0.05), 0.05**2)
    answer = fitted.estimate(own_of(np.array([0.5, 0.5]), np.array([np.inf, 0.0])))
    assert np.isfinite(answer.value).all()
    assert answer.value[1] == pytest.approx(0.5)
    assert answer.upper[0] - answer.lower[0] > answer.upper[1] - answer.lower[1]


def test_answers_stay_within_the_bounds() -> None:
    answer = fit(classes(100, 0.05), 0.05**2).estimate(own_of(np.array([-0.5, 1.5]), 0.001))
    assert ((answer.value >= 0) & (answer.value <= 1)).all()


def test_identical_releases_are_one_class() -> None:
    described = fit(np.full(50, 0.3), 0.01).describe()
    assert described["n_components"] == 1
    assert described["components"][0]["center"] == pytest.approx(0.3)


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match=r"lower must be below upper"):
        LearnedPrior(1.0, 0.0)
    with pytest.raises(
        ValueError, match=r"exact_classes must lie strictly between 0 and 1, got 1.0"
    ):
        LearnedPrior(0.0, 1.0, exact_classes=1.0)
