"""Odds in words are what an optimal attacker on the mechanism reaches, and never less."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meanstream.operators.noise.group_privacy import odds_of_a_belief, odds_of_a_guess


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_of_randomized_response_they_are_exact(epsilon: float) -> None:
    """The attacker believes what is said: right as often as the report is kept."""
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert odds_of_a_guess(epsilon) == pytest.approx(keep)
    for prior in (0.01, 0.5):
        after = prior * keep / (prior * keep + (1 - prior) * (1 - keep))
        assert odds_of_a_belief(prior, epsilon) == pytest.approx(after)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-3), (1.0, 0.05)])
def test_of_the_worst_mechanism_with_delta_they_are_exact(epsilon: float, delta: float) -> None:
    """It tells the input with probability delta, and is randomized response else."""
    keep = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    assert odds_of_a_guess(epsilon, delta) == pytest.approx(delta + keep)


@pytest.mark.parametrize("mu", [0.2366, 1.0])
def test_of_a_gaussian_they_are_what_the_best_test_reaches(mu: float) -> None:
    """Half a million runs for each input: four standard errors, a false alarm in some 16,000."""
    rng, n = np.random.default_rng(5), 500_000
    low, high = rng.standard_normal(n), mu + rng.standard_normal(n)
    right = 0.5 * ((low < mu / 2).mean() + (high > mu / 2).mean())
    assert right == pytest.approx(odds_of_a_guess(1.0, 1e-6, mu), abs=4 * 0.5 / math.sqrt(2 * n))
    after = 0.01 / (0.01 + 0.99 * np.exp(-(mu * high - mu * mu / 2)))
    share = (after <= odds_of_a_belief(0.01, 1.0, mu)).mean()
    assert share == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / n))


def test_much_of_epsilon_is_certainty_and_no_overflow() -> None:
    assert odds_of_a_guess(1e6) == odds_of_a_guess(1e6, 1e-6) == 1.0
    assert odds_of_a_belief(0.01, 1e6) == 1.0


@pytest.mark.parametrize(
    "bad", [(0.0,), (math.nan,), (math.inf,), (1.0, 1.0), (1.0, -1e-9), (1.0, 0.0, 0.0)]
)
def test_what_is_no_guarantee_is_refused(bad: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=" must "):
        odds_of_a_guess(*bad)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_epsilon_has_no_odds(epsilon: float) -> None:
    with pytest.raises(ValueError, match=r"^epsilon must be positive and finite"):
        odds_of_a_belief(0.5, epsilon)
