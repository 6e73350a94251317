"""Windows with a public forecast of users' means: resumed anywhere, the same bytes; what is used of
it is announced before; tables that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.records import Floats, Words
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.rounds.predicted_round import begin_round
from meanstream.streaming.rounds.predictions_table import PredictionsTable, read_predictions
from meanstream.streaming.rounds.round_runner import Directory, RoundRunner
from meanstream.streaming.rounds.window_round import WindowRound
from meanstream.streaming.rounds.window_widths import Window, Windows
from tests.streaming.support.rounds_world import DAY, RoundsWorld, rounds_settings
from tests.streaming.support.scripted_source import ScriptedSource

SETTINGS = rounds_settings(estimator="repeating", epsilon=4.0, prediction="forecast")
USERS = 400
DAYS = 6
LEVEL = np.random.default_rng(7).normal(0.0, 1.5, USERS)


def samples() -> list[tuple[str, float, float]]:
    rng = np.random.default_rng(8)
    return [
        (
            f"user {u}",
            float(np.clip(5.0 + LEVEL[u] + rng.normal(0, 0.3), 0, 10)),
            d * DAY + 60.0 * u,
        )
        for d in range(DAYS)
        for u in range(USERS)
    ]


def table(level: Floats = LEVEL) -> PredictionsTable:
    """Half as much as the users' means differ, and nothing of the first ten of them."""
    rows = pa.table(
        {
            "user": [f"user {u}" for u in range(10, USERS)],
            "forecast": 5.0 + 0.5 * level[10:],
        }
    )
    return PredictionsTable.of(
        rows, "forecast", user="user", time="time", windows=SETTINGS.windows, ends=(0.0, 10.0)
    )


def after(calls: int) -> Callable[[], bool]:
    """Stop when it has been asked so often."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


def world(folder: Path) -> RoundsWorld:
    return RoundsWorld(folder, SETTINGS, options=EngineOptions(batch_size=300), predictions=table())


def test_the_slope_is_learned_announced_before_its_window_and_kept_over_a_restart(
    tmp_path: Path,
) -> None:
    whole, pieces = world(tmp_path / "whole"), world(tmp_path / "pieces")
    given = samples()
    whole.run(ScriptedSource(given, in_order=True))
    for calls in (2, 4, 5):
        pieces.run(ScriptedSource(given, in_order=True), stop=after(calls))
    pieces.run(ScriptedSource(given, in_order=True))
    assert whole.files() == pieces.files()

    means = whole.events("means")
    told = [event["stages"][-2] for event in means]
    assert [one["stage"] for one in told] == ["prediction"] * DAYS
    assert {one["predicted"] for one in told} == {USERS - 10}
    assert told[0]["slope"] == 0.0

    # Users' means are 2 for each 1 of the forecast; a slope of few windows is drawn to 0.
    assert 0.8 < told[-1]["slope"] < 2.8

    found = [one["sums"]["products"] / one["sums"]["squares"] for one in told]
    assert np.mean(found) == pytest.approx(2.0, abs=6 * np.std(found) / np.sqrt(DAYS))


def test_another_forecast_has_other_noise_and_the_same_repeats_it() -> None:
    window = Window(0, 86_400_000_000)
    words = keyed_owner_words([f"user {u}" for u in range(USERS)])
    rounds = [
        _round(table(level), window, words) for level in (LEVEL, LEVEL, LEVEL + np.arange(USERS))
    ]
    secret = b"a secret of a test, 32 bytes long"
    drawn = [one.stage_noise(secret, 0, {}).purpose for one in rounds]
    assert drawn[0] == drawn[1] != drawn[2]


def _round(predictions: PredictionsTable, window: Window, words: Words) -> WindowRound:
    return begin_round(SETTINGS, window, words, None, predictions)


def test_rows_are_of_their_window_and_several_count_as_their_mean() -> None:
    rows = pa.table(
        {
            "user": ["a", "a", "b", "a", None, "c", "d"],
            "time": [10.0, 20.0, 30.0, 86_410.0, 40.0, None, 50.0],
            "p": [2.0, 4.0, 99.0, 8.0, 5.0, 5.0, None],
        }
    )
    windows = Windows.parse("1d")
    found = PredictionsTable.of(rows, "p", user="user", time="time", windows=windows, ends=(0, 10))
    words = keyed_owner_words(["a", "b", "c", "d", "e"])
    day = 86_400_000_000
    first, second = (found.of_users(Window(n * day, (n + 1) * day), words) for n in (0, 1))
    assert first == pytest.approx([-0.4, 1.0, np.nan, np.nan, np.nan], nan_ok=True)
    assert second == pytest.approx([0.6, np.nan, np.nan, np.nan, np.nan], nan_ok=True)
    assert np.isnan(found.of_users(Window(9 * day, 10 * day), words)).all()


def test_a_host_without_the_table_and_other_estimators_are_refused() -> None:
    with pytest.raises(ValueError, match="prediction must come with its table here"):
        RoundRunner(SETTINGS, b"k" * 32, Directory([]))
    for estimator in ("plan", "one_shot", "central.mean"):
        with pytest.raises(ValueError, match="estimator must be repeating with a prediction"):
            rounds_settings(estimator=estimator, prediction="forecast")


@pytest.mark.parametrize(
    ("place", "rule"),
    [
        ("forecast", r"FILE.csv:COLUMN or FILE.parquet:COLUMN, a public table by user"),
        ("{folder}/none.csv:p", r"name a readable file, got .*No such file"),
        ("{folder}/t.csv:q", r"one column 'q', got 0"),
        ("{folder}/t.csv:name", r"be a column of numbers, got string"),
        ("{folder}/t.csv:empty", r"be a column of numbers|for one user at least"),
        ("{folder}/t.parquet:inf", r"for one user at least, got none"),
        ("{folder}/bad.parquet:p", r"CSV with a header, or Parquet"),
    ],
)
def test_tables_that_are_none_are_refused_in_one_line(
    place: str, rule: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("user,p,name,empty\na,1,x,\nb,2,y,\n")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no parquet")
    parquet.write_table(pa.table({"user": ["a"], "inf": [float("inf")]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=rule) as refusal:
        read_predictions(
            place.format(folder=tmp_path),
            user="user",
            time="time",
            windows=Windows.parse("1d"),
            ends=(0.0, 10.0),
        )
    assert "\n" not in str(refusal.value)
