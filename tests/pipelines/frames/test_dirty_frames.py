"""Columns of the wrong kind: text times are read, and a refusal names the kinds and the call."""

from __future__ import annotations

import re
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import meanstream
from meanstream.pipelines.frames.frame_columns import frame_samples
from tests.pipelines.frames.test_private_means import BOUNDS, SAME


def made(call: str, frame: Any) -> Any:
    """What a call that a message names makes, where its libraries are imported as usual."""
    return eval(call, {"pd": pd, "pl": pl, "pc": pc, "frame": frame})  # noqa: S307


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


def test_texts_of_another_notation_are_refused_without_a_call_that_would_lose_the_others() -> None:
    frame = with_times([f"{hour}Z" for hour in HOURS[:-2]] + ["01/02/2013", "n/a"])
    said = (
        "got text: days such as 31/12/2026 (1), other text (1) in column 't': "
        "write them all as 2026-01-31T08:00:00Z"
    )
    for same in (frame, pl.from_pandas(frame)):
        with pytest.raises(ValueError, match=re.escape(said)):
            parsed(same)


DAYS = ["13.01.2013 05:30", "02.03.2013 17:00"] * 24
EXPECTED = [1358055000.0, 1362243600.0]


def test_the_named_call_reads_days_as_they_were_meant() -> None:
    """Pandas alone takes the first text for a guide, and polars and DuckDB read none of these."""
    frame = with_times(DAYS)
    with pytest.raises(ValueError, match="days such as") as refusal:
        parsed(frame)
    call = "pd.to_datetime(frame['t'], format='%d.%m.%Y %H:%M', errors='coerce')"
    assert str(refusal.value).endswith(f": {call} converts it")
    frame["t"] = made(call, frame)
    assert sorted({*parsed(frame)}) == EXPECTED

    words = pl.from_pandas(with_times(DAYS))
    with pytest.raises(ValueError, match="days such as") as refusal:
        parsed(words)
    call = "pl.col('t').str.strptime(pl.Datetime, '%d.%m.%Y %H:%M', strict=False)"
    assert str(refusal.value).endswith(f": {call} converts it")
    assert sorted({*parsed(words.with_columns(made(call, words)))}) == EXPECTED


@pytest.mark.parametrize(
    ("days", "end"),
    [
        (["01/13/13", "02/03/13"], "format='%m/%d/%y', errors='coerce') converts it"),
        (
            ["01/12/2013", "02/03/2013"],
            "format='%d/%m/%Y', errors='coerce') converts it if the day comes first",
        ),
        (["13/01/2013", "01/13/2013"], "write them all as 2026-01-31T08:00:00Z"),
        (["13/01/2013", "01/12/13"], "write them all as 2026-01-31T08:00:00Z"),
    ],
)
def test_the_order_of_days_and_months_is_read_or_asked(days: list[str], end: str) -> None:
    with pytest.raises(ValueError, match="days such as") as refusal:
        parsed(with_times(days * 24))
    assert str(refusal.value).endswith(end)


def converted(frame: Any, call: str) -> list[float | None]:
    """Values of the column that a call makes, in the library of its frame."""
    if isinstance(frame, pl.DataFrame):
        return frame.select(made(call, frame)).to_series().to_list()
    if isinstance(frame, pa.Table):
        return made(call, frame).to_pylist()
    if isinstance(frame, pd.DataFrame):
        return [None if np.isnan(value) else value for value in made(call, frame)]
    return [row[0] for row in frame.project(call).fetchall()]


def relation(columns: dict[str, list[str]]) -> Any:
    return duckdb.from_arrow(pa.table(columns))


TEXTS = {
    "plain": (["12.5", " 7", "1e3"], [12.5, 7.0, 1000.0]),
    "decimal comma": (["12,50", "0,125", "3.5"], [12.5, 0.125, 3.5]),
    "points of thousands": (["1.234,50", "12,5"], [1234.5, 12.5]),
    "commas of thousands": (["1,234.50", "1,234", "7"], [1234.5, 1234.0, 7.0]),
    "spaces of thousands": (["1 234.5", "2'000"], [1234.5, 2000.0]),
}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table, relation])
@pytest.mark.parametrize("notation", TEXTS)
def test_the_named_call_loses_no_number_of_its_notation(notation: str, make: Any) -> None:
    """Before, all calls but that for plain numbers made every value a missing one."""
    texts, expected = TEXTS[notation]
    frame = make({"g": ["a"] * len(texts), "v": texts})
    with pytest.raises(ValueError, match="value must be a column of numbers") as refusal:
        meanstream.private_means(frame, by="g", value="v", **BOUNDS, **SAME)
    call = re.search(r"in column 'v': (.*) converts it", str(refusal.value))
    assert call is not None
    stripped = pa.table({"v": [text.strip() for text in texts]})  # Arrow's own call takes no spaces
    assert converted(stripped if make is pa.table else frame, call[1]) == expected


def test_notations_that_contradict_each_other_get_no_call() -> None:
    for texts in (["12,50", "1,234.50"], ["1.234,50", "3.1"], ["12,5", "1,2,3"]):
        frame = pd.DataFrame({"g": ["a"] * 2, "v": texts})
        with pytest.raises(ValueError, match=r"in column 'v': write them in one notation first$"):
            meanstream.private_means(frame, by="g", value="v", **BOUNDS, **SAME)


def test_a_unit_is_taken_away_and_the_next_refusal_says_how_to_go_on() -> None:
    frame = pd.DataFrame({"g": ["a"] * 3, "v": ["EUR 12,50", "3,1 EUR", "7"]})
    with pytest.raises(ValueError, match="takes the unit away; then convert") as refusal:
        meanstream.private_means(frame, by="g", value="v", **BOUNDS, **SAME)
    call = re.search(r"in column 'v': (.*) takes the unit away", str(refusal.value))
    assert call is not None
    frame["v"] = made(call[1], frame)
    assert frame["v"].tolist() == ["12,50", "3,1", "7"]


def test_other_texts_and_other_types_get_no_call() -> None:
    words = pd.DataFrame({"g": ["a"] * 2, "v": ["yes", "no"]})
    with pytest.raises(ValueError, match=r"in column 'v': none of its texts is a number$"):
        meanstream.private_means(words, by="g", value="v", **BOUNDS, **SAME)
    days = pd.DataFrame({"g": ["a"] * 48, "v": HOURS})
    with pytest.raises(ValueError, match=r"got dates or times in column 'v'$"):
        meanstream.private_means(days, by="g", value="v", **BOUNDS, **SAME)


@pytest.mark.parametrize(
    ("frame", "end"),
    [
        ({"g": ["a"], "v": [1.0]}, "; pd.DataFrame(...) makes one of it"),
        ([{"g": "a", "v": 1.0}], "; pd.DataFrame(...) makes one of it"),
        ("rows.csv", "; pd.read_csv(...) or duckdb.read_csv(...) reads a file"),
        (pl.LazyFrame({"g": ["a"], "v": [1.0]}), "; .collect() makes one of it"),
    ],
)
def test_what_is_no_frame_is_refused_with_the_call_that_makes_one(frame: Any, end: str) -> None:
    with pytest.raises(TypeError, match="frame must be a frame of pandas") as refusal:
        meanstream.private_means(frame, by="g", value="v", **BOUNDS, **SAME)
    assert str(refusal.value).endswith(end)


def test_not_a_number_of_polars_gets_the_call_that_makes_a_null() -> None:
    frame = pl.DataFrame({"g": ["a"] * 3, "v": [1.0, float("nan"), 2.0]})
    with pytest.raises(ValueError, match=r"pl\.col\('v'\)\.fill_nan\(None\) makes nulls of NaN"):
        meanstream.private_means(frame, by="g", value="v", nulls="drop", **BOUNDS, **SAME)
    whole = frame.with_columns(pl.col("v").fill_nan(None))
    means = meanstream.private_means(whole, by="g", value="v", nulls="drop", **BOUNDS, **SAME)
    assert means.to_arrow()["rows"].to_pylist() == [2]


def test_the_named_call_makes_a_column_that_is_taken() -> None:
    frame = pd.DataFrame({"g": ["a"] * 3, "v": ["1", "n/a", "3"]})
    frame["v"] = pd.to_numeric(frame["v"], errors="coerce")
    means = meanstream.private_means(frame, by="g", value="v", nulls="drop", **BOUNDS, **SAME)
    assert means.to_arrow()["rows"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("option", "call"),
    [
        ("by", "frame['m'].astype(str) makes them one type"),
        ("value", "pd.to_numeric(frame['m'], errors='coerce') makes them one type"),
        ("time", "pd.to_numeric(frame['m'], errors='coerce') makes seconds of it"),
    ],
)
def test_integers_and_text_in_one_column_are_named(option: str, call: str) -> None:
    frame = pd.DataFrame({"g": ["a"] * 3, "v": [1.0, 2.0, 3.0], "m": [1, "777", 2]})
    said = f"got others in 'm' ('m' has integers (2) and text (1)): {call}"
    with pytest.raises(ValueError, match=re.escape(said)) as refusal:
        meanstream.private_means(frame, **{"by": "g", "value": "v", option: "m"}, **BOUNDS, **SAME)
    assert "777" not in str(refusal.value)


def test_names_that_differ_only_in_case_or_blanks_are_counted_in_a_note() -> None:
    frame = pd.DataFrame({"g": ["S1", "s1 ", "S2", "S3"] * 10, "v": np.arange(40.0)})
    means = meanstream.private_means(frame, by="g", value="v", **BOUNDS, **SAME)
    said = "2 names of groups differ from another one only in case or blanks: each is a group of its own"
    assert said in means.notes
    clean = frame.assign(g=frame["g"].str.strip().str.upper())
    means = meanstream.private_means(clean, by="g", value="v", **BOUNDS, **SAME)
    assert not any("blanks" in note for note in means.notes)


def test_words_for_times_get_no_call_that_would_make_all_of_them_missing() -> None:
    with pytest.raises(ValueError, match=r"other text \(48\) in column 't': write them all as"):
        parsed(with_times(["May the first", "noon"] * 24))


def test_times_beside_words_get_the_call_that_makes_the_words_missing() -> None:
    frame = with_times([f"{hour}Z" for hour in HOURS[:-1]] + ["n/a"])
    with pytest.raises(ValueError, match="other text") as refusal:
        parsed(frame)
    call = re.search(r"in column 't': (.*) converts it", str(refusal.value))
    assert call is not None
    frame["t"] = made(call[1], frame)
    assert len(parsed(frame, nulls="drop")) == 47
