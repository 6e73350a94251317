"""What the reader in C gives is what other parsers give, to the bit; it gives nothing for what it does not know."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.sources import name_hashes
from meanstream.streaming.sources.formats import flat_records
from meanstream.streaming.sources.formats.flat_records import FlatLayout, flat_layout
from meanstream.streaming.sources.formats.json_records import JsonFormat
from meanstream.streaming.sources.lines import LineBlock
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.name_hashes import COMPILED, CompiledNameTable
from meanstream.streaming.sources.source_records import RecordParser

pytestmark = pytest.mark.skipif(not COMPILED, reason="installed without a compiler")

FIELDS = [("agent",), ("value",), ("time",), ("id",), ("more",), ("schema_version",)]
LAYOUT = flat_layout(
    FIELDS,
    {"agent": ("agent",), "id": ("id",)},
    {"value": ("value",), "time": ("time",)},
    ("schema_version",),
)
GOOD = b'{"agent":"ann","value":1.5,"time":50,"id":"x","more":null,"schema_version":1}'
MAPPING = ColumnMapping(id="id")

NUMBERS = st.one_of(
    st.floats().map(json.dumps),  # NaN and Infinity among them
    st.integers().map(str),
    st.integers(-(10**400), 10**400).map(str),
    st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{0,25})?([eE][+-]?[0-9]{0,4})?", fullmatch=True),
    st.sampled_from(
        ["-0", "-0.0", "01", "1.", ".5", "+1", "1e400", "-1e400", "1e-400", "0x1p3", "1_0", "inf"]
    ),
)
TEXTS = st.one_of(
    st.text(max_size=12).map(json.dumps),
    st.text(max_size=12).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(['""', '"\\u0000"', '"\\ud800"', '"a\tb"', '"\x7f"', '"é"', '"e\u0301"']),
)
VALUES = st.one_of(
    NUMBERS, TEXTS, st.sampled_from(["null", "true", "false", "[]", "{}", "nulls", "[" * 600, ""])
)
SPACES = st.sampled_from(["", "", "", " ", "\t", "\r", "  ", "\n", "\f"])


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """One record: most often a good one with something odd in it."""
    fields = {
        "agent": draw(TEXTS),
        "value": draw(NUMBERS),
        "time": draw(st.sampled_from(["50", "51.25", "1e9"])),
        "id": '"x"',
        "more": draw(st.sampled_from(["null", "1", "true"])),
        "schema_version": "1",
    }
    pairs = list(fields.items())

    # A field may hold anything, be there twice, be missing, or stand elsewhere.
    odd = draw(st.sampled_from(["", "", "", "value", "twice", "missing", "order"]))
    which = draw(st.integers(0, len(pairs) - 1))
    if odd == "value":
        pairs[which] = pairs[which][0], draw(VALUES)
    elif odd == "twice":
        pairs.append((pairs[which][0], draw(VALUES)))
    elif odd == "missing":
        del pairs[which]
    elif odd == "order":
        pairs.reverse()

    space = draw(SPACES)
    inner = f",{space}".join(f'"{name}"{space}:{space}{value}' for name, value in pairs)
    record = f"{space}{{{inner}}}{space}".encode("utf-8", "surrogatepass")

    # Bytes may be lost or damaged on the way.
    cut = draw(st.sampled_from([None, None, None, None, *range(1, 6)]))
    record = record if cut is None else record[: len(record) * cut // 6]
    return record.replace(b"ann", draw(st.sampled_from([b"ann", b"ann", b"\xff", b"\xc3"])))


def block(lines: list[bytes]) -> LineBlock:
    """Lines as a file has them."""
    text = b"".join(line + b"\n" for line in lines)
    ends = np.cumsum([len(line) + 1 for line in lines])
    return LineBlock(memoryview(text), ends, np.arange(len(lines)))


def outcome(lines: list[bytes], *, first: bytes = GOOD) -> dict[int, Any]:
    """What becomes of each line, after a block of good ones that says how they look."""
    parser = RecordParser(JsonFormat(MAPPING), MAPPING)
    parser.parse(block([first] * 20), Rejects())
    rejects = Rejects()
    samples = parser.parse(block(lines), rejects)

    ids = np.zeros(0, np.uint64) if samples.key is None else samples.key
    columns = zip(
        samples.position.tolist(),
        samples.agent.tolist(),
        samples.value.view(np.int64).tolist(),
        samples.time.view(np.int64).tolist(),
        ids.tolist(),
        strict=True,
    )
    result: dict[int, Any] = {
        number: (samples.names[agent], *rest) for number, agent, *rest in columns
    }
    bad = zip(rejects.position, rejects.reason, rejects.size, strict=True)
    return result | {number: fault for number, *fault in bad}


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(records(), st.just(GOOD)), min_size=1, max_size=40))
def test_hostile_records_become_what_they_become_without_it(lines: list[bytes]) -> None:
    lines = [part for line in lines for part in line.split(b"\n") if part]
    with_it = outcome(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flat_records, "COMPILED", False)
        assert outcome(lines) == with_it


@settings(max_examples=500, deadline=None)
@given(NUMBERS)
def test_a_number_is_read_to_the_nearest_float_or_not_at_all(number: str) -> None:
    layout = flat_layout([("v",)], {}, {"value": ("v",)})
    assert layout is not None
    columns = layout.read(b'{"v":%s}' % number.encode(), 1)
    if columns is not None:
        assert columns["value"].to_numpy().tobytes() == np.float64(json.loads(number)).tobytes()
        assert np.isfinite(float(json.loads(number)))


def test_it_reads_what_it_is_for() -> None:
    """Or every test above would compare two equal parsers."""
    assert LAYOUT is not None
    spaced = (
        b' { "agent" : "b" ,"value": -2e3, "time":7,"id":"y","more":"z", "schema_version": 1 }\r'
    )
    columns = LAYOUT.read(b"\n".join([GOOD, spaced]), 2)
    assert columns is not None
    assert {part: column.to_pylist() for part, column in columns.items()} == {
        "agent": ["ann", "b"],
        "id": ["x", "y"],
        "value": [1.5, -2000.0],
        "time": [50.0, 7.0],
    }


@pytest.mark.parametrize(
    "odd",
    [
        GOOD.replace(b"ann", b"\\u0061nn"),
        GOOD.replace(b"ann", b"a\x01n"),
        GOOD.replace(b"ann", b"a\xffn"),
        GOOD.replace(b"1.5", b"NaN"),
        GOOD.replace(b"1.5", b"1e999"),
        GOOD.replace(b"1.5", b"-0"),
        GOOD.replace(b"1.5", b"1" * 64),
        GOOD.replace(b"1.5", b'"1.5"'),
        GOOD.replace(b"null", b"[1]"),
        GOOD.replace(b'version":1', b'version":2'),
        GOOD.replace(b'version":1', b'version":10'),
        GOOD.replace(b'"more":null', b'"more":null,"more":1'),
        GOOD[:-1],
        GOOD + b"}",
        b"",
    ],
)
def test_it_gives_nothing_for_anything_else(odd: bytes) -> None:
    assert LAYOUT is not None
    assert LAYOUT.read(GOOD + b"\n" + odd, 2) is None
    assert LAYOUT.read(odd + b"\n" + GOOD, 2) is None
    assert LAYOUT.read(GOOD, 1) is not None


@pytest.mark.parametrize("text", [GOOD + b"\n" + GOOD, GOOD + b"\n\n", b"\n" + GOOD, b"", b"\n"])
def test_each_record_is_a_line(text: bytes) -> None:
    assert LAYOUT is not None
    assert LAYOUT.read(text, 1) is None


@given(st.integers(0, len(GOOD)))
def test_no_byte_behind_the_end_is_read(length: int) -> None:
    """A record that is cut anywhere is none, though its end stands behind the cut in memory."""
    assert LAYOUT is not None
    assert (LAYOUT.read(memoryview(GOOD)[:length], 1) is None) == (length < len(GOOD))


def test_records_in_objects_are_for_others() -> None:
    assert flat_layout([("a",), ("b", "c")], {"agent": ("b", "c")}, {}) is None


def test_wrong_arguments_are_refused() -> None:
    layout = FlatLayout(((1, b'"a"', None),) * 65, {})
    assert layout.read(b"{}", 1) is None  # more fields than it has room for
    reader = flat_records.compiled_records
    assert reader.read_lines(b"{}", 0, ((0, b"", None),)) is None
    assert reader.read_lines(b"{}", -1, ((0, b"", None),)) is None
    assert reader.read_lines(b"{}", 1 << 40, ((0, b"", None),)) is None
    assert reader.read_lines(b'{"a":1}', 1, ((3, b'"a"', None),)) is None
    with pytest.raises(TypeError):
        reader.read_lines(b"{}", 1, (("a", b"", None),))


NAMES = st.lists(st.binary(max_size=30), max_size=200, unique=True)


@settings(deadline=None)
@given(NAMES, NAMES, st.integers(0, 5))
def test_names_are_found_by_their_bytes(names: list[bytes], others: list[bytes], skip: int) -> None:
    table = CompiledNameTable()
    half = len(names) // 2
    table.add(names[:half])
    table.add(names[half:])
    assert len(table) == len(names)

    wanted = [*names, *others, None][skip:]
    known = {name: code for code, name in enumerate(names)}
    column = pa.array([*names, *others, None], pa.binary()).slice(skip)
    expected = [known.get(name if name is not None else b"", -1) for name in wanted]
    assert table.find(column).tolist() == expected


def test_many_names_are_found() -> None:
    """Of names that find no free slot there are hardly any."""
    table = CompiledNameTable()
    names = [b"agent-%d" % number for number in range(200_000)]
    for first, last in pairwise(range(0, 200_001, 50_000)):
        table.add(names[first:last])

    codes = table.find(pa.array(names, pa.binary()))
    found = codes >= 0
    assert np.array_equal(codes[found], np.arange(200_000)[found])
    assert found.mean() > 0.999


def test_a_table_refuses_what_is_no_column() -> None:
    table = name_hashes.compiled_records.Names(7)
    with pytest.raises(ValueError, match="ends must grow within the data"):
        table.find(np.array([0, 9], np.int32), b"short")
    with pytest.raises(ValueError, match="ends must grow within the data"):
        table.find(np.array([3, 1], np.int32), b"short")
    with pytest.raises(TypeError):
        table.add(("a",))  # type: ignore[arg-type]
    assert table.find(b"", b"") == b""
