"""The whole engine of rounds on neighboring windows: what one user sends shows in that user's
report and nowhere else.

The reports themselves are audited exactly with the estimators; here it is what surrounds them. The
same secret makes the noise of everybody else the same, so that any other trace of a user's data
would be a difference of bytes. Each check has a known-bad twin that it catches.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.operators.estimators.registry import ESTIMATORS
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.streaming.rounds import window_round as reports_module
from meanstream.streaming.rounds.window_round import WindowRound
from meanstream.streaming.rounds.window_widths import MICROS, Window
from tests.streaming.support.rounds_world import DAY, RoundsWorld, rounds_settings
from tests.streaming.support.scripted_source import ScriptedSource
from tests.streaming.support.tiny_estimator import TINY

USERS = 40
Stream = list[tuple[str, float, float]]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "tiny", TINY)
    monkeypatch.setattr("os.fsync", lambda _: None)


def stream(samples_of_ann: int, value: float, seed: int = 3) -> Stream:
    """A day of everybody else, always the same, and of ann: so many samples of one value, from some
    time on."""
    rng = np.random.default_rng(seed)
    others = [
        (f"user {i % USERS}", float(rng.normal(5, 2)), float(rng.uniform(0, DAY)))
        for i in range(8 * USERS)
    ]
    ann = [("ann", value, 1000.0 + 300 * i) for i in range(samples_of_ann)]
    return sorted(others + ann, key=lambda sample: sample[2])


def public(folder: Path, samples: Stream, **changes: Any) -> RoundsWorld:
    world = RoundsWorld(folder, rounds_settings(**changes))
    world.run(ScriptedSource(samples))
    return world


def reports_of(world: RoundsWorld) -> dict[str, tuple[int, list[int]]]:
    return {e["user"]: (e["stage"], e["payload"]) for e in world.events("reports") if "user" in e}


def traces(one: RoundsWorld, two: RoundsWorld) -> set[str]:
    """Name what differs beside the report of ann and what is computed from it."""
    a, b = reports_of(one), reports_of(two)
    found = set()
    if {user: stage for user, (stage, _) in a.items()} != {
        user: stage for user, (stage, _) in b.items()
    }:
        found.add("who is asked in which stage")
    in_last = a["ann"][0] == 1
    same_public = one.lines("stages") == two.lines("stages")
    for user, (stage, payload) in a.items():
        # Others of the second stage may answer another question, if ann was heard in the first.
        if (
            user != "ann"
            and (stage == 0 or in_last or same_public)
            and b.get(user) != (stage, payload)
        ):
            found.add("the report of somebody else")
    if in_last and not same_public:
        found.add("an earlier stage")
    if one.lines("dead_letters") != two.lines("dead_letters") or one.lines("notices") != two.lines(
        "notices"
    ):
        found.add("dead letters and notices")
    counts = [
        [e.get("reports") for e in world.events("reports") if "user" not in e]
        for world in (one, two)
    ]
    if counts[0] != counts[1]:
        found.add("numbers of reports")
    if [e["users"] for e in one.events("stages")] != [e["users"] for e in two.events("stages")]:
        found.add("reports that could be counted")
    if [e["users"] for e in one.events("means")] != [e["users"] for e in two.events("means")]:
        found.add("users")
    return found


NEIGHBORS = [
    ((1, 0.0), (1, 10.0)),
    ((1, 5.0), (60, 5.0)),
    ((1, 0.0), (200, 10.0)),
    ((3, 1e9), (3, -1e9)),
]


def name_that_asks_ann_in(stage: int) -> str:
    """Name a deployment whose public hash asks ann in a stage."""
    for number in range(20):
        this = WindowRound(
            rounds_settings(name=f"n{number}"), Window(0, round(DAY) * MICROS), USERS + 1
        )
        if this.stage_of(keyed_owner_words(["ann"]))[0] == stage:
            return f"n{number}"
    raise AssertionError(stage)


@pytest.mark.parametrize(("one", "two"), NEIGHBORS)
@pytest.mark.parametrize("stage", [0, 1])
def test_a_user_shows_in_its_own_report_only(
    one: Any, two: Any, stage: int, tmp_path: Path
) -> None:
    name = name_that_asks_ann_in(stage)
    worlds = [
        public(tmp_path / str(i), stream(*ann), name=name) for i, ann in enumerate((one, two))
    ]
    assert reports_of(worlds[0])["ann"][0] == stage
    assert traces(*worlds) == set()
    assert len(reports_of(worlds[0])) == USERS + 1


def by_arrival(shares: Any, user: Any, key: bytes) -> np.ndarray:
    """Known bad: the stage follows from the order in which users appeared."""
    return (np.arange(len(user)) % 2).astype(np.int64)


def test_a_split_by_arrival_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports_module, "assign_protocol_stages", by_arrival)
    late = [("ann", 5.0, DAY - 1)]
    rest = [sample for sample in stream(1, 5.0) if sample[0] != "ann"]
    worlds = [
        public(tmp_path / "one", stream(1, 5.0)),
        public(tmp_path / "two", sorted(rest + late, key=lambda s: s[2])),
    ]
    assert "who is asked in which stage" in traces(*worlds)
    monkeypatch.undo()
    monkeypatch.setitem(ESTIMATORS, "tiny", TINY)
    good = [
        public(tmp_path / "3", stream(1, 5.0)),
        public(tmp_path / "4", sorted(rest + late, key=lambda s: s[2])),
    ]
    assert traces(*good) == set()


def test_silence_of_users_with_few_samples_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known bad: who has fewer than two samples does not answer."""
    asked: Callable[..., Any] = WindowRound.charged_reports

    def silent(self: WindowRound, secret: bytes, stage: int, found: Any, summaries: Any) -> Any:
        rows, versions = asked(self, secret, stage, found, summaries)
        return np.where((summaries.count < 2)[:, None], 0, rows), versions

    monkeypatch.setattr(WindowRound, "charged_reports", silent)
    name = name_that_asks_ann_in(0)
    worlds = [public(tmp_path / str(n), stream(n, 5.0), name=name) for n in (1, 60)]
    assert "reports that could be counted" in traces(*worlds)


def test_one_report_per_user_and_round_whatever_is_repeated(tmp_path: Path) -> None:
    """Retries, restarts and replays of one window give one distinct report; fresh noise would give
    several."""
    found = set()
    for attempt in range(6):
        world = public(tmp_path / str(attempt), stream(5, 7.0))
        found.add(json.dumps(reports_of(world), sort_keys=True))
    assert len(found) == 1
    fresh = set()
    for attempt in range(6):
        world = RoundsWorld(
            tmp_path / f"fresh {attempt}", rounds_settings(name=f"attempt {attempt}")
        )
        world.run(ScriptedSource(stream(5, 7.0)))
        fresh.add(json.dumps(reports_of(world), sort_keys=True))
    assert len(fresh) == 6


@pytest.mark.parametrize("seed", [1, 2])
def test_another_input_of_a_window_meets_other_noise(seed: int, tmp_path: Path) -> None:
    """Two runs over other data never share the random bits of a report: half of ann's one-bit
    reports differ.

    Known bad beside it: noise of the user and window alone. Then all reports of two near inputs
    would be the same, and where they are not, they would show on which side of one threshold each
    input lies.
    """
    names = [f"user {i}" for i in range(400)]
    first = [(name, 5.0, float(i)) for i, name in enumerate(names)]
    second = [(name, 5.0 + 1e-3 * seed, float(i)) for i, name in enumerate(names)]
    one, two = (
        reports_of(
            public(tmp_path / str(i), samples, estimator="one_shot", options={"second_moment": 1.0})
        )
        for i, samples in enumerate((first, second))
    )
    differ = sum(one[name] != two[name] for name in names)
    # At epsilon 2 and a mean in the middle each bit is fair: 200 of 400 differ, standard deviation
    # 10; 5 of them are left by chance once in 1.7 million runs.
    assert abs(differ - 200) < 50
