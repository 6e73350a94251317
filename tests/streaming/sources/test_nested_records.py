"""Fields within fields, and beside values: the same alone and among others; a record too deep is
none."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.kafka.connection.values import PartitionRecords
from meanstream.streaming.kafka.reading.kafka_messages import TopicParser
from meanstream.streaming.sources.formats.nested_records import MAX_NESTING
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_records import LEAF

NESTED = ColumnMapping(agent="who.name", value="data.delay", time="at")
Found = dict[int, object]


def read(mapping: ColumnMapping, values: list[bytes], **beside: list[object]) -> Found:
    """Per message: its agent, value and time, or why it is no sample."""
    rejects, n = Rejects(), len(values)
    given = {"@" + name: column for name, column in beside.items()}
    records = PartitionRecords(np.zeros(n, np.int64), np.arange(n), list(values), given)
    samples = TopicParser(mapping).parse(records, rejects)
    rows = zip(
        samples.position.tolist(),
        samples.agent,
        samples.value.tolist(),
        samples.time.tolist(),
        strict=True,
    )
    found: Found = {
        place: (samples.names[agent], value, time) for place, agent, value, time in rows
    }
    return {**found, **dict(zip(rejects.position, rejects.reason, strict=True))}


GOOD = b'{"who":{"name":"a"},"data":{"delay":1.5},"at":50}'
CASES = {
    GOOD: ("a", 1.5, 50.0),
    b'{"who.name":"flat","data":{"delay":2},"at":50}': ("flat", 2.0, 50.0),
    b'{"who":{"name":"a"},"data.delay":3,"data":{"delay":4},"at":50}': ("a", 3.0, 50.0),
    b'{"who":{"name":"a"},"data.delay":null,"data":{"delay":4},"at":50}': ("a", 4.0, 50.0),
    b'{"who":{"name":"a"},"data":null,"at":50}': "missing_value",
    b'{"who":{"name":"a"},"data":7,"at":50}': "bad_value",
    b'{"who":[{"name":"a"}],"data":{"delay":1},"at":50}': "bad_agent",
    b'{"who":{"name":"a"},"data":{"delay":"1"},"at":50}': "bad_value",
    b'{"who":{"name":"a"},"data":{"delay":1,"delay":2},"at":50}': "duplicate_columns",
    b'{"who":{"name":"a"},"data":{"delay":1},"data":{"delay":2},"at":50}': "duplicate_columns",
    b'{"delay":1,"delay":2,"who":{"name":"a"},"data":{"delay":1},"at":50}': ("a", 1.0, 50.0),
    b'{"who":{"name":"a","more":{"name":1,"name":2}},"data":{"delay":1},"at":50}': ("a", 1.0, 50.0),
}


@pytest.mark.parametrize("record", CASES)
def test_a_path_means_the_same_alone_and_among_others(record: bytes) -> None:
    others = [GOOD] * (3 * LEAF)
    assert read(NESTED, [record])[0] == CASES[record]
    among = read(NESTED, [*others, record, *others])
    assert among.pop(len(others)) == CASES[record]
    assert set(among.values()) == {("a", 1.5, 50.0)}


@pytest.mark.parametrize("depth", [MAX_NESTING - 1, MAX_NESTING, 5000])
def test_a_record_nested_too_deep_is_malformed_alone_and_among_others(depth: int) -> None:
    deep = b'{"agent":"a","value":1,"time":50,"x":' + b"[" * depth + b"]" * depth + b"}"
    text = b'{"agent":"a","value":1,"time":50,"x":"' + b"[" * depth + b'"}'
    plain = b'{"agent":"a","value":1,"time":50}'
    mapping, expected = ColumnMapping(), ("a", 1.0, 50.0)
    fate = expected if depth < MAX_NESTING else "malformed"
    assert read(mapping, [deep])[0] == fate
    assert read(mapping, [text])[0] == expected
    among = read(mapping, [plain] * 100 + [deep, text])
    assert (among[100], among[101]) == (fate, expected)


def test_key_time_and_headers_of_messages_are_columns() -> None:
    mapping = ColumnMapping(agent="@key", time="@timestamp", value="v", id="@header.id")
    values = [b'{"v":1}', b'{"v":2}', b'{"v":3}', b'{"v":4}', b'{"v":5,"schema_version":9}', b"{"]
    found = read(
        mapping,
        values,
        key=[b"a", None, "b", b"\xff", b"c", b"c"],
        timestamp=[50_000, 50_000, None, 50_000, 50_000, 50_000],
        headers=[{"id": b"1"}] * 6,
    )
    reasons = {
        1: "missing_agent",
        2: "missing_time",
        3: "bad_agent",
        4: "unknown_schema_version",
        5: "malformed",
    }
    assert found == {0: ("a", 1.0, 50.0), **reasons}
    assert read(mapping, values[:1], key=[b"a"], timestamp=[50_000], headers=[{}]) == {0: "bad_id"}


def test_cloud_events_are_read_in_either_mode_each_by_its_own_headers() -> None:
    mapping = ColumnMapping(
        agent="subject", time="time", id="id", value="data.delay", layout="cloudevents"
    )
    event = b'{"specversion":"1.0","id":"1","subject":"a","time":"1970-01-01T00:00:50Z","data":{"delay":1.5}}'
    binary = {
        "ce_specversion": b"1.0",
        "ce_id": b"1",
        "ce_subject": b"a",
        "ce_time": b"1970-01-01T00:00:50Z",
    }
    structured = {"content-type": b"application/cloudevents+json; charset=UTF-8"}
    headers = [
        structured,
        binary,
        {},
        {**binary, **structured},
        {**binary, "ce_subject": None},
        binary,
    ]
    values = [event, b'{"delay":2.5}', event, event, b'{"delay":1}', b'{"delay":1}{']
    found = read(mapping, values, headers=headers)
    good = {i: ("a", value, 50.0) for i, value in ((0, 1.5), (1, 2.5), (2, 1.5), (3, 1.5))}
    assert found == {**good, 4: "missing_agent", 5: "malformed"}


def test_the_envelope_of_connect_is_looked_through() -> None:
    mapping = ColumnMapping(value="delay", layout="connect")
    record = b'{"schema":{"type":"struct","fields":[]},"payload":{"agent":"a","delay":1,"time":1700000000000}}'
    found = read(mapping, [record, b'{"payload":null}', b'{"agent":"a","delay":1,"time":50}'])
    assert found == {0: ("a", 1.0, 1.7e9), 1: "missing_agent", 2: "missing_agent"}


def test_numbers_in_texts_are_values_only_where_one_says_so() -> None:
    texts = [b'"12.5"', b'"nan"', b'"1e999"', b'"0x10"', b'""', b"3", b"true"]
    values = [b'{"agent":"a","time":50,"value":' + text + b"}" for text in texts]
    strict = ["bad_value"] * 5
    assert [read(ColumnMapping(), values)[i] for i in range(5)] == strict
    found = read(ColumnMapping(numbers_in_text=True), values * 20)
    largest = float(np.finfo(np.float64).max)
    expected = [12.5, "not_finite", largest, "bad_value", "missing_value", 3.0, "bad_value"]
    for i, one in enumerate(expected * 20):
        assert found[i] == (one if isinstance(one, str) else ("a", one, 50.0))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"agent": "@kee"}, "agent must be a field, @key, @timestamp"),
        (
            {"agent": "data", "value": "data.delay"},
            "value must not lie within agent, got 'data.delay' within 'data'",
        ),
        ({"value": "a." * 20 + "b"}, "path must have at most 16 names"),
    ],
)
def test_names_that_mean_nothing_are_refused(names: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TopicParser(ColumnMapping(**names))
