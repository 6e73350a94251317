"""Quantiles of users: near the truth, honest intervals for any users, less error than one
histogram, hostile counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.quantile_levels import (
    BRANCHES,
    DEPTHS,
    distribution_variance,
    fitted_levels,
    level_votes,
    tree_depth,
    tree_error,
)
from meanstream.operators.estimators.quantile_tree import QuantileTree
from meanstream.operators.records import Floats
from meanstream.operators.rounds.round_protocol import assign_protocol_stages, run_protocol
from meanstream.operators.rounds.round_records import Estimate, Summaries
from meanstream.operators.rounds.round_results import extreme_users

SPAN = 2**20
WANTED = (0.1, 0.5, 0.9)


def users_at(mean: Floats, seed: int = 1) -> Summaries:
    """Users with three samples each, whose means these are."""
    place = np.rint((mean + 1.0) / 2.0 * SPAN).astype(np.int64)
    ids = np.random.default_rng(seed).integers(0, 2**63, (len(mean), 2)).astype(np.uint64)
    count = np.full(len(mean), 3)
    return Summaries(user=ids, count=count, total=3 * place, first=np.zeros_like(place), span=SPAN)


def answer(tree: QuantileTree, held: Summaries, seed: int) -> Estimate:
    stage = assign_protocol_stages(tree.shares, held.user, b"%d" % seed)
    words = [
        SeededWords(np.random.default_rng([seed, i]), int((stage == i).sum()))
        for i in range(tree.depth)
    ]
    return run_protocol(tree, held, stage, words)


def skewed(rng: Any, n: int) -> Floats:
    return np.asarray(2.0 * rng.beta(2, 5, n) - 1.0)


def three_points(rng: Any, n: int) -> Floats:
    return np.asarray(rng.choice([-0.37, 0.2, 0.21], n, p=[0.3, 0.3, 0.4]))


@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        (skewed, 2.0 * beta(2, 5).ppf(WANTED) - 1.0),
        (three_points, np.array([-0.37, 0.2, 0.21])),
        (lambda rng, n: rng.uniform(-1, 1, n), 2.0 * np.array(WANTED) - 1.0),
    ],
    ids=["skewed", "three points", "even"],
)
@pytest.mark.parametrize(("epsilon", "n"), [(1.0, 4000), (4.0, 3000), (8.0, 60)])
def test_intervals_hold_whatever_the_users_and_answers_are_as_near_as_predicted(
    draw: Callable[[Any, int], Floats], truth: Floats, epsilon: float, n: int
) -> None:
    """120 windows: .95 less 4 standard errors of .02 for each quantile."""
    tree = QuantileTree(epsilon=epsilon, users=n, quantiles=WANTED)
    found = [
        answer(tree, users_at(draw(np.random.default_rng([n, r]), n), r), r) for r in range(120)
    ]
    inside = np.array([(one.lower <= truth) & (truth <= one.upper) for one in found])
    assert inside.mean(axis=0).min() > 0.87
    for one in found:
        assert (one.lower <= one.value).all()
        assert (one.value <= one.upper).all()
        assert (np.diff(one.value) >= 0.0).all()
        assert (one.upper - one.lower >= 2.0 / BRANCHES**tree.depth - 1e-12).all()
    if truth[1] == 0.0:  # the median of even users is what the description predicts
        error = np.sqrt(np.mean([(one.value[1] - truth[1]) ** 2 for one in found]))
        assert error < 1.25 * tree.describe()["predicted_stderr"]


def test_the_error_of_the_distribution_function_is_the_one_that_is_told() -> None:
    """400 windows of even users: each edge's variance within a third (its standard error is 7
    %)."""
    depth, n, epsilon = 2, 1500, 2.0
    votes, rng = [level_votes(epsilon, level) for level in (1, 2)], np.random.default_rng(3)
    fit = fitted_levels(tuple(float(vote.share_variance(1.0 / vote.bins, 1.0)) for vote in votes))
    raw = []
    for window in range(400):
        shares = []
        for level, vote in enumerate(votes, 1):
            row = (rng.uniform(0, 1, n) ** 2 * BRANCHES**level).astype(np.int64)
            reports = vote.randomize(row, SeededWords(np.random.default_rng([window, level]), n))
            shares.append(vote.shares(vote.counts(reports), n))
        raw.append(fit.weights @ np.concatenate([*shares, [1.0]]))
    truth = [np.diff(np.sqrt(np.linspace(0, 1, vote.bins + 1))) for vote in votes]
    told = distribution_variance(fit, votes, truth, [n] * depth)
    found = np.var(raw, axis=0)
    assert found / told == pytest.approx(np.ones(len(told)), rel=0.34)
    edges = np.sqrt(np.linspace(0, 1, BRANCHES**depth + 1)[1:-1])
    assert (np.abs(np.mean(raw, axis=0) - edges) < 4.5 * np.sqrt(told / 400)).all()


def test_several_resolutions_err_less_than_one_histogram_of_the_same_bins() -> None:
    """Kept because of it: at epsilon 1, 100,000 users and 64 bins."""
    vote = level_votes(1.0, 3)
    even = np.full(vote.bins, 1.0 / vote.bins)
    flat = np.hstack([np.tril(np.ones((64, 64)))[:-1], np.zeros((63, 1))])
    flat[:, :64] -= np.arange(1, 64)[:, None] / 64  # the shares are made to add to 1
    alone = distribution_variance(
        type(fitted_levels((1.0, 1.0)))(flat), [vote], [even], [100_000]
    ).mean()
    assert tree_error(1.0, 100_000, 3) < 0.8 * np.sqrt(alone)


def test_the_depth_balances_noise_and_width() -> None:
    assert [tree_depth(1.0, users) for users in (100, 3000, 100_000, 10_000_000)] == [2, 2, 3, 4]
    assert set(DEPTHS) == {2, 3, 4}


def test_no_reports_on_a_level_are_an_answer_that_says_nothing() -> None:
    tree = QuantileTree(epsilon=1.0, users=10, quantiles=WANTED)
    found = tree.voted([[3, 1, 1, 1, 0], [0, *[0] * 16]])
    assert found.lower.tolist() == [-1.0] * 3
    assert found.upper.tolist() == [1.0] * 3


def test_every_user_sends_a_valid_vote_whatever_it_holds() -> None:
    held = extreme_users(SPAN)
    for step in QuantileTree(epsilon=1.0, users=10_000, quantiles=WANTED).rounds:
        with np.errstate(all="raise"):
            reports = step.encode(held, {}, SeededWords(np.random.default_rng(1), len(held)))
        assert step.valid(reports, {}).all()


@pytest.mark.parametrize(
    ("quantiles", "message"),
    [
        ((), "quantiles must be 1 to 20, got 0"),
        ((0.5, 0.5), "quantiles must be different and ascending, got 0.5,0.5"),
        ((0.0,), "quantiles must lie between 0 and 1, got '0'"),
        ((float("nan"),), "quantiles must lie between 0 and 1, got 'nan'"),
    ],
)
def test_bad_quantiles_are_refused(quantiles: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QuantileTree(epsilon=1.0, users=10, quantiles=quantiles)
