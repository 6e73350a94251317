"""Kent's phase transition by sums of reports against the estimator that users run, and the item
level by hand."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from meanstream.lab.simulation.kent_schemes import (
    item_level_reach,
    item_level_sparse_error,
    phase_transition_error,
)
from meanstream.lab.simulation.simulated_rounds import VectorConfig, simulate_vectors


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
