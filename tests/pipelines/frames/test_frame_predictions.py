"""`private_windows(prediction=...)`: the engine's answers from a second frame, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from meanstream.pipelines.frames.private_windows import private_windows

USERS = 300
LEVEL = np.random.default_rng(1).normal(50.0, 12.0, USERS).clip(5.0, 95.0)
NAMES = [f"u{user}" for user in range(USERS)]
DAYS = 8
TABLE = pa.table(
    {
        "who": NAMES * DAYS,
        "v": np.tile(LEVEL, DAYS),
        "t": np.repeat(86_400.0 * np.arange(DAYS) + 60.0, USERS),
    }
)
FORECAST = pa.table({"who": NAMES, "level": LEVEL})


def answered(prediction: Any, frame: Any = TABLE, **more: Any) -> Any:
    asked = {
        "by": "who", "value": "v", "time": "t", "lower": 0, "upper": 100, "epsilon": 8.0,
        "window": "1d", "secret": "9b1f6c04d2a85e73bb40c9f1e6a7250d", "name": "frame",
    }  # fmt: skip
    return private_windows(frame, prediction=prediction, **{**asked, **more})


def test_a_forecast_is_used_and_repeats() -> None:
    found, again = answered(FORECAST), answered(FORECAST)
    assert found.to_frame().equals(again.to_frame())
    assert not found.to_frame().equals(answered(None).to_frame())
    assert "predictions 'level' of all users who take part" in found.explain()
    covered = found.to_frame()
    truth = LEVEL.mean()
    inside = (covered["lower"].to_numpy() <= truth) & (truth <= covered["upper"].to_numpy())

    # Each misses with a probability of .05: four or more of eight with one of 4e-4.
    assert inside.sum() > DAYS - 4


def test_rows_of_the_forecast_may_be_of_times() -> None:
    by_day = pa.table(
        {"who": NAMES * DAYS, "t": TABLE["t"].to_numpy() + 7.0, "level": np.tile(LEVEL, DAYS)}
    )
    assert answered(by_day).to_frame().equals(answered(FORECAST).to_frame())


@pytest.mark.parametrize(
    ("prediction", "rule"),
    [
        ("v", "prediction must be a frame of pandas, polars"),
        (FORECAST.append_column("more", pa.array(LEVEL)), "'who' and one other column besides 't'"),
        (FORECAST.rename_columns(["whom", "level"]), "'who' and one other column besides 't'"),
        (FORECAST.set_column(1, "level", pa.array(NAMES)), "be a column of numbers, got string"),
    ],
)
def test_others_are_refused(prediction: Any, rule: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rule):
        answered(prediction)


def test_a_curator_and_sliding_windows_have_none() -> None:
    for more in ({"central": True}, {"window": "2d,1d", "user_budget": 100.0}):
        with pytest.raises(ValueError, match="estimator must be repeating with a prediction"):
            answered(FORECAST, **more)
