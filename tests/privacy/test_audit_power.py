"""The audit itself: it finds a known epsilon, never claims more, and sees what thresholds alone
cannot."""

import math

import numpy as np
import pytest
from scipy import stats

from meanstream.lab.evidence.one_run import above, audit_epsilon_lower_bound
from tests.oracles.divergence import hockey_stick, pure_epsilon, worst_hockey_stick


def randomized_response(truth: bool, epsilon: float, n: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    keep = generator.random(n) < 1 / (1 + math.exp(-epsilon))
    return np.where(keep, truth, not truth).astype(float)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_bound_is_close_to_and_below_the_epsilon_of_randomized_response(epsilon: float) -> None:
    """False alarm 1e-6 per case, by the confidence of the bound."""
    a, b = [
        randomized_response(truth, epsilon, 200_000, seed)
        for truth, seed in ((True, 1), (False, 2))
    ]
    bound = audit_epsilon_lower_bound(a, b, above([0.5]), delta=0.0)
    assert 0.7 * epsilon < bound <= epsilon


def test_the_bound_is_of_intervals_that_hold_all_together() -> None:
    """By hand, from counts: two events, so 16 ends, each of which fails with a sixteenth of the
    probability."""
    a, b = np.repeat([1.0, 0.0], [600, 400]), np.repeat([1.0, 0.0], [300, 700])
    low = stats.beta.ppf(0.01 / 16, 600, 401)
    high = stats.beta.ppf(1 - 0.01 / 16, 301, 700)
    found = audit_epsilon_lower_bound(a, b, above([0.5, 0.7]), delta=0.0, confidence=0.99)
    assert found == pytest.approx(math.log(low / high), rel=1e-12)


def test_equal_inputs_prove_nothing() -> None:
    a, b = [np.random.default_rng(seed).standard_normal(50_000) for seed in (1, 2)]
    assert audit_epsilon_lower_bound(a, b, above(np.linspace(-3, 3, 25)), delta=0.0) < 0.05


def test_delta_buys_a_rare_catastrophe() -> None:
    """An output that gives the input away in 1 of 1000 runs is caught at delta 1e-6 and allowed at
    delta 2e-3."""
    generator = np.random.default_rng(3)
    a, b = [
        generator.integers(0, 2, 200_000) + np.where(generator.random(200_000) < 1e-3, 10 * x, 0)
        for x in (0, 1)
    ]
    events = above([0.5, 5.0])
    assert audit_epsilon_lower_bound(a, b, events, delta=1e-6) > 1.5
    assert audit_epsilon_lower_bound(a, b, events, delta=2e-3) < 0.1


def test_hockey_stick_of_randomized_response_by_hand() -> None:
    a, b = [0.75, 0.25], [0.25, 0.75]
    assert hockey_stick(a, b, 0.0) == pytest.approx(0.5)
    assert hockey_stick(a, b, math.log(2)) == pytest.approx(0.25)
    assert hockey_stick(a, b, math.log(3)) == pytest.approx(0.0, abs=1e-15)
    assert pure_epsilon(np.log(a), np.log(b)) == pytest.approx(math.log(3))


def test_worst_hockey_stick_takes_both_directions() -> None:
    one_sided = np.array(
        [0.9, 0.1]
    )  # shifted right it loses .9 at one end, shifted left .1 at the other
    assert worst_hockey_stick(one_sided, [1], epsilon=5.0) == pytest.approx(0.9)
