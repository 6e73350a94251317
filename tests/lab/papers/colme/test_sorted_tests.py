"""Tests on sorted releases against all pairs, one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm, truncnorm

from meanstream.lab.papers.colme import same_mean_tests as sorted_tests
from meanstream.lab.papers.colme.same_mean_tests import SameMeanTests
from meanstream.operators.records import Floats, Ints, OwnMeans, ReleaseColumns


def brute_force(
    own: OwnMeans, agent: Ints, released: Floats, variance: Floats
) -> tuple[Floats, Floats, Floats]:
    """Algorithm 1's decision and eq. (4), agent by agent."""
    values, variances, sizes, uppers = [], [], [], []
    for a, t, x, v in zip(own.agent, own.count, own.mean, own.variance, strict=True):
        threshold = norm.ppf(1 - 0.05 / math.log(t + 1) / 2)
        information, moment, size = 1 / v, x / v, 1
        members = [(x, v)]
        for b, other, total in zip(agent, released, variance, strict=True):
            if b != a and abs(x - other) < threshold * math.sqrt(v + total):
                information, moment, size = (
                    information + 1 / total,
                    moment + other / total,
                    size + 1,
                )
                members.append((other, total))
        values.append(moment / information)
        variances.append(1 / information)
        sizes.append(size)
        uppers.append(upper_end(np.array(members), threshold))
    return np.array(values), np.array(variances), np.array(sizes, dtype=float), np.array(uppers)


def upper_end(members: np.ndarray, threshold: float) -> float:
    """DerSimonian and Laird, by definition: the first member is the agent itself."""
    mean, variance = members.T
    weight = 1 / variance
    together = np.average(mean, weights=weight)
    cut = truncnorm(-threshold, threshold).var()
    others = len(members) - 1
    excess = (weight * (mean - together) ** 2).sum() - cut * others
    scale = weight.sum() - (weight**2).sum() / weight.sum()
    tau2 = max(excess + 2 * math.sqrt(2 * others), 0) / scale if others else 0.0
    share = 1 - weight[0] / weight.sum()
    z = norm.ppf(0.975)
    half = z * math.sqrt(1 / weight.sum() + share**2 * tau2)
    printed, alone = z / math.sqrt(weight.sum()), z * math.sqrt(variance[0])
    lower = min(together - printed, mean[0] - alone)
    upper = max(together + printed, mean[0] + alone)
    return float(together + half if 2 * half < upper - lower else upper)


@pytest.mark.parametrize("offset", [0.0, 1e7])
@pytest.mark.parametrize("n_variances", [1, 4, 80])
@pytest.mark.parametrize("by_pairs", [False, True])
def test_equal_to_all_pairs(
    offset: float, n_variances: int, by_pairs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_pairs:
        monkeypatch.setattr(sorted_tests, "MOST_GROUPS", 0)
        monkeypatch.setattr(sorted_tests, "ELEMENTS", 1000)  # several chunks
    rng = np.random.default_rng(n_variances)
    n = 80
    agent = rng.permutation(n + 5)[:n]  # some agents have no release
    variance = rng.choice(np.geomspace(0.001, 0.1, n_variances), n)
    released = offset + rng.choice([0.2, 0.8], n) + rng.normal(0, 1, n) * np.sqrt(variance)
    ones = np.ones(n, dtype=np.int64)
    releases = ReleaseColumns(
        agent=agent, index=ones, count=ones, total=ones, mean=released, noise_variance=variance
    )
    own = OwnMeans(
        agent=np.arange(n + 5),
        count=rng.integers(2, 1000, n + 5),
        mean=offset + rng.uniform(0, 1, n + 5),
        variance=rng.uniform(0.001, 0.01, n + 5),
    )
    answer = SameMeanTests().fit(releases, variance).estimate(own)
    values, variances, sizes, uppers = brute_force(own, agent, released, variance)
    np.testing.assert_allclose(answer.value, values, rtol=0, atol=1e-9 + 1e-15 * offset)
    np.testing.assert_allclose(answer.effective_class_size, own.variance / variances, rtol=1e-9)
    np.testing.assert_array_equal(answer.class_size, sizes)
    np.testing.assert_allclose(answer.upper - values, uppers - values, rtol=1e-5, atol=2e-7)


def test_an_unknown_own_variance_accepts_everybody_and_weighs_nothing() -> None:
    ones = np.ones(3, dtype=np.int64)
    releases = ReleaseColumns(
        agent=np.arange(3),
        index=ones,
        count=ones,
        total=ones,
        mean=np.array([0.0, 1.0, 3.0]),
        noise_variance=np.ones(3),
    )
    own = OwnMeans(
        agent=np.array([0]), count=np.array([1]), mean=np.array([9.0]), variance=np.array([np.inf])
    )
    answer = SameMeanTests().fit(releases, np.ones(3)).estimate(own)
    assert answer.value[0] == pytest.approx(2.0)
    assert answer.class_size[0] == 3
    assert np.isfinite(answer.upper[0])


@pytest.mark.parametrize("deviation", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("noise", [0.1, 1.0, 15.0])
def test_intervals_hold_where_there_are_no_classes(deviation: float, noise: float) -> None:
    """Means that differ by about what an agent errs alone pass the tests: printed intervals cover
    .1 to .9 of them; of 8,000 answers .9 are 3 standard errors and more below .95, if .01 each."""
    rng, n, ones = np.random.default_rng(3), 200, np.ones(200, np.int64)
    covers = []
    for _ in range(40):
        means = rng.normal(0, deviation, n)
        own = means + rng.normal(0, 1, n)
        released = own + rng.normal(0, math.sqrt(noise), n)
        releases = ReleaseColumns(agent=np.arange(n), index=ones, count=ones, total=ones,
                                  mean=released, noise_variance=noise * np.ones(n))  # fmt: skip
        answer = (
            SameMeanTests()
            .fit(releases, np.full(n, 1 + noise))
            .estimate(OwnMeans(agent=np.arange(n), count=200 * ones, mean=own, variance=np.ones(n)))
        )
        covers.append((answer.lower <= means) & (means <= answer.upper))
    assert np.mean(covers) > 0.9


def test_significance_is_checked() -> None:
    with pytest.raises(ValueError, match=r"significance must lie strictly between 0 and 1, got 0"):
        SameMeanTests(significance=0.0)
