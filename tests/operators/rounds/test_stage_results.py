"""Results of stages from outside: what a stage can have found is accepted, the rest refused; no
user stops a report."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from meanstream.lab.evidence.estimator_checks import (
    ESTIMATOR_CHECKS,
    EstimatorTrial,
    changed_result,
)
from meanstream.lab.papers.dame.round_baselines import SummedLaplaceChannel
from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.registry import ESTIMATORS, build_estimator
from meanstream.operators.rounds.channels.registry import CHANNELS, make_channel
from meanstream.operators.rounds.round_results import result_as_plain_data
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.rounds.votes.registry import VOTES, make_votes

POINT = SizeDistribution.parse("point:400")
LAW = SizeDistribution.parse("two:100,1000,0.5")
LARGE = SizeDistribution.parse("two:100000,1000000,0.5")
SPREAD = {"sizes": LAW, "between_users": 0.01}

CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "one_shot": ("one_shot", {}, 0),
    "duchi": ("duchi", {"reading": "laplace"}, 0),
    "semi": ("semi", {}, 0),
    "split": ("split", {"sizes": POINT}, 0),
    "item": ("item", {}, 0),
    "dame": ("dame", {"sizes": LARGE}, 0),
    "dame paper": ("dame", {"sizes": LARGE, "mode": "paper"}, 0),
    "kent": ("kent", {"sizes": POINT}, 0),
    "kent.univariate": ("kent.univariate", {"sizes": POINT, "mode": "paper"}, 0),
    "kent three": ("kent", {"sizes": POINT, "mode": "paper", "votes": "three_hot"}, 0),
    "kent.linf": ("kent.linf", {"sizes": POINT, "dimension": 3}, 3),
    "kent.linf plan": ("kent.linf", {"sizes": POINT, "dimension": 2, "between_users": 0.01}, 2),
    "kent.l2": ("kent.l2", {"sizes": POINT, "dimension": 4}, 4),
    "kent.sparse_select": (
        "kent.sparse_select",
        {"sizes": POINT, "dimension": 8, "sparsity": 2},
        8,
    ),
    "kent.sparse_threshold": (
        "kent.sparse_threshold",
        {"sizes": POINT, "dimension": 4, "sparsity": 2},
        4,
    ),
    "kent.density": ("kent.density", {"sizes": POINT, "terms": 4}, 3),
    "kent.mixture": ("kent.mixture", {"sizes": POINT, "components": 2}, 0),
    "kent.mixture paper": (
        "kent.mixture",
        {"sizes": POINT, "components": 2, "mode": "paper", "half_width": 0.1},
        0,
    ),
    "kent.cover": ("kent.cover", {"radius": 0.25}, 0),
    "plan": ("plan", SPREAD, 0),
    "plan watched": ("plan", {}, 0),
    "plan adaptive": ("plan", {"tails": "exponential"}, 0),
    "plan unknown sizes": ("plan", {"sizes": "unknown", "between_users": 0.01}, 0),
    "adaptive": ("adaptive", {}, 0),
    "repeating": ("repeating", {}, 0),
    "quantile_tree": ("quantile_tree", {"quantiles": (0.1, 0.5)}, 0),
    "quantile_search": ("quantile_search", {"quantiles": (0.1, 0.5)}, 0),
    "category_shares": ("category_shares", {"categories": 4}, 4),
    "category_shares oue": ("category_shares", {"categories": 3, "votes": "oue"}, 3),
    "category_shares subset": ("category_shares", {"categories": 70, "votes": "subset"}, 70),
}
CENTRAL = {
    "central.mean",
    "cummings.ideal",
    "cummings.known_sizes",
    "cummings.private_sizes",
    "cummings.ratio",
}


def estimator_of(case: str) -> Any:
    name, options, _ = CASES.get(case, (case, {"sizes": POINT}, 0))
    return build_estimator(name, epsilon=2.0, users=20_000, **options)


WINDOWED = ("adaptive", "plan adaptive", "plan watched")
"""They use a window only where enough users report."""


def honest(case: str, seed: int = 1) -> list[tuple[int, dict[str, Any], dict[str, Any]]]:
    """Every stage's honest result with what was known before it: (stage, before, found)."""
    trial = EstimatorTrial(estimator_of(case), CASES[case][2])
    ran = list(trial.stages(trial.users(20_000 if case in WINDOWED else 1500, seed), seed))
    return [(number, before, found) for number, (_, before, _, found) in enumerate(ran[:-1])]


def test_every_local_estimator_is_here() -> None:
    assert set(ESTIMATORS) == {name for name, _, _ in CASES.values()} | CENTRAL


@pytest.mark.parametrize("check", ESTIMATOR_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", [*CASES, *sorted(CENTRAL)])
def test_every_estimator_keeps_to_the_checks_that_others_may_import(case: str, check: Any) -> None:
    check(EstimatorTrial(estimator_of(case), CASES[case][2] if case in CASES else 0))


def accepted(step: Any, found: Any, before: Any) -> bool:
    try:
        result_as_plain_data(found)
        step.check(found, before)
    except ValueError:
        return False
    return True


NARROW = {
    "adaptive": lambda found: (
        changed_result(found, ("window", 1), 1e-300) if "window" in found else None
    ),
    "plan watched": lambda found: (
        changed_result(found, ("window", 1), 1e-300) if "window" in found else None
    ),
    "dame": lambda found: changed_result(found, ("upper",), found["lower"] + 1e-9),
    "kent": lambda found: changed_result(found, ("upper",), found["lower"]),
    "plan": lambda found: changed_result(found, ("center",), 1e300),
    "kent.mixture": lambda found: changed_result(found, ("middles", 1), found["middles"][0]),
    "kent.linf": lambda found: changed_result(
        found, ("inner", 1, "upper"), found["inner"][1]["lower"]
    ),
    "plan unknown sizes": lambda found: changed_result(found, ("design", -1, "window"), 2.0**-21),
}


@pytest.mark.parametrize("case", NARROW)
def test_a_window_narrower_than_a_step_is_refused(case: str) -> None:
    estimator, tried = estimator_of(case), 0
    for stage, before, result in honest(case):
        if (
            stage < 2
            and (found := NARROW[case](result) if case != "plan" or stage == 0 else None)
            is not None
        ):
            assert not accepted(estimator.rounds[stage], found, before)
            tried += 1
    assert tried


def test_a_window_of_the_adaptive_estimator_never_grows() -> None:
    estimator, results = estimator_of("adaptive"), honest("adaptive")
    stage, before, result = next(one for one in results if one[1].get("mode") == "narrow")
    assert result["mode"] == "narrow"
    wider = changed_result(result, ("window", 1), 1.01 * before["window"][1])
    assert not accepted(estimator.rounds[stage], wider, before)
    forgotten = changed_result(result, ("parts",), [])
    assert not accepted(estimator.rounds[stage], forgotten, before)


@pytest.mark.parametrize(
    "found", [json.loads("[" * 900 + "]" * 900), {"a": "x" * 1000}, {"a": 10**5000}]
)
def test_data_that_are_deep_long_or_huge_are_refused_in_a_short_line(found: Any) -> None:
    with pytest.raises(ValueError, match="stage result: ") as told:
        result_as_plain_data(found)
    assert len(str(told.value)) < 200


VALUES = np.array(
    [0.0, -0.0, 5e-324, 1.0, -1.0, np.nextafter(1, 0), 1e300, -1e308, np.inf, -np.inf, np.nan]
)


@pytest.mark.parametrize("epsilon", [2.0**-15, 0.01, 1.0, 40.0, 700.0])
@pytest.mark.parametrize("name", CHANNELS)
def test_a_channel_reports_whatever_number_comes(name: str, epsilon: float) -> None:
    channel = make_channel(name, epsilon)
    for seed in range(20):
        reports = channel.randomize(VALUES, SeededWords(np.random.default_rng(seed), len(VALUES)))
        assert channel.valid(reports).all()


@pytest.mark.parametrize("values", [1, 1000, 2**24])
def test_a_sum_of_reports_is_an_integer_of_64_bits_or_refused_beforehand(values: int) -> None:
    channel = SummedLaplaceChannel(1.0, values=values)
    reports = channel.randomize(VALUES, SeededWords(np.random.default_rng(1), len(VALUES)))
    assert channel.valid(reports).all()
    with pytest.raises(ValueError, match="epsilon must be larger"):
        SummedLaplaceChannel(1e-9, values=2**24)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 40.0, 700.0])
@pytest.mark.parametrize("name", [name for name in VOTES if name != "binary"])
def test_every_vote_is_a_report(name: str, epsilon: float) -> None:
    for bins in (1, 2, 3, 64):
        votes = make_votes(name, epsilon, bins)
        row = np.arange(-1, bins)
        reports = votes.randomize(row, SeededWords(np.random.default_rng(bins), len(row)))
        assert len(reports) == len(row)
        assert votes.valid(reports).all()


def test_more_coordinates_than_there_are_random_bits_for_are_refused_beforehand() -> None:
    with pytest.raises(ValueError, match="participation must be at most 32"):
        build_estimator(
            "kent.linf", epsilon=50.0, users=20_000, sizes=POINT, dimension=64, participation=40
        )
