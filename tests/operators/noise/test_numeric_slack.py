"""What float64 adds to epsilon: the worst case where it is small, a bound of the sum where it is
not, or a refusal."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from meanstream.operators.noise.numerics import (
    LARGEST_SHARE,
    ROUNDING_DELTA,
    numeric_slack,
    require_small_numeric_slack,
)


class _Noise:
    def __init__(self, slack: float) -> None:
        self.epsilon_slack = slack


def noise_of(slack: float) -> Any:
    return cast("Any", _Noise(slack))


def test_a_small_sum_is_the_worst_case() -> None:
    assert (
        require_small_numeric_slack(lambda _: noise_of(1e-8), epsilon=1.0, delta=1e-6, draws=1000)
        == 1000 * 1e-8
    )


def test_a_large_sum_is_bounded_by_what_errors_of_both_signs_add_up_to() -> None:
    epsilon, delta, draws, each = 1.0, 1e-6, 10**6, 1e-7
    assert draws * each > LARGEST_SHARE * epsilon
    kept = (
        ROUNDING_DELTA * delta / (1.0 + math.exp(epsilon))
    )  # delta' of either side costs delta' and e^epsilon delta'
    expected = 2.0 * (
        draws * each**2 / 8.0 + each / 2.0 * math.sqrt(2.0 * draws * math.log(1.0 / kept))
    )
    found = require_small_numeric_slack(
        lambda _: noise_of(each), epsilon=epsilon, delta=delta, draws=draws
    )
    assert found == pytest.approx(expected, rel=1e-12)
    assert found < LARGEST_SHARE * epsilon


def test_more_than_a_hundredth_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"epsilon must be at least .* what float64 adds to the noise, got 1.0"
    ):
        require_small_numeric_slack(lambda _: noise_of(1e-4), epsilon=1.0, delta=1e-6, draws=10**6)


@pytest.mark.parametrize("refused", [1e-9, 0.001, 0.01, 0.9])
def test_the_refusal_names_the_least_epsilon_that_is_accepted(refused: float) -> None:
    """Noise of which float64 adds 1e-4 / epsilon a draw: the square of epsilon must be 1 for 100."""

    def of(epsilon: float) -> Any:
        return noise_of(1e-4 / epsilon)

    with pytest.raises(ValueError, match=r"at least 1, a hundredth") as caught:
        require_small_numeric_slack(of, epsilon=refused, delta=0.0, draws=100)
    assert require_small_numeric_slack(of, epsilon=1.0, delta=0.0, draws=100) == 1e-2
    assert "got " + repr(refused) in str(caught.value)


def test_the_bound_is_never_above_the_worst_case() -> None:
    assert numeric_slack(noise_of(1e-3), 1, 1e-30) == 1e-3
