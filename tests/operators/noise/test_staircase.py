"""Discrete staircase noise: its law, the least variance, and the sampler as it runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meanstream.operators.noise.distributions import LaplaceNoise, StaircaseNoise
from tests.oracles.implemented_laws import implemented_pmf

CASES = [(1, 1.0), (2, 0.3), (7, 1.0), (10, 3.0), (16, 0.01), (5, 10.0)]


@pytest.mark.parametrize(("span", "epsilon"), CASES)
def test_the_law_is_that_of_the_formula(span: int, epsilon: float) -> None:
    noise = StaircaseNoise(span, epsilon)
    reach = span * math.ceil(60 / epsilon)
    k = np.arange(-reach, reach + 1)
    pmf = noise.pmf(k)
    assert pmf.sum() == pytest.approx(1.0, abs=1e-12)
    assert (pmf * k.astype(float) ** 2).sum() == pytest.approx(noise.variance, rel=1e-9)
    moved = pmf[:-span], pmf[span:]
    assert (pmf[span] / pmf[0]) == pytest.approx(math.exp(epsilon), rel=1e-9)

    for one, other in (moved, moved[::-1]):
        assert (one <= other * math.exp(epsilon) * (1 + 1e-9)).all()

    assert noise.cdf(k) == pytest.approx(np.cumsum(pmf), abs=1e-12)
    assert noise.cdf(k + 0.9).tolist() == noise.cdf(k).tolist()

    equal = pmf[:-span][np.isclose(*moved, rtol=1e-9, atol=0)].sum()
    assert noise.equal_mass == pytest.approx(equal, abs=1e-9)


@pytest.mark.parametrize(("span", "epsilon"), CASES)
def test_the_first_step_has_least_variance(span: int, epsilon: float) -> None:
    """Against every width, by sums over the integers."""
    k = np.arange(span * math.ceil(60 / epsilon))
    step, place = np.divmod(k, span)
    variances = []

    for edge in range(1, span + 1):
        weight = np.exp(-epsilon * (step + (place >= edge)))
        mass = 2 * weight.sum() - weight[0]
        variances.append(2 * float((weight * k.astype(float) ** 2).sum()) / mass)

    assert StaircaseNoise(span, epsilon).variance == pytest.approx(min(variances), rel=1e-9)


@pytest.mark.parametrize(("span", "epsilon"), [(1, 1.0), (7, 1.0), (10, 3.0), (6, 8.0)])
def test_the_sampler_has_the_law(span: int, epsilon: float) -> None:
    """All 2**128 inputs are counted; float64 may be off by `epsilon_slack`."""
    noise = StaircaseNoise(span, epsilon)
    largest = span * max(2, math.ceil(12 / epsilon))
    exact = noise.pmf(np.arange(-largest, largest + 1))
    implemented = implemented_pmf(noise, largest)
    assert np.abs(np.log(implemented / exact)).max() <= max(noise.epsilon_slack, 1e-13)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 10.0])
def test_gain_over_laplace(epsilon: float) -> None:
    """4 % at epsilon 1, half at 3, 24 times at 10; never a loss worth a word."""
    span = 2**20
    gain = LaplaceNoise(span / epsilon).variance / StaircaseNoise(span, epsilon).variance
    expected = {0.1: 1.0, 1.0: 1.043, 3.0: 1.456, 10.0: 23.6}[epsilon]
    assert gain == pytest.approx(expected, rel=0.02)


def test_draws_are_those_of_the_variance() -> None:
    """Within 5 standard errors: a false alarm in 2 million."""
    noise = StaircaseNoise(614_400, 1.0)
    bits = np.random.default_rng(1).integers(0, 2**64, (400_000, 2), dtype=np.uint64)
    squares = noise.sample(bits) ** 2
    assert abs(squares.mean() - noise.variance) < 5 * squares.std() / math.sqrt(len(squares))
    assert (noise.sample(bits) == np.rint(noise.sample(bits))).all()


def test_refused() -> None:
    with pytest.raises(ValueError, match="span must lie in"):
        StaircaseNoise(0, 1.0)
    with pytest.raises(ValueError, match="epsilon must be positive"):
        StaircaseNoise(1, 0.0)
