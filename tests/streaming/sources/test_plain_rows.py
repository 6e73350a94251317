"""Rows that the reader in C takes are what Arrow makes of them, to the bit; it takes no others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.sources.formats import plain_rows
from meanstream.streaming.sources.formats.csv_file import CsvFormat
from meanstream.streaming.sources.formats.flat_records import MAX_FIELDS
from meanstream.streaming.sources.formats.plain_rows import COMPILED, PlainRows
from meanstream.streaming.sources.lines import LineBlock
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_records import LEAF, RecordParser

pytestmark = pytest.mark.skipif(not COMPILED, reason="installed without a compiler")

MAPPING = ColumnMapping(id="id")
HEADER = ["agent", "value", "time", "more", "id"]
ROWS = PlainRows.of_header({"agent": 0, "value": 1, "time": 2, "id": 4}, len(HEADER), ",")
GOOD = b"ann,1.5,2013-01-01T00:00:00Z,,x"
FIRST = datetime(1, 1, 1, tzinfo=UTC)

MOMENTS = st.integers(0, 315537897599999999).map(lambda n: FIRST + timedelta(microseconds=n))
TIMES = st.builds(
    lambda moment, form, zone: moment.replace(tzinfo=None).isoformat(sep=form) + zone,
    MOMENTS,
    st.sampled_from("T "),
    st.sampled_from(["Z", "Z", "", "+01:00"]),
)
ODD_TIMES = ["", "NA", "2013-02-29T00:00:00Z", "2013-01-01", "2013-01-01T24:00:00Z", "50", "1e9"]
ODD_TIMES += ["2013-01-01T00:00:00.1234567Z", "2013-1-01T00:00:00Z", "0000-01-01T00:00:00Z"]
NUMBERS = st.one_of(
    st.floats().map(str),
    st.integers().map(str),
    st.from_regex(r"[-+]?[0-9]{0,25}(\.[0-9]{0,25})?([eE][+-]?[0-9]{0,4})?", fullmatch=True),
    st.sampled_from(["", "NA", "null", "-0", "01", "0x1p3", "nan(1)", "Infinity", " 1", "1e400"]),
)
NAMES = st.one_of(st.text(max_size=8), st.sampled_from(["", "NA", "N/A", "None", "\ufeffa", "é"]))
QUOTED = st.sampled_from(["{}", "{}", '"{}"', '"{}', '{}"', ' "{}"'])


@st.composite
def rows(draw: st.DrawFn) -> bytes:
    """One row: most often a good one with something odd in it."""
    cells = ["ann", "1.5", "2013-01-01T00:00:00Z", "", "x"]
    choices = [NAMES, NUMBERS, st.one_of(TIMES, st.sampled_from(ODD_TIMES)), NAMES, NAMES]
    for number in draw(st.sets(st.integers(0, 4), max_size=2)):
        cells[number] = draw(QUOTED).format(draw(choices[number]))

    cells += ["more"] * (draw(st.integers(0, 9)) == 0)
    line = ",".join(cells) + draw(st.sampled_from(["", "", "", "\r", ","]))
    return line.replace("\n", " ").encode("utf-8", "surrogatepass")


def block(lines: list[bytes]) -> LineBlock:
    """Lines as a file has them."""
    text = b"".join(line + b"\n" for line in lines)
    ends = np.cumsum([len(line) + 1 for line in lines])
    return LineBlock(memoryview(text), ends, np.arange(len(lines)))


def outcome(lines: list[bytes]) -> dict[int, Any]:
    """What becomes of each line of a block that is long enough to be read as one."""
    parser = RecordParser(CsvFormat(HEADER, ",", MAPPING), MAPPING)
    rejects = Rejects()
    samples = parser.parse(block([*lines, *[GOOD] * (LEAF + 1)]), rejects)
    assert samples.key is not None

    columns = zip(
        samples.position.tolist(),
        samples.agent.tolist(),
        samples.value.view(np.int64).tolist(),
        samples.time.view(np.int64).tolist(),
        samples.key.tolist(),
        strict=True,
    )
    result: dict[int, Any] = {
        number: (samples.names[agent], *rest) for number, agent, *rest in columns
    }
    bad = zip(rejects.position, rejects.reason, rejects.size, strict=True)
    return result | {number: fault for number, *fault in bad}


@settings(max_examples=100, deadline=None)
@given(st.lists(rows(), max_size=4))
def test_hostile_rows_become_what_they_become_without_it(lines: list[bytes]) -> None:
    with_it = outcome(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_rows, "COMPILED", False)
        assert outcome(lines) == with_it


@given(MOMENTS, st.sampled_from("T "), st.sampled_from(["", "Z"]))
def test_a_time_is_read_to_the_microsecond(moment: datetime, form: str, zone: str) -> None:
    text = moment.replace(tzinfo=None).isoformat(sep=form) + zone
    times = PlainRows.of_header({"time": 0}, 1, ",")
    assert times is not None
    columns = times.read(text.encode(), 1)
    assert columns is not None
    assert columns["time"].to_pylist() == [moment]


def test_it_reads_what_it_is_for() -> None:
    """Or the tests above would compare two equal parsers."""
    assert ROWS is not None
    columns = ROWS.read(GOOD + b'\n"b,c","-2e3","2013-01-01 00:00:00.5",s,"y"', 2)
    assert columns is not None
    assert columns["agent"].to_pylist() == [b"ann", b"b,c"]
    assert columns["value"].to_pylist() == [1.5, -2000.0]
    assert columns["id"].to_pylist() == [b"x", b"y"]
    assert columns["time"].cast("int64").to_pylist() == [1356998400000000, 1356998400500000]


@pytest.mark.parametrize(
    "odd",
    [
        GOOD + b"\r",
        GOOD + b",",
        GOOD[:-2],
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b"ann", b"a\xffn"),
        GOOD.replace(b"ann", b"a\x00n"),
        GOOD.replace(b"ann", b'a"n'),
        GOOD.replace(b"ann", b'"a""n"'),
        GOOD.replace(b"ann", b'"ann" '),
        GOOD.replace(b"ann", b'"NA"'),
        GOOD.replace(b"ann", b""),
        GOOD.replace(b"1.5", b"nan"),
        GOOD.replace(b"1.5", b"-0"),
        GOOD.replace(b"00Z", b"00+01:00"),
        b"",
    ],
)
def test_it_gives_nothing_for_anything_else(odd: bytes) -> None:
    assert ROWS is not None
    assert ROWS.read(GOOD + b"\n" + odd, 2) is None
    assert ROWS.read(odd + b"\n" + GOOD, 2) is None


@given(st.integers(0, len(GOOD)))
def test_no_byte_behind_the_end_is_read(length: int) -> None:
    """A row that is cut before its last field is none, though its end stands behind in memory."""
    assert ROWS is not None
    assert (ROWS.read(memoryview(GOOD)[:length], 1) is None) == (length < len(GOOD))


def test_what_it_has_no_room_for_is_for_others() -> None:
    assert PlainRows.of_header({"agent": 0, "id": 0}, 1, ",") is None
    assert PlainRows.of_header({"agent": 0}, MAX_FIELDS + 1, ",") is None
    assert PlainRows(bytes(MAX_FIELDS + 1), {}, ",").read(b"a", 1) is None
    assert ROWS is not None
    assert [ROWS.read(GOOD, count) for count in (-1, 0, 2, 1 << 40)] == [None] * 4
