"""Quantiles by bits about thresholds: closer than votes for bins, honest where nobody is, hostile results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.quantile_knots import certain_ends
from meanstream.operators.estimators.quantile_search import GRID, PILOT, QuantileSearch
from meanstream.operators.estimators.quantile_tree import QuantileTree
from meanstream.operators.records import Floats
from meanstream.operators.rounds.round_protocol import assign_protocol_stages, run_protocol
from meanstream.operators.rounds.round_records import Estimate, Summaries
from meanstream.operators.rounds.round_results import extreme_users
from tests.operators.estimators.test_quantile_tree import SPAN, users_at


def answer(estimator: Any, held: Summaries, seed: int) -> Estimate:
    stage = assign_protocol_stages(estimator.shares, held.user, b"%d" % seed)
    words = [
        SeededWords(np.random.default_rng([seed, i]), int((stage == i).sum()))
        for i in range(len(estimator.rounds))
    ]
    return run_protocol(estimator, held, stage, words)


def windows(estimator: Any, draw: Any, n: int, runs: int) -> list[Estimate]:
    return [
        answer(estimator, users_at(draw(np.random.default_rng([n, run]), n), run), run)
        for run in range(runs)
    ]


def squared_error(found: list[Estimate], truth: float) -> float:
    return float(np.mean([(one.value[0] - truth) ** 2 for one in found]))


@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        (lambda rng, n: rng.normal(0.13, 0.2, n).clip(-1, 1), 0.13),
        (lambda rng, n: rng.exponential(0.1, n).clip(0, 2) - 1.0, 0.1 * np.log(2.0) - 1.0),
    ],
    ids=["normal", "at a bound"],
)
def test_the_median_errs_less_than_that_of_votes_for_bins(draw: Any, truth: float) -> None:
    """Squared errors of 30 windows, whose ratio has a standard error of about 40 %: it is above 4
    in 400 runs of either."""
    options = {"epsilon": 1.0, "users": 8000, "quantiles": (0.5,)}
    search = windows(QuantileSearch(**options), draw, 8000, 30)
    tree = windows(QuantileTree(**options), draw, 8000, 30)
    assert squared_error(search, truth) < 0.6 * squared_error(tree, truth)


@pytest.mark.parametrize(
    ("low", "truth"), [(0.505, -0.85), (0.495, 0.85)], ids=["below the gap", "above the gap"]
)
@pytest.mark.parametrize("kind", [QuantileSearch, QuantileTree])
def test_intervals_hold_where_nobody_is_around_the_median(
    kind: Any, low: float, truth: float
) -> None:
    """100 windows: .95 less 4 standard errors of .022."""

    def draw(rng: Any, n: int) -> Floats:
        at_low = rng.random(n) < low
        return np.where(at_low, rng.uniform(-0.95, -0.85, n), rng.uniform(0.85, 0.95, n))

    found = windows(kind(epsilon=1.0, users=2000, quantiles=(0.5,)), draw, 2000, 100)
    close = 0.002  # the quantile is not the last place at which somebody is
    held = [one.lower[0] <= truth + close and truth - close <= one.upper[0] for one in found]
    assert np.mean(held) > 0.86


def test_three_quantiles_are_in_order_within_their_intervals() -> None:
    search = QuantileSearch(epsilon=2.0, users=3000, quantiles=(0.1, 0.5, 0.9))
    for one in windows(search, lambda rng, n: rng.uniform(-1, 1, n), 3000, 10):
        assert (np.diff(one.value) >= 0.0).all()
        assert (one.lower <= one.value).all()
        assert (one.value <= one.upper).all()


def test_every_user_answers_once_and_a_tenth_votes_for_bins() -> None:
    search = QuantileSearch(epsilon=1.0, users=2000, quantiles=(0.5,))
    assert sum(search.shares) == pytest.approx(1.0)
    assert sum(search.shares[: search.depth]) == pytest.approx(PILOT)
    (found,) = windows(search, lambda rng, n: rng.uniform(-1, 1, n), 2000, 1)
    assert found.n_users == sum(stage["users"] for stage in found.stages) == 2000


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_few_users_get_a_wide_answer(n: int) -> None:
    search = QuantileSearch(epsilon=0.5, users=n, quantiles=(0.05, 0.5))
    for one in windows(search, lambda rng, k: rng.uniform(-1, 1, k), n, 5):
        assert np.isfinite(one.value).all()
        assert (one.upper - one.lower > 0.5).all()


def test_every_user_sends_a_valid_report_whatever_it_holds() -> None:
    held = extreme_users(SPAN)
    search = QuantileSearch(epsilon=1.0, users=1000, quantiles=(0.5,))
    public = {"levels": [[0, 0, 0, 0, 0]], "answered": [], "thresholds": [1, 2, GRID - 1]}
    for step in search.rounds[search.depth :]:
        with np.errstate(all="raise"):
            reports = step.encode(held, public, SeededWords(np.random.default_rng(1), len(held)))
        assert step.valid(reports, public).all()
        assert not step.valid(reports + 6, public).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"thresholds": [1, 2]}, "thresholds must be 3 within the bounds"),
        ({"thresholds": [0, 1, 2]}, "thresholds must be 3 within the bounds"),
        ({"thresholds": [1, 2, GRID]}, "thresholds must be 3 within the bounds"),
        ({"answered": [[5, 3, 1]] * 3}, "thresholds asked must stay the earlier result"),
        ({"answered": [[7, 3, 4], [8, 1, 1], [9, 1, 1]]}, "at most as many answers below"),
        ({"levels": [[4, 1, 1, 1, 1]]}, "levels must stay the earlier result"),
        ({"answered": [[7, 3, 1, 5]] * 3}, "answered"),
    ],
)
def test_results_that_no_stage_hands_on_are_refused(changes: dict[str, Any], message: str) -> None:
    search = QuantileSearch(epsilon=1.0, users=1000, quantiles=(0.5,))
    step = search.rounds[search.depth]
    before = {"levels": [[9, 1, 1, 1, 1]], "answered": [], "thresholds": [7, 8, 9]}
    good = before | {"answered": [[7, 3, 1], [8, 1, 1], [9, 1, 0]], "thresholds": [5, 6, 7]}
    step.check(good, before)
    with pytest.raises(ValueError, match=message):
        step.check(good | changes, before)


def test_a_knot_beyond_chance_among_many_flat_ones_does_not_end_an_interval() -> None:
    """Of 40 knots of one value one is 2.5 errors low: its neighbors are pooled with it."""
    knots = np.linspace(-1, 1, 42)
    raw = np.full(40, 0.5)
    raw[30] -= 0.05
    lower, upper = certain_ends(knots, raw, np.full(40, 0.02), 0.5, 1.96)
    assert (lower, upper) == (-1.0, 1.0)
