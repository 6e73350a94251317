"""The root finder gives SciPy's roots to the last bit: the widths of stored streams hang on it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from meanstream.operators.noise.calibration import calibration_delta, root_by_brent


def test_calibrations_are_scipys_to_the_bit() -> None:
    rng = np.random.default_rng(17)
    for epsilon, delta in zip(
        10 ** rng.uniform(-3, 1.7, 300), 10 ** rng.uniform(-15, -0.31, 300), strict=True
    ):

        def excess(log_stddev: float, epsilon: float = epsilon, delta: float = delta) -> float:
            return math.log(
                calibration_delta(math.exp(log_stddev), epsilon) or math.ulp(0.0)
            ) - math.log(delta)

        step = math.log(2.0) if excess(0.0) > 0 else -math.log(2.0)
        near, far = 0.0, step
        while excess(far) * step > 0:
            near, far = far, far + step
        for tolerance in (1e-13, 1e-12):
            expected = brentq(excess, near, far, xtol=tolerance, rtol=tolerance)
            assert root_by_brent(excess, near, far, xtol=tolerance, rtol=tolerance) == expected


@pytest.mark.parametrize(
    "f", [lambda x: x**3 - 2.0, lambda x: math.tanh(9 * (x - 1.9)), lambda x: x - 1.0, math.cos]
)
def test_other_functions_are_scipys_to_the_bit(f: object) -> None:
    assert root_by_brent(f, 1.0, 2.0, xtol=1e-13, rtol=1e-13) == brentq(
        f, 1.0, 2.0, xtol=1e-13, rtol=1e-13
    )  # type: ignore[arg-type]


def test_two_ends_of_one_sign_are_refused() -> None:
    with pytest.raises(ValueError, match="different signs"):
        root_by_brent(lambda x: x * x + 1.0, -1.0, 1.0, xtol=1e-9, rtol=1e-9)
