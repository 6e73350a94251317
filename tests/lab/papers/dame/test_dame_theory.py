"""Theorems 1 and 2 of DAME: the values that were computed independently, and what the constants
do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meanstream.lab.papers.dame.dame_bounds import (
    C1,
    C3,
    C3_PRINTED,
    dame_bounds_bin_half_width,
    dame_bounds_effective_size,
    dame_bounds_lower,
    dame_bounds_phi,
    dame_bounds_upper,
)
from meanstream.operators.rounds.user_sizes import SizeDistribution

EPSILONS = (0.3, 22 / 35, 1.0, 2.0, 4.0)
TABLE = [
    ("poisson:5", 10_000, [1, 1, 2, 5, 6]),
    ("uniform:1,199", 20_000, [1, 1, 49, 119, 157]),
    *(
        (f"two:100000,1000000,{share}", 10_000, [100_000] * 3)
        for share in (0.0, 1 / 9, 5 / 9, 8 / 9)
    ),
]


@pytest.mark.parametrize(("text", "users", "expected"), TABLE)
def test_effective_sizes_of_the_specification(text, users, expected):
    sizes = SizeDistribution.parse(text)
    found = [
        dame_bounds_effective_size(sizes, users=users, epsilon=epsilon) for epsilon in EPSILONS
    ]
    assert found[: len(expected)] == expected


@pytest.mark.parametrize(
    ("epsilon", "expected"),
    [(0.3, 4.0), (22 / 35, 2.47), (1.0, 0.563), (2.0, 0.0794), (4.0, 0.0201)],
)
def test_upper_bounds_of_the_specification(epsilon, expected):
    sizes = SizeDistribution.parse("poisson:5")
    assert dame_bounds_upper(sizes, users=10_000, epsilon=epsilon, c3=C3_PRINTED) == pytest.approx(
        expected, rel=3e-3
    )


def test_the_corrected_constant_makes_the_bound_larger_by_its_ratio():
    sizes = SizeDistribution.parse("poisson:5")
    printed, corrected = (
        dame_bounds_upper(sizes, users=10_000, epsilon=2.0, c3=c3) for c3 in (C3_PRINTED, C3)
    )
    assert corrected / printed == pytest.approx(1648 / 1570)
    # Lemma S11 with the right variance of Laplace noise, epsilon at most 22/35: 2.1 * 196, times 4
    # as in (S143), + 1.
    assert math.ceil(2.1 * 196 * 4) + 1 == C3


@pytest.mark.parametrize("form", ["poisson:{}", "uniform:1,{}", "binomial:1000,{}"])
def test_figure_1a_is_trivial_with_the_constants_of_the_proof(form):
    for size in (5, 51, 501):
        sizes = SizeDistribution.parse(form.format(size / 1000 if "binomial" in form else size))
        assert dame_bounds_upper(sizes, users=500, epsilon=1.0) == 4.0
        assert dame_bounds_upper(sizes, users=500, epsilon=1.0, c3=1.0, c5=1.0) < 0.01


def test_every_user_having_as_many_samples_is_a_comparison_of_integers():
    """Where phi is 1 or more, a float sum of probabilities that rounds to 1 would give 5 and 98
    instead of 1."""
    for mean in (50, 200):
        sizes = SizeDistribution.parse(f"poisson:{mean}")
        assert dame_bounds_phi(1, users=100, epsilon=1.0) > 1
        assert dame_bounds_effective_size(sizes, users=100, epsilon=1.0) == sizes.least == 1
        float_sum = 1.0 - np.cumsum(sizes.probability)
        assert float_sum[3] == 1.0  # the trap: P(M > 4) in floats


def test_the_search_finds_what_trying_all_sizes_finds():
    for text in ("poisson:5", "uniform:3,60", "two:4,30,0.4", "binomial:40,0.5"):
        sizes = SizeDistribution.parse(text)
        for epsilon in EPSILONS:
            good = [
                a
                for a in range(1, sizes.greatest + 1)
                if sizes.tail(a) ** 2 >= min(dame_bounds_phi(a, users=20_000, epsilon=epsilon), 1.0)
            ]
            assert dame_bounds_effective_size(sizes, users=20_000, epsilon=epsilon) == max(good)


def test_phi_grows_and_bins_shrink_with_the_size():
    values = [dame_bounds_phi(a, users=10_000, epsilon=1.0) for a in (1, 2, 10, 1000, 10**6)]
    assert values == sorted(values)
    widths = [
        dame_bounds_bin_half_width(a, users=10_000, epsilon=22 / 35) for a in (1, 10, 10**5, 10**6)
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == pytest.approx(3.5, abs=0.1)


def test_the_lower_bound_is_the_maximum_over_all_sizes():
    sizes = SizeDistribution.parse("two:4,1000000,0.003")
    users, epsilon = 500, 1.0
    tried = []
    for a in (0, 4, 1_000_000):
        small = sizes.support <= a
        root = float((sizes.probability * np.sqrt(sizes.support))[small].sum())
        exponent = -24 * users * epsilon**2 * float(sizes.probability[~small].sum()) ** 2
        tried.append(C1 * math.exp(exponent) / max(users * epsilon**2 * root**2, 1.0))
    assert dame_bounds_lower(sizes, users=users, epsilon=epsilon) == pytest.approx(max(tried))
    assert np.argmax(tried) == 1  # neither no size nor all sizes
    assert dame_bounds_lower(
        SizeDistribution.parse("poisson:5"), users=500, epsilon=1.0
    ) == pytest.approx(3.2e-9, rel=0.02)


def test_the_bounds_enclose_no_contradiction():
    for text in ("poisson:5", "uniform:1,199", "point:1000"):
        sizes = SizeDistribution.parse(text)
        for users in (10, 1000, 10**6):
            assert (
                dame_bounds_lower(sizes, users=users, epsilon=0.5)
                < dame_bounds_upper(sizes, users=users, epsilon=0.5)
                <= 4.0
            )
