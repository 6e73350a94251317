"""The mechanisms keep their promise exactly: all outputs, all shifts up to the sensitivity, the
code as it runs."""

import math

import numpy as np
import pytest

from meanstream.lab.evidence.one_run import above, audit_epsilon_lower_bound
from meanstream.operators.noise.calibration import (
    calibrated_analytic_stddev,
    calibrated_classical_stddev,
    calibrated_laplace_scale,
    calibration_delta,
)
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import (
    GaussianNoise,
    KeyedNoise,
    LaplaceNoise,
    NoiseIds,
    keyed_owner_words,
)
from meanstream.operators.records import Ints
from tests.oracles.divergence import hockey_stick, pure_epsilon, worst_hockey_stick
from tests.oracles.implemented_laws import implemented_pmf

GAUSSIAN_CASES = [(1.0, 1e-6, 1), (0.3, 1e-5, 7), (1.0, 1e-2, 3), (4.0, 1e-9, 16), (8.0, 1e-3, 2)]


def gaussian_pmf(stddev: float) -> tuple[GaussianNoise, int]:
    return GaussianNoise(stddev), math.ceil(13 * stddev) + 1


@pytest.mark.parametrize(("epsilon", "delta", "sensitivity"), GAUSSIAN_CASES)
def test_the_rounded_gaussian_keeps_delta_at_every_shift(
    epsilon: float, delta: float, sensitivity: int
) -> None:
    """The hockey-stick divergence over all integers, from the pmf and from counting all 2**128
    inputs of the code."""
    noise, largest = gaussian_pmf(sensitivity * calibrated_analytic_stddev(epsilon, delta))
    shifts = range(1, sensitivity + 1)
    allowed = delta + noise.tail_delta * (1 + math.exp(epsilon))
    assert (
        worst_hockey_stick(noise.pmf(np.arange(-largest, largest + 1)), shifts, epsilon) <= allowed
    )
    counted = implemented_pmf(noise, largest)
    assert counted.sum() == pytest.approx(1.0, abs=1e-12)
    assert worst_hockey_stick(counted, shifts, epsilon + noise.epsilon_slack) <= allowed


@pytest.mark.parametrize(("epsilon", "delta", "sensitivity"), GAUSSIAN_CASES)
def test_known_bad_twin_half_the_sensitivity_is_caught(
    epsilon: float, delta: float, sensitivity: int
) -> None:
    noise, largest = gaussian_pmf(0.5 * sensitivity * calibrated_analytic_stddev(epsilon, delta))
    for pmf in (noise.pmf(np.arange(-largest, largest + 1)), implemented_pmf(noise, largest)):
        assert worst_hockey_stick(pmf, [sensitivity], epsilon) > 5 * delta


def test_rounding_costs_nothing_and_gains_nothing_on_a_fine_grid() -> None:
    """With a sensitivity of many grid steps the rounded mechanism approaches the continuous one
    from below."""
    stddev = calibrated_analytic_stddev(1.0, 1e-3)
    noise, largest = gaussian_pmf(1000 * stddev)
    rounded = worst_hockey_stick(noise.pmf(np.arange(-largest, largest + 1)), [1000], 1.0)
    assert 0.999 * calibration_delta(stddev, 1.0) < rounded <= 1e-3


def test_the_classical_calibration_keeps_delta_too() -> None:
    noise, largest = gaussian_pmf(5 * calibrated_classical_stddev(1.0, 1e-5))
    assert worst_hockey_stick(noise.pmf(np.arange(-largest, largest + 1)), range(1, 6), 1.0) <= 1e-5


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("sensitivity", [1, 4, 25])
def test_the_discrete_laplace_is_pure(epsilon: float, sensitivity: int) -> None:
    """Exact likelihood ratios: `exp(epsilon)` at the full sensitivity, less below it."""
    noise = LaplaceNoise(sensitivity * calibrated_laplace_scale(epsilon))
    k = np.arange(-math.ceil(40 * noise.scale), math.ceil(40 * noise.scale) + 1)
    for shift in range(1, sensitivity + 1):
        ratio = pure_epsilon(np.log(noise.pmf(k)), np.log(noise.pmf(k + shift)))
        assert ratio == pytest.approx(epsilon * shift / sensitivity, rel=1e-9)
    counted = implemented_pmf(noise, math.ceil(60 * noise.scale))
    allowed = noise.tail_delta * (1 + math.exp(epsilon))
    assert (
        worst_hockey_stick(counted, range(1, sensitivity + 1), epsilon + noise.epsilon_slack)
        <= allowed
    )


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_known_bad_twin_half_the_scale_is_caught(epsilon: float) -> None:
    noise = LaplaceNoise(0.5 * 4 * calibrated_laplace_scale(epsilon))
    k = np.arange(-100, 101)
    assert pure_epsilon(np.log(noise.pmf(k)), np.log(noise.pmf(k + 4))) == pytest.approx(
        2 * epsilon
    )
    counted = implemented_pmf(noise, math.ceil(60 * noise.scale))
    assert worst_hockey_stick(counted, [4], epsilon) > 1e-2


def test_neighboring_sums_differ_by_at_most_the_span_exhaustively() -> None:
    """Every pair of samples from a hostile collection of floats, every other sample fixed."""
    grid = FixedPoint(-1.0, 2.0, bits=4)
    edges = [
        -1e308,
        -1.0,
        np.nextafter(-1.0, 0),
        -0.0,
        5e-324,
        0.1,
        0.46875,
        np.nextafter(2.0, 0),
        2.0,
        1e308,
    ]
    steps = grid.encode(edges)
    differences = np.abs(np.subtract.outer(steps, steps))
    assert differences.max() == grid.span
    noise = GaussianNoise(grid.span * calibrated_analytic_stddev(1.0, 1e-6))
    k = np.arange(-1500, 1501)
    for shift in np.unique(differences):
        assert hockey_stick(noise.pmf(k), noise.pmf(k - int(shift)), 1.0) <= 1e-6


def released(noise: GaussianNoise | LaplaceNoise, total: int, n: int, owner: str) -> Ints:
    """One release of the same total by each of n owners, through the keyed source."""
    source = KeyedNoise(b"f25735d7f2b7edd3a59407cfb81435ed", deployment="audit", purpose="release")
    totals = np.full(n, total)
    owners = keyed_owner_words([f"{owner}{i}" for i in range(n)])
    ids = NoiseIds(
        owners, np.ones(n, dtype=np.int64), source.version_of(np.ones(n, dtype=np.int64), totals)
    )
    return totals + np.rint(noise.sample(source.bits(ids))).astype(np.int64)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_keyed_laplace_release_as_a_black_box(epsilon: float) -> None:
    """False alarm 1e-6. The bound must also come close: an audit that sees nothing would pass
    anything."""
    sensitivity = 100
    noise = LaplaceNoise(sensitivity * calibrated_laplace_scale(epsilon))
    a, b = (
        released(noise, total, 100_000, owner)
        for total, owner in ((1000, "a"), (1000 + sensitivity, "b"))
    )
    events = above(np.linspace(1000 - sensitivity, 1000 + 2 * sensitivity, 13))
    assert 0.8 * epsilon < audit_epsilon_lower_bound(a, b, events, delta=0.0) <= epsilon


def test_the_keyed_gaussian_release_as_a_black_box() -> None:
    """False alarm 1e-6."""
    sensitivity, epsilon, delta = 100, 1.0, 1e-2
    noise = GaussianNoise(sensitivity * calibrated_analytic_stddev(epsilon, delta))
    a, b = (
        released(noise, total, 100_000, owner)
        for total, owner in ((1000, "a"), (1000 + sensitivity, "b"))
    )
    events = above(np.linspace(1000 - 5 * sensitivity, 1000 + 6 * sensitivity, 23))
    assert 0.3 * epsilon < audit_epsilon_lower_bound(a, b, events, delta=delta) <= epsilon
