"""A user of rounds who is forgotten leaves no sums in the file; what it has spent stays."""

from __future__ import annotations

import struct
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from meanstream.streaming.rounds.rounds_engine import OPEN_WINDOWS, forget_user
from meanstream.streaming.store.state_store import Store, StoreError
from tests.streaming.support.rounds_world import DAY, RoundsWorld, rounds_settings, samples
from tests.streaming.support.scripted_source import ScriptedSource

NAME, SHY = "user 3", "shy of every window"


def test_sums_of_open_windows_leave_the_file_and_the_spent_budget_stays(tmp_path: Path) -> None:
    world = RoundsWorld(tmp_path / "w", rounds_settings(estimator="one_shot"))
    stream = sorted([*samples(), (SHY, 3.0, 2.1 * DAY)], key=lambda sample: sample[2])
    world.run(ScriptedSource([sample for sample in stream if sample[2] < 2 * DAY]))
    turns = count()
    world.run(ScriptedSource(stream), stop=lambda: next(turns) >= 2)
    with closing(Store.amend(tmp_path / "w" / "s.db")) as store:
        pieces = [columns for _, columns in store.chunks(OPEN_WINDOWS)]
        number, spent = store.agents().index(NAME), store.ledger.spent().tolist()
        totals = [
            int(one["total"][one["user"] == number][0]) for one in pieces if number in one["user"]
        ]
        assert totals
        assert spent[number] > 0
        marks = [
            *(struct.pack("<q", total)[:4] for total in totals),
            SHY.encode(),
        ]  # of integers of four or eight bytes
        assert all(mark in (tmp_path / "w" / "s.db").read_bytes() for mark in marks[:-1])
        gone, shy = forget_user(store, NAME), forget_user(store, SHY)
        assert (gone.releases, gone.name_kept, shy.name_kept) == (spent[number], True, False)
        assert gone.samples_waiting == sum(
            int(one["count"][one["user"] == number].sum()) for one in pieces
        )
        assert store.ledger.spent().tolist() == spent
        with pytest.raises(
            StoreError, match="user must be one that the store has samples of, got 'shy"
        ):
            forget_user(store, SHY)
    held = b"".join(path.read_bytes() for path in (tmp_path / "w").glob("s.db*"))
    assert not any(mark in held for mark in marks)
    world.run(ScriptedSource(stream))
    users = [mean["users"] for mean in world.events("means")]
    assert len(users) == 4
    assert users[2] <= 12, "13 with the one who was forgotten"
