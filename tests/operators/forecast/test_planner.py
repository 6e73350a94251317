"""The forecast of what estimators do: errors, users needed, the recommendation and its warning."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest

from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.registry import ESTIMATORS, build_estimator
from meanstream.operators.forecast.rounds_forecast import (
    forecast_rounds,
    forecast_rounds_candidates,
)
from meanstream.operators.forecast.users_needed import users_needed
from meanstream.operators.rounds.round_protocol import protocol_stages_of_positions, run_protocol
from meanstream.operators.rounds.round_records import Summaries
from meanstream.operators.rounds.user_sizes import SizeDistribution

LARGE = SizeDistribution.parse("point:1000")
SMALL = SizeDistribution.parse("point:2")


def test_candidates_are_estimators_and_sorted_by_error() -> None:
    found = forecast_rounds(users=20_000, epsilon=1.0, sizes=LARGE)
    assert set(forecast_rounds_candidates()) <= set(ESTIMATORS)
    assert {one.name for one in found.candidates} == set(forecast_rounds_candidates())
    errors = [one.mse for one in found.candidates]
    assert errors == sorted(errors)
    assert json.loads(json.dumps(found.as_dict()))["recommended"] == found.recommended


def test_predictions_are_those_of_the_estimators() -> None:
    found = {
        one.name: one for one in forecast_rounds(users=20_000, epsilon=1.0, sizes=LARGE).candidates
    }
    for name in ("one_shot", "dame", "kent"):
        described = build_estimator(name, epsilon=1.0, users=20_000, sizes=LARGE).describe()
        assert found[name].mse == pytest.approx(described["predicted_stderr"] ** 2)
        assert found[name].half_width == pytest.approx(
            1.959964 * described["predicted_stderr"], rel=1e-5
        )


def test_without_a_declared_bound_only_what_needs_none_is_recommended() -> None:
    found = forecast_rounds(users=20_000, epsilon=1.0, sizes=LARGE)
    by_name = {one.name: one for one in found.candidates}
    assert found.recommended == "one_shot"
    assert by_name["plan"].mse < by_name["adaptive"].mse < by_name["one_shot"].mse
    assert "tails (exponential: " in found.sentence
    assert by_name["adaptive"].worst_mse > by_name["one_shot"].mse


@pytest.mark.parametrize("declared", [None, 0.05])
def test_the_epsilon_for_a_half_width_is_the_least_that_reaches_it(declared: float | None) -> None:
    asked = {"users": 3000, "sizes": SMALL, "between_users": declared}
    found = forecast_rounds(epsilon=1.0, target_half_width=0.05, **asked)
    for name, epsilon in found.epsilon_needed.items():
        assert epsilon is not None
        for other, enough in ((epsilon, True), (0.9 * epsilon, False)):
            at = forecast_rounds(epsilon=other, **asked)
            one = next(one for one in (*at.candidates, *at.curators) if one.name == name)
            assert (one.half_width <= 0.05) == enough
    sure = forecast_rounds(epsilon=1.0, target_half_width=1e-4, **asked)
    assert set(sure.epsilon_needed.values()) == {None}


def test_privacy_and_sampling_make_up_the_half_width() -> None:
    found = forecast_rounds(users=3000, epsilon=1.0, sizes=SMALL)
    for one in (*found.candidates, *found.curators):
        if one.half_width > found.sampling_half_width:
            assert math.hypot(one.privacy_half_width, found.sampling_half_width) == pytest.approx(
                one.half_width
            )
    assert (
        found.curator.privacy_half_width
        < found.sampling_half_width
        < found.candidates[0].privacy_half_width
    )


def test_declared_tails_make_adapting_the_choice() -> None:
    found = forecast_rounds(users=20_000, epsilon=1.0, sizes=LARGE, tails="exponential")
    assert found.recommended == "adaptive"
    assert "Use plan with the declared tails (adaptive)" in found.sentence
    with pytest.raises(ValueError, match="tails must be exponential, or be left out, got 'normal'"):
        forecast_rounds(users=20_000, epsilon=1.0, sizes=LARGE, tails="normal")


def test_a_declared_bound_makes_the_plan_the_choice() -> None:
    found = forecast_rounds(users=20_000, epsilon=1.0, sizes=LARGE, between_users=0.01)
    alike = forecast_rounds(users=20_000, epsilon=1.0, sizes=LARGE, between_users=0.0)
    assert found.recommended == alike.recommended == "plan"
    assert found.candidates[0].mse > alike.candidates[0].mse
    assert found.breaking_point > 0.01


@pytest.mark.parametrize("between_users", [None, 0.0])
def test_do_not_localise_where_it_cannot_pay(between_users: float | None) -> None:
    found = forecast_rounds(users=1000, epsilon=0.5, sizes=SMALL, between_users=between_users)
    assert found.recommended == "one_shot"
    assert found.sentence.startswith("Use one unbiased report")


def test_everything_is_in_the_unit_of_the_value() -> None:
    unit = forecast_rounds(
        users=20_000, epsilon=1.0, sizes=LARGE, between_users=0.02, target_half_width=0.01
    )
    minutes = forecast_rounds(
        users=20_000,
        epsilon=1.0,
        sizes=LARGE,
        lower=-30.0,
        upper=120.0,
        between_users=1.5,
        target_half_width=0.75,
    )
    for a, b in zip(unit.candidates, minutes.candidates, strict=True):
        assert (a.name, a.mse, a.users_needed) == (b.name, pytest.approx(b.mse), b.users_needed)
        assert b.half_width == pytest.approx(75 * a.half_width)
    assert minutes.breaking_point == pytest.approx(75 * unit.breaking_point)


def test_users_needed_reach_the_target_and_hardly_fewer_would() -> None:
    found = forecast_rounds(
        users=5000, epsilon=1.0, sizes=LARGE, between_users=0.0, target_half_width=0.02
    )
    needed = {one.name: one.users_needed for one in found.candidates}
    for name in ("one_shot", "plan"):
        options = {"between_users": 0.0} if name == "plan" else {}

        def half_width(n: int, name: str = name, options: dict = options) -> float:
            described = build_estimator(
                name, epsilon=1.0, users=n, sizes=LARGE, **options
            ).describe()
            return 1.96 * described["predicted_stderr"]

        assert half_width(needed[name]) <= 0.02
        assert half_width(int(0.85 * needed[name])) > 0.02
    assert needed["plan"] < 0.1 * needed["one_shot"]
    assert f"{needed['plan']:,} users" in found.sentence


def test_users_needed_jumps_and_limits() -> None:
    assert users_needed(lambda n: 2 / n**0.5, 0.02) == 10_000
    assert users_needed(lambda n: 1.0, 0.5) is None
    assert users_needed(lambda n: 0.99e9 / n, 1.0) == 990_000_000
    assert users_needed(lambda n: 1e9 / n, 1.0) == 10**9
    assert users_needed(lambda n: 0.1, 0.5) == 1
    # Where more users make another design possible.
    assert users_needed(lambda n: 1.0 if n < 7300 else 0.01, 0.5) == 7300
    assert users_needed(lambda n: math.inf if n < 73 else 0.01, 0.5) == 73


def test_too_few_users_for_a_design_are_not_enough() -> None:
    def refuses(n: int) -> float:
        if n < 500:
            raise ValueError("users must be at least 500")
        return 0.1

    assert users_needed(refuses, 0.5) == 500


def scanned(stderr: Callable[[int], float], target: float, most: int) -> int:
    """Brute force: the first number of two significant digits that reaches the target."""
    numbers = (
        n
        for power in range(9)
        for n in range(10**power, 10 ** (power + 1), max(10 ** (power - 1), 1))
    )
    return next(n for n in numbers if stderr(n) <= target or n > most)


@pytest.mark.parametrize("exponent", [0.1, 0.25, 0.5, 1.0, 1.7, 4.0])
def test_users_needed_is_that_of_a_scan_however_errors_fall(exponent: float) -> None:
    asked = []

    def stderr(n: int) -> float:
        asked.append(n)
        return float((n / 137) ** -exponent)

    for target in (1.9, 1.0, 0.61, 0.4):
        asked.clear()
        assert users_needed(stderr, target) == scanned(
            lambda n: (n / 137) ** -exponent, target, 10**8
        )
        assert len(asked) == len(set(asked)) <= 16


@pytest.mark.parametrize("name", ["kent", "cummings.ratio"])
@pytest.mark.parametrize("target", [0.05, 0.0051])
def test_users_needed_is_that_of_a_scan_of_designs(name: str, target: float) -> None:
    """Errors of both fall faster than the root of the number of users, where bins become
    possible."""

    def stderr(n: int) -> float:
        return float(
            build_estimator(name, epsilon=1.0, users=n, sizes=LARGE).describe()["predicted_stderr"]
        )

    expected = scanned(stderr, target, 10_000)
    assert users_needed(stderr, target) == expected


def test_below_a_bump_fewer_users_may_do() -> None:
    """Another design takes over at 1000 users, too early: what fewer reach counts."""

    def bumpy(n: int) -> float:
        return float((n if n < 1000 else 0.8 * n) ** -0.5)

    assert users_needed(bumpy, 900**-0.5) == scanned(bumpy, 900**-0.5, 10**4) == 900


def skewed_users(n: int, size: int, spread: float, rng: np.random.Generator) -> Summaries:
    chance = np.clip(0.5 * (1 + spread * (rng.exponential(size=n) - 1)), 0, 1)
    ones = rng.binomial(size, chance).astype(np.int64)
    count = np.full(n, size)
    return Summaries(
        user=np.zeros((n, 2), np.uint64), count=count, total=ones, first=ones % 2, span=1
    )


def test_the_warning_is_true() -> None:
    """At the breaking point the interval of the papers' assumption misses about half of the time,
    simulated."""
    users, runs = 20_000, 60
    found = forecast_rounds(users=users, epsilon=1.0, sizes=LARGE, between_users=0.0)
    assert f"{found.breaking_point:.3g}" in found.warning
    plan = build_estimator("plan", epsilon=1.0, users=users, sizes=LARGE, between_users=0.0)
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(runs):
        stage = protocol_stages_of_positions(plan.shares, rng.random(users))
        words = [SeededWords(rng, int(np.sum(stage == k))) for k in range(len(plan.rounds))]
        answer = run_protocol(
            plan, skewed_users(users, 1000, found.breaking_point, rng), stage, words
        )
        covered += bool(answer.lower <= 0 <= answer.upper)
    # Half plus or minus four standard errors of 60 runs (false alarm: one in 16,000), and .1 for
    # the computed bias.
    assert abs(covered / runs - 0.5) < 4 * math.sqrt(0.25 / runs) + 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lower": 1.0}, "lower must be below upper"),
        ({"level": 0.0}, "level must lie strictly between"),
        ({"epsilon": -1.0}, "epsilon must be positive"),
        ({"target_half_width": 0.0}, "target_half_width must be positive"),
        ({"between_users": -1.0}, "between_users must"),
    ],
)
def test_refusals(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        forecast_rounds(**{"users": 1000, "epsilon": 1.0, "sizes": SMALL, **options})


def test_a_curator_is_told_apart_and_never_recommended() -> None:
    """Its error is that of a round by the curator; the target needs fewer users than those who
    protect themselves."""
    asked = {"epsilon": 1.0, "sizes": LARGE, "lower": -30.0, "upper": 120.0}
    found = forecast_rounds(users=4000, target_half_width=1.0, **asked)
    assert found.curator.name not in {one.name for one in found.candidates}
    described = build_estimator("central.mean", epsilon=1.0, users=4000, sizes=LARGE).describe()
    assert found.curator.mse == described["predicted_stderr"] ** 2
    best = {one.name: one for one in found.candidates}[found.recommended]
    assert found.curator.half_width < best.half_width
    assert found.curator.worst_mse >= found.curator.mse
    assert found.curator.users_needed is not None
    assert best.users_needed is None or found.curator.users_needed < best.users_needed
    assert f"use central.mean: half-width {found.curator.half_width:.3g}" in found.curator_sentence
    assert (
        f"{best.half_width:.3g} if users protect themselves ({best.name})" in found.curator_sentence
    )
    enough = forecast_rounds(users=found.curator.users_needed, **asked).curator
    assert 0.8 < enough.half_width <= 1.0
    assert forecast_rounds(users=4000, **asked).curator.users_needed is None
