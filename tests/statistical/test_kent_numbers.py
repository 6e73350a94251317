"""Errors of Kent's estimators against values that were measured elsewhere, with the constants of
Section A.2.

Both sides are means over runs: a reference over 500 unless told, ours over what is said here. A
difference counts as one beyond 4 standard errors of both (false alarm 6e-5 for one number); a
reference's error is ours for its runs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from meanstream.lab.reproduce.kent_curves import (
    FOUR,
    TUNED,
    kent_curves_ball_error,
    kent_curves_item_error,
    kent_curves_mixture,
    kent_curves_sparse,
    kent_curves_univariate,
)
from meanstream.lab.simulation.simulated_rounds import VectorConfig, VectorResult, simulate_vectors

REFERENCE_RUNS = 500


def simulate(runs: int, **point: Any) -> VectorResult:
    return simulate_vectors(VectorConfig(mode="paper", runs=runs, **point))


def check(
    found: VectorResult,
    expected: float,
    *,
    reference_runs: int = REFERENCE_RUNS,
    rounding: float = 0.0,
) -> None:
    assert found.stderr is not None
    runs = len(found.found)
    stderr = found.stderr * math.sqrt(1.0 + runs / reference_runs)
    assert abs(found.mse - expected) < 4.0 * stderr + rounding * expected, (
        found.mse,
        found.stderr,
        expected,
    )


# Figure 2: univariate

RATIOS = {
    (0.5, 100): 48,
    (1.0, 100): 52,
    (1.0, 1000): 60,
    (1.0, 10_000): 75,
    (2.0, 100): 15,
    (2.0, 1000): 17,
    (2.0, 10_000): 21,
    (4.0, 100): 15,
    (4.0, 1000): 14,
    (4.0, 10_000): 18,
}


@pytest.mark.parametrize(("epsilon", "samples"), RATIOS)
def test_ratio_to_the_full_item_level(epsilon: float, samples: int) -> None:
    found = simulate(200, **kent_curves_univariate(epsilon, 500, samples, "shifted_uniform"))
    check(
        found,
        RATIOS[epsilon, samples] * kent_curves_item_error(epsilon, 500, samples),
        rounding=0.03,
    )


def test_little_privacy_budget_has_a_phase_transition() -> None:
    # 292 and 1.1e4 times the item level: rare elections of a wrong bin make the error, so its own
    # error is large.
    for samples, ratio in ((1000, 292), (10_000, 1.1e4)):
        found = simulate(400, **kent_curves_univariate(0.5, 500, samples, "shifted_uniform"))
        check(found, ratio * kent_curves_item_error(0.5, 500, samples), rounding=0.05)


# Figures 5 and 7

BEST = {0.5: (0.5, 0.089), 1.0: (0.5, 0.019), 2.0: (0.25, 1.4e-3), 4.0: (0.25, 3.7e-4)}


@pytest.mark.parametrize("epsilon", BEST)
def test_error_at_the_best_constant(epsilon: float) -> None:
    constant, expected = BEST[epsilon]
    found = simulate(
        300, **kent_curves_univariate(epsilon, 200, 100, "shifted_rademacher", constant=constant)
    )
    check(found, expected, rounding=0.04)


def test_the_best_constants_of_section_a2_are_the_best() -> None:
    for epsilon, (best, _) in BEST.items():
        errors = {
            constant: simulate(
                200,
                **kent_curves_univariate(
                    epsilon, 200, 100, "shifted_rademacher", constant=constant
                ),
            ).mse
            for constant in (best / 4, best, 2 * best)
        }
        assert min(errors, key=errors.__getitem__) == best, (epsilon, errors)


def test_four_times_the_budget_goes_on_with_the_samples_where_one_does_not() -> None:
    # 100 users: .031 to .015 at epsilon 1; 5e-4, 4e-5, 6e-6, 9e-7 at 4, each the least over
    # half-widths.
    widths = [0.0024, 0.0061, 0.0157, 0.04, 0.1]

    def least(epsilon: float, samples: float) -> float:
        points = [
            kent_curves_univariate(epsilon, 100, samples, "shifted_rademacher", half_width=width)
            for width in widths
        ]
        return min(simulate(100, **point).mse for point in points)

    flat = [least(1.0, samples) for samples in (1e3, 1e4, 1e5)]
    falling = [least(4.0, samples) for samples in (1e2, 1e3, 1e4, 1e5)]
    assert min(flat) > 0.002
    # The grid of half-widths is coarse: within a factor of 2.5.
    assert np.log(falling) == pytest.approx(np.log([5e-4, 4e-5, 6e-6, 9e-7]), abs=math.log(2.5))


@pytest.mark.parametrize(
    ("samples", "votes", "expected"),
    [
        (100, "three_hot", 2.15e-3),
        (100, "one_hot", 6.2e-4),
        (10_000, "three_hot", 3.1e-5),
        (10_000, "one_hot", 8.7e-6),
    ],
)
def test_three_hot_votes_cost_a_factor_of_four_at_epsilon_2(
    samples: int, votes: str, expected: float
) -> None:
    found = simulate(
        200, **kent_curves_univariate(2.0, 500, samples, "shifted_uniform", votes=votes)
    )
    check(found, expected, rounding=0.03)


@pytest.mark.parametrize("data", ["corner:0.9", "sphere"])
def test_several_coordinates_per_user_lose_to_the_semi_user_level(data: str) -> None:
    # Algorithm 12, its participation corrected, for d = 16 at epsilon 2: .033, where the semi user
    # level has .0105.
    options = {"dimension": 16, "constant": 0.5}
    found = simulate(
        60,
        estimator="kent.linf",
        epsilon=2.0,
        users=4000,
        sizes="point:400",
        data=data,
        dimension=16,
        options=options,
    )
    check(found, 0.033, rounding=0.05)
    assert found.mse > 2 * kent_curves_ball_error(16, 2.0, 4000, 0.0)


# Vectors in the ball: d = 32, 4000 users, 400 samples, uniform on the sphere


def vectors(estimator: str, epsilon: float, runs: int = 60, **options: Any) -> VectorResult:
    own = {"dimension": 32, "votes": "one_hot", "constant": TUNED[epsilon]} | options
    return simulate(
        runs,
        estimator=estimator,
        epsilon=epsilon,
        users=4000,
        sizes="point:400",
        data="sphere",
        dimension=32,
        options=own,
    )


@pytest.mark.parametrize(
    ("estimator", "epsilon", "expected"),
    [
        ("kent.linf", 4.0, 5.0e-3),
        ("kent.l2", 4.0, 3.3e-3),
        ("kent.linf", 2.0, 0.0177),
        ("kent.l2", 2.0, 0.0109),
    ],
)
def test_vectors_in_the_ball(estimator: str, epsilon: float, expected: float) -> None:
    # Folds by hash differ in size: 1.6 % of error more than folds of equal size.
    check(vectors(estimator, epsilon), expected, rounding=0.03)


def test_narrow_windows_of_rotated_vectors() -> None:
    width = 0.25 * math.sqrt(math.log(4000 * 400 * 16 / 32) / (32 * 400))
    check(vectors("kent.l2", 4.0, half_width=width, constant=None), 1.9e-4, rounding=0.03)


def test_the_tuned_mean_of_vectors_is_better_still() -> None:
    options = {"dimension": 32}
    config = VectorConfig(
        estimator="kent.l2",
        epsilon=4.0,
        users=4000,
        sizes="point:400",
        data="sphere",
        dimension=32,
        options=options,
        runs=20,
    )
    assert simulate_vectors(config).mse < 0.5 * 1.9e-4


# Mixtures and densities


def test_four_components_at_2000_samples() -> None:
    found = simulate(200, **kent_curves_mixture(4.0, 1000, 2000, FOUR, 4))
    # Their deviations were .012 to .013 over 1000 runs.
    deviation = np.array(found.deviation)
    assert deviation == pytest.approx(0.0125, rel=4 * math.sqrt(0.5 / 200 + 0.5 / 1000) + 0.04)
    expected = np.array([-0.749, -0.250, 0.251, 0.750])
    limit = 4 * 0.0125 * math.sqrt(1 / 200 + 1 / 1000) + 5e-4
    assert np.abs(np.array(found.mean) - expected).max() < limit
    noisy = simulate(100, **kent_curves_mixture(2.0, 1000, 2000, FOUR, 4))
    assert 0.06 < min(noisy.deviation) < max(noisy.deviation) < 0.3


def test_four_components_at_500_samples() -> None:
    check(simulate(200, **kent_curves_mixture(4.0, 1000, 500, FOUR, 4)), 0.00226, rounding=0.03)


def test_density_with_the_budget_that_was_really_spent() -> None:
    """The reference .0148 (C .25) is met by 5 coordinates per user with epsilon 1 each, as
    Algorithm 12 is printed.

    For epsilon 4 this is not private (K4); the same budget in the open is epsilon 5. With 4
    coordinates, as corrected, the error is 5 / 4 of it; with one coordinate and one-hot votes,
    Algorithm 4, about a third.
    """
    point: dict[str, Any] = {
        "estimator": "kent.density",
        "users": 4000,
        "sizes": "point:100",
        "data": "trigonometric",
        "theta": (0.5, 0.0, 0.0, -0.2),
    }
    for terms in (12, 13):
        options = {"terms": terms, "participation": 5, "constant": 0.25}
        found = simulate(30, epsilon=5.0, **point, options=options)
        check(found, 0.0148, reference_runs=30)
    private = simulate(20, epsilon=4.0, **point, options={"terms": 12, "constant": 0.25})
    assert private.mse > 0.0148  # what privacy costs
    single = simulate(
        20, epsilon=4.0, **point, options={"terms": 12, "constant": 0.25, "votes": "one_hot"}
    )
    assert single.mse < 0.5 * private.mse


# Selection: Figure 9, 500 voters


@pytest.mark.parametrize(
    ("clip_constant", "low", "high"),
    [(0.25, 0.0, 0.04), (1.0, 0.95, 1.0), (4.0, 0.95, 1.0), (30.0, 0.7, 0.9)],
)
def test_share_of_the_coordinates_found(clip_constant: float, low: float, high: float) -> None:
    # References .02, .95 to .99, .83; a share over 60 runs of 4 coordinates has an error of at most
    # .03.
    point = kent_curves_sparse(4.0, 1000, 100, 100, sparsity=4, clip_constant=clip_constant)
    found = np.array(simulate(60, **point).found)
    assert low <= np.mean(found[:, :4] != 0.0) <= high
