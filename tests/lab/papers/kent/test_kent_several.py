"""Kent's sparse means, densities, mixtures and covers: what each finds, and its corrections of the
paper."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from meanstream.lab.papers.kent.cover import (
    CoverSelect,
    cover_chance_of_a_wrong_ball,
    cover_lower_bound,
    cover_upper_bound,
    cube_cover,
)
from meanstream.lab.papers.kent.density import (
    Density,
    DensityFunction,
    density_terms,
    trigonometric_density_function,
)
from meanstream.lab.papers.kent.hash_vote_stage import hash_vote_signed_sums
from meanstream.lab.papers.kent.mixture import Mixture
from meanstream.lab.papers.kent.mixture_stages import mixture_peaks
from meanstream.lab.papers.kent.public_hash import hash_signs
from meanstream.lab.papers.kent.sparse import SparseSelect, SparseThreshold, sparse_mark_score
from meanstream.lab.simulation.simulated_rounds import (
    VectorConfig,
    simulate_vector_round,
    simulate_vectors,
)
from meanstream.lab.simulation.vector_laws import parse_vector_law, vector_law_summaries
from meanstream.operators.estimators.sparse_size import recommended_sparse
from meanstream.operators.rounds.round_records import Tally
from meanstream.operators.rounds.user_sizes import SizeDistribution

HUNDRED = SizeDistribution.parse("point:100")


# Sparse means


def test_selection_finds_the_coordinates_and_estimates_them():
    config = VectorConfig(
        estimator="kent.sparse_select", users=2000, epsilon=4.0, sizes="point:200", data="sparse:3,0.75", dimension=200,
        options={"dimension": 200, "sparsity": 3}, runs=10,
    )  # fmt: skip
    result = simulate_vectors(config)
    assert np.array(result.mean)[:3] == pytest.approx(0.5, abs=0.02)
    assert np.array(result.found)[:, 3:].any() == np.False_
    assert result.coverage > 0.98


def test_the_largest_scores_are_kept_not_the_first():
    # K9: of more than s coordinates found.
    mean = SparseSelect(
        epsilon=4.0, users=500, sizes=HUNDRED, dimension=6, sparsity=2, mode="paper"
    )
    found = mean.select(np.array([0.6, 0.55, 0.1, 0.9, 0.8, 0.49]), np.ones(6), 100)
    assert found["selected"] == found["coordinates"] == [3, 4]


def test_nothing_found_is_answered_by_zero():
    mean = SparseSelect(
        epsilon=4.0, users=500, sizes=HUNDRED, dimension=6, sparsity=2, mode="paper", cut=0.4
    )
    found = mean.select(np.array([0.4, 0.3, 0.1, 0.2, 0.45, 0.49]), np.ones(6), 100)
    assert (found["selected"], found["coordinates"]) == ([], [5])
    public = found | {"stages": [], "users": 100}
    vote = mean.rounds[1].decode(Tally(), public)
    answer = mean.rounds[2].decode(Tally(), vote)
    assert not answer.value.any()
    assert answer.upper == pytest.approx([0.4] * 6)


def test_the_score_of_a_mark_is_that_of_all_signs():
    for marks, clip in itertools.product((1, 2, 3, 5), (0.5, 1.0, 2.0, 9.0)):
        signs = np.array(list(itertools.product((-1, 1), repeat=marks)))
        expected = (signs[:, 0] * np.clip(signs.sum(axis=1), -clip, clip)).mean()
        assert sparse_mark_score(marks, clip) == pytest.approx(expected)


def test_signed_sums_are_exact():
    rng = np.random.default_rng(0)
    seed, number = rng.integers(0, 2**62, 500), rng.integers(-(2**60), 2**60, 500)
    signs = hash_signs(seed, 70).astype(object)
    assert hash_vote_signed_sums(seed, number, 70) == (signs.T @ number.astype(object)).tolist()


def test_thresholds_keep_what_is_large():
    config = VectorConfig(
        estimator="kent.sparse_threshold", users=8000, epsilon=4.0, sizes="point:200", data="sparse:3,0.75",
        dimension=10, options={"dimension": 10, "sparsity": 5}, runs=10,
    )  # fmt: skip
    found = np.array(simulate_vectors(config).found)
    assert found[:, :3] == pytest.approx(0.5, abs=0.1)
    # sqrt(2 log d) standard errors: a null coordinate passes with probability .03.
    assert np.count_nonzero(found[:, 3:]) <= 10


def test_the_threshold_of_the_paper_is_42():
    mean = SparseThreshold(
        epsilon=1.0, users=4000, sizes=HUNDRED, dimension=10, sparsity=3, mode="paper"
    )
    log = math.log(4000 * 100)
    assert mean.keep == pytest.approx(3 * mean.inner.bins.half_width * math.sqrt(10 * log / 4000))


def test_the_recommended_choice_changes_once():
    chosen = [
        recommended_sparse(epsilon=1.0, users=n, dimension=50, samples=100)
        for n in range(100, 3000, 50)
    ]
    assert [name for name, _ in itertools.groupby(chosen)] == [
        "kent.sparse_select",
        "kent.sparse_threshold",
    ]


# Densities


def test_the_basis_is_orthonormal_and_bounded_by_the_root_of_two():
    u = (np.arange(2000) + 0.5) / 2000
    basis = trigonometric_density_function(u, 9)
    assert basis.T @ basis / 2000 == pytest.approx(np.eye(9), abs=1e-9)
    assert np.abs(basis).max() <= math.sqrt(2) + 1e-12
    density = Density(epsilon=1.0, users=1000, sizes=HUNDRED, terms=9)
    assert np.abs(density.features(np.linspace(-1.5, 1.5, 1000)[:, None])).max() <= 1.0


def test_a_density_integrates_to_one_in_any_unit_and_is_the_true_one():
    config = VectorConfig(
        estimator="kent.density", users=4000, epsilon=4.0, sizes="point:100", data="trigonometric",
        theta=(0.5, 0.0, 0.0, -0.2), options={"terms": 6}, runs=1,
    )  # fmt: skip
    estimate, truth = simulate_vector_round(config, config.build(), 0)
    moved = estimate.in_unit(0.0, 24.0)
    assert np.array_equal(moved.value, estimate.value)
    density = DensityFunction.of(moved.function)
    hours = (np.arange(2400) + 0.5) / 100
    assert density.evaluate(hours).mean() * 24 == pytest.approx(1.0, abs=1e-9)
    expected = (1.0 + trigonometric_density_function(hours / 24, 5)[:, 1:] @ truth) / 24
    assert density.evaluate(hours) == pytest.approx(expected, abs=0.15 / 24)
    lower, upper = density.band(hours)
    assert np.mean((lower <= expected) & (expected <= upper)) > 0.7
    assert not density.evaluate([-0.1, 24.1]).any()


def test_the_number_of_functions_is_that_of_45():
    users, epsilon, size, beta = 4000, 1.0, 100, 1
    signal = users * epsilon**2
    limit = signal ** (2 * beta + 1) / math.log(signal) ** (2 * beta + 2)
    assert density_terms(signal, size, beta) == math.floor(
        (signal * min(size, limit)) ** (1 / (2 * beta + 2))
    )
    assert density_terms(0.5, 1, 2) == 2
    # K11: two users for each function.
    assert Density(epsilon=8.0, users=30, sizes=HUNDRED, participation=1, smoothness=1).terms == 15


def test_a_truncated_density_keeps_its_error():
    config = VectorConfig(
        estimator="kent.density", users=4000, epsilon=4.0, sizes="point:100", data="trigonometric",
        theta=(0.3, 0.0, 0.0, 0.0, 0.0, 0.2), options={"terms": 4}, runs=3,
    )  # fmt: skip
    assert simulate_vectors(config).mse > 0.04


def test_densities_below_zero_are_no_data():
    with pytest.raises(ValueError, match="theta must be coefficients of a density, never negative"):
        parse_vector_law("trigonometric", dimension=1, theta=(0.9,))


# Mixtures


def test_means_and_weights_of_components():
    config = VectorConfig(
        estimator="kent.mixture", users=6000, epsilon=4.0, sizes="point:1000", data="mixture:0.2=-0.6;0.5=0.1;0.3=0.7",
        options={"components": 3}, runs=40,
    )  # fmt: skip
    result = simulate_vectors(config)
    # 4 standard errors and the clip at the bins, 1e-3.
    limit = 4 * np.array(result.deviation) / math.sqrt(40) + 1e-3
    assert (np.abs(result.bias) < limit).all()
    assert result.coverage > 0.88
    estimate, _ = simulate_vector_round(config, config.build(), 0)
    assert [part["weight"] for part in estimate.components] == pytest.approx(
        [0.2, 0.5, 0.3], abs=0.1
    )
    assert sum(part["weight"] for part in estimate.components) == pytest.approx(1.0)
    moved = estimate.in_unit(0.0, 10.0)
    assert moved.value == pytest.approx(5 * (estimate.value + 1))
    assert moved.components == estimate.components


def test_a_mean_between_bins_still_votes_for_a_component():
    # K12: the closest middle, not the bin that holds the mean; bins would lose the votes at their
    # edges.
    mixture = Mixture(epsilon=4.0, users=900, sizes=HUNDRED, components=2, half_width=0.05)
    given = vector_law_summaries(
        np.array([-1.0, -0.46, -0.3, 0.24, 0.9]), np.full(5, 100), np.random.default_rng(0)
    )
    assert mixture.closest(given, np.array([-0.45, 0.25])).tolist() == [0, 0, 0, 1, 1]


def test_peaks_are_not_neighbors():
    rng = np.random.default_rng(0)
    for _ in range(50):
        counts = tuple(rng.integers(0, 100, 12).tolist())
        found = mixture_peaks(counts, 4, apart=1)
        assert found == sorted(found)
        assert min(np.diff(found)) >= 2
        assert int(np.argmax(counts)) in found
        assert min(np.diff(mixture_peaks(counts, 3, apart=2))) >= 3
    with pytest.raises(ValueError, match="components must leave a bin for each of 2, got 2 bins"):
        mixture_peaks((1, 2), 2, apart=1)


def test_a_component_that_nobody_has_is_answered_by_its_bin():
    mixture = Mixture(epsilon=4.0, users=900, sizes=HUNDRED, components=2, half_width=0.05)
    public = {
        "middles": [-0.45, 0.25],
        "shares": [1.0, -0.01],
        "share_stderr": [0.1, 0.1],
        "users": 600,
        "stages": [],
    }
    found = mixture.rounds[2].decode(Tally(100, (10**6, 50, 10**5)), public)
    assert found.value[1] == 0.25
    assert (found.lower[1], found.upper[1]) == (-1.0, 1.0)
    assert found.components[1]["weight"] == 0.0


# Covers


def test_votes_go_to_the_first_ball_that_holds_the_mean():
    centers = np.array([[0.0], [0.4], [-0.8]])
    cover = CoverSelect(epsilon=1.0, users=100, radius=0.3, centers=centers)
    assert cover.balls(np.array([[0.2], [0.35], [0.9], [-0.8]])).tolist() == [0, 1, -1, 2]


@pytest.mark.parametrize(("radius", "dimension"), [(0.5, 1), (0.3, 2), (1.0, 3), (0.21, 3)])
def test_cubes_cover(radius, dimension):
    points = np.random.default_rng(0).uniform(-1, 1, (500, dimension))
    distance = np.abs(points[:, None, :] - cube_cover(radius, dimension)).max(axis=-1).min(axis=1)
    assert distance.max() <= radius + 1e-12


def test_the_right_ball_wins_as_often_as_the_bound_says():
    config = VectorConfig(
        estimator="kent.cover", users=600, epsilon=1.0, sizes="point:1000000", dimension=2, theta=(0.3, -0.6),
        options={"radius": 0.25, "dimension": 2}, runs=60,
    )  # fmt: skip
    result = simulate_vectors(config)
    assert cover_chance_of_a_wrong_ball(16, 600, 1.0) < 1e-11
    assert np.unique(result.found, axis=0).tolist() == [[0.25, -0.75]]


def test_bounds_are_in_order_and_fall_with_users():
    def interval(radius):
        return math.ceil(1.0 / radius)

    radii = np.geomspace(1e-8, 0.9, 300)
    lowers, uppers = [], []
    for users in (10, 100, 300):
        uppers.append(
            cover_upper_bound(
                np.square, interval, users=users, epsilon=1.0, diameter=2.0, radii=radii
            )
        )
        lowers.append(
            cover_lower_bound(
                np.square, interval, users=users, epsilon=1.0, radii=np.geomspace(1e-300, 0.9, 900)
            )
        )
    assert sorted(uppers, reverse=True) == uppers
    assert sorted(lowers, reverse=True) == lowers
    assert all(lower < upper for lower, upper in zip(lowers, uppers, strict=True))
    assert lowers[0] > 0
