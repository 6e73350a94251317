"""Counters of sums that forget: the recursion is its matrix, and noise and sensitivity have their
limits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ellipk

from meanstream.lab.evidence.counters_audit import counter_columns, counter_response
from meanstream.operators.counters.base import ENDLESS, Counter, HorizonReached
from meanstream.operators.counters.decayed import GRID, Decayed, decay_of_half_life
from meanstream.operators.counters.registry import FORGETTING, counter_noise, make_counter
from meanstream.operators.counters.windowed import (
    Sliding,
    Windowed,
    factorize_sliding,
    factorize_window,
)

N = 45
EARLY = tuple(decay_of_half_life(turn, 8.0) for turn in (0.1, 0.1, 0.3, 0.7))
KINDS: list[Counter] = [
    *(kind(N) for kind in FORGETTING.values()),
    Decayed(N, decay=decay_of_half_life(1.0, 3.0)),
    Decayed(N, early=EARLY),
    Windowed(N, window=1),
    Windowed(N, window=12),
    Windowed(N, window=100),
    Sliding(N, window=1),
    Sliding(N, window=12),
    Sliding(N, window=100),
]


@pytest.fixture(params=KINDS, ids=str)
def counter(request: pytest.FixtureRequest) -> Counter:
    return request.param  # type: ignore[no-any-return]


def test_step_is_the_matrix_and_releases_are_the_workload(counter: Counter) -> None:
    response = counter_response(counter, N)
    np.testing.assert_allclose(response, counter.matrix(N), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(
        response @ counter_columns(counter, N), counter.workload(N), atol=1e-12
    )


def test_variances_are_those_of_the_matrix(counter: Counter) -> None:
    matrix, release = counter.matrix(N), np.arange(1, N + 1)
    np.testing.assert_allclose(counter.noise_variance(release), (matrix**2).sum(1), rtol=1e-11)
    change = np.diff(matrix, axis=0, prepend=0.0)
    np.testing.assert_allclose(counter.increment_variance(release), (change**2).sum(1), rtol=1e-10)
    assert counter.noise_variance(release.reshape(5, 9)).shape == (5, 9)


def test_covariance_with_past_is_that_of_the_matrix(counter: Counter) -> None:
    covariance = counter.covariance(N)
    coefficient = np.random.default_rng(4).normal(size=(3, N))
    state, rows = counter.init_past(3), np.arange(3)
    for k in range(N):
        found = counter.covariance_with_past(state, rows, np.full(3, k + 1), coefficient[:, k])
        np.testing.assert_allclose(
            found, coefficient[:, :k] @ covariance[k, :k], rtol=1e-9, atol=1e-11
        )


def test_batches_and_restored_states_change_no_bit(counter: Counter) -> None:
    fresh = np.random.default_rng(2).normal(size=(5, N))
    whole, alone = counter.init(5), counter.init(5)
    for k in range(N):
        together = counter.step(whole, np.arange(5), np.full(5, k + 1), fresh[:, k])
        for row in (3, 0, 4, 1, 2):
            one = counter.step(alone, np.array([row]), np.array([k + 1]), fresh[[row], k])
            assert one[0] == together[row]
        alone = {name: values.copy() for name, values in alone.items()}


def test_past_a_horizon_it_refuses(counter: Counter) -> None:
    with pytest.raises(HorizonReached, match=f"release {N + 1} is past the horizon of {N}"):
        counter.step(counter.init(1), np.array([0]), np.array([N + 1]), np.ones(1))


@pytest.mark.parametrize(("decay", "expected"), [(0.9, 2.11), (0.99, 4.57)])
def test_endless_decayed_noise_is_within_a_percent_of_the_square_root(
    decay: float, expected: float
) -> None:
    """Spec: `((2/pi) K(gamma))**2` of one release, 2.11 at .9 and 4.57 at .99."""
    exact = (2 / np.pi * ellipk(decay**2)) ** 2
    assert exact == pytest.approx(expected, abs=0.005)
    counter = Decayed(ENDLESS, decay=decay // GRID * GRID)
    product = counter.l2_sensitivity**2 * counter.noise_variance(np.array([10**12]))[0]
    assert exact * (1 - 1e-9) < product < 1.01 * exact


def test_endless_windowed_noise_is_within_a_percent_of_the_square_root() -> None:
    counter = Windowed(ENDLESS, window=7)  # spec: 3.16
    product = counter.l2_sensitivity**2 * counter.noise_variance(np.array([10**12]))[0]
    assert product == pytest.approx(3.1624, rel=0.006)


@pytest.mark.parametrize("window", [1, 2, 7, 31, 128])
def test_noise_of_a_window_settles(window: int) -> None:
    noise = factorize_window(window).noise
    assert (noise[-window:] ** 2).sum() < 1e-18 * (noise**2).sum()


@pytest.mark.parametrize("window", [1, 3, 12])
def test_sums_of_any_number_of_increments_vary_as_the_matrix_says(window: int) -> None:
    """Against the noises of the increments, one draw at a time."""
    counter, n = Sliding(ENDLESS, window=window), 3 * window + 8
    state, rows, drawn = counter.init(n), np.arange(n), np.zeros((n, n))
    for k in range(n):
        drawn[k] = counter.increment(state, rows, (rows == k).astype(float))
    for k in (1, 2, window, n):
        for first, second in ((1, 1), (1, k), (k, 1), (k // 2 + 1, k), (k, k)):
            one, other = (drawn[k - number : k].sum(axis=0) for number in (first, second))
            found = counter.part_covariance(first, second, np.array([k]))[0]
            np.testing.assert_allclose(found, one @ other, rtol=1e-11, atol=1e-12)


def test_sums_of_fewer_increments_have_less_noise() -> None:
    """Of a counter made for exactly 12, sums of 6 have 1.7 times the noise of sums of 12."""
    late = np.array([10**6])
    for window in (8, 12, 84):
        counter = Sliding(ENDLESS, window=window)
        found = [counter.part_covariance(w, w, late)[0] for w in range(1, 2 * window)]
        assert found == sorted(found)
        rigid = Windowed(ENDLESS, window=window)
        products = [c.l2_sensitivity**2 * c.noise_variance(late)[0] for c in (counter, rigid)]
        assert products[0] < 1.4 * products[1]


@pytest.mark.parametrize("decay", [decay_of_half_life(1, h) for h in (0.3, 1, 8, 100, 1e6)])
def test_endless_sensitivity_bounds_that_of_every_horizon(decay: float) -> None:
    found = [
        Decayed(n, decay=decay, early=EARLY).l2_sensitivity for n in (1, 2, 5, 50, 10_000, ENDLESS)
    ]
    assert found == sorted(found)
    assert np.isfinite(found).all()


def test_rows_that_wait_are_the_matrix_of_their_times_and_move_less() -> None:
    """`D T D^-1` with `D` the decays up to each release: longer gaps, shorter columns, and the
    variance is exact."""
    counter, waits = Decayed(ENDLESS), np.array([0, 3, 0, 0, 11, 1, 0, 40, 0, 2])
    state, row, n = counter.init(len(waits)), np.arange(len(waits)), len(waits)
    response, variance, decays = np.zeros((n, n)), np.zeros(n), np.ones(n)
    for k, waited in enumerate(waits):
        decays[k] = counter.decay * counter.wait(state, row, np.full(n, waited))[0] if k else 1.0
        response[k] = counter.step(state, row, np.full(n, k + 1), (row == k).astype(float))
        variance[k] = state["variance"][0]
    np.testing.assert_allclose((response**2).sum(1), variance, rtol=1e-12)
    weight = np.cumprod(decays)
    strategy = np.linalg.solve(response, np.tril(weight[:, None] / weight))
    assert np.sqrt((strategy**2).sum(0)).max() <= counter.l2_sensitivity
    assert decays[4] == pytest.approx(counter.decay**12, rel=1e-9)


def test_refused() -> None:
    for bad in (0.0, 1.0, 1.5, -0.5, float("nan")):
        with pytest.raises(ValueError, match="decay must lie in"):
            Decayed(ENDLESS, decay=bad)
    with pytest.raises(ValueError, match=r"decay must be a multiple of 2\*\*-40, got 0.9"):
        Decayed(ENDLESS, decay=0.9)
    for window in (0, 129):
        with pytest.raises(ValueError, match=r"window must lie in 1..128 increments"):
            Windowed(ENDLESS, window=window)
        with pytest.raises(ValueError, match=r"window must lie in 1..128 increments"):
            Sliding(ENDLESS, window=window)
    for kind in FORGETTING.values():
        with pytest.raises(ValueError, match=f"noise must be gaussian for the {kind.name} counter"):
            counter_noise(kind(ENDLESS), epsilon=1.0, delta=1e-6, sensitivity=1.0, noise="laplace")
        with pytest.raises(
            ValueError, match="counter must be one of pm1, pm2, two_level, toeplitz, optimal"
        ):
            make_counter(kind.name, horizon=3)


def test_factors_of_stored_streams_do_not_change() -> None:
    """A stream of noise can only be resumed with the very floats that it was begun with, in
    2**-40."""
    decay, weight = (values * 2.0**40 for values in Decayed(ENDLESS).buffers[:2])
    assert [*decay.tolist(), *weight.tolist()] == DECAYED
    assert (factorize_window(3).strategy * 2.0**40).tolist() == WINDOWED
    assert (factorize_sliding(3).strategy * 2.0**40).tolist() == SLIDING


DECAYED = [1093591566798, 1013673735205, 472985923158, 93759431419, 238050889535, 204986266151]
WINDOWED = [
    1099511627776,
    549755813888,
    412316860416,
    -206158430208,
    25769803776,
    64424509440,
    -61203283968,
    11274289152,
    29091692544,
]
SLIDING = [
    1099511627776,
    393917253820,
    211690534603,
    126402413496,
    79249876127,
    51106515843,
    33567800545,
    22334352966,
    15003059252,
]
