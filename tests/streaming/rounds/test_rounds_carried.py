"""Carrying from window to window: resumed anywhere, the same bytes; refused where windows have no
order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meanstream.pipelines.commands.report.report_rounds import report_answers_of_rounds
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.rounds.rounds_statistician import statistician_identity
from meanstream.streaming.store.state_store import Store
from tests.streaming.support.rounds_world import DAY, RoundsWorld, rounds_settings
from tests.streaming.support.scripted_source import ScriptedSource

SETTINGS = rounds_settings(estimator="repeating", epsilon=2.0)


def samples(days: int = 6, users: int = 400) -> list[tuple[str, float, float]]:
    rng = np.random.default_rng(8)
    values = rng.normal(4.0, 0.4, (days, users)).clip(0.0, 10.0)
    return [
        (f"user {u}", float(values[d, u]), d * DAY + 60.0 * u)
        for d in range(days)
        for u in range(users)
    ]


def after(calls: int) -> Callable[[], bool]:
    """Stop when it has been asked so often."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


def world(folder: Path) -> RoundsWorld:
    return RoundsWorld(folder, SETTINGS, options=EngineOptions(batch_size=300))


def test_what_is_carried_is_in_the_store_and_a_run_in_pieces_writes_the_same(
    tmp_path: Path,
) -> None:
    whole, pieces = world(tmp_path / "whole"), world(tmp_path / "pieces")
    given = samples()
    whole.run(ScriptedSource(given, in_order=True))
    answered = []
    for calls in (2, 4, 5):
        pieces.run(ScriptedSource(given, in_order=True), stop=after(calls))
        answered.append(len(pieces.lines("means")))
    assert any(0 < windows < 6 for windows in answered)
    pieces.run(ScriptedSource(given, in_order=True))
    assert whole.files() == pieces.files()
    states = [event["stages"][-1]["state"] for event in whole.events("means")]
    assert [state["windows"] for state in states] == [1, 2, 3, 4, 5, 6]
    assert states[-1]["half_width"] is not None
    store = Store.read(tmp_path / "whole" / "s.db")
    assert store.state("rounds")["carried"] == states[-1]
    store.close()
    # Without what was carried, the reports of the ledger would be added up in other windows.
    again = report_answers_of_rounds(tmp_path / "whole" / "s.db", SETTINGS)
    assert [row["value"] for row in again] == [event["value"] for event in whole.events("means")]


@pytest.mark.parametrize("window", ["7d,1d", "session:1h"])
def test_windows_that_do_not_follow_one_another_are_refused(window: str) -> None:
    kind = "session" if "session" in window else "sliding"
    with pytest.raises(
        ValueError, match=rf"nothing from window to window with {kind} windows \(they do not follow"
    ):
        replace(SETTINGS, window=window, user_budget=100.0)


def test_two_sides_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"nothing from window to window on two sides \(users of a window would have to wait for",
    ):
        statistician_identity(SETTINGS)
