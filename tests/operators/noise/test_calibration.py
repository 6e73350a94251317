import math

import dp_accounting
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.special import log_ndtr

from meanstream.operators.noise.calibration import (
    calibrated_analytic_stddev,
    calibrated_classical_stddev,
    calibrated_gaussian_stddev,
    calibrated_laplace_scale,
    calibration_delta,
)

EPSILONS = (1e-3, 0.1, 1.0, 5.0, 20.0, 50.0)
DELTAS = (1e-15, 1e-10, 1e-6, 1e-2, 0.5)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_analytic_calibration_agrees_with_dp_accounting(epsilon: float, delta: float) -> None:
    ours = calibrated_analytic_stddev(epsilon, delta)
    assert ours == pytest.approx(dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-8)
    assert delta * (1 - 1e-7) < calibration_delta(ours, epsilon) <= delta


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_gaussian_delta_is_equation_6_in_another_form(epsilon: float, delta: float) -> None:
    stddev = calibrated_analytic_stddev(epsilon, delta)
    a, b = 0.5 / stddev - epsilon * stddev, -0.5 / stddev - epsilon * stddev
    plain = math.exp(log_ndtr(a)) * -math.expm1(epsilon + log_ndtr(b) - log_ndtr(a))
    assert calibration_delta(stddev, epsilon) == pytest.approx(plain, rel=1e-7)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (1.0, 1e-6), (4.0, 1e-5)])
def test_the_analytic_calibration_agrees_with_the_privacy_loss_distribution(
    epsilon: float, delta: float
) -> None:
    """The PLD accountant rounds pessimistically on a grid of 1e-4."""
    stddev = calibrated_analytic_stddev(epsilon, delta)
    loss = privacy_loss_distribution.from_gaussian_mechanism(
        stddev, value_discretization_interval=1e-4
    )
    assert epsilon - 1e-6 <= loss.get_epsilon_for_delta(delta) <= epsilon + 1e-3


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_the_laplace_calibration_agrees_with_the_privacy_loss_distribution(epsilon: float) -> None:
    loss = privacy_loss_distribution.from_laplace_mechanism(
        calibrated_laplace_scale(epsilon), value_discretization_interval=1e-4
    )
    assert loss.get_epsilon_for_delta(1e-9) == pytest.approx(epsilon, abs=1e-3)


def test_the_numbers_of_the_papers() -> None:
    assert calibrated_analytic_stddev(1.0, 1e-6) == pytest.approx(4.2247, abs=5e-5)
    assert calibrated_classical_stddev(1.0, 1e-6) == pytest.approx(5.2988, abs=5e-5)
    assert calibrated_laplace_scale(0.25) == 4.0


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-3])
def test_the_analytic_calibration_is_never_wider_than_the_classical(
    epsilon: float, delta: float
) -> None:
    assert calibrated_analytic_stddev(epsilon, delta) < calibrated_classical_stddev(epsilon, delta)
    assert calibration_delta(calibrated_classical_stddev(epsilon, delta), epsilon) < delta


def test_the_dispatcher_names_both() -> None:
    assert calibrated_gaussian_stddev(
        1.0, 1e-6, calibration="analytic"
    ) == calibrated_analytic_stddev(1.0, 1e-6)
    assert calibrated_gaussian_stddev(
        1.0, 1e-6, calibration="classical"
    ) == calibrated_classical_stddev(1.0, 1e-6)
    with pytest.raises(ValueError, match="calibration must be classical or analytic, got 'magic'"):
        calibrated_gaussian_stddev(1.0, 1e-6, calibration="magic")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [
        (0.0, 1e-6, "epsilon must be positive and finite, got 0.0"),
        (-1.0, 1e-6, "epsilon must be positive and finite, got -1.0"),
        (math.nan, 1e-6, "epsilon must be positive and finite, got nan"),
        (math.inf, 1e-6, "epsilon must be positive and finite, got inf"),
        (1.0, 0.0, "delta must lie strictly between 0 and 1, got 0.0"),
        (1.0, 1.0, "delta must lie strictly between 0 and 1, got 1.0"),
        (1.0, math.nan, "delta must lie strictly between 0 and 1, got nan"),
    ],
)
def test_bad_parameters_are_refused_by_both(epsilon: float, delta: float, message: str) -> None:
    for calibrate in (calibrated_analytic_stddev, calibrated_classical_stddev):
        with pytest.raises(ValueError, match=message):
            calibrate(epsilon, delta)


def test_the_classical_calibration_refuses_what_it_does_not_prove() -> None:
    with pytest.raises(
        ValueError, match=r"epsilon must be at most 1 with the classical calibration, got 1\.5"
    ):
        calibrated_classical_stddev(1.5, 1e-6)
    with pytest.raises(ValueError, match="epsilon must be positive"):
        calibrated_laplace_scale(0.0)
