"""Weights add to 1, follow their definitions, and gls has the least variance of all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meanstream.lab.papers.colme.statistic import (
    WEIGHTS,
    statistic_release_covariance,
    weights,
    weights_gain,
    weights_gls_table,
    weights_gls_variance,
    weights_window_start,
)
from meanstream.operators.counters.pm2 import Pm2
from meanstream.operators.counters.toeplitz import Toeplitz
from tests.oracles.partial_sums import variance_of_statistic

RECURSIVE = ("last", "mean_of_means", "windowed")


def covariance_of(n: int, *, horizon: int = 500, fresh_variance: float = 40.0) -> np.ndarray:
    times = np.cumsum(1 + np.arange(n) % 7)
    return statistic_release_covariance(
        times, sample_variance=0.25, counter=Toeplitz(horizon), fresh_variance=fresh_variance
    )


@given(st.integers(1, 300))
def test_they_add_to_one(n: int) -> None:
    for name in RECURSIVE:
        assert weights(name, n).sum() == pytest.approx(1.0)
        assert weights(name, n).shape == (n,)


@given(st.integers(1, 1 << 40))
def test_window_starts_at_the_power_of_two(release: int) -> None:
    assert weights_window_start("windowed", np.array([release])).tolist() == [
        1 << (release.bit_length() - 1)
    ]


@pytest.mark.parametrize("name", RECURSIVE)
def test_gain_is_the_recursion_of_the_weights(name: str) -> None:
    values = np.random.default_rng(1).normal(size=70)
    statistic = 0.0
    for k in range(1, 71):
        statistic += weights_gain(name, np.array(k)).item() * (values[k - 1] - statistic)
        assert statistic == pytest.approx(weights(name, k) @ values[:k], abs=1e-12)


def test_gls_rows_are_the_weights_of_every_prefix() -> None:
    covariance = covariance_of(60)
    table = weights_gls_table(covariance)
    assert np.array_equal(np.triu(table, 1), np.zeros_like(table))
    np.testing.assert_allclose(table.sum(1), 1.0, rtol=1e-9)
    for k in (1, 2, 17, 60):
        np.testing.assert_allclose(
            weights("gls", k, covariance=covariance[:k, :k]), table[k - 1, :k], atol=1e-9
        )
        solved = np.linalg.solve(covariance[:k, :k], np.ones(k))
        np.testing.assert_allclose(table[k - 1, :k], solved / solved.sum(), rtol=1e-6, atol=1e-9)
        assert weights_gls_variance(covariance)[k - 1] == pytest.approx(
            table[k - 1] @ covariance @ table[k - 1], rel=1e-9
        )


@pytest.mark.parametrize("counter", [Pm2(40), Toeplitz(40)])
def test_gls_beats_the_others(counter: Pm2 | Toeplitz) -> None:
    times = 50 * np.arange(1, 41)
    known: dict[str, Any] = {"sample_variance": 0.25, "counter": counter, "fresh_variance": 80.0}
    best = weights_gls_variance(statistic_release_covariance(times, **known))
    for name in RECURSIVE:
        for k in (1, 2, 11, 40):
            other = variance_of_statistic(times[:k], weights(name, k), **known)
            assert best[k - 1] <= other * (1 + 1e-12)
    assert best[-1] < 0.95 * variance_of_statistic(times, weights("last", 40), **known)


def test_gls_is_stable_where_variances_span_nine_orders() -> None:
    """Geometric times to 1e9: a plain solve has a condition number near 1e19; the estimate cannot
    get worse."""
    times = np.unique(np.round(10 * 1.25 ** np.arange(84)).astype(np.int64))
    covariance = statistic_release_covariance(
        times, sample_variance=0.25, counter=Toeplitz(100), fresh_variance=70.0
    )
    variance = weights_gls_variance(covariance)
    assert (np.diff(variance) < 0).all()
    assert (variance >= 0.25 / times * (1 - 1e-9)).all()
    np.testing.assert_allclose(weights_gls_table(covariance).sum(1), 1.0, rtol=1e-7)


def test_refusals() -> None:
    assert set(WEIGHTS) == {*RECURSIVE, "gls"}
    with pytest.raises(
        ValueError, match="weights must be one of last, mean_of_means, windowed, gls, got 'mean'"
    ):
        weights("mean", 3)
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        weights("last", 0)
    with pytest.raises(ValueError, match="covariance must be given for gls and only there"):
        weights("gls", 3)
    with pytest.raises(ValueError, match="covariance must be given for gls and only there"):
        weights("last", 3, covariance=np.eye(3))
    with pytest.raises(ValueError, match=r"covariance must have shape \(3, 3\), got \(2, 2\)"):
        weights("gls", 3, covariance=np.eye(2))
    with pytest.raises(
        ValueError, match="weights must be last, mean_of_means or windowed here, got 'gls'"
    ):
        weights_window_start("gls", np.array([1]))
