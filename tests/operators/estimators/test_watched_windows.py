"""Undeclared windows: the gain where users are alike, the price where they are not, and rare groups.

Squared errors of R runs have a standard error of about sqrt(2 / R); limits are four of them away,
so that a test of an estimator that keeps its promise fails for one seed in 10,000. The seeds are
others than those that the constants were chosen with.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from meanstream.lab.random_words import SeededWords
from meanstream.lab.simulation.simulated_rounds import RoundsConfig, RoundsResult, simulate_rounds
from meanstream.operators.estimators.adaptive import watched_windows
from meanstream.operators.estimators.adaptive.watched_windows import WatchedWindow, watched_outside
from meanstream.operators.estimators.carried.carried_rounds import Carried
from meanstream.operators.estimators.one_shot import OneShot
from meanstream.operators.estimators.plan.planned_rounds import Plan
from meanstream.operators.rounds.round_protocol import protocol_stages_of_positions, run_protocol
from meanstream.operators.rounds.round_records import Summaries
from meanstream.operators.rounds.user_sizes import SizeDistribution

USERS = 20_000
RUNS = 40
MORE = 1.0 + 4.0 * math.sqrt(2.0 / RUNS)
ALIKE = {"sizes": "point:500", "data": "rademacher:0.3", "between_users_law": "normal:0.02"}


def simulated(**changes: Any) -> RoundsResult:
    asked: dict[str, Any] = {"estimator": "plan", "users": USERS, "runs": RUNS, "seed": 90_210}
    return simulate_rounds(RoundsConfig(**{**asked, **ALIKE, **changes}))


def made(users: int = USERS, epsilon: float = 1.0, sizes: str | None = "point:500") -> Plan:
    law = None if sizes is None else SizeDistribution.parse(sizes)
    return Plan(epsilon=epsilon, users=users, sizes=law)


def test_users_who_are_alike_are_found_without_a_declaration() -> None:
    one_shot = OneShot(epsilon=1.0, users=USERS).predicted_mse()
    found = simulated()
    assert found.mse <= 0.1 * MORE * one_shot
    assert found.coverage >= 0.95 - 4.0 * math.sqrt(0.95 * 0.05 / RUNS)
    described = made().describe()
    assert described["predicted_stderr_if_alike"] ** 2 <= 0.1 * described["one_shot_stderr"] ** 2


@pytest.mark.parametrize("law", ["normal:0.4", "skewed:0.4", "far:0.3"])
def test_users_who_lie_apart_cost_the_few_votes(law: str) -> None:
    found, alone = (
        simulated(between_users_law=law),
        simulated(estimator="one_shot", between_users_law=law),
    )
    assert found.mse <= 1.03 * MORE * alone.mse
    described = made().describe()
    assert described["predicted_stderr"] ** 2 <= 1.03 * described["one_shot_stderr"] ** 2


@pytest.mark.parametrize("share", [0.002, 0.01, 0.03, 0.05, 0.1])
def test_rare_groups_far_out_are_in_the_interval(share: float) -> None:
    found = simulated(data="rademacher:0.6", between_users_law=f"far:{share}")
    assert found.coverage >= 0.93 - 4.0 * math.sqrt(0.93 * 0.07 / RUNS)


def test_a_twin_that_does_not_ask_its_watchers_misses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known-bad: as if no watcher had been outside."""
    monkeypatch.setattr(watched_windows, "_watched_shares", lambda *_: (np.zeros(2), np.zeros(2)))
    assert simulated(data="rademacher:0.6", between_users_law="far:0.03").coverage < 0.6


@pytest.mark.parametrize(
    ("users", "epsilon", "sizes", "watched"),
    [
        (USERS, 1.0, "point:500", True),
        (USERS, 1.0, None, True),
        (USERS, 1.0, "poisson:5", False),
        (5000, 1.0, "point:500", False),
        (5000, 2.0, "point:500", True),
        (100_000, 12.0, None, False),
        (10, 0.5, None, False),
    ],
)
def test_where_a_window_cannot_pay_there_is_one_report_each(
    users: int, epsilon: float, sizes: str | None, watched: bool
) -> None:
    plan = made(users, epsilon, sizes)
    assert (plan.describe()["kind"] == "watched") == watched
    assert (len(plan.shares) == 4) == watched
    assert sum(plan.shares) == pytest.approx(1.0)


def window() -> WatchedWindow:
    asked: dict[str, Any] = {
        "epsilon": 1.0,
        "users": USERS,
        "sizes": None,
        "mode": "tuned",
        "level": 0.95,
    }
    return WatchedWindow(Plan(**{**asked, "between_users": None})._settings, OneShot(**asked))


KNOWN = {
    "n_users": 4400, "parts": [], "center": 0.3, "center_stderr": 0.03,
    "scales": [{"value": 0.05, "log_stderr": 0.17}], "mode": "narrow", "window": [0.3, 0.15], "moment": 0.06,
}  # fmt: skip


@pytest.mark.parametrize(
    ("outer", "mode", "half_width"),
    [((0, 0), "narrow", 0.15), ((800, 0), "narrow", 0.3), ((0, 800), "wide", 1.0)],
)
def test_watchers_keep_widen_or_give_up_the_window(
    outer: tuple[int, int], mode: str, half_width: float
) -> None:
    step = window().rounds[2]
    who = Summaries(
        user=np.zeros((5000, 2), np.uint64), count=np.ones(5000, np.int64),
        total=np.repeat([65, 78, 5], [5000 - sum(outer), *outer]), first=np.zeros(5000, np.int64), span=100,
    )  # fmt: skip
    reports = step.encode(who, KNOWN, SeededWords(np.random.default_rng(8), 5000))
    tally = step.tally(reports, KNOWN)
    found = step.decode(tally, KNOWN)
    assert isinstance(found, dict)
    assert (found["mode"], found["window"][1]) == (mode, half_width)
    assert (watched_outside(1.0, tally.sums) > watched_windows.FLAG) == (mode == "wide")
    step.check(found, KNOWN)
    for forged in (
        {**found, "window": [0.3, 0.01]}, {**found, "watch": [1, 2]}, {**found, "watch": [-1, 2, 3]},
        {**found, "more": 1}, {**found, "center": 0.9},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="stage result"):
            step.check(forged, KNOWN)


def test_no_watcher_is_no_window() -> None:
    step = window().rounds[2]
    found = step.decode(step.tally(np.zeros((0, 1), np.int64), KNOWN), KNOWN)
    assert isinstance(found, dict)
    assert found["mode"] == "wide"


def repeated(far: float, windows: int, seed: int) -> list[tuple[float, bool]]:
    """Error of each window, and whether it was watched."""
    first: Any = Carried(epsilon=1.0, users=USERS)
    rng, state, found = np.random.default_rng(seed), None, []
    for _ in range(windows):
        estimator = first.carrying(state)
        means = np.where(rng.random(USERS) < far, -1.0, rng.normal(0.4, 0.05, USERS)).clip(-1, 1)
        total = np.rint(0.5 * (means + 1.0) * 2**20).astype(np.int64)
        who = Summaries(
            user=np.zeros((USERS, 2), np.uint64), count=np.ones(USERS, np.int64), total=total, first=total,
            span=2**20,
        )  # fmt: skip
        stage = protocol_stages_of_positions(estimator.shares, rng.random(USERS))
        words = [SeededWords(rng, int((stage == k).sum())) for k in range(len(estimator.rounds))]
        answer = run_protocol(estimator, who, stage, words)
        state = first.carried_after(answer)
        found.append((float(answer.unclipped) - means.mean(), len(estimator.shares) == 4))
    return found


def test_windows_that_repeat_are_watched_from_the_first_on() -> None:
    found = repeated(0.0, 12, seed=31)
    assert all(watched for _, watched in found)
    one_shot = OneShot(epsilon=1.0, users=USERS).predicted_mse()
    assert (
        np.mean([error**2 for error, _ in found]) <= 0.12 * (1 + 4 * math.sqrt(2 / 12)) * one_shot
    )


def test_a_group_that_stays_far_out_ends_the_watch() -> None:
    """Three in a hundred users show in some windows together; from then on they are measured."""
    found = repeated(0.03, 14, seed=32)
    assert found[0][1]
    assert not found[-1][1]
