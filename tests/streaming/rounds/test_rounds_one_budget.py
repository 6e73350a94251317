"""One budget for several windows of a user in the engine: charged once, then data is left out."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.rounds.rounds_budget import rounds_budgets
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from tests.streaming.rounds.test_rounds_crash import DieAt, Died
from tests.streaming.support.rounds_world import RoundsWorld, Spoiled, rounds_settings, samples
from tests.streaming.support.scripted_source import ScriptedSource

SHARED: dict[str, Any] = {
    "estimator": "central.mean",
    "user_windows": 3,
    "user_delta": 0.01,
    "epsilon": 1.0,
}


def world(folder: Path, **changes: Any) -> RoundsWorld:
    return RoundsWorld(folder, rounds_settings(**{**SHARED, **changes}))


def test_a_user_pays_once_for_its_windows_and_is_left_out_after_them(tmp_path: Path) -> None:
    here = world(tmp_path)
    assert here.settings.gaussian
    stats = here.run(ScriptedSource(samples()))
    answers = here.events("means")
    assert [answer["users"] for answer in answers] == [12, 12, 12, 0]
    for answer in answers:
        assert (answer["epsilon"], answer["delta"], answer["user_windows"]) == (1.0, 0.01, 3)

    # Each charge names its number; together they are one budget.
    charges = here.events("reports")
    assert Counter(charge["window_number"] for charge in charges) == {1: 12, 2: 12, 3: 12}
    assert {(c["epsilon"], c["delta"], c["user_windows"]) for c in charges} == {(1.0, 0.01, 3)}

    # The fourth day refuses everyone, who have nothing left.
    refusals = here.events("notices")
    assert stats.over_budget == len(refusals) == 12
    assert {(r["spent"], r["asked"], r["remaining"]) for r in refusals} == {(1.0, 1.0, 0.0)}

    told = rounds_budgets(here.folder / "s.db")
    assert (told.summary.spent_max, told.summary.delta, told.summary.at_budget) == (1.0, 0.01, 12)
    assert {(row.spent, row.delta, row.windows_left) for row in told.users} == {(1.0, 0.01, 0)}


def test_a_part_of_the_windows_has_spent_all_and_can_go_on(tmp_path: Path) -> None:
    here = world(tmp_path, user_windows=9)
    here.run(ScriptedSource(samples()))
    told = rounds_budgets(here.folder / "s.db")
    assert {(row.spent, row.remaining, row.windows_left) for row in told.users} == {(1.0, 0.0, 5)}
    assert told.summary.at_budget == 0


@pytest.mark.parametrize("point", [CrashPoint.COMMIT, CrashPoint.WRITE_ESTIMATES])
def test_killed_and_begun_again_the_noise_and_charges_are_the_same(
    point: CrashPoint, tmp_path: Path
) -> None:
    reference = world(tmp_path / "reference")
    reference.run(Spoiled(samples()))
    killed = world(tmp_path / "killed")
    with pytest.raises(Died):
        killed.run(Spoiled(samples()), crash=DieAt(point, Moment.BEFORE, 2))
    killed.run(Spoiled(samples()))
    assert killed.files() == reference.files()


def test_another_budget_has_other_noise(tmp_path: Path) -> None:
    """Two deployments of one name and secret would else solve for the sums."""
    found = set()
    for number, changes in enumerate(
        ({}, {"user_windows": 4}, {"user_delta": 0.02}, {"epsilon": 1.1}, {"name": "other"})
    ):
        here = world(tmp_path / str(number), **changes)
        here.run(ScriptedSource(samples()))
        answer = here.events("means")[0]
        error = answer["unclipped"] - 6.0
        found.add(round(error / answer["stages"][0]["noise_stddev"], 9))
    assert len(found) == 5


@pytest.mark.parametrize("estimator", ["one_shot", "repeating", "plan"])
def test_users_who_protect_themselves_share_a_budget_by_exact_composition(
    estimator: str, tmp_path: Path
) -> None:
    here = world(tmp_path, estimator=estimator)
    budget = here.settings.window_budget
    assert budget is not None
    assert not here.settings.gaussian
    here.run(ScriptedSource(samples()))
    reports = [event for event in here.events("reports") if "user" in event]
    assert Counter(Counter(r["user"] for r in reports).values()) == {3: 12}
    assert {report["epsilon"] for report in reports} == {budget.each}
    assert budget.each > budget.share
    assert [answer["users"] for answer in here.events("means")] == [12, 12, 12, 0]
    assert here.events("means")[0]["epsilon"] == 1.0
    assert rounds_budgets(here.folder / "s.db").summary.spent_max == 1.0


def test_a_setting_comes_back_from_plain_data_and_old_protocols_stay() -> None:
    shared = rounds_settings(**SHARED)
    plain = json.loads(json.dumps(shared.plain()))
    assert RoundsSettings.of_plain(plain) == shared
    assert {"user_windows", "user_delta"} <= set(shared.protocol())
    assert {"user_windows", "user_delta"}.isdisjoint(rounds_settings(estimator="one_shot").plain())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"user_budget": 3.0}, "user_budget must be left out with user_windows"),
        ({"user_windows": None}, "delta must be left out without user_windows"),
        ({"user_windows": 1}, "user_windows must lie in 2"),
        ({"user_delta": 1.0}, "delta must be at least 0 and below 1"),
        (
            {"estimator": "cummings.private_sizes"},
            "user_windows must be left out for cummings.private_sizes, which has a delta of its own",
        ),
        ({"window": "7d,1d"}, "user_windows must be at least 7 for sliding windows"),
        ({"user_delta": 0.0, "user_windows": 50_000}, "user_windows must be fewer for epsilon 1"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        rounds_settings(**{**SHARED, **changes}).estimator_for(100)
