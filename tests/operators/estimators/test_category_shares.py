"""Shares of categories: unbiased, honest intervals, the vote with the smallest error, users of any
kind."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import binomtest

from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.category_shares import (
    CategoryShares,
    named_interval,
    nearest_shares,
)
from meanstream.operators.estimators.category_votes import (
    CHOICES,
    DEARER,
    UNARY,
    best_category_votes,
    category_vote_variance,
)
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.round_protocol import run_protocol
from meanstream.operators.rounds.round_records import Estimate, Summaries
from meanstream.operators.rounds.round_results import extreme_users

VOTES = ("best", "oue", "sue", "krr", "subset")


def users_with(total: Ints) -> Summaries:
    """Users with that many samples of each category."""
    ids = np.random.default_rng(len(total)).integers(0, 2**63, (len(total), 2)).astype(np.uint64)
    return Summaries(
        user=ids, count=total.sum(axis=1), total=total, first=np.minimum(total, 1), span=1
    )


def answer(estimator: CategoryShares, held: Summaries, seed: int) -> Estimate:
    words = SeededWords(np.random.default_rng([seed, 5]), len(held))
    return run_protocol(estimator, held, np.zeros(len(held), np.int64), [words]).in_unit(0.0, 1.0)


def people(n: int, seed: int = 3) -> tuple[Ints, Floats]:
    """Users of two kinds, who differ in their shares and in their number of samples; the mean of
    their own shares."""
    rng = np.random.default_rng(seed)
    often = rng.random(n) < 0.3
    count = np.where(often, rng.integers(5, 40, n), 1)
    share = np.where(often[:, None], [0.1, 0.1, 0.1, 0.7], [0.6, 0.3, 0.05, 0.05])
    total = rng.multinomial(count, share).astype(np.int64)
    return total, (total / count[:, None]).mean(axis=0)


@pytest.mark.parametrize("votes", VOTES)
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_answers_are_unbiased_for_the_mean_of_users_own_shares_with_the_predicted_error(
    votes: str, epsilon: float
) -> None:
    """240 windows of the same 400 users: the mean lies within 4.5 standard errors (false alarm 7e-6
    each)."""
    total, truth = people(400)
    estimator, held = (
        CategoryShares(epsilon=epsilon, users=400, categories=4, votes=votes),
        users_with(total),
    )
    found = [answer(estimator, held, seed) for seed in range(240)]
    raw = np.array([one.unclipped for one in found])
    off = (raw.mean(axis=0) - truth) / (raw.std(axis=0) / np.sqrt(240))
    assert np.abs(off).max() < 4.5
    # Users are the same in all windows: the error that is told has room for other users, too.
    told = np.array([one.stderr for one in found]).mean(axis=0)
    assert (raw.std(axis=0) < 1.15 * told).all()
    assert raw.std(axis=0).sum() > 0.7 * told.sum()
    inside = np.array([(one.lower <= truth) & (truth <= one.upper) for one in found])
    assert inside.mean() > 0.93  # nominal .95; 960 intervals have a standard error below .008
    for one in found:
        assert one.value.sum() == pytest.approx(1.0)
        assert (one.value >= 0.0).all()
        assert ((one.lower <= one.value) & (one.value <= one.upper)).all()
        assert ((one.value - truth) ** 2).sum() <= ((one.unclipped - truth) ** 2).sum() + 1e-12


def test_the_sample_of_a_user_is_drawn_and_neither_the_first_nor_the_most_frequent() -> None:
    """With epsilon 60 a vote is nearly the truth; 4,000 users have 3 samples of one category and 1
    of the other."""
    held = users_with(np.tile(np.array([[3, 1]]), (4000, 1)))
    share = answer(CategoryShares(epsilon=60.0, users=4000, categories=2), held, 1).value[0]
    assert abs(share - 0.75) < 4.5 * np.sqrt(0.75 * 0.25 / 4000)


@pytest.mark.parametrize(("n", "epsilon"), [(1, 1.0), (2, 1.0), (5, 4.0), (12, 1.0)])
def test_few_users_have_intervals_that_hold(n: int, epsilon: float) -> None:
    """900 windows of other users: at least the nominal .95, less 4.5 standard errors of .0073."""
    rng, truth, inside = np.random.default_rng(7), np.array([0.9, 0.08, 0.02]), []
    estimator = CategoryShares(epsilon=epsilon, users=n, categories=3)
    for seed in range(900):
        found = answer(estimator, users_with(rng.multinomial(1, truth, n).astype(np.int64)), seed)
        inside.append((found.lower <= truth) & (truth <= found.upper))
    assert np.mean(inside, axis=0).min() > 0.95 - 4.5 * 0.0073


def test_no_users_are_an_answer_that_says_nothing() -> None:
    found = answer(
        CategoryShares(epsilon=1.0, users=10, categories=5),
        users_with(np.zeros((0, 5), np.int64)),
        1,
    )
    assert found.value == pytest.approx(np.full(5, 0.2))
    assert found.lower == pytest.approx(np.zeros(5))
    assert found.upper == pytest.approx(np.ones(5))
    assert found.n_users == 0


@pytest.mark.parametrize(
    "shares", [[0.7, 0.4, -0.3], [1.0, 0.0], [-0.1, -0.2, -0.3], [0.25] * 4, [5.0, -4.0]]
)
def test_the_nearest_shares_are_those_that_an_optimizer_finds(shares: list[float]) -> None:
    raw = np.array(shares)
    found = nearest_shares(raw)
    assert found.sum() == pytest.approx(1.0)
    best = minimize(
        lambda x: ((x - raw) ** 2).sum(),
        np.full(len(raw), 1.0 / len(raw)),
        bounds=[(0.0, 1.0)] * len(raw),
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1.0},
    )
    assert found == pytest.approx(best.x, abs=1e-4)


def test_intervals_are_those_of_clopper_and_pearson() -> None:
    for n, named in ((1, 0), (1, 1), (7, 3), (400, 399)):
        known = binomtest(named, n).proportion_ci(0.9, method="exact")
        low, high = named_interval(np.array([float(named)]), n, 0.9)
        assert (low[0], high[0]) == pytest.approx((known.low, known.high))


def test_the_best_vote_is_the_one_with_the_least_variance_but_for_its_price() -> None:
    chosen = set()
    for epsilon, categories in product((0.1, 0.5, 1.0, 2.0, 4.0, 8.0), (2, 3, 5, 12, 60, 256)):
        best = best_category_votes(epsilon, categories)
        least = min(
            category_vote_variance(votes, epsilon, categories) for votes in (*UNARY, *CHOICES)
        )
        assert category_vote_variance(best, epsilon, categories) <= DEARER * least
        chosen.add(best)
    assert chosen >= {"krr", "subset", "oue"}


def test_what_decides_the_vote_is_public_and_paper_mode_takes_the_optimized_encoding() -> None:
    assert CategoryShares(epsilon=1.0, users=10, categories=8).describe()[
        "votes"
    ] == best_category_votes(1.0, 8)
    assert (
        CategoryShares(epsilon=1.0, users=10, categories=8, mode="paper").describe()["votes"]
        == "oue"
    )


@pytest.mark.parametrize("votes", VOTES)
def test_every_user_sends_a_valid_vote_whatever_it_holds(votes: str) -> None:
    held = extreme_users(1, (4,))
    estimator = CategoryShares(epsilon=1.0, users=30, categories=4, votes=votes)
    with np.errstate(all="raise"):
        reports = estimator.rounds[0].encode(
            held, {}, SeededWords(np.random.default_rng(1), len(held))
        )
    assert len(reports) == len(held)
    assert estimator.rounds[0].valid(reports, {}).all()


def test_reports_that_no_one_can_have_sent_are_not_counted() -> None:
    step = CategoryShares(epsilon=1.0, users=30, categories=4, votes="krr").rounds[0]
    assert step.valid(np.array([[0], [3], [4], [-1]]), {}).tolist() == [True, True, False, False]
    assert step.valid(np.zeros((3, 2), np.int64), {}).tolist() == [False] * 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"categories": 1}, "categories must lie between 2 and 256, got 1"),
        ({"categories": 257}, "categories must lie between 2 and 256, got 257"),
        ({"votes": "binary"}, "votes must be one of best, oue, sue, subset, krr, got 'binary'"),
    ],
)
def test_bad_options_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CategoryShares(**{"epsilon": 1.0, "users": 10, "categories": 4, **changes})  # type: ignore[arg-type]
