"""Users who live in another store take no part here, and leave no trace; while nobody can say who,
windows wait."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from meanstream.operators.estimators.registry import ESTIMATORS
from meanstream.streaming.rounds.user_places import users_of_store
from meanstream.streaming.store.state_store import Store
from tests.streaming.support.rounds_world import DAY, ROLES, RoundsWorld, rounds_settings, samples
from tests.streaming.support.scripted_source import ScriptedSource, SettableClock
from tests.streaming.support.tiny_estimator import TINY

ELSEWHERE = {"user 3", "user 7"}


class SharedScript(ScriptedSource):
    """A script of which other stores read parts: who lives in them, and how often nobody can
    say."""

    def __init__(
        self, script: Sequence[Any], elsewhere: Collection[str], busy: int = 0, **rest: Any
    ) -> None:
        super().__init__(script, **rest)
        self.asked: list[str] = []
        self._elsewhere, self._busy = set(elsewhere), busy

    def claim(self, names: Sequence[str], *, patient: bool) -> set[str] | None:
        if self._busy and not patient:
            self._busy -= 1
            return None
        self.asked += names
        return self._elsewhere & set(names)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "tiny", TINY)


def world(folder: Path, name: str) -> RoundsWorld:
    """By the clock the last of the four days has not ended."""
    return RoundsWorld(
        folder / name, rounds_settings(user_budget=6.0), clock=SettableClock(4 * DAY - 100)
    )


def public(ran: RoundsWorld) -> dict[str, list[bytes]]:
    return {role: ran.lines(role) for role in ROLES}


@pytest.mark.parametrize("busy", [0, 7])
def test_all_that_is_public_is_as_if_they_had_sent_nothing(tmp_path: Path, busy: int) -> None:
    without, shared = world(tmp_path, "without"), world(tmp_path, "shared")
    without.run(ScriptedSource([one for one in samples() if one[0] not in ELSEWHERE]))
    source = SharedScript(samples(), ELSEWHERE, busy)
    stats = shared.run(source)
    assert public(shared) == public(without)
    assert stats.rejected["other_store"] == sum(one[0] in ELSEWHERE for one in samples()) > 0
    assert len(source.asked) == len(set(source.asked)) == 12


def test_a_window_waits_while_nobody_can_say(tmp_path: Path) -> None:
    ran = world(tmp_path, "waits")
    turns = iter([False] * 12)
    stats = ran.run(
        SharedScript(samples(), ELSEWHERE, 99, bounded=False), stop=lambda: next(turns, True)
    )
    assert (stats.estimates, stats.open_windows) == (0, 4)
    turns = iter([False] * 12)  # begun again, and somebody can say
    stats = ran.run(
        SharedScript(samples(), ELSEWHERE, 2, bounded=False), stop=lambda: next(turns, True)
    )
    assert (stats.estimates, stats.open_windows) == (3, 1)


def test_a_window_of_others_alone_is_none(tmp_path: Path) -> None:
    ran = world(tmp_path, "others")
    others = [("user 3", 1.0, 86_400.0 * day) for day in range(3)]
    stats = ran.run(SharedScript([*others, ("user 1", 5.0, 3.5 * 86_400.0)], ELSEWHERE))
    assert (stats.estimates, stats.rejected["other_store"]) == (1, 3)


def test_who_was_charged_lives_in_the_store_and_nobody_else(tmp_path: Path) -> None:
    ran = world(tmp_path, "charged")
    turns = iter([False] * 20)
    stream = [*samples(), ("new", 5.0, samples()[-1][2])]  # in a window that has not ended
    ran.run(SharedScript(stream, ELSEWHERE, bounded=False), stop=lambda: next(turns, True))
    store = Store.read(ran.folder / "s.db")
    try:
        living = users_of_store(store, 100)
        assert set(living.names) == {f"user {i}" for i in range(12)} - ELSEWHERE
        assert set(store.agents()) - set(living.names) == {"new", *ELSEWHERE}
    finally:
        store.close()
    assert not living.at_once
