"""Kent's estimators of vectors: folds, rotation, votes in pairs, and what all estimators of several
numbers share."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from meanstream.lab.papers.kent.folds import PLACES, FoldRound, Folds
from meanstream.lab.papers.kent.kent_vectors import Linf
from meanstream.lab.papers.kent.l2 import L2
from meanstream.lab.papers.kent.public_hash import hash_signs
from meanstream.lab.papers.kent.univariate import K_OF_THE_PROOF, Kent, kent_univariate_capped_size
from meanstream.lab.papers.kent.vote_stage import PairVoteRound, pair_vote_counts
from meanstream.lab.random_words import SeededWords
from meanstream.lab.simulation.simulated_rounds import VectorConfig, simulate_vectors
from meanstream.lab.simulation.vector_laws import vector_law_summaries
from meanstream.operators.estimators.registry import ESTIMATORS, build_estimator
from meanstream.operators.noise.keyed import KeyedNoise, keyed_owner_words
from meanstream.operators.rounds.localization import Bins
from meanstream.operators.rounds.round_protocol import (
    ReportWords,
    assign_protocol_stages,
    run_protocol,
)
from meanstream.operators.rounds.round_records import Estimate, Tally
from meanstream.operators.rounds.user_sizes import SizeDistribution

SEVERAL = {
    "kent.linf": {"dimension": 3},
    "kent.l2": {"dimension": 3},
    "kent.sparse_select": {"dimension": 3, "sparsity": 2},
    "kent.sparse_threshold": {"dimension": 3, "sparsity": 2},
    "kent.density": {"terms": 4},
    "kent.mixture": {"components": 3},
    "kent.cover": {"radius": 0.3, "dimension": 3},
}


def build(name, *, users=600, epsilon=3.0, sizes="two:20,400,0.8", **options):
    own = SEVERAL[name] | options
    return build_estimator(
        name, epsilon=epsilon, users=users, sizes=SizeDistribution.parse(sizes), **own
    )


def people(name, n=600, seed=0, count=400):
    """Users with a few samples among others; one number each for a mixture, three for the
    others."""
    rng = np.random.default_rng(seed)
    mean = (
        rng.uniform(-1, 1, n)
        if name == "kent.mixture"
        else rng.uniform(-1, 1, (n, 3)) * [1.0, 0.5, 0.1]
    )
    return vector_law_summaries(mean, np.where(rng.random(n) < 0.2, 20, count), rng)


def stages_in_memory(estimator, given, *, pieces=1, seed=0):
    """Reports and public values of every stage, through JSON as hosts hand them on; the estimate at
    last."""
    stage = assign_protocol_stages(estimator.shares, given.user, b"round")
    public, rng = {}, np.random.default_rng(seed)
    for number, step in enumerate(estimator.rounds):
        mine = given.take(stage == number)
        reports = step.encode(mine, public, SeededWords(rng, len(mine)))
        assert reports.dtype == np.int64
        assert step.valid(reports, public).all()
        tally = sum((step.tally(part, public) for part in np.array_split(reports, pieces)), Tally())
        found = step.decode(tally, public)
        if isinstance(found, Estimate):
            return found
        public = json.loads(json.dumps(found))
    raise AssertionError("no estimate")


# Conformance of all estimators of several numbers


def test_all_of_them_are_in_the_registry():
    assert set(SEVERAL) == {name for name in ESTIMATORS if name.startswith("kent.")} - {
        "kent.univariate"
    }
    assert ESTIMATORS["kent.univariate"] == ESTIMATORS["kent"]


@pytest.mark.parametrize("mode", ["paper", "tuned"])
@pytest.mark.parametrize("name", SEVERAL)
def test_reports_add_up_in_any_pieces_and_answers_have_their_shape(name, mode):
    more = {"constant": 0.25, "threshold": 400} if name == "kent.mixture" else {}
    estimator = build(name, mode=mode, **more)
    given = people(name)
    whole, parts = (stages_in_memory(estimator, given, pieces=pieces) for pieces in (1, 7))
    assert np.array_equal(whole.unclipped, parts.unclipped)
    assert whole.value.shape == whole.lower.shape == whole.upper.shape == whole.stderr.shape == (3,)
    reach = math.sqrt(2) if name == "kent.density" else 1.0
    assert (np.abs(whole.value) <= reach).all()
    assert (whole.lower <= whole.upper).all()
    assert whole.n_users == len(given)
    assert (whole.method, whole.mode, whole.epsilon) == (name, mode, 3.0)
    json.dumps([list(whole.stages), list(whole.components), whole.function, estimator.describe()])
    assert estimator.describe()["predicted_stderr"] > 0
    assert all(step.epsilon <= 3.0 * (1 + 1e-12) for step in estimator.rounds)


@pytest.mark.parametrize("name", SEVERAL)
def test_without_any_report_the_answer_is_wide(name):
    estimator = build(name)
    found = run_protocol(
        estimator, people(name).take(slice(0, 0)), np.zeros(0, np.int64),
        [SeededWords(np.random.default_rng(0), 0)] * len(estimator.rounds),
    )  # fmt: skip
    assert found.n_users == 0
    assert (found.lower <= -1.0).all()
    assert (found.upper >= 1.0).all()
    assert np.isfinite(found.value).all()


@pytest.mark.parametrize("name", SEVERAL)
def test_users_with_few_samples_send_as_much_as_the_others(name):
    estimator = build(name, **({} if name == "kent.cover" else {"threshold": 400}))
    few, many = people(name, n=50, count=20), people(name, n=50)
    shape = {
        estimator.rounds[0].encode(one, {}, SeededWords(np.random.default_rng(0), 50)).shape
        for one in (few, many)
    }
    assert len(shape) == 1


@pytest.mark.parametrize(
    "name", [name for name in SEVERAL if name not in {"kent.mixture", "kent.cover"}]
)
def test_reports_that_nobody_can_send_are_refused(name):
    estimator = build(name)
    given = people(name)
    step = estimator.rounds[0]
    reports = step.encode(given, {}, SeededWords(np.random.default_rng(0), len(given)))
    reports[0, 0] = -1
    reports[1, 1] = 2**62
    if isinstance(step, FoldRound):
        reports[2, 0] = PLACES
    refused = np.flatnonzero(~step.valid(reports, {}))
    assert refused.tolist() == [0, 1, 2][: 3 if isinstance(step, FoldRound) else 2]


# Folds


def test_folds_are_even_and_have_nothing_to_do_with_the_stage():
    # Chi-square, false alarm 1e-6.
    user = keyed_owner_words([str(i) for i in range(60_000)])
    fold = Folds.fold(Folds(6, 1, "a").places(user), 0, 6)
    stage = assign_protocol_stages((0.5, 0.5), user, b"round")
    counts = np.bincount(2 * fold + stage, minlength=12)
    assert ((counts - 5000) ** 2 / 5000).sum() < chi2.isf(1e-6, 11)
    other = Folds.fold(Folds(6, 1, "b").places(user), 0, 6)
    assert abs(np.mean(fold == other) - 1 / 6) < 5 * math.sqrt(5 / 36 / 60_000)


def test_a_user_reports_about_different_coordinates():
    place = np.arange(0, PLACES, 997)
    for count, p in ((5, 5), (7, 3)):
        folds = np.stack([Folds.fold(place, k, count) for k in range(p)])
        assert all(len(set(column)) == p for column in folds.T.tolist())
    with pytest.raises(
        ValueError, match="participation must lie between 1 and the number of coordinates, 2, got 3"
    ):
        Folds(2, 3, "")


class Recorded:
    """Random bits that remember which draws were asked for."""

    def __init__(self, n):
        self.words = SeededWords(np.random.default_rng(1), n)
        self.draws = []

    def __call__(self, draw):
        self.draws.append(draw)
        return self.words(draw)


def test_reports_about_different_coordinates_use_different_bits():
    estimator = build("kent.linf", mode="paper")
    assert estimator.participation == 3
    given = people("kent.linf")
    vote, clip = estimator.rounds
    words = Recorded(len(given))
    public = vote.decode(vote.tally(vote.encode(given, {}, words), {}), {})
    assert len(set(words.draws)) == len(words.draws)
    words = Recorded(len(given))
    clip.encode(given, public, words)
    assert set(words.draws) == {0, 2048, 4096}


@pytest.mark.parametrize("p", [1, 2])
def test_coordinates_are_estimated_without_bias_and_intervals_cover(p):
    # 30 runs of 6 coordinates: 4 standard errors each, false alarm 4e-4; coverage .95 with a
    # deviation of .016.
    theta = (0.9, -0.33, 0.0, 0.5, -1.0, 0.07)
    config = VectorConfig(
        estimator="kent.linf", users=3000, epsilon=4.0, sizes="point:200", dimension=6, theta=theta, mode="paper",
        options={"dimension": 6, "participation": p, "constant": 0.5, "votes": "one_hot"}, runs=30,
    )  # fmt: skip
    result = simulate_vectors(config)
    assert np.all(np.abs(result.bias) < 4 * np.array(result.deviation) / math.sqrt(30))
    assert result.coverage > 0.95 - 4 * 0.016
    assert result.mse == pytest.approx(result.predicted_mse, rel=0.35)


def test_tuned_chooses_participation_and_plans_and_both_are_better_than_the_paper():
    config = VectorConfig(
        estimator="kent.linf", users=2000, epsilon=4.0, sizes="point:400", dimension=8, runs=10
    )
    found = {}
    for name, mode, more in (
        ("paper", "paper", {}),
        ("tuned", "tuned", {}),
        ("plan", "tuned", {"between_users": 0.0}),
    ):
        one = replace(config, mode=mode, options={"dimension": 8} | more)
        found[name] = simulate_vectors(one).mse
    assert found["tuned"] < 0.05 * found["paper"]
    assert found["plan"] < 0.05 * found["paper"]
    plan = replace(config, options={"dimension": 8, "between_users": 0.0}).build()
    assert len(plan.rounds) >= 2
    assert plan.describe()["kind"][-1] == "C"


def test_the_budget_of_a_coordinate_and_how_many_it_is_spent_on():
    # K4: floor(epsilon) folds, epsilon / floor(epsilon) each.
    sizes = SizeDistribution.parse("point:100")
    for epsilon, d, expected in ((0.5, 4, 1), (1.5, 4, 1), (2.7, 4, 2), (9.0, 4, 4)):
        mean = Linf(epsilon=epsilon, users=1000, sizes=sizes, dimension=d, mode="paper")
        assert mean.participation == expected
        assert mean.inner.epsilon == pytest.approx(epsilon / expected)
        assert mean.inner.votes == ("three_hot" if epsilon > d else "one_hot")
    single = Linf(epsilon=4.0, users=1000, sizes=sizes, dimension=4, mode="paper", votes="one_hot")
    assert single.participation == 1


# The Euclidean ball


def test_half_widths_in_the_ball_are_those_of_34_at_every_epsilon():
    sizes = SizeDistribution.parse("point:400")
    for epsilon in (1.0, 4.0):
        mean = L2(
            epsilon=epsilon, users=4000, sizes=sizes, dimension=30, mode="paper", constant=0.25
        )
        expected = 0.25 * math.log(4000 * 400 * epsilon**2) / math.sqrt(32 * 400)
        assert mean.inner.bins.half_width == pytest.approx(expected)


def test_samples_outside_of_the_ball_are_cut_back_and_others_are_not():
    mean = build("kent.l2", radius=0.5)
    inside, outside = np.array([[0.3, 0.0, -0.4]]), np.array([[0.9, 0.9, 0.9]])
    assert mean.features(inside) == pytest.approx(inside)
    assert np.linalg.norm(mean.features(outside)) == pytest.approx(0.5)


def test_rotated_means_lie_on_the_interval_and_turn_back():
    mean = build("kent.l2", radius=math.sqrt(3.0))
    given = people("kent.l2")
    rotated = mean.rotated(given)
    assert np.abs(rotated.mean).max() <= 1.0
    assert mean.rotation.backward(rotated.mean) * math.sqrt(3.0) == pytest.approx(
        given.mean, abs=1e-8
    )
    assert np.array_equal(rotated.count, given.count)


def test_answers_in_the_ball_stay_there():
    estimator = build("kent.l2", epsilon=0.5, mode="paper")
    given = people("kent.l2")
    norms = [
        np.linalg.norm(stages_in_memory(estimator, given, seed=seed).value) for seed in range(5)
    ]
    assert max(norms) <= 1.0 + 1e-12
    assert max(norms) > 0.99


def test_an_answer_that_is_moved_into_the_ball_is_within_its_interval():
    """Coordinates that all went wrong with small standard errors: the point of the ball is far from
    what they say."""
    estimator = build("kent.l2")
    measured = np.array([1.2, 0.9, 0.0])
    coordinates = estimator.rotation.forward(measured[None])[0] / estimator.radius
    found = [estimator._settings.answer(float(x), 0.001, n_users=150) for x in coordinates]
    estimate = estimator._finish(found, {}, 600)
    assert estimate.unclipped == pytest.approx(measured)
    assert estimate.value == pytest.approx([0.8, 0.6, 0.0])
    assert (estimate.lower <= estimate.value).all()
    assert (estimate.value <= estimate.upper).all()


# Votes in pairs


def test_a_mean_on_an_edge_splits_its_votes_but_not_those_of_its_pair():
    estimator = Kent(
        epsilon=2.0, users=1000, sizes=SizeDistribution.parse("point:100"), half_width=0.1
    )
    vote = estimator.rounds[0]
    assert isinstance(vote, PairVoteRound)
    found = vote.decode(Tally(100, (0, 0, 0, 0, 31, 30, 0, 0, 0, 32)), {})
    assert (found["lower"], found["upper"], found["center"]) == pytest.approx((-0.3, 0.3, 0.0))
    assert pair_vote_counts(Tally(1, (5,))) == (5,)


def test_one_bin_is_a_pair_of_its_own():
    estimator = Kent(epsilon=2.0, users=4, sizes=SizeDistribution.parse("point:1"), half_width=1.0)
    found = estimator.rounds[0].decode(Tally(2, (1,)), {})
    assert (found["lower"], found["upper"]) == (-1.0, 1.0)


def test_windows_of_pairs_hold_the_mean_with_two_half_widths_to_spare():
    estimator = Kent(
        epsilon=2.0, users=1000, sizes=SizeDistribution.parse("point:100"), half_width=0.05
    )
    bins, vote = estimator.bins, estimator.rounds[0]
    for theta in np.linspace(-0.8, 0.8, 33):
        # Users around theta, uniform over a little more than a bin.
        counts = np.bincount(
            bins.which(np.linspace(theta - 0.06, theta + 0.06, 1001)), minlength=bins.count
        )
        found = vote.decode(Tally(1001, tuple(counts.tolist())), {})
        assert found["lower"] <= theta - 0.1 + 1e-9
        assert found["upper"] >= theta + 0.1 - 1e-9


def test_three_hot_votes_reach_neighbors_and_leave_wider_windows():
    sizes = SizeDistribution.parse("point:10000")
    estimator = Kent(epsilon=4.0, users=500, sizes=sizes, mode="paper")
    assert estimator.votes == "three_hot"
    assert estimator.bins.half_width == pytest.approx(
        2.0 * math.sqrt(math.log(500 * 10000) / 10000)
    )
    window = estimator.rounds[0].usual_window()
    assert window.upper - window.lower == pytest.approx(12 * estimator.bins.half_width)
    given = vector_law_summaries(
        np.array([0.0, 1.0, 0.5]), np.array([10000, 10000, 5]), np.random.default_rng(0)
    )
    assert estimator.neighbors(given).sum(axis=1).tolist() == [3, 2, 0]


def test_the_cap_of_the_proof_is_told_and_not_applied():
    sizes = SizeDistribution.parse("point:1000")
    plain = Kent(epsilon=1.0, users=500, sizes=sizes).describe()
    assert plain["effective_size"] == 1000
    assert plain["warnings"] == [
        "bins are made for T = 1000; the proof caps it at 1, which is unusable"
    ]
    capped = Kent(epsilon=1.0, users=500, sizes=sizes, cap=K_OF_THE_PROOF)
    assert capped.capped == 1
    assert capped.describe()["warnings"] == []
    assert kent_univariate_capped_size(10**6, 10**6, 1.0, K_OF_THE_PROOF) == 10**6
    assert [kent_univariate_capped_size(100, 10, epsilon, 10.0) for epsilon in (1e-3, 2.0)] == [
        1,
        7,
    ]


# Hashes


def test_signs_are_even_and_independent():
    # Means of 20 000 signs, and of products of two columns or two seeds: 5 standard errors, 200 of
    # them.
    signs = hash_signs(np.arange(20_000), 100).astype(float)
    limit = 5 / math.sqrt(20_000)
    assert np.abs(signs.mean(axis=0)).max() < limit
    assert np.abs((signs[:, 1:] * signs[:, :-1]).mean(axis=0)).max() < limit
    assert np.abs((signs[:, 64:] * signs[:, :36]).mean(axis=0)).max() < limit
    assert np.abs((signs[1:] * signs[:-1]).mean(axis=0)).max() < limit


def test_vectors_are_part_of_the_key_of_their_noise():
    given = people("kent.linf", n=20)
    noise = KeyedNoise(b"0d409462e4304f9f66770dc046be10c9", deployment="test", purpose="round 1")

    def bits(summaries):
        return ReportWords(noise, summaries, 0)(0)

    assert np.array_equal(bits(given), bits(given))
    swapped = replace(given, total=given.total[:, [1, 0, 2]], first=given.first[:, [1, 0, 2]])
    changed = replace(given, first=given.first + np.array([0, 0, 1]))
    fewer = replace(
        given, total=given.total[:, :2], first=np.hstack([given.total[:, 2:], given.first])
    )
    for other in (swapped, changed, fewer, replace(given, count=given.count + 1)):
        assert not (bits(other) == bits(given)).any()
    assert given.take(slice(0, 5)).mean.shape == (5, 3)


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        (
            "kent.linf",
            {"participation": 4},
            "participation must lie between 1 and the number of coordinates, 3, got 4",
        ),
        (
            "kent.linf",
            {"users": 5, "participation": 1},
            "users must be at least 6, two for each of 3 coordinates",
        ),
        (
            "kent.linf",
            {"between_users": 0.0, "votes": "one_hot"},
            "votes must not be given with between_users",
        ),
        (
            "kent.linf",
            {"votes": "two_hot"},
            "votes must be one of one_hot, three_hot, got 'two_hot'",
        ),
        ("kent.linf", {"variance": 2.0}, "variance must be at most 1"),
        ("kent.l2", {"radius": 2.0}, r"radius must be at most sqrt\(dimension\) = 1.732, got 2.0"),
        (
            "kent.sparse_select",
            {"sparsity": 4},
            "sparsity must lie between 1 and dimension, 3, got 4",
        ),
        ("kent.sparse_select", {"cut": 0.0}, "cut must be positive and finite, got 0.0"),
        (
            "kent.sparse_threshold",
            {"sparsity": 0},
            "sparsity must lie between 1 and dimension, 3, got 0",
        ),
        ("kent.density", {"terms": 1}, "terms must lie between 2 and 1024, got 1"),
        ("kent.density", {"smoothness": 65}, "smoothness must be at most 64, got 65"),
        ("kent.linf", {"dimension": 4097}, "dimension must lie between 1 and 4096, got 4097"),
        ("kent.density", {"smoothness": 0}, "smoothness must be an integer, at least 1, got 0"),
        ("kent.mixture", {"components": 0}, "components must be an integer, at least 1, got 0"),
        (
            "kent.mixture",
            {"half_width": 0.2},
            "half_width must leave 12 bins or more for 3 components",
        ),
        (
            "kent.mixture",
            {"mode": "paper", "sizes": "point:100"},
            "half_width must leave 7 bins or more",
        ),
        ("kent.mixture", {"least_weight": 0.0}, r"least_weight must lie in \(0, 1\], got 0.0"),
        (
            "kent.cover",
            {"radius": 0.05},
            r"balls must be at most 1000 \(a larger radius\), got 8000",
        ),
        ("kent.cover", {"norm": "l3"}, "norm must be one of linf, l2, got 'l3'"),
    ],
)
def test_wrong_options_are_one_line(name, options, line):
    with pytest.raises(ValueError, match=line):
        build(name, **options)


def test_what_must_be_given_is_named():
    with pytest.raises(ValueError, match=r"components must be given for kent\.mixture, got None"):
        build_estimator(
            "kent.mixture", epsilon=1.0, users=100, sizes=SizeDistribution.parse("point:10")
        )


def test_bins_of_neighbors_are_cut_at_the_ends():
    assert Bins(0.25).neighborhoods(np.array([-1.0, 0.1])).sum(axis=1).tolist() == [2, 3]
