"""The computed bias, variance and failures of the tuned plan, against enumeration and
simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from meanstream.operators.estimators.plan.plan_risk import (
    plan_risk_clip_moments,
    plan_risk_laws,
    plan_risk_sizes,
)
from meanstream.operators.estimators.plan.plan_tables import make_plan_tables
from meanstream.operators.estimators.plan.window_effect import (
    window_effect,
    window_error_nodes,
    window_uniform_nodes,
    window_vote_failure,
)
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.rounds.votes.registry import make_votes

LAWS = {"poisson:5": 0.0, "uniform:1,199": 0.5, "point:400": 0.85, "two:3,100,0.3": 0.85}


def enumerated(
    sizes: SizeDistribution, theta: float, cap: float, window: float, error: float
) -> tuple[float, float]:
    """Mean and second moment of what is clipped, by listing all outcomes of all sizes."""
    mean = second = 0.0
    for m, share in zip(sizes.support.tolist(), sizes.probability.tolist(), strict=True):
        k = np.arange(m + 1)
        weight = share * binom.pmf(k, m, 0.5 * (1 + theta))
        clipped = np.clip(
            math.sqrt(min(m, cap) / cap) * (2 * k / m - 1 - theta - error), -window, window
        )
        mean, second = mean + float(weight @ clipped), second + float(weight @ clipped**2)
    return mean, second


@pytest.mark.parametrize(("text", "theta"), LAWS.items())
@pytest.mark.parametrize("factor", [0.4, 1.0, 2.5])
def test_moments_of_clipped_means_are_those_of_all_outcomes_listed(
    text: str, theta: float, factor: float
) -> None:
    sizes = SizeDistribution.parse(text)
    law = plan_risk_laws(sizes, 0.0)[{0.0: 0, 0.5: 1, 0.85: 2}[theta]]
    cap = 0.7 * sizes.greatest
    window = factor / math.sqrt(cap)
    errors = np.array([-1.5, 0.0, 0.4, 2.0]) / math.sqrt(cap)
    mean, second = plan_risk_clip_moments(law, cap, np.array([window]), errors)
    for i, error in enumerate(errors.tolist()):
        expected = enumerated(sizes, theta, cap, window, error)
        assert mean[0, i] == pytest.approx(expected[0], abs=0.012 * window)
        assert second[0, i] == pytest.approx(expected[1], abs=0.04 * window**2)


def test_a_window_that_cuts_nothing_has_no_bias() -> None:
    sizes = SizeDistribution.parse("uniform:1,199")
    problem = make_plan_tables(1.0, 1000, sizes, 0.0)
    node, weight = window_error_nodes()
    shrunk = sizes.mean_sqrt(50) / math.sqrt(50)
    found = window_effect(
        problem.laws,
        problem.moments,
        cap=50,
        shrunk=shrunk,
        window=np.array([4.0]),
        error=(0.1 * node, weight),
    )
    # Groups of sizes keep the mean square root of their sizes but for those around the cap.
    assert found.gain[0] == pytest.approx(1, abs=2e-3)
    assert found.bias_squared.max() < 1e-6


def test_skewed_users_bias_a_window_as_their_law_says() -> None:
    between, m, window = 0.1, 10_000, 0.15
    law = plan_risk_laws(SizeDistribution.parse(f"point:{m}"), between)[-1]
    rng = np.random.default_rng(1)
    n = 400_000
    mean = between * (rng.exponential(size=n) - 1) + rng.standard_normal(n) / math.sqrt(m)
    clipped = np.clip(mean, -window, window)
    computed = plan_risk_clip_moments(law, m, np.array([window]), np.zeros(1))[0][0, 0]
    # Twelve slices instead of the law: within 2 % of the spread; the simulation's error is 10 times
    # smaller.
    assert computed == pytest.approx(clipped.mean(), abs=0.02 * between)
    assert computed < -0.05 * between


def test_groups_of_sizes_keep_the_mean_square_root() -> None:
    sizes = SizeDistribution.parse("lognormal:20,1.5")
    size, probability = plan_risk_sizes(sizes, exact=10, most=20)
    assert len(size) <= 31
    assert probability.sum() == pytest.approx(1)
    assert probability @ np.sqrt(size) == pytest.approx(sizes.mean_sqrt())
    assert list(size[:10]) == list(range(1, 11))


def test_nodes_have_the_moments_of_their_laws() -> None:
    node, weight = window_error_nodes()
    assert weight.sum() == pytest.approx(1)
    assert weight @ node**2 == pytest.approx(1)
    assert 4 < weight @ node**4 < 5
    assert node[3] == 0
    node, weight = window_uniform_nodes(2.0)
    assert weight @ node**2 == pytest.approx(4 / 3)
    assert node[3] == pytest.approx(0, abs=1e-12)


def test_failures_of_votes_are_bounded_and_not_by_much() -> None:
    """Simulated: how often a pair without any votes wins."""
    epsilon, voters, bins, runs = 1.0, 100, 12, 4000
    rng = np.random.default_rng(3)
    votes = make_votes("sue", epsilon, bins)
    keep, flip = votes.likely, votes.unlikely
    counts = rng.binomial(voters, flip, size=(runs, bins))
    counts[:, 5] = rng.binomial(voters, keep, size=runs)
    best = (counts[:, 1:] + counts[:, :-1]).argmax(axis=1)
    failed = float(np.mean((best != 4) & (best != 5)))
    bound = window_vote_failure(epsilon, voters, bins, 1.0)
    error = math.sqrt(failed * (1 - failed) / runs)
    # Four standard errors: a false alarm in 30,000. The bound is a union over eight pairs that
    # overlap.
    assert failed <= bound + 4 * error
    assert failed >= 0.25 * bound - 4 * error
    assert 0.02 < bound < 0.5
