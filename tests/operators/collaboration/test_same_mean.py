"""Same-mean tests against SciPy, their special cases, and their error rates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from meanstream.lab.papers.colme.same_mean import (
    same_mean_known,
    same_mean_significance,
    same_mean_welch,
    same_mean_welch_degrees,
)


def test_significance_falls_as_in_the_paper() -> None:
    assert same_mean_significance(1) == pytest.approx(0.05 / math.log(2))
    assert same_mean_significance(30_000, 0.1) == pytest.approx(0.1 / math.log(30_001))
    with pytest.raises(ValueError, match="significance"):
        same_mean_significance(3, 0.0)


def test_known_variance_agrees_with_the_p_value() -> None:
    generator = np.random.default_rng(1)
    difference, variance = generator.standard_normal(2000), generator.uniform(0.1, 2.0, 2000)
    p_value = 2 * stats.norm.sf(np.abs(difference) / np.sqrt(variance))
    for significance in (0.2, 0.01):
        np.testing.assert_array_equal(
            same_mean_known(difference, variance, significance), p_value > significance
        )


@pytest.mark.parametrize("significance", [0.3, 0.05, 0.005])
@pytest.mark.parametrize("counts", [(2, 2), (2, 40), (9, 7), (300, 12)])
def test_welch_agrees_with_the_p_value(significance: float, counts: tuple[int, int]) -> None:
    """The shortcuts of the implementation must never change an answer."""
    generator = np.random.default_rng(2)
    n, m = counts
    difference = 3 * generator.standard_normal(3000)
    x, y = generator.gamma(1.0, 1.0, (2, 3000))
    degrees = (x + y) ** 2 / (x**2 / (n - 1) + y**2 / (m - 1))
    np.testing.assert_allclose(
        same_mean_welch_degrees(x, n, y, np.full(3000, m)), degrees, rtol=1e-12
    )
    expected = 2 * stats.t.sf(np.abs(difference) / np.sqrt(x + y), degrees) > significance
    accepted = same_mean_welch(difference, x, n, y, m, significance)
    np.testing.assert_array_equal(accepted, expected)
    assert 0 < expected.sum() < 3000
    per_pair = same_mean_welch(
        difference, x, n, y, np.where(np.arange(3000) % 2, m, 5), significance
    )
    np.testing.assert_array_equal(per_pair[1::2], expected[1::2])


def test_nothing_known_is_accepted() -> None:
    infinite, one, far = np.array([np.inf]), np.ones(1), np.array([1e9])
    for own, other in ((infinite, one), (one, infinite), (infinite, infinite)):
        assert same_mean_welch(far, own, 1, other, 1, 0.05).all()
        assert same_mean_known(far, own + other, 0.05).all()


def test_a_zero_own_variance_leaves_the_others_degrees() -> None:
    assert same_mean_welch_degrees(np.zeros(1), 50, np.ones(1), np.array([9])).item() == 8


def test_error_rate_of_the_first_kind() -> None:
    """40,000 pairs with equal means: rejections within 4 standard errors of the significance (false
    alarm 6e-5)."""
    generator = np.random.default_rng(3)
    own, other = generator.standard_normal((2, 40_000, 8))
    rejected = ~same_mean_welch(
        own.mean(1) - other.mean(1), own.var(1, ddof=1) / 8, 8, other.var(1, ddof=1) / 8, 8, 0.05
    )
    assert rejected.mean() == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 40_000))
