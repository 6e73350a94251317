"""The plain mean by a trusted curator: whatever the users are like, its interval covers the mean
over users."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.operators.estimators.registry import build_estimator, estimator_class
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.round_records import Estimate, Summaries
from tests.operators.support.binomial_users import SPAN, answer

RUNS = 400
"""Half the width of an interval around coverage .95 at four standard errors: .044; false alarms
below 1 in 10,000."""


def users(count: Ints, mean: Floats, rng: np.random.Generator) -> Summaries:
    """Users of these sizes, whose means on [-1, 1] are told exactly."""
    total = np.rint(0.5 * (mean + 1.0) * count * SPAN).astype(np.int64)
    ids = rng.integers(0, 2**64, (len(count), 2), dtype=np.uint64)
    return Summaries(user=ids, count=count, total=total, first=total // count, span=SPAN)


def drawn(law: str, n: int, rng: np.random.Generator) -> tuple[Summaries, float]:
    """Draw a population, and say the mean of its law."""
    count = rng.integers(1, 200, n)
    if law == "sizes go with means":
        return users(count, count / 200.0 + rng.normal(0.0, 0.02, n).clip(-0.005, 0.005), rng), 0.5
    far = float(law.partition(" ")[0]) / 100.0
    return users(count, np.where(rng.random(n) < far, -1.0, 0.8), rng), 0.8 - 1.8 * far


def answers(
    name: str, law: str, n: int, epsilon: float, runs: int = RUNS
) -> tuple[list[Estimate], float]:
    rng = np.random.default_rng(3)
    made = []
    for _ in range(runs):
        given, theta = drawn(law, n, rng)
        made.append(answer(name, epsilon, given, rng))
    return made, theta


def coverage(name: str, law: str, n: int, epsilon: float) -> float:
    made, theta = answers(name, law, n, epsilon)
    return float(np.mean([float(one.lower) <= theta <= float(one.upper) for one in made]))


@pytest.mark.parametrize("law", ["sizes go with means", "0.2 % far out", "5 % far out"])
@pytest.mark.parametrize(("n", "epsilon"), [(3, 2.0), (300, 0.5), (1000, 2.0)])
def test_the_interval_covers_whatever_the_users_are_like(law: str, n: int, epsilon: float) -> None:
    assert coverage("central.mean", law, n, epsilon) >= 0.95 - 0.044


def test_the_weighted_estimators_answer_another_mean_where_sizes_go_with_means_and_say_so() -> None:
    made, theta = answers("cummings.ratio", "sizes go with means", 1000, 2.0, runs=60)
    assert np.mean([float(one.lower) <= theta <= float(one.upper) for one in made]) < 0.5
    for name in (
        "cummings.ratio",
        "cummings.known_sizes",
        "cummings.private_sizes",
        "cummings.ideal",
    ):
        assert "larger users weigh more" in estimator_class(name).estimand
    assert "every user counts once" in estimator_class("central.mean").estimand


def test_the_error_is_the_predicted_one_and_the_interval_follows_the_spread() -> None:
    n, epsilon = 1000, 1.0
    rng = np.random.default_rng(4)
    made = [
        answer("central.mean", epsilon, users(np.full(n, 9), rng.normal(0.2, 0.05, n), rng), rng)
        for _ in range(RUNS)
    ]
    error = np.array([float(one.unclipped) for one in made]) - 0.2
    predicted = 0.05**2 / n + 2.0 * (2.0 / (0.9 * epsilon * n)) ** 2
    # The fourth moment of a Laplace error is 6 squares: five standard errors are 5 sqrt(5 / RUNS).
    assert float(np.mean(error**2)) == pytest.approx(predicted, rel=5.0 * (5.0 / RUNS) ** 0.5)
    assert max(float(one.upper - one.lower) for one in made) < 0.1 * 2.0
    sizes = build_estimator("central.mean", epsilon=epsilon, users=n).describe()
    assert sizes["privacy_stderr"] == pytest.approx(2.0**0.5 * 2.0 / (0.9 * n))


def test_nobody_at_all_is_no_answer() -> None:
    rng = np.random.default_rng(1)
    nobody = users(np.zeros(0, np.int64), np.zeros(0), rng)
    found = answer("central.mean", 1.0, nobody, rng)
    assert (float(found.lower), float(found.upper), found.n_users, found.trust) == (
        -1.0,
        1.0,
        0,
        "central",
    )
