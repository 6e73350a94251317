"""Replays that are killed or repeated, of streams that go on or have ended: each record counts
once."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.replay.dead_letters import read_dead_letters
from tests.streaming.replay.conftest import (
    FIRST,
    LATE,
    Deployment,
    all_bad_times,
    row,
    stopping_after,
    write,
)
from tests.streaming.support.dying import DieAt, Died

POINTS = [
    (point, moment)
    for point in CrashPoint
    for moment in Moment
    if point not in (CrashPoint.PRODUCE, CrashPoint.SEND_MARKER, CrashPoint.COMMIT_TRANSACTION)
]


@pytest.mark.parametrize(("point", "moment"), POINTS)
def test_killed_anywhere_it_counts_each_record_once(
    point: CrashPoint, moment: Moment, new_world: Callable[[str], Any], tmp_path: Path
) -> None:
    """The replay is of many batches, and dies in its first, second or third."""
    path = write(tmp_path / "x.csv", all_bad_times())
    begun = Deployment(new_world("begun"), path)
    begun.first_run()
    assert begun.unused() == list(range(2, 102))
    for visit in (1, 2, 3):
        deployment = Deployment(new_world(f"killed-{visit}"), path)
        shutil.copytree(begun.world.folder, deployment.world.folder)
        try:
            deployment.replay(crash=DieAt(point, moment, visit))
        except Died:
            pass
        else:
            assert point is CrashPoint.MARK_DELIVERY, "visited at the start and at the end only"
        deployment.replay()
        assert deployment.unused() == []
        values = {f"agent {a}": [i % 7 for i in range(2, 102) if i % 3 == a] for a in range(3)}
        assert deployment.totals() == {
            a: (len(v), round(sum(v) / len(v), 9)) for a, v in values.items()
        }
        ledger = deployment.ledger()
        assert len({(agent, index) for agent, index, *_ in ledger}) == len(ledger)
        assert sorted(deployment.world.lines("releases")) == sorted(output for *_, output in ledger)


def test_a_copy_of_a_sample_that_was_counted_long_ago_is_not_counted_again(
    new_world: Callable[[str], Any], tmp_path: Path
) -> None:
    """Its id was forgotten by the engine when event time had passed it: the source tells that it
    was used."""
    lines = [row(i) for i in range(2, 122)]
    lines += [lines[5], lines[6], row(900, time=1006), row(903, time=1006, copy_of=900)]
    deployment = Deployment(new_world("copies"), write(tmp_path / "x.csv", lines))
    assert deployment.first_run().rejected == Counter(late=4)
    stats, replayed = deployment.replay()
    assert (replayed.chosen, stats.accepted, stats.rejected) == (4, 1, Counter(duplicate=2))
    assert (
        replayed.source.repeated == 1
    )  # the second record of a new id waits until the first one was counted
    stats, replayed = deployment.replay()
    assert (replayed.chosen, stats.accepted, stats.rejected) == (1, 0, Counter(duplicate=1))
    assert deployment.unused() == []


def test_letters_of_records_that_this_store_has_used_or_not_read_are_not_replayed(
    spoiled: Deployment, new_world: Callable[[str], Any]
) -> None:
    """A forged letter must not make a sample count twice."""
    line = '{"reason":"late","source":"x.csv","partition":%d,"position":%d,"size":null,"schema_version":1}\n'
    forged = spoiled.world.folder / "forged.jsonl"
    forged.write_text(
        "".join(line % at for at in ((0, 5), (0, 6), (0, 100_000), (1, LATE), (0, LATE)))
    )
    totals = spoiled.totals()
    stats, replayed = spoiled.replay(read_dead_letters(str(forged)))
    assert (replayed.letters, replayed.chosen, stats.accepted) == (5, 1, 1)
    assert sum(n for n, _ in spoiled.totals().values()) == sum(n for n, _ in totals.values()) + 1


def test_a_stream_that_goes_on_is_not_ended_by_a_replay(
    new_world: Callable[[str], Any], spoiled: Deployment, whole: Deployment
) -> None:
    """Stopped half way, replayed, and run to the end: nothing that waited was pushed out, and so
    nothing is late."""
    deployment = Deployment(new_world("half"), spoiled.path)
    # With a quorum of two a replayed sample may be the second sender's word on a time, and move
    # event time that far.
    deployment.world.options = replace(deployment.world.options, quorum=1)
    half = deployment.first_run(stop=stopping_after(4))
    assert half.rejected == Counter(bad_time=1, bad_value=1, late=1)
    estimates = deployment.world.lines("estimates")
    stats, replayed = deployment.replay()
    assert not replayed.ends
    assert stats.accepted == replayed.chosen == 3
    assert deployment.world.lines("estimates") == estimates
    rest = deployment.first_run()
    assert rest.rejected == Counter(duplicate=1)
    assert half.accepted + stats.accepted + rest.accepted == 119
    assert deployment.totals() == whole.totals()


def test_a_replay_that_was_killed_ends_the_stream_when_it_is_repeated(spoiled: Deployment) -> None:
    with pytest.raises(Died):
        spoiled.replay(
            crash=DieAt(CrashPoint.COMMIT, Moment.BEFORE, 2)
        )  # the samples are counted, the end is not
    assert spoiled.unused() == []
    stats, replayed = spoiled.replay()
    assert (replayed.chosen, stats.events, stats.estimates) == (0, 0, 3)
    assert stats.releases > 0


def test_what_was_too_early_counts_when_it_no_longer_is(
    new_world: Callable[[str], Any], tmp_path: Path
) -> None:
    lines = [row(i) for i in range(2, 50)]
    lines[10], lines[20] = row(12, time=4e9), row(22, value=77)
    deployment = Deployment(new_world("early"), write(tmp_path / "x.csv", lines))
    assert deployment.first_run().rejected == Counter(in_future=1)
    stats, _ = deployment.replay(mapping=FIRST)
    assert (stats.accepted, stats.rejected) == (0, Counter(in_future=1))
    deployment.world.clock.set(4e9)
    stats, _ = deployment.replay(mapping=FIRST)
    assert (stats.accepted, stats.clipped, stats.rejected) == (1, 0, Counter())
    assert sum(n for n, _ in deployment.totals().values()) == 48
