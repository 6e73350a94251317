"""Columns of the wrong kind: text times are read, and a refusal names the kinds and the call."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import meanstream
from meanstream.pipelines.frames.frame_columns import frame_samples
from tests.pipelines.frames.test_private_means import BOUNDS, SAME

HOURS = np.datetime64("2013-01-01T05:00") + np.arange(48).astype("timedelta64[h]")


def with_times(texts: Any) -> pd.DataFrame:
    return pd.DataFrame({"g": ["a", "b"] * 24, "v": np.arange(48.0), "t": texts})


def parsed(frame: Any, **changes: Any) -> list[float]:
    samples = frame_samples(frame, **{"by": "g", "value": "v", "time": "t", **changes})
    assert samples.time is not None
    return samples.time.tolist()


@pytest.mark.parametrize(
    "ending", ["Z", "+00:00", ""], ids=["with a zone", "with an offset", "without a zone"]
)
def test_times_may_be_text_as_on_the_command_line(ending: str) -> None:
    texts = [f"{hour}{ending}" for hour in HOURS]
    expected = parsed(with_times(HOURS))
    assert parsed(with_times(texts)) == expected
    assert parsed(with_times([text.replace("T", " ") for text in texts])) == expected
    assert parsed(pl.from_pandas(with_times(texts))) == expected
    assert parsed(with_times(pd.Categorical(texts))) == expected


def test_text_times_without_a_zone_are_of_the_calendar() -> None:
    zone = "America/New_York"
    local = parsed(with_times(HOURS), tz=zone)
    assert parsed(with_times([str(hour) for hour in HOURS]), tz=zone) == local
    assert parsed(with_times([f"{hour}Z" for hour in HOURS]), tz=zone) == parsed(with_times(HOURS))
    mixed = [f"{hour}Z" for hour in HOURS[:24]] + [str(hour) for hour in HOURS[24:]]
    with pytest.raises(ValueError, match="time must be times, ISO 8601 text"):
        parsed(with_times(mixed), tz=zone)


def test_texts_of_another_notation_are_refused_with_the_call_that_converts_them() -> None:
    frame = with_times([f"{hour}Z" for hour in HOURS[:-2]] + ["01/02/2013", "n/a"])
    said = (
        "got text: days such as 31/12/2026 (1), other text (1) in column 't': "
        "pd.to_datetime(frame['t'], utc=True) converts others"
    )
    with pytest.raises(ValueError, match=re.escape(said)):
        parsed(frame)


NUMBERS = {
    "pd.to_numeric(frame['v'], errors='coerce')": pd.DataFrame,
    "pl.col('v').cast(pl.Float64, strict=False)": pl.DataFrame,
    "pyarrow.compute.cast(frame['v'], 'float64')": pa.table,
}


@pytest.mark.parametrize("call", NUMBERS)
def test_text_in_place_of_numbers_is_refused_with_its_kinds(call: str) -> None:
    frame = NUMBERS[call]({"g": ["a"] * 6, "v": ["12,50", "n/a", "3 EUR", "", "7.5", "-1e3"]})
    kinds = (
        "text: numbers (2), empty (1), numbers with a comma or a space (1), numbers with a unit or a "
        "sign (1), other text (1)"
    )
    said = f"value must be a column of numbers, got {kinds} in column 'v': {call} converts it"
    with pytest.raises(ValueError, match=re.escape(said)):
        meanstream.private_means(frame, by="g", value="v", **BOUNDS, **SAME)


def test_the_named_call_makes_a_column_that_is_taken() -> None:
    frame = pd.DataFrame({"g": ["a"] * 3, "v": ["1", "n/a", "3"]})
    frame["v"] = pd.to_numeric(frame["v"], errors="coerce")
    means = meanstream.private_means(frame, by="g", value="v", nulls="drop", **BOUNDS, **SAME)
    assert means.to_arrow()["rows"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("option", "call"),
    [
        ("by", "frame['m'].astype(str)"),
        ("value", "pd.to_numeric(frame['m'], errors='coerce')"),
        ("time", "pd.to_datetime(frame['m'], utc=True)"),
    ],
)
def test_integers_and_text_in_one_column_are_named(option: str, call: str) -> None:
    frame = pd.DataFrame({"g": ["a"] * 3, "v": [1.0, 2.0, 3.0], "m": [1, "777", 2]})
    said = f"got others in 'm' ('m' has integers (2) and text (1)): {call} makes them one type"
    with pytest.raises(ValueError, match=re.escape(said)) as refusal:
        meanstream.private_means(frame, **{"by": "g", "value": "v", option: "m"}, **BOUNDS, **SAME)
    assert "777" not in str(refusal.value)
