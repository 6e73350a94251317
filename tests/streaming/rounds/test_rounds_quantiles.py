"""Quantiles in the engine of rounds: several stages, lists as answers, two sides, what does not
fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.events.round_events import WindowEstimate
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from tests.streaming.rounds.test_rounds_crash import DieAt, Died
from tests.streaming.support.rounds_world import DAY, RoundsWorld, rounds_settings, samples
from tests.streaming.support.scripted_source import ScriptedSource

WANTED = (0.1, 0.5, 0.9)


def quantile_settings(**changes: Any) -> RoundsSettings:
    return rounds_settings(
        **{"estimator": "quantile_tree", "quantiles": WANTED, "epsilon": 4.0, **changes}
    )


def test_each_window_has_its_quantiles_within_the_bounds(tmp_path: Path) -> None:
    world = RoundsWorld(tmp_path, quantile_settings())
    world.run(ScriptedSource(samples(n=600, users=60)))
    answers = world.events("means")
    assert len(answers) == 4
    for line, answer in zip(world.lines("means"), answers, strict=True):
        WindowEstimate.model_validate_json(line, strict=True)
        assert answer["quantiles"] == list(WANTED)
        assert answer["value"] == sorted(answer["value"])
        for value, (lower, upper) in zip(answer["value"], answer["interval"], strict=True):
            assert 0.0 <= lower <= value <= upper <= 10.0
    reports = [event["user"] for event in world.events("reports") if "user" in event]
    assert len(reports) == sum(
        answer["users"] for answer in answers
    )  # one report of each user and window


@pytest.mark.parametrize(
    ("estimator", "widest"), [("quantile_tree", 1.5), ("quantile_search", 4.0)]
)
def test_many_users_are_answered_within_the_interval(
    tmp_path: Path, estimator: str, widest: float
) -> None:
    """Three quantiles share the users of a search: its intervals are longer."""
    rng = np.random.default_rng(4)
    own = rng.gamma(3.0, 1.0, 5000)
    stream = [
        (f"user {u}", float(v), float(t))
        for u, v, t in zip(range(5000), own, np.arange(5000) * 15.0, strict=True)
    ]
    world = RoundsWorld(tmp_path, quantile_settings(estimator=estimator))
    world.options = type(world.options)(batch_size=2000)
    world.run(ScriptedSource(stream))
    (answer,) = world.events("means")
    for probability, (lower, upper) in zip(WANTED, answer["interval"], strict=True):
        assert lower <= np.quantile(own.clip(0, 10), probability) <= upper
        assert upper - lower < widest


@pytest.mark.parametrize("estimator", ["quantile_tree", "quantile_search"])
def test_two_sides_and_a_death_give_the_same_bytes(tmp_path: Path, estimator: str) -> None:
    settings, stream = quantile_settings(users=30, estimator=estimator), samples(n=300, users=30)
    whole = RoundsWorld(tmp_path / "whole", settings)
    whole.run(ScriptedSource(stream))
    died = RoundsWorld(tmp_path / "died", settings)
    for point in (CrashPoint.COMMIT, CrashPoint.WRITE_ESTIMATES):
        for moment in Moment:
            with pytest.raises(Died):
                died.run(ScriptedSource(stream), crash=DieAt(point, moment, 2))
    died.run(ScriptedSource(stream))
    assert died.lines("means") == whole.lines("means")
    split = RoundsWorld(tmp_path / "split", settings)
    for _ in settings.estimator_for(30).rounds:
        split.run(ScriptedSource(stream), stages=split.folder / "stages.jsonl")
        split.tally(split.folder / "reports.jsonl")
    assert split.lines("means") == whole.lines("means")
    assert max(float(t) for *_, t in stream) < 4 * DAY


def test_quantiles_are_part_of_the_protocol() -> None:
    settings = quantile_settings()
    plain = {name: value for name, value in settings.plain().items() if name != "edition"}
    assert RoundsSettings(**json.loads(json.dumps(plain))) == settings
    assert settings.digest() != quantile_settings(quantiles=(0.5,)).digest()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"quantiles": None},
            "quantiles must be given for quantile_tree, such as 0.5,0.9, got None",
        ),
        ({"estimator": "one_shot"}, "quantiles must be left out for one_shot"),
        ({"options": {"quantiles": [0.5]}}, "quantiles must be given as --quantiles"),
        ({"quantiles": (0.9, 0.5)}, "quantiles must be different and ascending, got 0.9,0.5"),
        ({"quantiles": ("half",)}, "quantiles must be a number"),
        ({"categories": ("a", "b")}, "categories must be left out for quantile_tree"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quantile_settings(**changes).estimator_for(100)
