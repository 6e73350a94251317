"""Sinks go back to where they were told; events are written as their schema says."""

from __future__ import annotations

import io
import re
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from meanstream.streaming.events.encode import (
    BLOCK,
    EventLines,
    ObjectColumn,
    encode_columns_as_lines,
    encode_lines,
)
from meanstream.streaming.events.times import iso_times
from meanstream.streaming.events.wire import EVENTS, DeadLetter, Release, Sample, wire_event_schema
from meanstream.streaming.open_sink import open_sink
from meanstream.streaming.sinks.jsonl_sink import JsonlSink, StreamSink
from meanstream.streaming.sinks.parquet_sink import ParquetSink
from meanstream.streaming.sinks.sink_protocol import SinkLostError, SinkOpening, Trust


def letters(*positions: int) -> EventLines:
    n = len(positions)
    columns: dict[str, Any] = {"position": list(positions), "reason": ["late"] * n}
    return encode_columns_as_lines(DeadLetter, columns, {"source": "x"})


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


def test_other_files_of_a_parquet_folder_stay(tmp_path: Path) -> None:
    """They used to be counted as parts: later ones went to other places, and no restart found
    them."""
    folder = tmp_path / "x.parquet"
    folder.mkdir()
    others = {
        name: name.encode()
        for name in ("part-a.parquet", "part-0000001.parquet", "part-00000-1.c000.parquet", "a")
    }
    for name, data in others.items():
        (folder / name).write_bytes(data)
    for number in range(3):
        sink = ParquetSink.open(str(folder), SinkOpening(trust=Trust.PUBLIC, option="sink"))
        sink.restore({"path": str(folder.resolve()), "parts": number})
        sink.write(letters(number))
        sink.flush()
        assert sink.position()["parts"] == number + 1
    parts = sorted(path.name for path in folder.iterdir() if path.name not in others)
    assert parts == [f"part-{number:06d}.parquet" for number in range(3)]
    assert {name: (folder / name).read_bytes() for name in others} == others


@pytest.mark.parametrize("place", [1, 7])
@pytest.mark.parametrize("content", [b"a foreign file", None])
def test_a_foreign_file_where_a_part_goes_is_refused(
    content: bytes | None, place: int, tmp_path: Path
) -> None:
    """While the run goes on, and when the next one begins; it stays as it is."""
    folder = tmp_path / "x.parquet"
    sink = ParquetSink.open(str(folder), SinkOpening(trust=Trust.PUBLIC, option="releases"))
    sink.write(letters(1))
    sink.flush()
    position, part = sink.position(), folder / f"part-{place:06d}.parquet"
    if content is None:
        pq.write_table(pa.table({"mine": [1, 2]}), part)
    else:
        part.write_bytes(content)
    before = part.read_bytes()
    refused = f"releases must be a folder without other files where parts go, got '{part}'"
    if place == 1:
        sink.write(letters(2))
        with pytest.raises(SinkLostError, match=re.escape(refused)):
            sink.flush()
    with pytest.raises(ValueError, match=re.escape(refused)):
        ParquetSink.open(str(folder), SinkOpening(trust=Trust.PUBLIC, option="releases")).restore(
            position
        )
    assert part.read_bytes() == before
    part.unlink()
    ParquetSink.open(str(folder), SinkOpening(trust=Trust.PUBLIC, option="releases")).restore(
        position
    )


def test_what_a_killed_run_began_is_no_way_to_another_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"key")
    sink = ParquetSink(tmp_path / "x.parquet", trust=Trust.PUBLIC)
    (tmp_path / "x.parquet" / "part-000000.unfinished").symlink_to(tmp_path / "key")
    sink.write(letters(1))
    sink.flush()
    assert (tmp_path / "key").read_bytes() == b"key"
    assert pq.read_table(tmp_path / "x.parquet")["position"].to_pylist() == [1]


@pytest.mark.parametrize(
    "content",
    [b"7c1e94b05fa3d2681be60c9d37f25a84", b"SQLite format 3\0", b"agent,value\n", b"\n{}"],
)
def test_a_file_of_something_else_is_no_file_of_events(content: bytes, tmp_path: Path) -> None:
    place = tmp_path / "x.jsonl"
    place.write_bytes(content)
    with pytest.raises(ValueError, match="sink must be a new file or one of events, got"):
        open_sink(str(place), trust=Trust.PUBLIC)
    assert place.read_bytes() == content
    place.write_bytes(b"")
    open_sink(str(place), trust=Trust.PUBLIC).close()


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_a_sink_that_lost_events_is_refused_and_another_one_is_begun(
    name: str, tmp_path: Path
) -> None:
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
    kinds = "a .jsonl file, a .parquet folder, kafka://HOST:PORT/TOPIC, iceberg://CATALOG/NAMESPACE.TABLE or '-'"
    rule = f"sink must be {kinds}, got 'x.txt'"
    with pytest.raises(ValueError, match=rule):
        open_sink("x.txt", trust=Trust.PUBLIC)
    with pytest.raises(ValueError, match=r"releases must be a .jsonl file"):
        open_sink("x.txt", trust=Trust.PUBLIC, role="releases")
    with pytest.raises(ValueError, match="sink must be in an existing folder"):
        open_sink("/nonexistent/x.jsonl", trust=Trust.PUBLIC)


names = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=20
).filter(str.strip)


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
    line = encode_columns_as_lines(
        Release, columns, {"epsilon": 1.0, "delta": 1e-6, "mode": "tuned"}
    ).lines[0]
    event = Release.model_validate_json(line)
    assert (event.agent, event.n, event.mean, event.noise_variance, event.total) == (
        agent,
        n,
        mean,
        variance,
        total,
    )
    # Both ways of writing an event agree.
    assert msgspec.json.decode(line) == msgspec.json.decode(encode_lines(Release, [event]).lines[0])


def test_numbers_that_json_does_not_have_are_refused() -> None:
    for number in ("nan", "inf", "-inf"):
        with pytest.raises(ValueError, match="finite"):
            encode_columns_as_lines(
                Release, {"mean": [1.0, float(number)]}, dict.fromkeys(Release.model_fields)
            )


def test_finite_numbers_with_a_sum_beyond_floats_are_written() -> None:
    lines = encode_columns_as_lines(
        Release, {"mean": [1.7e308, 1.7e308]}, dict.fromkeys(Release.model_fields)
    ).lines
    assert [msgspec.json.decode(line)["mean"] for line in lines] == [1.7e308, 1.7e308]


@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 3])
def test_a_file_gets_the_lines_whether_or_not_they_were_taken_apart(count: int) -> None:
    columns = {"position": range(count), "reason": ["two\nlines"] * count}
    for looks in (0, 1, 2):
        events = encode_columns_as_lines(DeadLetter, columns, {"source": "x"})
        for _ in range(looks):
            assert [msgspec.json.decode(line)["position"] for line in events.lines] == list(
                range(count)
            )
        assert len(events) == count
        once, again = b"".join(events.blocks()), b"".join(events.blocks())
        assert once == again == b"".join([line + b"\n" for line in events.lines])


@pytest.mark.parametrize("kept", [True, False])
def test_columns_of_any_kind_are_the_same_lines(*, kept: bool) -> None:
    count = 2 * BLOCK + 3
    number = np.arange(count)
    votes = np.stack([number % 3, number, number - 7], axis=1)
    counts = [
        {"number": a, "pairs": b, "counts": [c], "noise_variance": 0.5}
        for a, b, c in votes.tolist()
    ]
    plain = {
        "index": number.tolist(),
        "mean": (number / 7).tolist(),
        "agent": list(map(str, number)),
        "votes": counts,
    }
    same = dict.fromkeys(Release.model_fields)
    fields = {"number": votes[:, 0], "pairs": votes[:, 1], "counts": votes[:, 2:]}
    columns = {
        "index": number,
        "mean": number / 7,
        "agent": lambda some: list(map(str, number[some].tolist())),
        "votes": ObjectColumn(fields, {"noise_variance": 0.5}),
    }
    expected = list(encode_columns_as_lines(Release, plain, same).lines)
    made = encode_columns_as_lines(Release, columns, same, kept=kept)
    assert list(made.lines) == expected
    assert b"".join(made.blocks()) == b"".join([line + b"\n" for line in expected])
    for part in (
        slice(0, 3),
        slice(BLOCK - 1, BLOCK + 1),
        slice(5, 2),
        slice(-2, None),
        slice(0, None, BLOCK),
    ):
        assert made.lines[part] == expected[part]
    assert [made.lines[at] for at in (0, BLOCK, -1)] == [expected[at] for at in (0, BLOCK, -1)]
    with pytest.raises(IndexError):
        made.lines[count]
    with pytest.raises(ValueError, match="finite"):
        encode_columns_as_lines(Release, {"mean": np.array([1.0, np.nan])}, same, kept=kept)


@pytest.mark.parametrize("count", [0, 1, BLOCK, 2 * BLOCK + 3])
def test_lines_that_stand_alone_are_written_in_blocks(count: int) -> None:
    lines = [str(number).encode() for number in range(count)]
    blocks = list(EventLines(DeadLetter, lines).blocks())
    assert len(blocks) == -(-count // BLOCK)
    assert b"".join(blocks) == b"".join([line + b"\n" for line in lines])


def test_times_that_repeat_are_written_as_each_alone() -> None:
    seconds = np.array([0.0, 0.0, 0.25, 0.25, 7.0, 0.0, -0.5, -0.5])
    for part in (seconds, seconds[:2], seconds[4:6], seconds[:0]):
        assert iso_times(part) == [iso_times(part[i : i + 1])[0] for i in range(len(part))]


def test_every_character_of_a_name_is_written_as_the_standard_library_does() -> None:
    names = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    lines = encode_columns_as_lines(
        DeadLetter, {"position": range(len(names)), "reason": names}, {"source": "x"}
    ).lines
    rest = ',"source":"x","partition":0,"position":{},"size":null,"schema_version":1}}'
    assert list(lines) == [
        ('{"reason":' + encode_basestring(name) + rest.format(at)).encode()
        for at, name in enumerate(names)
    ]
    with pytest.raises(UnicodeEncodeError):
        encode_columns_as_lines(
            DeadLetter, {"position": [1], "reason": ["\ud800"]}, {"source": "x"}
        )


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_is_strict_closed_and_has_a_schema(name: str) -> None:
    described = wire_event_schema(name)
    assert described["additionalProperties"] is False
    assert described["properties"]["schema_version"]["const"] == 1
    with pytest.raises(ValueError, match="name must be one of"):
        wire_event_schema(name + "s")


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


def test_a_number_that_many_events_share_is_written_as_each_of_them() -> None:
    same = dict.fromkeys(Release.model_fields)
    zeros = np.zeros(BLOCK + 2)
    minus = np.where(np.arange(len(zeros)) % 2, -0.0, 0.0)
    votes = np.zeros((len(zeros), 2), np.int64)
    votes[1, 1] = 7

    def line(number: int, value: float) -> bytes:
        columns: dict[str, Any] = {
            "release_id": ["r"] * len(zeros),
            "n": np.full(len(zeros), 3),
            "mean": minus if value else zeros,
            "noise_variance": np.full(len(zeros), 1e-7),
            "votes": ObjectColumn(
                {"number": votes[:, 0], "counts": votes}, {"noise_variance": 0.5}
            ),
        }
        return encode_columns_as_lines(Release, columns, same).lines[number]

    shared = msgspec.json.decode(line(0, 0.0))
    assert (shared["n"], shared["mean"], shared["noise_variance"]) == (3, 0.0, 1e-7)
    assert [b'"mean":-0.0,' in line(i, 1.0) for i in range(3)] == [False, True, False]
    assert line(0, 0.0) == line(BLOCK + 1, 0.0)

    counts = [msgspec.json.decode(line(i, 0.0))["votes"] for i in range(3)]
    nothing = {"number": 0, "counts": [0, 0], "noise_variance": 0.5}
    assert counts == [nothing, nothing | {"counts": [0, 7]}, nothing]
