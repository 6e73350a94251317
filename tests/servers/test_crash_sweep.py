"""Killed at every step and started again, an engine on Kafka lets out what it lets out when nobody
kills it: once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from meanstream.streaming.crash import CrashPoint, Moment
from tests.servers.support.engine_input import EngineInput
from tests.servers.support.engine_process import KILLED, Fate
from tests.servers.support.engine_worlds import EngineWorlds, finish_all, start_all
from tests.servers.support.outcomes import Kind

BEFORE, AFTER = Moment.BEFORE, Moment.AFTER
VISITS = 3
FEWER_VISITS = {CrashPoint.MARK_DELIVERY: 2}
"""At the start and at the end of a run."""


@pytest.fixture(scope="module")
def worlds(broker_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineWorlds]:
    worlds = EngineWorlds(broker_address, tmp_path_factory.mktemp("sweep"))
    yield worlds
    worlds.close()


def test_the_run_without_faults_visits_every_step_and_writes_to_every_topic(
    worlds: EngineWorlds,
) -> None:
    found, trace = worlds.expected, worlds.reference.lives[0].trace
    assert worlds.faults(worlds.reference) == []
    assert len(found.topics["releases"]) == len(found.charged) > 30
    assert all(len(lines) > 20 for lines in found.topics.values())
    for point in CrashPoint:
        enough = FEWER_VISITS.get(point, VISITS)
        for moment in Moment:
            visits = trace.visits(point, moment)
            assert visits == enough if point in FEWER_VISITS else visits > enough, (point, moment)


def test_killed_at_one_step_after_the_other(broker_address: str, tmp_path: Path) -> None:
    """One deployment for each side of the steps: each life dies at the next step, early in its
    work."""
    worlds = EngineWorlds(broker_address, tmp_path / "worlds", EngineInput(samples=900))
    cases = worlds.new(len(Moment))
    for number, point in enumerate(CrashPoint):
        visit = min(1 + number % 2, FEWER_VISITS.get(point, VISITS) - 1)
        for life in start_all(
            cases, [Fate(point=point, moment=moment, visit=visit) for moment in Moment]
        ):
            assert life.wait() == KILLED, (point, life.log)
        assert [worlds.uncharged(world) for world in cases] == [[], []], point
    finish_all(cases)
    assert [worlds.faults(world) for world in cases] == [[], []]
    worlds.close()


@pytest.mark.full
@pytest.mark.parametrize("point", CrashPoint)
def test_killed_at_every_step_nothing_is_lost_and_nothing_is_there_twice(
    point: CrashPoint, worlds: EngineWorlds
) -> None:
    """One deployment for each side of the step: its first life dies at the first visit, the next
    one at the second."""
    cases = worlds.new(len(Moment))
    for visit in range(1, 1 + FEWER_VISITS.get(point, VISITS)):
        for life in start_all(
            cases, [Fate(point=point, moment=moment, visit=visit) for moment in Moment]
        ):
            assert life.wait() == KILLED, life.log
        assert [worlds.uncharged(world) for world in cases] == [[], []]
    finish_all(cases)
    assert [worlds.faults(world) for world in cases] == [[], []]


DOUBLE_DEATHS = {
    "a delivery that is there, then before that is noted": (
        Fate(point=CrashPoint.COMMIT_TRANSACTION, moment=AFTER, visit=4),
        Fate(point=CrashPoint.MARK_DELIVERY, moment=BEFORE),
    ),
    "a delivery that is there, then after it is swallowed": (
        Fate(point=CrashPoint.FLUSH_SINKS, moment=AFTER, visit=3),
        Fate(point=CrashPoint.FLUSH_SINKS, moment=AFTER),
    ),
    "a transaction that stands open, then while it is taken over": (
        Fate(point=CrashPoint.SEND_MARKER, moment=AFTER, visit=4),
        Fate(point=CrashPoint.COMMIT_TRANSACTION, moment=BEFORE),
    ),
    "a transaction that stands open, then after it was taken over": (
        Fate(point=CrashPoint.PRODUCE, moment=AFTER, visit=6),
        Fate(point=CrashPoint.COMMIT_TRANSACTION, moment=AFTER),
    ),
    "committed and not delivered, then in the delivery": (
        Fate(point=CrashPoint.COMMIT, moment=AFTER, visit=4),
        Fate(point=CrashPoint.COMMIT_TRANSACTION, moment=BEFORE, visit=2),
    ),
    "charged and not committed, then charged again": (
        Fate(point=CrashPoint.CHARGE_LEDGER, moment=AFTER, visit=3),
        Fate(point=CrashPoint.CHARGE_LEDGER, moment=AFTER),
    ),
}


def test_killed_again_while_it_recovers(worlds: EngineWorlds) -> None:
    cases = worlds.new(len(DOUBLE_DEATHS))
    for number in range(2):
        for life in start_all(cases, [deaths[number] for deaths in DOUBLE_DEATHS.values()]):
            assert life.wait() == KILLED, life.log
        assert [worlds.uncharged(world) for world in cases] == [[]] * len(cases)
    finish_all(cases)
    assert [worlds.faults(world) for world in cases] == [[]] * len(cases)


SPOILED_LIVES = 4
"""How the topic is cut into batches depends on the machine, and a batch may hold nothing that a
defect can spoil."""


@pytest.mark.parametrize(
    ("wrong", "point", "moment", "kind"),
    [
        ("notes_before_flush", CrashPoint.COMMIT_TRANSACTION, BEFORE, Kind.LOST),
        ("redraws_noise", CrashPoint.CHARGE_LEDGER, AFTER, Kind.NOISED_TWICE),
        ("forgets_the_marker", CrashPoint.COMMIT_TRANSACTION, AFTER, Kind.DOUBLED),
    ],
)
def test_a_defect_that_kills_bring_to_light_is_found(
    wrong: str, point: CrashPoint, moment: Moment, kind: Kind, worlds: EngineWorlds
) -> None:
    world = worlds.new()[0]
    for _ in range(SPOILED_LIVES):
        assert world.start(Fate(point=point, moment=moment, visit=2, wrong=wrong)).wait() == KILLED
    world.finish(Fate(wrong=wrong))
    assert kind in {fault.kind for fault in worlds.faults(world)}


def test_a_release_that_leaves_before_it_is_charged_is_found(worlds: EngineWorlds) -> None:
    cases, wrong = worlds.new(SPOILED_LIVES), "releases_before_charging"
    fates = [
        Fate(point=CrashPoint.CHARGE_LEDGER, moment=BEFORE, visit=visit, wrong=wrong)
        for visit in range(3, 3 + SPOILED_LIVES)
    ]
    for life in start_all(cases, fates):
        assert life.wait() == KILLED
    found = [{fault.kind for fault in worlds.uncharged(world)} for world in cases]
    assert set().union(*found) == {Kind.UNCHARGED}, found
