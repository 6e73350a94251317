import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meanstream.operators.noise.fixed_point import FixedPoint

finite = st.floats(allow_nan=False, allow_infinity=False)
bounds = st.tuples(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12)).map(lambda p: (p[0], p[0] + p[1]))
wide = bounds.filter(lambda p: p[0] < p[1])


@given(wide, st.integers(1, 32))
def test_the_resolution_is_the_smallest_power_of_two_with_enough_steps(
    pair: tuple[float, float], bits: int
) -> None:
    grid = FixedPoint(*pair, bits=bits)
    width = pair[1] - pair[0]
    assert math.frexp(grid.resolution)[0] == 0.5
    assert grid.resolution / 2 < width / 2**bits <= grid.resolution
    assert 2**bits // 2 <= grid.span <= 2**bits


@given(wide, st.lists(finite, min_size=1, max_size=20))
def test_every_value_lands_between_zero_and_span(
    pair: tuple[float, float], values: list[float]
) -> None:
    grid = FixedPoint(*pair)
    steps = grid.encode(values)
    assert steps.dtype == np.int64
    assert steps.min() >= 0
    assert steps.max() <= grid.span
    assert [grid.encode_one(v) for v in values] == steps.tolist()
    assert grid.encode(list(pair)).tolist() == [0, grid.span]


@given(wide, st.lists(finite, min_size=2, max_size=20))
def test_encoding_is_monotone(pair: tuple[float, float], values: list[float]) -> None:
    assert np.all(np.diff(FixedPoint(*pair).encode(sorted(values))) >= 0)


@given(st.lists(st.floats(-30, 120), min_size=1, max_size=50))
def test_the_mean_is_within_half_a_step_of_the_mean_of_the_values(values: list[float]) -> None:
    grid = FixedPoint(-30, 120)
    total = grid.encode(values).sum()
    assert abs(grid.mean(total, len(values)) - np.mean(values)) <= grid.resolution / 2 + 1e-12


def test_integers_are_exact_on_the_grid_of_integer_bounds() -> None:
    grid = FixedPoint(-30, 120)
    values = np.arange(-30, 121)
    assert np.array_equal(grid.mean(grid.encode(values), np.ones(151)), values)


def test_a_value_that_is_not_finite_is_refused_and_not_shown() -> None:
    grid = FixedPoint(0, 1)
    with pytest.raises(ValueError, match="values must be finite, got '2 of 3 that are not'"):
        grid.encode([0.5, math.nan, math.inf])
    with pytest.raises(ValueError, match="value must be finite, got 'one that is not'"):
        grid.encode_one(math.nan)


@pytest.mark.parametrize(
    ("lower", "upper", "bits", "message"),
    [
        (1.0, 1.0, 20, "lower must be below upper"),
        (math.nan, 1.0, 20, "lower must be finite"),
        (0.0, math.inf, 20, "upper must be finite"),
        (-1.7e308, 1.7e308, 20, "upper - lower must be finite"),
        (0.0, 1.0, 0, "bits must lie between 1 and 32, got 0"),
        (0.0, 1.0, 33, "bits must lie between 1 and 32, got 33"),
    ],
)
def test_bad_parameters_are_named(lower: float, upper: float, bits: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FixedPoint(lower, upper, bits=bits)
