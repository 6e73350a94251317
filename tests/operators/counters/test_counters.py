"""Conformance of every counter of the registry: the recursive form against its dense matrix,
horizon, snapshots."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanstream.operators.counters.optimal import Optimal
from meanstream.operators.counters.registry import (
    COUNTERS,
    Counter,
    HorizonReached,
    counter_noise,
    counter_noise_variance,
    make_counter,
)
from meanstream.operators.counters.toeplitz import (
    EXCESS,
    Toeplitz,
    fit_toeplitz_buffers,
    toeplitz_excess_stddev,
    toeplitz_norm,
)
from meanstream.operators.noise.calibration import (
    calibrated_analytic_stddev,
    calibrated_classical_stddev,
)
from meanstream.operators.noise.keyed import GaussianNoise, LaplaceNoise

HORIZON = 45


@pytest.fixture(params=sorted(COUNTERS))
def counter(request: pytest.FixtureRequest) -> Counter:
    return make_counter(request.param, horizon=HORIZON)


def run(
    counter: Counter, fresh: np.ndarray, *, cut: int | None = None, seed: int = 0
) -> np.ndarray:
    """Step rows at unequal release numbers: at each turn a random half of the rows releases; NaN
    when finished."""
    n_rows, n = fresh.shape
    rng = np.random.default_rng(seed)
    state, done, noise = (
        counter.init(n_rows),
        np.zeros(n_rows, dtype=np.int64),
        np.full(fresh.shape, np.nan),
    )
    turn = 0
    while (done < n).any():
        rows = rng.permutation(np.flatnonzero((done < n) & (rng.random(n_rows) < 0.5)))
        noise[rows, done[rows]] = counter.step(state, rows, done[rows] + 1, fresh[rows, done[rows]])
        done[rows] += 1
        turn += 1
        if turn == cut:
            state = {name: values.copy() for name, values in state.items()}
    return noise


def test_step_is_the_matrix(counter: Counter) -> None:
    fresh = np.random.default_rng(1).normal(size=(7, HORIZON))
    np.testing.assert_allclose(
        run(counter, fresh), fresh @ counter.matrix(HORIZON).T, rtol=1e-11, atol=1e-11
    )


def test_batch_and_order_of_rows_do_not_change_a_bit(counter: Counter) -> None:
    fresh = np.random.default_rng(2).normal(size=(5, HORIZON))
    alone = np.concatenate([run(counter, fresh[[row]]) for row in range(5)])
    assert np.array_equal(run(counter, fresh), alone)


def test_consecutive_rows_may_be_a_slice(counter: Counter) -> None:
    fresh = np.random.default_rng(9).normal(size=(4, HORIZON))
    numbers, consecutive = counter.init(6), counter.init(6)
    for k in range(HORIZON):
        release = np.full(4, k + 1)
        expected = counter.step(numbers, np.arange(1, 5), release, fresh[:, k])
        assert np.array_equal(
            counter.step(consecutive, slice(1, 5), release, fresh[:, k]), expected
        )
    assert all(np.array_equal(consecutive[name], values) for name, values in numbers.items())


@pytest.mark.parametrize("cut", [1, 13, 60])
def test_restored_state_continues_identically(counter: Counter, cut: int) -> None:
    fresh = np.random.default_rng(3).normal(size=(4, HORIZON))
    assert np.array_equal(run(counter, fresh, cut=cut), run(counter, fresh))


def test_state_is_plain_arrays_with_a_row_each(counter: Counter) -> None:
    for values in counter.init(6).values():
        assert type(values) is np.ndarray
        assert values.shape[0] == 6
        assert values.dtype.kind in "fiu"


def test_variances_are_those_of_the_matrix(counter: Counter) -> None:
    matrix, release = counter.matrix(HORIZON), np.arange(1, HORIZON + 1)
    np.testing.assert_allclose(counter.noise_variance(release), (matrix**2).sum(1), rtol=1e-12)
    change = np.diff(matrix, axis=0, prepend=0.0)
    np.testing.assert_allclose(counter.increment_variance(release), (change**2).sum(1), rtol=1e-11)
    np.testing.assert_allclose(counter.covariance(HORIZON), matrix @ matrix.T, rtol=1e-12)
    assert counter.noise_variance(release.reshape(5, 9)).shape == (5, 9)


def test_covariance_with_past_is_that_of_the_matrix(counter: Counter) -> None:
    covariance = counter.covariance(HORIZON)
    coefficient = np.random.default_rng(4).normal(size=(3, HORIZON))
    state, rows = counter.init_past(3), np.arange(3)
    for k in range(HORIZON):
        found = counter.covariance_with_past(state, rows, np.full(3, k + 1), coefficient[:, k])
        np.testing.assert_allclose(
            found, coefficient[:, :k] @ covariance[k, :k], rtol=1e-10, atol=1e-11
        )


def test_zeroed_past_starts_again(counter: Counter) -> None:
    covariance, state, row = counter.covariance(20), counter.init_past(1), np.array([0])
    for k in range(20):
        if k == 8:
            for values in state.values():
                values[row] = 0.0
        found = counter.covariance_with_past(state, row, np.array([k + 1]), np.ones(1))
        assert found[0] == pytest.approx(covariance[k, 8 * (k >= 8) : k].sum(), rel=1e-11)


def test_past_the_horizon_it_refuses_and_keeps_its_state(counter: Counter) -> None:
    state = counter.init(2)
    before = {name: values.copy() for name, values in state.items()}
    with pytest.raises(
        HorizonReached, match=f"{counter.name}: release 46 is past the horizon of 45"
    ):
        counter.step(state, np.array([0, 1]), np.array([3, HORIZON + 1]), np.ones(2))
    assert all(np.array_equal(before[name], state[name]) for name in state)


def test_empty_batch(counter: Counter) -> None:
    none = np.array([], dtype=np.int64)
    assert counter.step(counter.init(2), none, none, np.array([])).shape == (0,)


@pytest.mark.parametrize("name", sorted(COUNTERS))
@given(horizon=st.integers(1, 3000))
@settings(max_examples=25, deadline=None)
def test_any_horizon_works_and_starts_with_the_fresh_draw(name: str, horizon: int) -> None:
    counter = make_counter(name, horizon=min(horizon, 40) if name == Optimal.name else horizon)
    assert counter.step(
        counter.init(1), np.array([0]), np.array([1]), np.array([2.5])
    ).tolist() == [2.5]
    assert counter.l2_sensitivity >= 1.0


def test_registry_refuses() -> None:
    with pytest.raises(
        ValueError,
        match="counter must be one of pm1, pm2, two_level, toeplitz, optimal, got 'tree'",
    ):
        make_counter("tree", horizon=3)
    with pytest.raises(ValueError, match="levels must be left out for pm1, got 3"):
        make_counter("pm1", horizon=3, levels=3)
    with pytest.raises(ValueError, match="levels must be at least 7 for 100 releases, got 6"):
        make_counter("pm2", horizon=100, levels=6)
    with pytest.raises(ValueError, match="levels must be at least 1, got 0"):
        make_counter("pm2", horizon=100, levels=0)
    with pytest.raises(ValueError, match="horizon must be at least 1, got 0"):
        make_counter("toeplitz", horizon=0)


def test_fresh_noise_of_the_paper() -> None:
    """`s2 = 8 L^2 ln(1.25/delta)/epsilon^2`, with epsilon and delta divided by the levels for
    PM-II; Laplace 8 L^2."""
    half_width, delta, levels = 0.9, 1e-6, 15
    paper: dict[str, Any] = {
        "sensitivity": 2 * half_width,
        "calibration": "classical",
        "composition": "basic",
    }
    gauss = 8 * half_width**2 * math.log(1.25 / delta)
    pm1, pm2 = make_counter("pm1", horizon=151), make_counter("pm2", horizon=151, levels=levels)
    assert counter_noise_variance(pm1, epsilon=1.0, delta=delta, **paper) == pytest.approx(gauss)
    split = 8 * half_width**2 * math.log(1.25 * levels / delta) * levels**2
    assert counter_noise_variance(pm2, epsilon=1.0, delta=delta, **paper) == pytest.approx(split)
    laplace = counter_noise_variance(
        pm2, epsilon=2.0, delta=delta, noise="laplace", sensitivity=2 * half_width
    )
    assert laplace == pytest.approx(8 * half_width**2 / 4 * levels**2)


def test_fresh_noise_in_grid_units() -> None:
    counter, span = make_counter("pm2", horizon=63), 1 << 20
    tuned = counter_noise(counter, epsilon=1.0, delta=1e-6, sensitivity=span)
    assert isinstance(tuned, GaussianNoise)
    assert tuned.stddev == pytest.approx(
        calibrated_analytic_stddev(1.0, 1e-6) * span * math.sqrt(6)
    )
    basic = counter_noise(
        counter,
        epsilon=1.0,
        delta=1e-6,
        sensitivity=span,
        composition="basic",
        calibration="classical",
    )
    assert isinstance(basic, GaussianNoise)
    assert basic.stddev == pytest.approx(calibrated_classical_stddev(1 / 6, 1e-6 / 6) * span)
    laplace = counter_noise(counter, epsilon=1.0, delta=1e-6, sensitivity=span, noise="laplace")
    assert isinstance(laplace, LaplaceNoise)
    assert laplace.scale == pytest.approx(6 * span)


@pytest.mark.parametrize("name", sorted(COUNTERS))
def test_tuned_composition_needs_no_more_noise(name: str) -> None:
    counter = make_counter(name, horizon=100)
    tuned, basic = (
        counter_noise_variance(
            counter, epsilon=1.0, delta=1e-6, sensitivity=1.0, composition=composition
        )
        for composition in ("concentrated", "basic")
    )
    assert tuned <= basic * (1 + 1e-12)
    assert (tuned < 0.8 * basic) == (name in ("pm2", "two_level"))


def test_toeplitz_refuses_laplace_and_classical_refuses_large_epsilon() -> None:
    toeplitz = make_counter("toeplitz", horizon=10)
    with pytest.raises(ValueError, match="noise must be gaussian for the toeplitz counter"):
        counter_noise(toeplitz, epsilon=1.0, delta=1e-6, sensitivity=1.0, noise="laplace")
    with pytest.raises(ValueError, match="epsilon must be at most 1"):
        counter_noise(toeplitz, epsilon=1.1, delta=1e-6, sensitivity=1.0, calibration="classical")
    for bad in ({"noise": "uniform"}, {"composition": "advanced"}, {"calibration": "exact"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            counter_noise(toeplitz, epsilon=1.0, delta=1e-6, sensitivity=1.0, **bad)


@pytest.mark.parametrize("horizon", [1, 2, 3, 10, 64, 1000, 10_000, 100_000])
def test_toeplitz_is_within_two_percent_at_every_release(horizon: int) -> None:
    """Against the exact square-root factorization, both by direct sums of coefficients."""
    exact = np.append(1.0, np.cumprod(1 - 0.5 / np.arange(1, horizon)))
    buffers = fit_toeplitz_buffers(horizon)
    b = np.append(
        1.0, (buffers.weight * buffers.decay ** np.arange(horizon - 1)[:, np.newaxis]).sum(1)
    )
    c = (buffers.left * buffers.rate ** np.arange(horizon)[:, np.newaxis]).sum(1)
    used = np.cumsum(b**2) * (c**2).sum()
    ratio = np.sqrt(used / (np.cumsum(exact**2) * (exact**2).sum()))
    assert ratio.max() <= 1 + EXCESS
    assert ratio.max() == pytest.approx(1 + toeplitz_excess_stddev(buffers, horizon), abs=1e-3)
    assert Toeplitz(horizon).l2_sensitivity ** 2 == pytest.approx((c**2).sum(), rel=1e-11)


def test_toeplitz_buffers_are_few_and_on_the_grid() -> None:
    assert {n: len(fit_toeplitz_buffers(n).decay) for n in (100, 1000, 10_000, 1_000_000)} == {
        100: 3, 1000: 4, 10_000: 4, 1_000_000: 5,
    }  # fmt: skip
    assert toeplitz_excess_stddev(fit_toeplitz_buffers(1_000_000), 1_000_000) <= EXCESS
    for values in fit_toeplitz_buffers(1_000_000)[:2]:
        assert np.array_equal(values * 2.0**40, np.rint(values * 2.0**40))


def test_toeplitz_parameters_of_stored_streams_do_not_change() -> None:
    """A stream of noise can only be resumed with the very floats that it was begun with (horizon
    64, in 2**-40)."""
    decay, weight = (values * 2.0**40 for values in fit_toeplitz_buffers(64)[:2])
    assert decay.tolist() == [1097191491506, 1064306368407, 724588546502]
    assert weight.tolist() == [58986080540, 164016205353, 300670819106]


def test_toeplitz_variance_beyond_its_table() -> None:
    counter = Toeplitz(100_000)
    inside, across = (
        counter.noise_variance(np.array([4096])),
        counter.noise_variance(np.array([4096, 4097])),
    )
    assert inside[0] == pytest.approx(across[0], rel=1e-14)
    assert across[1] > across[0]


def test_square_root_norm_is_the_sum_of_squares() -> None:
    n = 200_000
    exact = np.cumsum(np.append(1.0, np.cumprod(1 - 0.5 / np.arange(1, n))) ** 2)
    at = np.array([1, 2, 4095, 4096, 4097, 50_000, n])
    np.testing.assert_allclose(toeplitz_norm(at), exact[at - 1], rtol=1e-11)


def test_a_horizon_that_the_grid_of_toeplitz_cannot_represent_is_refused() -> None:
    assert len(fit_toeplitz_buffers(10**11).decay) == 9
    for horizon in (10**12, 10**13, 10**15):
        with pytest.raises(ValueError, match=f"horizon must be representable, got {horizon}"):
            make_counter("toeplitz", horizon=horizon).init(1)
