"""Open windows: whatever is saved, dropped and restored in pieces, what comes out is the sum of
what came in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.streaming.rounds.open_windows import ALIKE, OpenWindows
from meanstream.streaming.rounds.summarize_users import UserSums, summarize_windows
from meanstream.streaming.rounds.window_widths import Windows
from meanstream.streaming.store.state_snapshot import Columns

GRID = FixedPoint(0, 10)
LAST = 2**62


def ended(windows: OpenWindows, reached: int) -> list[Any]:
    """All that have ended, one after the other."""
    out = []
    while (one := windows.first_ended(reached)) is not None:
        out.append(one)
    return out


def batches(n: int, size: int, users: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(6)
    return [
        (rng.integers(0, users, size), rng.uniform(0, 10, size), rng.uniform(0, 400, size))
        for _ in range(n)
    ]


def same(one: UserSums, two: UserSums) -> bool:
    return all(
        np.array_equal(a, b)
        for a, b in zip(one.columns().values(), two.columns().values(), strict=True)
    )


@pytest.mark.parametrize("text", ["100s", "100s,50s", "session:1s"])
@pytest.mark.parametrize("restart_every", [1, 7, 1000])
def test_pieces_saved_and_restored_are_the_whole(text: str, restart_every: int) -> None:
    windows = Windows.parse(text)
    store: dict[int, Columns] = {}
    here = OpenWindows(windows)
    stream = batches(60, 20, 30)
    for i, (user, value, time) in enumerate(stream, 1):
        here.add(summarize_windows(windows, user, value, time, GRID))
        new, dropped = here.changes()
        store |= new
        for number in dropped:
            del store[number]
        if i % restart_every == 0:
            here = OpenWindows(windows)
            for number, columns in sorted(store.items()):
                here.restore(number, dict(columns))
    whole = summarize_windows(
        windows, *(np.concatenate([b[i] for b in stream]) for i in range(3)), GRID
    )
    found = dict(ended(here, LAST))
    assert found.keys() == whole.keys()
    assert len(found) > 3
    assert all(same(found[window], whole[window]) for window in whole)
    assert len(here) == 0
    assert sorted(here.changes()[1]) == sorted(store)


def test_large_pieces_are_written_seldom() -> None:
    """Known bad: joining all pieces whenever there are many writes every user again and again."""
    windows = Windows.parse("1000s")
    here = OpenWindows(windows)
    written = everything_each_time = 0
    n_users, n_batches, size = 20_000, 1500, 100
    for number, (user, value, time) in enumerate(batches(n_batches, size, n_users), 1):
        here.add(summarize_windows(windows, user, value, time, GRID))
        new, _ = here.changes()
        written += sum(len(columns["user"]) for columns in new.values())
        if number % ALIKE == 0:
            everything_each_time += min(number * size, n_users)
        assert len(here._pieces) < 5 * ALIKE
    assert written < 0.2 * everything_each_time


def test_only_what_has_ended_comes_out_and_once() -> None:
    windows = Windows.parse("100s")
    here = OpenWindows(windows)
    for user, value, time in batches(5, 50, 10):
        here.add(summarize_windows(windows, user, value, time, GRID))
    assert here.last_end() == 400_000_000
    assert [window.end for window, _ in ended(here, 200_000_000)] == [100_000_000, 200_000_000]
    assert [window.end for window, _ in ended(here, 299_999_999)] == []
    assert [window.end for window, _ in ended(here, LAST)] == [300_000_000, 400_000_000]
    assert here.last_end() is None
