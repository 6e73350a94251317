"""Who takes part is a function of who has sent something in which window: not of times, numbers,
order or batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.operators.estimators.registry import ESTIMATORS
from meanstream.streaming.crash import CrashPoint, Moment, no_crash
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.rounds.rounds_intake import RoundsIntake
from meanstream.streaming.rounds.user_places import slot_key, slot_name_hashes
from tests.streaming.support.dying import DieAt, Died
from tests.streaming.support.rounds_world import DAY, SECRET, RoundsWorld, rounds_settings
from tests.streaming.support.scripted_source import Script, ScriptedSource, SettableClock
from tests.streaming.support.tiny_estimator import TINY

HOUR = 3600.0
OTHERS = [(f"other {i}", 5.0, 0.4 * DAY + i) for i in range(6)]
LAST = ("u1", 5.0, 0.5 * DAY)
"""The sample whose fate an adversary looks at: of the first day, and behind all that is changed."""

Row = tuple[str, float, float]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "tiny", TINY)


def by_time(hour: float) -> list[Row]:
    """An accomplice has sent 03:00 of the second day, and u0 one sample of that day."""
    return [*OTHERS, ("accomplice", 5.0, DAY + 3 * HOUR), ("u0", 5.0, DAY + hour * HOUR), LAST]


def by_number(number: int) -> list[Row]:
    return [*OTHERS, *[("u0", 5.0, DAY + 3 * HOUR)] * number, LAST]


def at_its_end(rows: list[Row]) -> ScriptedSource:
    """A source that ends: a file without order, a topic up to its end."""
    return ScriptedSource(rows)


def by_the_clock(rows: list[Row]) -> ScriptedSource:
    """A source without end; by the clock both days have ended."""
    return ScriptedSource([*rows, Script.PAUSE], bounded=False)


def taking_part(
    folder: Path, source: ScriptedSource, *, batch: int = 300, **options: Any
) -> set[tuple[str, str]]:
    """Run rounds, and give every user with the day of its reports."""
    world = RoundsWorld(folder, rounds_settings(estimator="one_shot", allowed_lateness=HOUR))
    world.options = EngineOptions(batch_size=batch, allowed_lateness=HOUR, **options)
    left = iter(range(len(source.script) // batch + 20))
    world.run(source, stop=lambda: next(left, None) is None)
    return {
        (e["user"], e["round_id"].split("/")[1][:10])
        for e in world.events("reports")
        if "user" in e
    }


@pytest.mark.parametrize("read", [at_its_end, by_the_clock])
@pytest.mark.parametrize(
    "worlds",
    [(by_time(1 / 6), by_time(2.0)), (by_number(999), by_number(1000))],
    ids=["times", "number"],
)
def test_times_and_numbers_of_one_user_do_not_decide_whether_another_takes_part(
    read: Callable[[list[Row]], ScriptedSource], worlds: tuple[list[Row], list[Row]], tmp_path: Path
) -> None:
    first, second = (taking_part(tmp_path / str(i), read(rows)) for i, rows in enumerate(worlds))
    assert first == second
    assert ("u1", "1970-01-01") in first


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("read", [at_its_end, by_the_clock])
def test_any_order_numbers_times_and_batches_give_the_same_users(
    read: Callable[[list[Row]], ScriptedSource], seed: int, tmp_path: Path
) -> None:
    """Users and days are the same, and nothing else; there are more users than places."""
    rng = np.random.default_rng(seed)
    part = [(f"user {u}", day) for u in range(20) for day in range(2) if rng.random() < 0.6]
    found = []
    for world in range(3):
        rows = [
            (user, 5.0, (day + float(rng.random())) * DAY)
            for user, day in part
            for _ in range(int(rng.integers(1, 5)))
        ]
        rows = [rows[i] for i in rng.permutation(len(rows)).tolist()]
        batch = (5, 17, 1000)[world]
        found.append(taking_part(tmp_path / str(world), read(rows), batch=batch, max_agents=7))
    assert found[0] == found[1] == found[2]
    assert len({user for user, _ in found[0]}) == 7


def test_the_order_of_times_is_caught_where_places_go_to_whoever_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 users are known and there are 41 places: who of two takes the last one on the second
    day."""
    known = [(f"known {i}", 5.0, 60.0 * i) for i in range(40)]

    def last_place(name: str, hour: float) -> set[str]:
        rows = sorted(
            [*known, ("u1", 5.0, DAY + 2 * HOUR), ("u0", 5.0, DAY + hour * HOUR)],
            key=lambda row: row[2],
        )
        source = ScriptedSource(rows, in_order=True)
        return {
            user
            for user, day in taking_part(tmp_path / name, source, max_agents=41)
            if day == "1970-01-02"
        }

    assert last_place("before", 1.0) == last_place("behind", 3.0)
    assert len(last_place("again", 1.0)) == 1
    with monkeypatch.context() as patch:  # twin: as users were numbered
        patch.setattr(
            "meanstream.streaming.rounds.user_places.slot_name_hashes",
            lambda names, key: np.arange(len(names), dtype=np.uint64),
        )
        assert last_place("twin before", 1.0) != last_place("twin behind", 3.0)


def least(names: Sequence[str], most: int) -> set[str]:
    order = np.argsort(slot_name_hashes(names, slot_key(SECRET.encode())))
    return {names[i] for i in order[:most].tolist()}


def test_made_up_names_fill_what_is_free_and_displace_nobody(tmp_path: Path) -> None:
    """By the clock: whoever had a place before a day began keeps it; memory holds a few names for
    each place."""
    known, junk = [f"known {i}" for i in range(5)], [f"junk {i}" for i in range(400)]
    world = RoundsWorld(
        tmp_path / "w", rounds_settings(estimator="one_shot"), clock=SettableClock(0.5 * DAY)
    )
    world.options = EngineOptions(batch_size=20, max_agents=8, max_future=0.0)
    days = [known, [], [*junk[:200], *known], [], [*junk[200:], *known]]
    script: list[Any] = []
    for day, users in enumerate(days):
        script += [*((user, 5.0, (day + 0.1) * DAY) for user in users), Script.PAUSE, Script.PAUSE]
    source = ScriptedSource(script, bounded=False)
    ends = [i for i, one in enumerate(script) if isinstance(one, Script)][1::2]

    def stop() -> bool:
        passed = sum(source._at >= end for end in ends)
        world.clock.set((passed + 0.5) * DAY)  # type: ignore[attr-defined]
        return (
            source._at >= len(script) and world.clock.now() > 5.4 * DAY and next(left, None) is None
        )

    left = iter(range(5))
    stats = world.run(source, stop=stop)
    took: dict[str, set[str]] = {}
    for event in world.events("reports"):
        if "user" in event:
            took.setdefault(event["round_id"].split("/")[1][:10], set()).add(event["user"])
    taken = set(known) | least(junk[:200], 3)
    assert took == {"1970-01-01": set(known), "1970-01-03": taken, "1970-01-05": set(known)}
    intake: RoundsIntake = world.engine._intake
    assert intake.places.full
    assert len(intake.names) < 5 + 100  # of 405
    assert stats.rejected["too_many_agents"] == 400 - 3


@pytest.mark.parametrize(
    "point", [CrashPoint.SAVE_POSITION, CrashPoint.COMMIT_TRANSACTION, CrashPoint.FLUSH_SINKS]
)
@pytest.mark.parametrize("visit", [1, 2])
def test_a_restart_repeats_what_the_clock_has_closed(
    point: CrashPoint, visit: int, tmp_path: Path
) -> None:
    """Killed around the commit in which windows close: the same users, the same late records, the
    same bytes."""
    script = [*by_time(2.0), Script.PAUSE, ("late", 5.0, 0.5 * DAY), Script.PAUSE]
    files = []
    for name, crash in (("calm", no_crash), ("killed", DieAt(point, Moment.AFTER, visit))):
        world = RoundsWorld(tmp_path / name, rounds_settings(estimator="one_shot"))
        for hook in (crash, no_crash):
            stop = partial(next, iter([False] * 6), True)
            with suppress(Died):
                world.run(ScriptedSource(script, bounded=False), crash=hook, stop=stop)
        files.append(world.files())
    assert files[0] == files[1]
    assert files[0]["dead_letters"].count(b"late") == 1
