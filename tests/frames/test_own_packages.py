"""An estimator and a collaboration of another package are taken by name, without a change of this one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from meanstream import private_means, private_windows
from meanstream.operators.collaboration.registry import make_collaboration
from meanstream.operators.entry_points import entry_points_of
from meanstream.operators.estimators.registry import estimator_class

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
    entry_points_of.cache_clear()
    yield
    entry_points_of.cache_clear()


def test_an_estimator_of_another_package_answers_windows() -> None:
    assert estimator_class("mine").name == "mine"
    assert estimator_class("one_shot").__module__.startswith("meanstream."), "none of ours is replaced"
    frame = pl.DataFrame({"who": [f"u{n}" for n in range(60)], "v": [float(n % 7) for n in range(60)], "t": [0] * 60})
    given = {"by": "who", "value": "v", "time": "t", "lower": 0, "upper": 10, "epsilon": 4.0, "window": "1h"}
    own, ours = (private_windows(frame, **given, estimator=name) for name in ("mine", "one_shot"))
    assert own.to_frame()["users"].to_list() == ours.to_frame()["users"].to_list() == [60]


def test_a_collaboration_of_another_package_answers_agents() -> None:
    assert type(make_collaboration("mine", lower=0.0, upper=1.0)).__name__ == "LearningAlone"
    frame = pl.DataFrame({"who": ["a", "b"] * 30, "v": [1.0, 2.0] * 30})
    given = {"by": "who", "value": "v", "lower": 0, "upper": 3, "epsilon": 1.0, "delta": 1e-6}
    found = private_means(frame, **given, collaboration="mine")
    assert found.to_frame()["rows"].to_list() == [30, 30]


def test_an_unknown_name_is_refused_with_all_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"estimator must be one of one_shot, .*, mine, got 'other'"):
        estimator_class("other")
    with pytest.raises(ValueError, match=r"collaboration must be one of .*, mine, got 'other'"):
        make_collaboration("other", lower=0.0, upper=1.0)
