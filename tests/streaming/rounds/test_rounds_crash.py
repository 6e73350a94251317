"""The engine of rounds dies at every step and goes on: the same bytes, nobody charged twice, no
report changed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from meanstream.operators.estimators.registry import ESTIMATORS
from meanstream.streaming.crash import CrashPoint, Moment
from tests.streaming.support.dying import DieAt, Died, lives_of, visited
from tests.streaming.support.rounds_world import RoundsWorld, Spoiled, rounds_settings, samples
from tests.streaming.support.scripted_source import Abort, Script, ScriptedSource
from tests.streaming.support.stored_rows import stored_rows
from tests.streaming.support.tiny_estimator import TINY

ON_KAFKA = {CrashPoint.PRODUCE, CrashPoint.SEND_MARKER, CrashPoint.COMMIT_TRANSACTION}
POINTS = [point for point in CrashPoint if point not in ON_KAFKA]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "tiny", TINY)


@pytest.fixture
def new_rounds(tmp_path: Path) -> Callable[[str], RoundsWorld]:
    # A budget of three rounds: the fourth day refuses everybody.
    return lambda name: RoundsWorld(tmp_path / name, rounds_settings(user_budget=6.0))


@pytest.fixture
def reference(new_rounds: Callable[[str], RoundsWorld]) -> RoundsWorld:
    world = new_rounds("reference")
    stats = world.run(Spoiled(samples(), in_order=True))
    assert stats.commits >= 8
    assert (stats.estimates, stats.over_budget) == (4, 12)
    assert all(world.files().values())
    return world


def ledger(folder: Path) -> list[Any]:
    return stored_rows(folder / "s.db")


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_every_step_the_outputs_are_the_same_bytes(
    point: CrashPoint,
    moment: Moment,
    reference: RoundsWorld,
    new_rounds: Callable[[str], RoundsWorld],
) -> None:
    few = {CrashPoint.MARK_DELIVERY: (1, 2), CrashPoint.FLUSH_SINKS: (1, 2, 4)}
    for visit in few.get(point, (1, 3, 6, 9)):
        world = new_rounds(f"killed-{visit}")
        with pytest.raises(Died):
            world.run(Spoiled(samples(), in_order=True), crash=DieAt(point, moment, visit))
        world.run(Spoiled(samples(), in_order=True))
        assert world.files() == reference.files()
        assert ledger(world.folder) == ledger(reference.folder)


def test_every_crash_point_is_visited(new_rounds: Callable[[str], RoundsWorld]) -> None:
    world = new_rounds("visited")
    assert visited(lambda crash: world.run(Spoiled(samples(), in_order=True), crash=crash)) == set(
        product(POINTS, Moment)
    )


def test_killed_again_and_again(
    reference: RoundsWorld, new_rounds: Callable[[str], RoundsWorld]
) -> None:
    world = new_rounds("unlucky")
    lives = lives_of(
        lambda crash: world.run(Spoiled(samples(), in_order=True), crash=crash), POINTS, seed=2
    )
    world.run(Spoiled(samples(), in_order=True))
    assert lives > 3
    assert world.files() == reference.files()
    assert ledger(world.folder) == ledger(reference.folder)


def test_a_report_was_charged_before_it_is_written(
    new_rounds: Callable[[str], RoundsWorld],
) -> None:
    world = new_rounds("charged")
    compared = []

    def written_is_charged(point: CrashPoint, moment: Moment) -> None:
        if (point, moment) == (CrashPoint.WRITE_RELEASES, Moment.AFTER):
            written = {line for line in world.lines("reports") if b'"payload"' in line}
            assert written <= {row[6] for row in ledger(world.folder)}
            compared.append(len(written))

    world.run(Spoiled(samples(), in_order=True), crash=written_is_charged)
    assert max(compared) == 36


def test_a_torn_line_is_taken_back(
    reference: RoundsWorld, new_rounds: Callable[[str], RoundsWorld]
) -> None:
    world = new_rounds("torn")
    with pytest.raises(Died):
        world.run(
            Spoiled(samples(), in_order=True),
            crash=DieAt(CrashPoint.WRITE_ESTIMATES, Moment.AFTER, 6),
        )
    for role in ("reports", "means"):
        with (world.folder / f"{role}.jsonl").open("ab") as file:
            file.write(b'{"torn')
    world.run(Spoiled(samples(), in_order=True))
    assert world.files() == reference.files()


def test_pause_abort_and_a_graceful_stop_change_nothing(
    reference: RoundsWorld, new_rounds: Callable[[str], RoundsWorld]
) -> None:
    world = new_rounds("script")
    script: list[Any] = samples()
    script[200:200] = [Script.PAUSE]
    script[90:90] = [Script.ABORT]
    source = ScriptedSource(script)
    with pytest.raises(Abort):
        world.run(source)
    for turns in (0, 2, 100):
        left = iter([False] * turns)
        world.run(ScriptedSource(source.script), stop=lambda left=left: next(left, True))  # type: ignore[misc]
    for role in ("reports", "stages", "means", "notices"):
        assert world.lines(role) == reference.lines(role)


def test_running_a_finished_stream_again_changes_nothing(reference: RoundsWorld) -> None:
    before = reference.files()
    stats = reference.run(Spoiled(samples(), in_order=True))
    assert (stats.events, stats.commits) == (0, 0)
    assert reference.files() == before


def test_a_statistician_that_dies_publishes_the_same(
    reference: RoundsWorld, new_rounds: Callable[[str], RoundsWorld]
) -> None:
    reports = reference.folder / "reports.jsonl"
    for point, moment in product(POINTS, Moment):
        world = new_rounds(f"{point}-{moment}")
        world.settings = rounds_settings()
        try:
            world.tally(reports, crash=DieAt(point, moment, 1))
        except Died:
            world.tally(reports)
        assert world.lines("means") == reference.lines("means")
        assert world.lines("stages") == reference.lines("stages")
