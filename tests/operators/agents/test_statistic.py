"""The variance of T: direct sums, recursion, simulation through the counters, and the paper's
misprint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meanstream.lab.papers.colme.statistic import (
    FactorTracker,
    statistic_factors_table,
    statistic_release_covariance,
    statistic_variance_factors,
    statistic_variance_table,
    weights,
)
from meanstream.operators.counters.pm1 import Pm1
from meanstream.operators.counters.pm2 import Pm2
from meanstream.operators.counters.registry import COUNTERS, make_counter
from tests.oracles.partial_sums import statistic_noise_factor_pm2, variance_of_statistic

RECURSIVE = ("last", "mean_of_means", "windowed")


def unequal_times(rows: int, n: int) -> np.ndarray:
    return np.cumsum(np.random.default_rng(5).integers(1, 9, (rows, n)), axis=1)


@pytest.mark.parametrize("weighting", RECURSIVE)
@pytest.mark.parametrize("name", sorted(COUNTERS))
def test_recursion_is_the_direct_sum(name: str, weighting: str) -> None:
    counter, times = make_counter(name, horizon=70), unequal_times(3, 70)
    table = statistic_factors_table(times, weighting, counter)
    for k in (1, 2, 3, 7, 8, 31, 32, 33, 70):
        direct = statistic_variance_factors(times[:, :k], weights(weighting, k), counter)
        np.testing.assert_allclose(table.data[:, k - 1], direct.data, rtol=1e-10)
        np.testing.assert_allclose(table.noise[:, k - 1], direct.noise, rtol=1e-10)


@pytest.mark.parametrize("name", sorted(COUNTERS))
def test_rows_at_unequal_releases_do_not_mix(name: str) -> None:
    counter, times = make_counter(name, horizon=12), unequal_times(2, 12)
    tracker = FactorTracker(counter, "windowed")
    state = tracker.init(2)
    for k in range(5):
        tracker.step(state, np.array([1]), np.array([k + 1]), times[1:, k])
    both = tracker.step(
        state, np.array([0, 1]), np.array([1, 6]), np.array([times[0, 0], times[1, 5]])
    )
    table = statistic_factors_table(times, "windowed", counter)
    np.testing.assert_allclose(both.noise, [table.noise[0, 0], table.noise[1, 5]], rtol=1e-12)
    np.testing.assert_allclose(both.data, [table.data[0, 0], table.data[1, 5]], rtol=1e-12)


@pytest.mark.parametrize("name", sorted(COUNTERS))
def test_any_weights_against_the_covariance(name: str) -> None:
    times, counter = unequal_times(1, 30)[0], make_counter(name, horizon=30)
    w = np.random.default_rng(6).normal(size=30)
    covariance = statistic_release_covariance(
        times, sample_variance=0.3, counter=counter, fresh_variance=7.0
    )
    found = variance_of_statistic(
        times, w, sample_variance=0.3, counter=counter, fresh_variance=7.0
    )
    assert found == pytest.approx(w @ covariance @ w, rel=1e-10)


@pytest.mark.parametrize("weighting", RECURSIVE)
@pytest.mark.parametrize("name", sorted(COUNTERS))
def test_simulated_variance(name: str, weighting: str) -> None:
    """T from real data and real counter steps: within 4.5 standard errors (false alarm 7e-6 each,
    6e-5 for all 9)."""
    runs, n, stddev = 20_000, 13, 3.0
    counter, times = make_counter(name, horizon=n), unequal_times(1, n)[0]
    rng = np.random.default_rng(7)
    state, rows = counter.init(runs), np.arange(runs)
    total, means = np.zeros(runs), np.empty((runs, n))
    for k, length in enumerate(np.diff(times, prepend=0)):
        total += rng.normal(0.0, np.sqrt(length), runs)
        noise = counter.step(state, rows, np.full(runs, k + 1), rng.normal(0.0, stddev, runs))
        means[:, k] = (total + noise) / times[k]
    found = np.var(means @ weights(weighting, n), ddof=1)
    expected = variance_of_statistic(
        times, weights(weighting, n), sample_variance=1.0, counter=counter, fresh_variance=stddev**2
    )
    assert abs(found / expected - 1) < 4.5 * np.sqrt(2 / (runs - 1))


def test_closed_forms_of_the_paper() -> None:
    """Appendix A: non-MoM and MoM for PM-I; non-MoM for PM-II."""
    times, k = unequal_times(1, 29)[0], np.arange(1, 30)
    last1, last2 = (
        statistic_factors_table(times, "last", counter) for counter in (Pm1(29), Pm2(29))
    )
    np.testing.assert_allclose(last1.data, 1 / times)
    np.testing.assert_allclose(last1.noise, k / times**2)
    np.testing.assert_allclose(last2.noise, [int(i).bit_count() for i in k] / times**2)
    mean1 = statistic_factors_table(times, "mean_of_means", Pm1(29))
    np.testing.assert_allclose(mean1.data, np.cumsum((2 * k - 1) / times) / k**2)
    tails = [sum(np.cumsum((1 / times[:n])[::-1]) ** 2) / n**2 for n in k]
    np.testing.assert_allclose(mean1.noise, tails)


def test_equation_21_as_printed_overestimates_from_seven_releases_on() -> None:
    def excess(name: str, n: int) -> float:
        times, w = 199 * np.arange(1, n + 1), weights(name, n)
        return (
            statistic_noise_factor_pm2(times, w)
            / float(statistic_variance_factors(times, w, Pm2(n)).noise)
            - 1
        )

    for name in ("mean_of_means", "windowed"):
        assert [excess(name, n) for n in range(1, 7)] == pytest.approx([0] * 6)
    assert [excess("windowed", n) for n in (7, 127, 255, 511)] == pytest.approx(
        [0.08, 0.68, 0.85, 1.03], abs=0.005
    )
    assert [excess("mean_of_means", n) for n in (7, 127, 511)] == pytest.approx(
        [0.02, 0.24, 0.38], abs=0.005
    )


def test_last_weights_are_not_affected_by_the_misprint() -> None:
    times = 199 * np.arange(1, 101)
    for n in (7, 64, 100):
        right = statistic_variance_factors(times[:n], weights("last", n), Pm2(n)).noise
        assert statistic_noise_factor_pm2(times[:n], weights("last", n)) == pytest.approx(
            float(right)
        )


def test_table_of_gls_is_the_least() -> None:
    times = unequal_times(2, 20)
    known: dict[str, Any] = {
        "sample_variance": 0.25,
        "counter": make_counter("toeplitz", horizon=20),
        "fresh_variance": 30.0,
    }
    best = statistic_variance_table(times, "gls", **known)
    assert best.shape == (2, 20)
    for name in RECURSIVE:
        assert (best <= statistic_variance_table(times, name, **known) * (1 + 1e-12)).all()


def test_infinite_sample_variance_stays_infinite() -> None:
    factors = statistic_variance_factors(np.array([10, 20]), weights("last", 2), Pm1(2))
    assert factors.variance(np.array([np.inf, 1.0]), 2.0).tolist() == [
        np.inf,
        pytest.approx(0.05 + 2 * 2 / 400),
    ]


def test_tracker_refuses_what_has_no_recursion() -> None:
    with pytest.raises(
        ValueError, match="weights must be last, mean_of_means or windowed here, got 'gls'"
    ):
        FactorTracker(Pm1(3), "gls")
