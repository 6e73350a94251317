"""Compositions of losses against an accountant of others, and against closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from dp_accounting.pld import common, privacy_loss_distribution
from scipy.special import ndtr

from meanstream.operators.noise.group_privacy import group_epsilon
from meanstream.operators.noise.loss_distributions import (
    LossDistribution,
    common_step,
    composed_losses,
    gaussian_losses,
    laplace_losses,
    pure_epsilon_of_odds,
    regridded_losses,
    repeated_losses,
    three_point_losses,
    valid_odds,
)


def others_laplace(epsilon: float) -> privacy_loss_distribution.PrivacyLossDistribution:
    return privacy_loss_distribution.from_laplace_mechanism(
        1 / epsilon, value_discretization_interval=1e-3
    )


def others_gaussian(mu: float) -> privacy_loss_distribution.PrivacyLossDistribution:
    return privacy_loss_distribution.from_gaussian_mechanism(
        1 / mu, value_discretization_interval=1e-3
    )


def others_pure(epsilon: float) -> privacy_loss_distribution.PrivacyLossDistribution:
    return privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(epsilon, 0.0), value_discretization_interval=1e-3
    )


KINDS: dict[str, tuple[Callable[[float], LossDistribution], Callable[[float], object]]] = {
    "laplace": (laplace_losses, others_laplace),
    "gaussian": (gaussian_losses, others_gaussian),
    "pure": (three_point_losses, others_pure),
}
MIXTURES = [
    [("laplace", 1.0)] * 2,
    [("laplace", 1.0)] * 30,
    [("laplace", 1.0), ("gaussian", 0.24)],
    [("laplace", 0.3)] * 5 + [("gaussian", 0.5)] * 3 + [("pure", 0.2)] * 4,
    [("pure", 0.5)] * 20 + [("gaussian", 1.0)],
]


@pytest.mark.parametrize("parts", MIXTURES)
@pytest.mark.parametrize("delta", [1e-6, 1e-9])
def test_mixtures_are_within_a_hundredth_of_the_accountant(
    parts: list[tuple[str, float]], delta: float
) -> None:
    own = [KINDS[kind][0](size) for kind, size in parts]
    step = common_step([max(abs(one.losses[0]), one.losses[-1]) for one in own])
    found = composed_losses([regridded_losses(one, step) for one in own]).epsilon(delta)
    other = KINDS[parts[0][0]][1](parts[0][1])

    for kind, size in parts[1:]:
        other = other.compose(KINDS[kind][1](size))  # type: ignore[attr-defined]

    assert found == pytest.approx(other.get_epsilon_for_delta(delta), rel=0.01)  # type: ignore[attr-defined]


@pytest.mark.parametrize("times", [1, 2, 7, 30, 300])
def test_repeated_is_composed(times: int) -> None:
    one = laplace_losses(0.4)
    apart = composed_losses([one] * times).epsilon(1e-6)
    assert repeated_losses(one, times).epsilon(1e-6) == pytest.approx(apart, rel=1e-3)


@pytest.mark.parametrize("mu", [0.1, 0.5, 2.0])
def test_gaussian_losses_are_those_of_the_formula(mu: float) -> None:
    losses = gaussian_losses(mu)
    assert losses.epsilon(1e-6) == pytest.approx(group_epsilon(mu, 1e-6), rel=0.005)
    assert losses.epsilon(1e-6) >= group_epsilon(mu, 1e-6)
    assert losses.odds == pytest.approx(float(ndtr(mu / 2)), abs=2e-3)


@pytest.mark.parametrize("odds", [0.501, 0.55, 0.697, 0.95, 0.9999])
def test_odds_of_laplace_are_those_of_the_formula(odds: float) -> None:
    """Half of 2 - exp(-epsilon / 2) is what a guess is right at one draw."""
    found = pure_epsilon_of_odds(odds, laplace_losses)
    assert found == pytest.approx(-2 * math.log(2 * (1 - odds)), rel=2e-3)
    assert found <= -2 * math.log(2 * (1 - odds)) * (1 + 1e-6)


def test_refused() -> None:
    for bad in (0.5, 1.0, 0.2, "50%", "120 %", float("nan")):
        with pytest.raises(ValueError, match="odds must"):
            valid_odds(bad)
    with pytest.raises(ValueError, match="step must be the same"):
        composed_losses([laplace_losses(1.0), laplace_losses(2.0)])
