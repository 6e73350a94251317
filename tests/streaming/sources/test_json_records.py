"""What becomes of a JSON record does not depend on the records that happen to be read together with
it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanstream.streaming.events.event_columns import Rejects, column_position
from meanstream.streaming.sources.formats import json_records
from meanstream.streaming.sources.formats.alike_records import TOGETHER
from meanstream.streaming.sources.formats.json_records import JsonFormat
from meanstream.streaming.sources.lines import LineBlock
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_records import LEAF, RecordParser

MAPPING = ColumnMapping(id="id")
GOOD = b'{"agent":"a","value":1.5,"time":50,"id":"x"}'
ODD = [
    b'{"agent":"b","value":2,"time":50,',
    b'"id":"y"}',
    GOOD + GOOD,
    b'{"agent":"b","value":2,"time":50,"id":"y","more":{"agent":1,"agent":2}}',
    b'{"agent":"b","value":2,"time":50,"id":"y","more":1,"more":2}',
    b'{"agent":"b","value":2,"value":3,"time":50,"id":"y"}',
    b'{"agent":"b","value":2,"time":50,"id":"y","more":"\xff"}',
    b'\xef\xbb\xbf{"agent":"b","value":2,"time":50,"id":"y"}',
    b' {"agent":"b","value":2,"time":50,"id":"y"} \t\r',
    b'{\n  "agent": "b",\n  "value": 2,\n  "time": 50,\n  "id": "y"\n}',
    b'{"agent":"b\n","value":2,"time":50,"id":"y"}',
    b'{"agent":"\xc3\xa9","value":2e0,"time":"1970-01-01T00:00:50Z","id":7}',
    '{"agent":"b","value":2,"time":50,"id":"y"}'.encode("utf-16-le"),
    b'{"agent":"}',
    b'{","value":2,"time":50,"id":"y"}',
    b'{"agent":"b","agent":"c","value":2,"time":50}',  # as many quotes as a good one
    b'{"agent":"b","value":2,"date":50,"id":"y"}',
    b'{"agent":"b","value":null,"time":50,"id":"y"}',
    b'{"agent":"b","value":true,"time":50,"id":"y"}',
    b'{"agent":"b","value":"2","time":50,"id":7}',
    b'{"agent":7,"value":2,"time":"1970-01-01T00:00:50Z","id":"y"}',
    b'{"agent":"b","value":1e400,"time":50,"id":"y"}',
    b'{"agent":"b","value":123456789012345678901234567890,"time":50,"id":"y"}',
    b'{"agent":"b","value":2,"time":50,"id":"\\ud800"}',
    b'{"agent":"b","value":2,"time":50,"id":"\\""}',
    b'{"ag\\u0065nt":"b","value":2,"time":50,"id":"y"}',
    b'{"agent":"b","value":2,"time":50,"id":"y","schema_version":1.0}',
    b'{"agent":"b","value":2,"time":50,"id":"y","schema_version":2}',
    b"{}",
    b"{",
    b"}",
    b"null",
]


def block(records: list[bytes]) -> LineBlock:
    end = np.cumsum([len(record) + 1 for record in records])
    data = b"".join(record + b"\n" for record in records)
    return LineBlock(memoryview(data), end, column_position(3, np.arange(100, 100 + len(records))))


Outcome = dict[int, object]


def outcome(records: list[bytes]) -> Outcome:
    """Per position: the sample, or the reason why there is none."""
    rejects = Rejects()
    samples = RecordParser(JsonFormat(MAPPING), MAPPING).parse(block(records), rejects)
    assert (np.diff(samples.position) > 0).all()
    keys = [] if samples.key is None else samples.key.tolist()
    rows = zip(samples.agent, samples.value.tolist(), samples.time.tolist(), keys, strict=True)
    found: Outcome = {
        p: (samples.names[a], v, t, k)
        for p, (a, v, t, k) in zip(samples.position.tolist(), rows, strict=True)
    }
    return {**found, **dict(zip(rejects.position, rejects.reason, strict=True))}


def alone(records: list[bytes]) -> Outcome:
    """Parse each record by itself."""
    first = int(column_position(3, np.array([100]))[0])
    single = {record: next(iter(outcome([record]).values())) for record in set(records)}
    return {first + i: single[record] for i, record in enumerate(records)}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([GOOD] * 20 + ODD), min_size=1, max_size=4 * LEAF))
def test_neighbors_change_nothing(records: list[bytes]) -> None:
    assert outcome(records) == alone(records)


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_record_among_many_good_ones(odd: bytes) -> None:
    records = [GOOD] * 3 * LEAF + [odd] + [GOOD] * 2 * LEAF
    assert outcome(records) == alone(records)


@pytest.mark.parametrize("good", [1, LEAF - 1, LEAF])
def test_records_that_are_read_one_by_one_keep_their_order(good: int) -> None:
    """What stands out is read first: with few good ones beside it, it came before them in the
    agent's samples."""
    records = [GOOD] * good + [b'\xef\xbb\xbf{"agent":"a","value":2,"time":50,"id":"y"}'] * LEAF
    assert outcome(records) == alone(records)


def test_records_of_several_lines_are_read_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pretty = [
        json.dumps({"agent": f"a{i}", "value": i, "time": 50, "id": str(i)}, indent=2).encode()
        for i in range(99)
    ]
    form = JsonFormat(MAPPING)
    monkeypatch.setattr(form, "parse_record", None)  # one by one it is not
    samples = RecordParser(form, MAPPING).parse(block(pretty), rejects := Rejects())
    assert not len(rejects)
    assert samples.value.tolist() == list(range(99))


NESTED = ColumnMapping(agent="who.name", value="data.value", time="data.at")
LAYOUTS = [
    (
        MAPPING,
        b'{"id":"%d","agent":"a","value":%d,"time":"1970-01-01T00:00:50Z","schema_version":1,"unit":null}',
    ),
    (
        NESTED,
        b'{"no":"%d","who":{"name":"a"},"data":{"value":%d,"at":50.0,"more":{"unit":"K"}},"good":true}',
    ),
]


@pytest.mark.parametrize(("mapping", "form"), LAYOUTS)
def test_records_of_the_same_fields_are_read_without_pyarrow(
    monkeypatch: pytest.MonkeyPatch, mapping: ColumnMapping, form: bytes
) -> None:
    monkeypatch.setattr(json_records, "arrow_json", None)
    records = [form % (i, i) for i in range(3 * TOGETHER + 5)]
    samples = RecordParser(JsonFormat(mapping), mapping).parse(block(records), rejects := Rejects())
    assert not len(rejects)
    assert samples.value.tolist() == list(range(len(records)))
    assert set(samples.time) == {50.0}
    assert samples.names == ["a"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
        min_size=LEAF + 1,
        max_size=80,
    )
)
def test_a_number_is_the_same_in_bulk_and_alone(numbers: list[float]) -> None:
    records = [
        b'{"agent":"a","value":%s,"time":50,"id":"x"}' % str(number).encode() for number in numbers
    ]
    assert outcome(records) == alone(records)


def test_two_halves_in_two_records_are_not_one() -> None:
    halves = [b'{"agent":"b","value":2,', b'"time":50,"id":"y"}', GOOD + GOOD]
    found = outcome([GOOD] * 50 + halves + [GOOD] * 50)
    assert [reason for reason in found.values() if isinstance(reason, str)] == ["malformed"] * 3
