"""A budget that windows share: composition against an enumeration in exact fractions, the largest
epsilon that keeps it, and the noise of less variance."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from meanstream.operators.noise.window_budget import WindowBudget, composed_window_delta

BUDGETS = [
    (1.0, 1e-6, 12),
    (1.0, 1e-6, 52),
    (0.1, 1e-9, 365),
    (3.0, 1e-3, 20),
    (0.5, 0.3, 2),
    (1.0, 1e-12, 1000),
]


def enumerated_delta(odds: Fraction, windows: int, budget: Fraction) -> float:
    """Delta of that many truthful answers with these odds, at `exp(epsilon) = budget`, exactly."""
    truth = odds / (1 + odds)
    total = Fraction(0)
    for lies in range(windows + 1):
        ways = math.comb(windows, lies)
        likely = ways * truth ** (windows - lies) * (1 - truth) ** lies
        unlikely = ways * (1 - truth) ** (windows - lies) * truth**lies
        total += max(Fraction(0), likely - budget * unlikely)
    return float(total)


@pytest.mark.parametrize("windows", [1, 2, 7, 40])
@pytest.mark.parametrize("odds", [Fraction(11, 10), Fraction(3, 2), Fraction(9)])
def test_the_composition_is_that_of_all_outcomes(odds: Fraction, windows: int) -> None:
    for budget in (Fraction(1), Fraction(13, 10), Fraction(5)):
        exact = enumerated_delta(odds, windows, budget)
        computed = composed_window_delta(math.log(odds), windows, math.log(budget))
        assert exact * (1 - 1e-12) <= computed <= exact * (1 + 3e-9) + 1e-300


@pytest.mark.parametrize(("epsilon", "delta", "windows"), BUDGETS)
def test_each_window_has_the_largest_epsilon_that_keeps_the_budget(
    epsilon: float, delta: float, windows: int
) -> None:
    budget = WindowBudget(epsilon=epsilon, delta=delta, windows=windows)
    assert budget.share <= budget.each <= epsilon
    assert composed_window_delta(budget.each, windows, epsilon) <= delta
    larger = composed_window_delta(1.00001 * budget.each, windows, epsilon)
    assert larger > delta or budget.each == epsilon


@pytest.mark.parametrize(("epsilon", "delta", "windows"), BUDGETS)
def test_an_accountant_of_others_agrees_on_the_gaussian_noise(
    epsilon: float, delta: float, windows: int
) -> None:
    """Its grid is rounded up, hence the percent; without the root of the windows it is far off."""
    budget = WindowBudget(epsilon=epsilon, delta=delta, windows=windows)
    stddev = budget.gaussian_stddev
    assert stddev is not None

    def delta_of(noise: float) -> float:
        loss = pld.from_gaussian_mechanism(noise, value_discretization_interval=epsilon / 2e4)
        return float(loss.self_compose(windows).get_delta_for_epsilon(epsilon))

    assert delta_of(stddev) == pytest.approx(delta, rel=0.05)
    assert delta_of(stddev / math.sqrt(windows)) > 3 * delta or delta > 0.1


def test_the_noise_of_less_variance_is_chosen() -> None:
    chosen = {
        windows: WindowBudget(epsilon=1.0, delta=1e-6, windows=windows)
        for windows in (2, 8, 9, 12, 52)
    }
    assert [budget.noise for budget in chosen.values()] == ["laplace"] * 2 + ["gaussian"] * 3
    assert round(chosen[52].gain_over_shares(gaussian=True), 2) == 5.83
    assert round(chosen[12].gain_over_shares(gaussian=True), 2) == 1.34
    assert round(chosen[52].gain_over_shares(gaussian=False), 1) == 3.1

    for budget in chosen.values():
        stddev = budget.gaussian_stddev
        assert stddev is not None
        assert (budget.noise == "gaussian") == (stddev**2 < budget.pure_variance)


def test_without_a_delta_each_window_has_an_equal_part() -> None:
    budget = WindowBudget(epsilon=1.0, delta=0.0, windows=52)
    assert (budget.each, budget.gaussian_stddev, budget.noise) == (1.0 / 52, None, "laplace")
    assert "a delta of 1e-06 would allow 5.8 times less variance" in budget.said(gaussian=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"windows": 1}, "user_windows must lie in 2..100,000, got 1"),
        ({"delta": 1.0}, "delta must be at least 0 and below 1, got 1.0"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
    ],
)
def test_a_budget_that_is_none_is_refused(changes: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        WindowBudget(**{"epsilon": 1.0, "delta": 1e-6, "windows": 5, **changes})  # type: ignore[arg-type]
