"""Sinks go back to where they were told; events are written as their schema says."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from streaming.encode import EventLines, columns_to_lines, lines_of
from streaming.events import EVENTS, DeadLetter, Release, Sample, schema
from streaming.sinks.jsonl import JsonlSink, StreamSink
from streaming.sinks.open import open_sink
from streaming.sinks.parquet import ParquetSink
from streaming.sinks.sink import Trust


def letters(*positions: int) -> EventLines:
    n = len(positions)
    columns: dict[str, Any] = {"position": list(positions), "reason": ["late"] * n}
    return columns_to_lines(DeadLetter, columns, {"source": "x"})


def test_a_jsonl_file_is_cut_back(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "x.jsonl", trust=Trust.PUBLIC)
    sink.write(letters(1, 2))
    sink.flush()
    position = sink.position()
    sink.write(letters(3))
    sink.close()
    again = JsonlSink(tmp_path / "x.jsonl", trust=Trust.PUBLIC)
    again.restore(position)
    again.write(letters(4))
    again.close()
    lines = (tmp_path / "x.jsonl").read_bytes().splitlines()
    assert [DeadLetter.model_validate_json(line).position for line in lines] == [1, 2, 4]


def test_a_parquet_folder_is_cut_back(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "x.parquet", trust=Trust.PUBLIC)
    sink.write(letters(1, 2))
    sink.flush()
    position = sink.position()
    sink.write(letters(3))
    sink.flush()
    sink.write(letters(5))
    sink.close()
    again = ParquetSink(tmp_path / "x.parquet", trust=Trust.PUBLIC)
    again.restore(position)
    again.write(letters(4))
    again.flush()
    assert pq.read_table(tmp_path / "x.parquet")["position"].to_pylist() == [1, 2, 4]
    with pytest.raises(TypeError, match="one type of event"):
        again.write(EventLines(Release, [b"{}"]))
    again.close()


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_a_sink_that_lost_events_is_refused_and_another_one_is_begun(name: str, tmp_path: Path) -> None:
    sink = open_sink(str(tmp_path / name), trust=Trust.PUBLIC)
    sink.write(letters(1, 2))
    sink.flush()
    position = sink.position()
    sink.restore({**position, **({"bytes": 0} if "bytes" in position else {"parts": 0})})
    with pytest.raises(ValueError, match="sink must be the"):
        sink.restore(position)
    sink.close()
    other = open_sink(str(tmp_path / f"other-{name}"), trust=Trust.PUBLIC)
    other.restore(position)
    other.close()


def test_standard_output_and_unknown_places() -> None:
    stream = io.BytesIO()
    sink = StreamSink(trust=Trust.PUBLIC, stream=stream)
    sink.write(letters(1))
    sink.close()
    assert stream.getvalue().endswith(b"}\n")
    assert isinstance(open_sink("-", trust=Trust.PRIVATE), StreamSink)
    rule = r"sink must be a .jsonl file, a .parquet folder, kafka://HOST:PORT/TOPIC or '-', got 'x.txt'"
    with pytest.raises(ValueError, match=rule):
        open_sink("x.txt", trust=Trust.PUBLIC)
    with pytest.raises(ValueError, match=r"releases must be a .jsonl file"):
        open_sink("x.txt", trust=Trust.PUBLIC, role="releases")
    with pytest.raises(ValueError, match="sink must be in an existing folder"):
        open_sink("/nonexistent/x.jsonl", trust=Trust.PUBLIC)


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=20).filter(str.strip)


@settings(max_examples=40, deadline=None)
@given(
    names,
    st.integers(1, 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(0, 1e300),
    st.integers(-(2**62), 2**62),
)
def test_lines_are_valid_events_whatever_they_hold(
    agent: str, n: int, mean: float, variance: float, total: int
) -> None:
    columns: dict[str, Any] = {
        "release_id": [f"{agent}:1"],
        "agent": [agent],
        "index": [1],
        "time": ["2013-01-01T10:00:00Z"],
        "n": [n],
        "total": [total],
        "mean": [mean],
        "noise_variance": [variance],
    }
    line = columns_to_lines(Release, columns, {"epsilon": 1.0, "delta": 1e-6, "mode": "tuned"}).lines[0]
    event = Release.model_validate_json(line)
    assert (event.agent, event.n, event.mean, event.noise_variance, event.total) == (agent, n, mean, variance, total)
    # Both ways of writing an event agree.
    assert msgspec.json.decode(line) == msgspec.json.decode(lines_of(Release, [event]).lines[0])


def test_numbers_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        columns_to_lines(Release, {"mean": [float("nan")]}, dict.fromkeys(Release.model_fields))


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_is_strict_closed_and_has_a_schema(name: str) -> None:
    described = schema(name)
    assert described["additionalProperties"] is False
    assert described["properties"]["schema_version"]["const"] == 1
    with pytest.raises(ValueError, match="event must be one of"):
        schema(name + "s")


def test_a_sample_is_checked() -> None:
    good = {"agent": "ann", "value": 1.5, "time": "2013-01-01T10:00:00Z"}
    assert Sample.model_validate_json(msgspec.json.encode(good)).value == 1.5
    for change in (
        {"value": "1.5"},
        {"value": True},
        {"agent": ""},
        {"agent": "a\x00"},
        {"agent": "x" * 257},
        {"time": "2013-01-01T10:00:00"},
        {"schema_version": 2},
        {"extra": 1},
    ):
        with pytest.raises(ValidationError):
            Sample.model_validate_json(msgspec.json.encode({**good, **change}))
