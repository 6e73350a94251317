"""Estimators and collaborations of others are taken by name or as objects, without a change of this
package."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from meanstream import private_means, private_windows, simulate_agents, simulate_rounds
from meanstream.beam import RunRounds
from meanstream.operators.collaboration.james_stein import JamesStein
from meanstream.operators.collaboration.registry import make_collaboration
from meanstream.operators.entry_points import installed_entry_points
from meanstream.operators.estimators.one_shot import OneShot
from meanstream.operators.estimators.registry import estimator_class, estimator_name
from meanstream.operators.records import Floats, ReleaseColumns
from meanstream.testing import check_collaboration, check_estimator

MODULE = """
from meanstream.operators.collaboration.alone import LearningAlone
from meanstream.operators.estimators.one_shot import OneShot


class Mine(OneShot):
    name = "mine"


def alone(lower, upper, significance):
    return LearningAlone()
"""
ENTRIES = """[meanstream.estimators]
mine = theirs:Mine
one_shot = theirs:NotThere

[meanstream.collaborations]
mine = theirs:alone
"""


@pytest.fixture(autouse=True)
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another package, installed."""
    (tmp_path / "theirs.py").write_text(MODULE)
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    installed_entry_points.cache_clear()
    yield
    installed_entry_points.cache_clear()


def test_an_estimator_of_another_package_answers_windows() -> None:
    assert estimator_class("mine").name == "mine"
    assert estimator_class("one_shot").__module__.startswith("meanstream."), (
        "none of ours is replaced"
    )
    frame = pl.DataFrame(
        {"who": [f"u{n}" for n in range(60)], "v": [float(n % 7) for n in range(60)], "t": [0] * 60}
    )
    given = {
        "by": "who",
        "value": "v",
        "time": "t",
        "lower": 0,
        "upper": 10,
        "epsilon": 4.0,
        "window": "1h",
    }
    own, ours = (private_windows(frame, **given, estimator=name) for name in ("mine", "one_shot"))
    assert own.to_frame()["users"].to_list() == ours.to_frame()["users"].to_list() == [60]


def test_a_collaboration_of_another_package_answers_agents() -> None:
    assert type(make_collaboration("mine", lower=0.0, upper=1.0)).__name__ == "LearningAlone"
    frame = pl.DataFrame({"who": ["a", "b"] * 30, "v": [1.0, 2.0] * 30})
    given = {"by": "who", "value": "v", "lower": 0, "upper": 3, "epsilon": 1.0, "delta": 1e-6}
    found = private_means(frame, **given, collaboration="mine")
    assert found.to_frame()["rows"].to_list() == [30, 30]


def test_an_unknown_name_is_refused_with_all_that_there_are() -> None:
    with pytest.raises(
        ValueError, match=r"estimator must be one of one_shot, .*, mine.*, got 'other'"
    ):
        estimator_class("other")
    with pytest.raises(ValueError, match=r"collaboration must be one of .*, mine.*, got 'other'"):
        make_collaboration("other", lower=0.0, upper=1.0)


class OneShotOfAnotherName(OneShot):
    name = "another"


class Leaky(OneShot):
    """It sends less noise than it says."""

    name = "leaky"

    def __init__(self, *, epsilon: float, users: int, **options: Any) -> None:
        super().__init__(epsilon=4 * epsilon, users=users, **options)
        self.epsilon = self.rounds[0].epsilon = epsilon


class OutsideItself(OneShot):
    """Its interval lies above its answer."""

    name = "outside_itself"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        decode = self.rounds[-1].decode

        def moved(*sums: Any) -> Any:
            answer = decode(*sums)
            return replace(
                answer, lower=np.nextafter(answer.value, 2.0), upper=np.full_like(answer.value, 1.0)
            )

        self.rounds[-1].decode = moved


class Hasty(JamesStein):
    """It takes the first release for everybody's."""

    name = "hasty"

    def fit(self, releases: ReleaseColumns, variance: Floats) -> Any:
        return super().fit(
            replace(releases, mean=np.full_like(releases.mean, releases.mean[:1].sum())), variance
        )


def test_an_object_is_taken_wherever_a_name_is_and_travels_with_its_name() -> None:
    class Own(OneShot):
        name = "own"

    name = pickle.loads(pickle.dumps(estimator_name(Leaky)))  # noqa: S301 - our own bytes
    assert estimator_class(name) is Leaky
    frame = pl.DataFrame(
        {"who": [f"u{n}" for n in range(60)], "v": [float(n % 7) for n in range(60)], "t": [0] * 60}
    )
    given = {"by": "who", "value": "v", "lower": 0, "upper": 10, "epsilon": 4.0}
    assert len(private_windows(frame, **given, time="t", window="1h", estimator=Own)) == 1
    assert (
        RunRounds(Own, name="d", lower=0, upper=10, epsilon=1.0, window="1h").display_data()[
            "estimator"
        ]
        == "own"
    )
    assert len(private_means(frame, **given, delta=1e-6, collaboration=Hasty(0.0, 10.0))) == 60
    options = {"agents": 20, "steps": 100, "runs": 1, "collaboration": Hasty(0.0, 1.0)}
    assert len(simulate_agents(**options)) == len(simulate_rounds(Own, users=100, runs=2)) == 1
    with pytest.raises(
        ValueError, match="attribute `name` that Meanstream does not use, got 'one_shot'"
    ):
        estimator_name(OneShot)


def test_the_checks_catch_an_estimator_that_leaks_and_a_collaboration_that_knows_an_order() -> None:
    check_estimator(OneShotOfAnotherName)
    with pytest.raises(AssertionError, match="reports lose at least epsilon"):
        check_estimator(Leaky)
    with pytest.raises(AssertionError, match="an answer must lie in its interval"):
        check_estimator(OutsideItself)
    with pytest.raises(AssertionError, match="must not depend on the order"):
        check_collaboration(Hasty(0.0, 1.0))
