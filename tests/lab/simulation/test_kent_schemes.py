"""Kent's phase transition by sums of reports against the estimator that users run, and the item
level by hand."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from meanstream.lab.reproduce.kent_curves import kent_curves_ball_error
from meanstream.lab.simulation.kent_schemes import (
    ball_reach,
    item_level_reach,
    item_level_sparse_error,
    phase_transition_error,
)
from meanstream.lab.simulation.round_laws import SPAN, parse_round_law
from meanstream.lab.simulation.simulated_rounds import (
    RoundsConfig,
    VectorConfig,
    simulate_rounds,
    simulate_vectors,
)


@pytest.mark.parametrize(("epsilon", "half_width"), [(4.0, 0.02), (2.0, 0.05)])
def test_the_error_is_that_of_the_estimator(epsilon: float, half_width: float) -> None:
    options = {"votes": "one_hot", "half_width": half_width}
    config = VectorConfig(
        estimator="kent.univariate", epsilon=epsilon, users=100, sizes="point:1000", data="shifted_rademacher",
        options=options, mode="paper", runs=200, seed=1,
    )  # fmt: skip
    whole = simulate_vectors(config)
    ours = phase_transition_error(
        users=100, samples=1000, epsilon=epsilon, half_width=half_width, runs=2000, seed=1
    )
    # Four standard errors: false alarm below 1e-4.
    assert abs(ours.mse - whole.mse) < 4 * math.hypot(ours.stderr, whole.stderr or 0.0)


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 7])
def test_a_report_of_the_cube_has_the_sample_as_its_mean(dimension: int) -> None:
    """By enumeration: a corner on the sample's side with chance e^eps/(1 + e^eps), else on the
    other, ties on both."""
    corners = np.array(list(product((-1, 1), repeat=dimension)))
    side = corners.sum(axis=1)
    kept = 1 / (1 + math.exp(-1.0))
    mean = kept * corners[side >= 0].mean(axis=0) + (1 - kept) * corners[side <= 0].mean(axis=0)
    assert item_level_reach(dimension, 1.0) * mean == pytest.approx(np.ones(dimension))


def test_the_item_level_is_no_worse_than_saying_nothing() -> None:
    signal = np.full(4, 0.5)
    errors = [item_level_sparse_error(d, 4.0, 10 * d * math.log(d), signal) for d in (100, 1000)]
    assert 0.5 < errors[0] < errors[1] < 1.0
    assert item_level_sparse_error(1000, 0.1, 1000, signal) == pytest.approx(1.0, abs=0.01)


def ball_reports(values: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Draw Duchi's reports of vectors of the unit ball, their equation 25; the mean is the vector.

    A report is a point of a sphere, on the side of the vector or of its opposite, more often on
    that side by `e^epsilon`. So all reports have one length, `ball_reach`, and the mean of n of
    them errs by `(reach^2 - |mean|^2) / n`, whether a user reports one item or its own mean.
    """
    # A corner of the sphere whose mean is the vector, at random its direction or the opposite.
    length = np.linalg.norm(values, axis=1, keepdims=True)
    some = np.zeros_like(values)
    some[:, 0] = 1.0
    direction = np.divide(values, length, out=some, where=length > 0)
    direction *= np.where(rng.random(length.shape) < 0.5 * (1.0 + length), 1.0, -1.0)

    # A random point, put on the vector's side, or with 1 / (1 + e^epsilon) on the other one.
    point = rng.standard_normal(values.shape)
    point /= np.linalg.norm(point, axis=1, keepdims=True)
    side = np.sign((point * direction).sum(axis=1, keepdims=True))
    kept = rng.random(length.shape) < 1.0 / (1.0 + math.exp(-epsilon))

    return np.asarray(
        ball_reach(values.shape[1], epsilon) * point * side * np.where(kept, 1.0, -1.0)
    )


@pytest.mark.parametrize("length", [0.0, 0.5, 1.0])
def test_reports_of_the_ball_have_the_error_that_figure_2_computes(length: float) -> None:
    """The mean of reports is the vector: five standard errors of each coordinate (4 of 1e5 worlds)."""
    n, d, epsilon = 40_000, 5, 1.5
    value = np.zeros(d)
    value[2] = length
    reports = ball_reports(np.tile(value, (n, 1)), epsilon, np.random.default_rng(4))
    assert (np.abs(reports.mean(axis=0) - value) < 5 * reports.std(axis=0) / n**0.5).all()
    error = reports.var(axis=0).sum() / n
    assert error == pytest.approx(kent_curves_ball_error(d, epsilon, n, length**2), rel=0.01)


def test_which_half_of_the_sphere_a_report_is_in_says_epsilon_at_most() -> None:
    """At a vector of length 1 the ratio of both halves is e^epsilon; a reversed coin, the twin, is 1."""
    epsilon, n = 1.0, 200_000
    value = np.tile([1.0, 0.0, 0.0], (n, 1))
    ahead = (ball_reports(value, epsilon, np.random.default_rng(3))[:, 0] > 0).mean()
    # Four standard errors.
    assert ahead == pytest.approx(math.e / (1 + math.e), abs=4 * (0.25 / n) ** 0.5)


def test_normal_samples_err_as_signs_of_the_same_variance() -> None:
    """Kent's user level reads own means alone: both errors agree within four standard errors."""
    options = {"estimator": "kent", "users": 2_000, "sizes": "point:400", "epsilon": 2.0}
    options |= {"mode": "paper", "runs": 60, "options": {"votes": "one_hot", "constant": 0.5}}
    signs = simulate_rounds(RoundsConfig(**options, data="rademacher:0", seed=1))
    normal = simulate_rounds(RoundsConfig(**options, data="normal:0,1", seed=2))
    stderr = math.hypot(signs.stderr, normal.stderr)
    assert abs(signs.mse - normal.mse) < 4 * stderr
    assert normal.mse < 1e-3


def test_a_normal_law_has_the_mean_and_the_variance_that_it_is_given() -> None:
    law = parse_round_law("normal:0.2,0.3")
    count = np.full(100_000, 9)
    total, first = law.draw(np.full(100_000, 0.2), count, np.random.default_rng(5))
    own, one = (2.0 * points / SPAN - 1.0 for points in (total / 9, first))
    assert own.mean() == pytest.approx(0.2, abs=4 * 0.1 / 316)
    assert own.std() == pytest.approx(0.1, rel=0.01)
    assert one.std() == pytest.approx(0.3, rel=0.01)
    assert np.corrcoef(own, one)[0, 1] == pytest.approx(1 / 3, abs=0.015)
    with pytest.raises(ValueError, match="data must have numbers"):
        parse_round_law("normal:0,-1")
