"""The engine dies at every step and goes on: nothing lost, no noise drawn twice, nothing charged
twice."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.streaming.agents import agents_engine
from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.events.event_columns import Batch, Rejects
from tests.streaming.support.dying import DieAt, Died, lives_of, visited
from tests.streaming.support.scripted_source import Abort, Script, ScriptedSource
from tests.streaming.support.stored_rows import stored_rows

ON_KAFKA = {CrashPoint.PRODUCE, CrashPoint.SEND_MARKER, CrashPoint.COMMIT_TRANSACTION}
POINTS = [point for point in CrashPoint if point not in ON_KAFKA]


class Spoiled(ScriptedSource):
    """Every batch also has a record that cannot be read."""

    def next_batch(self, max_samples: int) -> Batch:
        batch = super().next_batch(max_samples)
        rejects = Rejects()
        if len(batch.samples):
            rejects.add("malformed", int(batch.samples.position[0]), 12)
        return Batch(batch.samples, rejects, batch.position, batch.exhausted)


def samples(n: int = 120) -> list[Any]:
    rng = np.random.default_rng(5)
    times = np.arange(n) + rng.uniform(0, 2.5, n)  # out of order, within the allowed lateness of 3
    return [
        (f"agent {i % 4}", float(v), float(t))
        for i, (v, t) in enumerate(zip(rng.uniform(-1, 11, n), times, strict=True))
    ]


def ledger(folder: Path) -> list[Any]:
    return stored_rows(folder / "s.db")


@pytest.fixture(scope="module")
def reference(world_type: Callable[[Path], Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    world = world_type(tmp_path_factory.mktemp("reference") / "world")
    stats = world.run(Spoiled(samples()))
    assert stats.commits >= 8
    assert stats.releases == len(world.lines("releases")) > 20
    assert stats.estimates > 8
    assert all(
        world.files()[role] for role in ("releases", "estimates", "population", "dead_letters")
    )
    return world


@pytest.fixture
def finished(reference: Any, world_type: Callable[[Path], Any], tmp_path: Path) -> Any:
    """A copy of the reference that may go on."""
    shutil.copytree(reference.folder, tmp_path / "finished")
    return world_type(tmp_path / "finished")


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_every_step_the_outputs_are_the_same_bytes(
    point: CrashPoint, moment: Moment, reference: Any, new_world: Callable[[str], Any]
) -> None:
    twice = point is CrashPoint.MARK_DELIVERY  # at the start and at the end of a run
    for visit in (1, 2) if twice else (1, 2, 3):
        world = new_world(f"killed-{visit}")
        with pytest.raises(Died):
            world.run(Spoiled(samples()), crash=DieAt(point, moment, visit))
        world.run(Spoiled(samples()))
        assert world.files() == reference.files()
        assert ledger(world.folder) == ledger(reference.folder)


def test_killed_at_every_step_no_person_counts_more_often(new_world: Callable[[str], Any]) -> None:
    """The counts of persons are of the same commit as the sums: a restart repeats neither."""
    persons = np.random.default_rng(4).integers(1, 25, 120).tolist()

    def world_of(name: str) -> Any:
        world = new_world(name)
        world.settings = replace(world.settings, per_person=2)
        return world

    def source() -> ScriptedSource:
        return ScriptedSource(samples(), persons=persons)

    whole = world_of("whole")
    stats = whole.run(source())
    assert stats.rejected["over_person"] > 10
    for number, point in enumerate(POINTS):
        moment, visit = ((Moment.BEFORE, 2), (Moment.AFTER, 3))[number % 2]
        world = world_of(point.name)
        with suppress(Died):
            world.run(source(), crash=DieAt(point, moment, visit))
        world.run(source())
        assert world.files() == whole.files()
        assert ledger(world.folder) == ledger(whole.folder)


def test_killed_again_and_again(reference: Any, new_world: Callable[[str], Any]) -> None:
    world = new_world("unlucky")
    lives = lives_of(lambda crash: world.run(Spoiled(samples()), crash=crash), POINTS, seed=1)
    world.run(Spoiled(samples()))
    assert lives > 3
    assert world.files() == reference.files()
    assert ledger(world.folder) == ledger(reference.folder)


def test_every_crash_point_is_visited(new_world: Callable[[str], Any]) -> None:
    world = new_world("visited")
    assert visited(lambda crash: world.run(Spoiled(samples()), crash=crash)) == set(
        product(POINTS, Moment)
    )


def test_a_released_value_was_charged_before(new_world: Callable[[str], Any]) -> None:
    world = new_world("charged")

    def released_is_charged(point: CrashPoint, moment: Moment) -> None:
        if (point, moment) == (CrashPoint.WRITE_RELEASES, Moment.AFTER):
            charged = {row[6] for row in ledger(world.folder)}
            assert set(world.lines("releases")) <= charged

    world.run(Spoiled(samples()), crash=released_is_charged)


def test_a_torn_line_is_taken_back(reference: Any, new_world: Callable[[str], Any]) -> None:
    world = new_world("torn")
    with pytest.raises(Died):
        world.run(Spoiled(samples()), crash=DieAt(CrashPoint.WRITE_RELEASES, Moment.AFTER, 3))
    for role in ("releases", "estimates"):
        with (world.folder / f"{role}.jsonl").open("ab") as file:
            file.write(b'{"torn')
    world.run(Spoiled(samples()))
    assert world.files() == reference.files()


def test_pause_and_abort_change_no_release(reference: Any, new_world: Callable[[str], Any]) -> None:
    world = new_world("script")
    script = samples()
    script[50:50] = [Script.PAUSE, Script.PAUSE]
    script[20:20] = [Script.ABORT]
    source = Spoiled(script)
    with pytest.raises(Abort):
        world.run(source)
    resumed = Spoiled(source.script)  # the abort became a pause
    world.run(resumed)
    assert [e["mean"] for e in world.events("releases")] == [
        e["mean"] for e in reference.events("releases")
    ]


def test_a_graceful_stop_commits_and_goes_on(
    reference: Any, new_world: Callable[[str], Any]
) -> None:
    world = new_world("stop")
    for turns in (0, 2, 3, 100):
        left = iter([False] * turns)
        world.run(Spoiled(samples()), stop=lambda left=left: next(left, True))
    assert sorted(world.lines("releases")) == sorted(reference.lines("releases"))
    assert world.lines("estimates")[-4:] == reference.lines("estimates")[-4:]


def test_running_a_finished_stream_again_changes_nothing(finished: Any) -> None:
    before = finished.files()
    stats = finished.run(Spoiled(samples()))
    assert (stats.events, stats.commits) == (0, 0)
    assert finished.files() == before


def test_more_samples_of_the_same_source_are_taken_up(finished: Any) -> None:
    released = len(finished.lines("releases"))
    more = samples() + [("agent 0", 5.0, 200.0 + i) for i in range(60)]
    stats = finished.run(Spoiled(more))
    assert stats.accepted == 60
    assert len(finished.lines("releases")) > released
    assert finished.events("estimates")[-4]["n"] == 90


@pytest.fixture
def rare_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two agents are many: a commit waits for several batches."""
    monkeypatch.setattr(agents_engine, "MANY_AGENTS", 2)


def at_hand(n: int = 120) -> ScriptedSource:
    """Samples that lie there whole, as in a file; some records cannot be read."""
    source = Spoiled(samples(n))
    source.at_hand = True  # type: ignore[attr-defined]
    return source


@pytest.mark.usefixtures("rare_commits")
def test_commits_that_wait_for_more_batches_let_the_same_out(
    reference: Any, new_world: Callable[[str], Any]
) -> None:
    world = new_world("rare")
    world.options = replace(world.options, refresh=None)
    stats = world.run(at_hand())
    assert stats.commits < 8
    assert sorted(world.lines("releases")) == sorted(reference.lines("releases"))
    assert world.lines("estimates")[-4:] == reference.lines("estimates")[-4:]
    assert sorted(world.lines("dead_letters")) == sorted(reference.lines("dead_letters"))


@pytest.mark.usefixtures("rare_commits")
@pytest.mark.parametrize("point", POINTS)
def test_killed_before_a_commit_of_several_batches_nothing_is_lost(
    point: CrashPoint, new_world: Callable[[str], Any]
) -> None:
    def world_of(name: str) -> Any:
        world = new_world(name)
        world.options = replace(world.options, refresh=None)
        return world

    whole = world_of("whole")
    whole.run(at_hand())
    for number, moment in enumerate(Moment):
        world = world_of(f"killed-{number}")
        with suppress(Died):
            world.run(at_hand(), crash=DieAt(point, moment, 1 + number))
        world.run(at_hand())
        assert world.files() == whole.files()
        assert ledger(world.folder) == ledger(whole.folder)


class Lagging(ScriptedSource):
    """Gives five samples at a time, and says how many it still holds, as a topic does."""

    def next_batch(self, max_samples: int) -> Batch:
        return replace(super().next_batch(min(max_samples, 5)), lag=len(self.script) - self._at)


@pytest.mark.usefixtures("rare_commits")
def test_what_a_topic_holds_is_waited_for_a_moment_only(
    new_world: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    commits, worlds = [], []
    for seconds in (1e9, 0.0):
        monkeypatch.setattr(agents_engine, "LONGEST_WAIT", seconds)
        worlds.append(new_world(f"lagging-{seconds}"))
        worlds[-1].options = replace(worlds[-1].options, refresh=None)
        commits.append(worlds[-1].run(Lagging(samples())).commits)
    assert commits[0] <= 6  # 32 records of four agents, or what there is
    assert commits[1] == 25  # of each batch, and the end
    one, other = (sorted(world.lines("releases")) for world in worlds)
    assert one == other
    assert worlds[0].lines("estimates") == worlds[1].lines("estimates")


@pytest.mark.usefixtures("rare_commits")
@pytest.mark.parametrize("refresh", [0.0, 20.0])
def test_where_answers_are_given_on_the_way_no_commit_waits(
    refresh: float, new_world: Callable[[str], Any]
) -> None:
    world = new_world("answers")
    world.options = replace(world.options, refresh=refresh)
    assert world.run(at_hand()).commits == 9  # of sixteen samples each, and the end


@pytest.mark.usefixtures("rare_commits")
def test_a_stop_between_commits_commits_what_was_read(new_world: Callable[[str], Any]) -> None:
    world = new_world("stopped")
    world.options = replace(world.options, refresh=None)
    left = iter([False, False])
    stats = world.run(at_hand(), stop=lambda: next(left, True))
    assert stats.commits == 1
    assert stats.events == stats.accepted + stats.rejected.total() > world.options.batch_size


PROGRAM = """
import os
from pathlib import Path
from tests.streaming.conftest import World
from tests.streaming.agents.test_engine_crash import Spoiled, samples, CrashPoint, Moment
left = [3]
def die(point, moment):
    if (point, moment) == (CrashPoint.WRITE_RELEASES, Moment.AFTER):
        left[0] -= 1
        if not left[0]:
            os._exit(9)
World(Path({folder!r})).run(Spoiled(samples()), crash=die)
"""


def test_a_real_process_that_dies_leaves_a_usable_store(
    reference: Any, new_world: Callable[[str], Any]
) -> None:
    world = new_world("process")
    program = PROGRAM.format(folder=str(world.folder))
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[3], check=False
    )
    assert process.returncode == 9
    assert world.lines("releases")
    world.run(Spoiled(samples()))
    assert world.files() == reference.files()
