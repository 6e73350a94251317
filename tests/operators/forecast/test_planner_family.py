"""The forecast of vectors, densities and mixtures: errors, the recommendation and why, and what
means nothing."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from meanstream.operators.estimators.registry import build_estimator
from meanstream.operators.forecast.family_forecast import (
    FamilyAsk,
    FamilyCandidate,
    FamilyForecast,
    forecast_family,
)
from meanstream.operators.rounds.user_sizes import SizeDistribution

SIZES = SizeDistribution.parse("point:100")


def found(**changes: Any) -> FamilyForecast:
    return forecast_family(
        FamilyAsk(**{"users": 20_000, "epsilon": 1.0, "sizes": SIZES, **changes})
    )


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"dimension": 20}, {"kent.linf", "kent.l2"}),
        ({"dimension": 20, "radius": 1.0}, {"kent.linf", "kent.l2"}),
        (
            {"dimension": 20, "sparsity": 3},
            {"kent.linf", "kent.l2", "kent.sparse_select", "kent.sparse_threshold"},
        ),
        (
            {"dimension": 20, "sparsity": 3, "between_users": 0.1},
            {"kent.linf", "kent.sparse_threshold"},
        ),
        ({"density": True}, {"kent.density"}),
        ({"components": 2}, {"kent.mixture"}),
    ],
)
def test_candidates_and_their_errors_are_those_of_the_estimators(
    asked: dict[str, Any], names: set[str]
) -> None:
    forecast = found(**asked)
    assert {one.name for one in forecast.candidates} == names
    errors = [one.mse for one in forecast.candidates]
    assert errors == sorted(errors)
    assert forecast.recommended == forecast.candidates[0].name
    assert json.loads(json.dumps(forecast.as_dict()))["recommended"] == forecast.recommended
    for one in forecast.candidates:
        said = build_estimator(
            one.name, epsilon=1.0, users=20_000, sizes=SIZES, **one.options
        ).describe()
        # 20,000 users miss no coordinate in the vote.
        assert one.mse == pytest.approx(
            said["predicted_stderr"] ** 2 + said.get("left_out", 0.0), rel=1e-3
        )
        if one.half_width is not None:
            parts = 3 if "sparse" in one.name else asked.get("dimension", asked.get("components"))
            assert one.half_width == pytest.approx(1.959964 * math.sqrt(one.mse / parts), rel=1e-5)


def test_a_ball_is_worth_a_rotation_and_a_cube_is_not() -> None:
    ball, cube = found(dimension=20, radius=1.0), found(dimension=20)
    assert ball.recommended == "kent.l2"
    assert (
        "because vectors lie in a ball of radius 1: rotated, all 20 coordinates are small"
        in ball.sentence
    )
    assert cube.recommended == "kent.linf"
    assert "because each of 20 coordinates is estimated on its own" in cube.sentence


def test_few_users_vote_for_coordinates() -> None:
    few = found(users=2000, dimension=100, sparsity=3)
    assert few.recommended == "kent.sparse_select"
    assert "vote for the 3 of 100 coordinates that matter" in few.sentence
    assert "if they matter, take kent.sparse_threshold" in few.warning
    assert (
        found(users=10_000, dimension=100, sparsity=3).paper_recommends == "kent.sparse_threshold"
    )
    assert found(users=500, dimension=100, sparsity=3).paper_recommends == "kent.sparse_select"


def test_a_vote_that_fails_is_part_of_the_error() -> None:
    """With 60 users votes are noise: the estimator's own prediction is for coordinates that are all
    found."""
    said = build_estimator(
        "kent.sparse_select", epsilon=0.5, users=60, sizes=SIZES, dimension=20, sparsity=3
    ).describe()
    by_name = {
        one.name: one for one in found(users=60, epsilon=0.5, dimension=20, sparsity=3).candidates
    }
    missed = by_name["kent.sparse_select"].mse - said["predicted_stderr"] ** 2
    assert 0.1 < missed < 1.0  # of at most three thirds


def test_everything_is_in_the_unit_of_the_value() -> None:
    unit = found(dimension=8, radius=0.5, target_half_width=0.02)
    minutes = found(dimension=8, radius=37.5, target_half_width=1.5, lower=-30.0, upper=120.0)
    for a, b in zip(unit.candidates, minutes.candidates, strict=True):
        assert (a.name, a.mse, a.users_needed) == (b.name, pytest.approx(b.mse), b.users_needed)
        assert b.half_width == pytest.approx(75 * (a.half_width or 0))


@pytest.mark.parametrize(
    "asked",
    [
        {"dimension": 20, "radius": 1.0, "target_half_width": 0.01},
        {"components": 2, "target_half_width": 0.05},
    ],
)
def test_users_needed_reach_the_target_and_hardly_fewer_would(asked: dict[str, Any]) -> None:
    best = found(**asked).candidates[0]
    assert best.users_needed is not None

    def same(users: int) -> FamilyCandidate:
        return next(one for one in found(users=users, **asked).candidates if one.name == best.name)

    for start in (300, 10**6):
        assert same(start).users_needed == best.users_needed
    enough, fewer = same(best.users_needed), same(int(0.9 * best.users_needed))
    assert (enough.half_width or 9.0) <= asked["target_half_width"] < (fewer.half_width or 0.0)
    assert f"needs {best.users_needed:,} users" in found(**asked).sentence


@pytest.mark.parametrize(
    "asked",
    [
        {"components": 20},
        {"users": 1100, "dimension": 500},
        {"users": 60, "epsilon": 0.05, "density": True},
    ],
)
def test_none_is_recommended_where_a_guess_does_as_well(asked: dict[str, Any]) -> None:
    forecast = found(**asked)
    assert forecast.recommended is None
    assert forecast.sentence.startswith("Use none: too few users")


def test_what_it_stands_on_is_said() -> None:
    assert "all users draw from one law" in found(dimension=4).warning
    assert "have less than 100 samples, answers are biased" in found(dimension=4).warning
    assert (
        "spread by at most the declared between_users"
        in found(dimension=4, between_users=0.1).warning
    )
    assert "from one component" in found(components=2).warning


def test_more_functions_for_rough_densities() -> None:
    smooth, rough = (
        found(density=True, smoothness=3).candidates[0],
        found(density=True, smoothness=1).candidates[0],
    )
    assert smooth.terms is not None
    assert rough.terms is not None
    assert smooth.terms < rough.terms
    assert smooth.mse < rough.mse
    assert smooth.half_width is None


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "dimension must be given alone: it, density or components"),
        ({"dimension": 2, "density": True}, "dimension must be given alone"),
        ({"components": 2, "density": True}, "dimension must be given alone"),
        ({"components": 2, "radius": 1.0}, "radius must be left out without dimension"),
        ({"density": True, "sparsity": 2}, "sparsity must be left out without dimension"),
        ({"sparsity": 2}, "sparsity must be left out without dimension"),
        ({"dimension": 2, "smoothness": 2}, "smoothness must be left out without density"),
        (
            {"density": True, "target_half_width": 1.0},
            "target_half_width must be left out with density",
        ),
        ({"density": True, "between_users": 0.1}, "between_users must be left out with density"),
        ({"components": 2, "between_users": 0.0}, "between_users must be left out with components"),
        ({"dimension": 3, "sparsity": 4}, "sparsity must lie between 1 and dimension, 3"),
        ({"dimension": 4, "radius": 2.1}, r"radius must lie in \(0, 2\]"),
        ({"dimension": 0}, "dimension must be at least 1"),
        ({"dimension": 500, "users": 300}, "users must be at least 1000"),
        ({"dimension": 4, "epsilon": -1.0}, "epsilon must be positive"),
        ({"dimension": 4, "lower": 1.0}, "lower must be below upper"),
    ],
)
def test_refusals(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        found(**asked)
