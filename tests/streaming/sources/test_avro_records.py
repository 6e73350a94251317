"""Avro read side by side is what fastavro reads one by one; torn and hostile records change nothing
beside them."""

from __future__ import annotations

import io
import json
import random
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pytest

from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.sources.decode import Decoder
from meanstream.streaming.sources.formats import avro_cursor
from meanstream.streaming.sources.formats.avro_cursor import PAD, AvroCursor
from meanstream.streaming.sources.formats.avro_records import AvroRecords, joined_with_pad
from meanstream.streaming.sources.formats.avro_schema import BadSchemaError, parse_avro_schema
from meanstream.streaming.sources.formats.json_records import json_paths
from meanstream.streaming.sources.mapping import ColumnMapping

DELAY = {
    "type": "record",
    "name": "D",
    "fields": [{"name": "delay", "type": ["null", "double", "long", "string"]}],
}
SCHEMA = {
    "type": "record",
    "name": "Sample",
    "namespace": "a.b",
    "fields": [
        {
            "name": "extra",
            "type": {"type": "array", "items": {"type": "map", "values": ["null", "string"]}},
        },
        {"name": "agent", "type": ["null", "string", "long"]},
        {"name": "raw", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "data", "type": ["null", DELAY]},
        {"name": "flags", "type": {"type": "array", "items": "boolean"}},
        {"name": "time", "type": [{"type": "long", "logicalType": "timestamp-millis"}, "string"]},
        {"name": "next", "type": ["null", "Sample"]},
    ],
}
MAPPING = ColumnMapping(value="data.delay")


def written(schema: Any, record: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def reader(schema: Any, mapping: ColumnMapping = MAPPING) -> AvroRecords:
    parsed = parse_avro_schema(json.dumps(schema))
    return AvroRecords(
        parsed, json_paths(mapping), Decoder(mapping), numbers_in_text=mapping.numbers_in_text
    )


def fates(form: AvroRecords, values: list[bytes]) -> dict[int, Any]:
    rejects, found = Rejects(), {}
    for samples in form.parse(values, np.arange(len(values)), {}, rejects):
        rows = zip(
            samples.position.tolist(),
            samples.agent,
            samples.value.tolist(),
            samples.time.tolist(),
            strict=True,
        )
        found.update(
            {place: (samples.names[agent], value, time) for place, agent, value, time in rows}
        )
    return {**found, **dict(zip(rejects.position, rejects.reason, strict=True))}


def drawn(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """A record; what becomes of it is easily told."""
    extra = [
        {f"k{i}": rng.choice([None, "x" * rng.randrange(200)]) for i in range(rng.randrange(3))}
    ] * rng.randrange(3)
    agent = rng.choice([None, "ann", rng.randrange(-(2**40), 2**40)])
    delay = rng.choice(
        [None, rng.uniform(-9, 9), float("nan"), rng.randrange(-(2**62), 2**62), "12.5"]
    )
    time = rng.choice([rng.randrange(-(10**14), 10**14), "2013-01-01T00:00:00Z", "soon"])
    return {
        "extra": extra,
        "agent": agent,
        "raw": b"\x80\xff\x00",
        "data": rng.choice([None, {"delay": delay}, {"delay": delay}]),
        "flags": [rng.random() < 0.5 for _ in range(rng.randrange(100))],
        "time": time,
        "next": drawn(rng, depth + 1) if rng.random() < 0.3 and depth < 5 else None,
    }


def expected(record: dict[str, Any]) -> Any:
    """What becomes of a record, by its fields alone."""
    agent, data = record["agent"], record["data"]
    value = None if data is None else data["delay"]
    if isinstance(value, str):
        return "bad_value"
    if agent is None:
        return "missing_agent"
    seconds = 1356998400.0 if isinstance(record["time"], str) else record["time"] / 1e3
    if record["time"] == "soon" or not -2208988800.0 <= seconds < 4102444800.0:
        return "bad_time"
    if value is None or np.isnan(value):
        return "missing_value" if value is None else "not_finite"
    return str(agent), float(value), seconds


def test_records_of_every_type_are_what_was_written_and_torn_ones_are_malformed() -> None:
    rng = random.Random(3)  # noqa: S311 - test data
    records = [drawn(rng) for _ in range(400)]
    values = [written(SCHEMA, record) for record in records]
    fate: list[Any] = [expected(record) for record in records]
    for i in range(0, 400, 7):  # torn, or with more behind
        cut = rng.randrange(len(values[i]))
        values[i] = rng.choice([values[i][:cut], values[i] + b"\x00"])
        fate[i] = "malformed"
    form = reader(SCHEMA)
    assert fates(form, values) == dict(enumerate(fate))
    alone = [fates(form, [value])[0] for value in values]
    assert alone == fate


def test_bytes_at_random_are_good_where_fastavro_reads_them_whole_and_nothing_else() -> None:
    rng = random.Random(5)  # noqa: S311 - test data
    values = []
    for _ in range(600):
        value = bytearray(written(SCHEMA, drawn(rng)))
        for _ in range(rng.randrange(1, 4)):
            value[rng.randrange(len(value))] = rng.choice(
                [0, 1, 2, 127, 128, 255, rng.randrange(256)]
            )
        values.append(bytes(value))
    data, start, end = joined_with_pad(values)
    whole = AvroCursor(data, {}).read(parse_avro_schema(json.dumps(SCHEMA)), start, end)
    assert 50 < whole.sum() < 550
    for value, good in zip(values, whole.tolist(), strict=True):
        alone, first, last = joined_with_pad([value])
        assert (
            AvroCursor(alone, {}).read(parse_avro_schema(json.dumps(SCHEMA)), first, last)[0]
            == good
        )
        if good:
            assert _is_whole_to_fastavro(value)


def _is_whole_to_fastavro(value: bytes) -> bool:
    stream = io.BytesIO(value)
    try:
        fastavro.schemaless_reader(stream, fastavro.parse_schema(SCHEMA))
    except UnicodeDecodeError:
        return True  # a text that is none, which nobody asked for
    except OverflowError:
        return True  # a time beyond all dates
    return stream.tell() == len(value)


@pytest.mark.parametrize(
    ("kind", "record", "value"),
    [
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("-12.34"),
            -12.34,
        ),
        ("float", 0.5, 0.5),
        ("int", -7, -7.0),
        ("string", "2.5", 2.5),
        ("string", "NaN", "not_finite"),
        ("string", "x", "bad_value"),
        (
            {"type": "string", "logicalType": "decimal", "scale": 2},
            "2.5",
            2.5,
        ),  # of bytes and fixed only
        ("double", float("-inf"), "not_finite"),
        ("boolean", True, "bad_value"),
        ({"type": "array", "items": "double"}, [1.0], "bad_value"),
    ],
)
def test_values_of_each_type(kind: Any, record: Any, value: Any) -> None:
    schema = {
        "type": "record",
        "name": "S",
        "fields": [
            {"name": "agent", "type": {"type": "enum", "name": "E", "symbols": ["b", "a"]}},
            {"name": "value", "type": kind},
            {"name": "time", "type": {"type": "int", "logicalType": "date"}},
        ],
    }
    row = {"agent": "a", "value": record, "time": 1}
    form = reader(schema, ColumnMapping(numbers_in_text=True))
    assert fates(form, [written(schema, row)] * 3)[1] == (
        value if isinstance(value, str) else ("a", value, 86400.0)
    )


BOMB = {"type": "record", "name": "B0", "fields": [{"name": "x", "type": "null"}]}
for _level in range(1, 40):
    BOMB = {
        "type": "record",
        "name": f"B{_level}",
        "fields": [{"name": "l", "type": BOMB}, {"name": "r", "type": f"B{_level - 1}"}],
    }


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (
            {"type": "array", "items": "null"},
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ),  # 2^62 and more of nothing
        ({"type": "array", "items": "long"}, b"\xfe\xff\xff\xff\x0f" + b"\x02" * 100),
        ({"type": "array", "items": "long"}, b"\x01" + b"\xff" * 9 + b"\x01"),
        ({"type": "map", "values": "null"}, b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ("bytes", b"\x01"),
        ("long", b"\xff" * 11),
        ("boolean", b"\x02"),
        (["null", "long"], b"\x04"),
        (
            {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]},
            b"\x02" * 5000 + b"\x00",
        ),
        (BOMB, b"\x00"),
    ],
    ids=[
        "nothing",
        "count",
        "size",
        "map",
        "length",
        "negative",
        "varint",
        "boolean",
        "branch",
        "depth",
        "bomb",
    ],
)
def test_bombs_end_at_once_and_spoil_nothing(schema: Any, value: bytes) -> None:
    data, start, end = joined_with_pad([value, value[:1]])
    assert not AvroCursor(data, {}).read(parse_avro_schema(json.dumps(schema)), start, end)[0]
    assert len(data) == int(end[-1]) + PAD + 1


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '"nope"',
        "7",
        '{"type":"record","name":"A"}',
        '{"type":"record","name":"A","fields":[{"name":"x","type":"int"},{"name":"x","type":"int"}]}',
        '{"type":"fixed","name":"A","size":-1}',
        '{"type":"record","name":"A","fields":[{"name":"x","type":{"type":"fixed","name":"A","size":1}}]}',
        "[" * 500 + "]" * 500,
        json.dumps(["int"] * 20_000),
    ],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(BadSchemaError):
        parse_avro_schema(text)


def test_steps_are_counted_over_all_that_is_within_a_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(avro_cursor, "MAX_STEPS", 100)
    inner = {
        "type": "record",
        "name": "P",
        "fields": [{"name": name, "type": "null"} for name in "abcd"],
    }
    for items, one in (("string", b"\x28" + b"\x00" * 21), (inner, b"\x28\x00")):
        several = {"type": "array", "items": {"type": "array", "items": items}}
        union = {"type": "array", "items": {"type": "array", "items": ["null", items]}}
        for schema, value in ((several, one), (union, b"\x28" + b"\x02\x00" * 20 + b"\x00")):
            data, start, end = joined_with_pad(
                [b"\x14" + value * 10 + b"\x00", b"\x02" + value + b"\x00"]
            )
            good = AvroCursor(data, {}).read(parse_avro_schema(json.dumps(schema)), start, end)
            assert good.tolist() == [schema is several and items == inner, True], schema


def test_an_enum_with_half_a_character_is_a_bad_name_and_spoils_nothing() -> None:
    symbols = {"type": "enum", "name": "E", "symbols": ["\ud800", "b"]}
    fields = [
        {"name": name, "type": kind}
        for name, kind in (("agent", symbols), ("value", "int"), ("time", "int"))
    ]
    form = reader({"type": "record", "name": "S", "fields": fields}, ColumnMapping())
    assert fates(form, [b"\x00\x02\x04", b"\x02\x02\x04"]) == {0: "bad_agent", 1: ("b", 1.0, 2.0)}


def test_what_takes_no_byte_is_found_through_any_number_of_names() -> None:
    chain = [
        {
            "type": "record",
            "name": f"R{i}",
            "fields": [{"name": "f", "type": f"R{i - 1}"}] if i else [],
        }
        for i in range(3000)
    ]
    found = parse_avro_schema(json.dumps([*chain, {**BOMB, "name": "Other"}, "int"])).parts
    assert [part.empty for part in found] == [True] * (len(found) - 1) + [False]
    itself = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "N"}]}
    assert not parse_avro_schema(json.dumps(itself)).empty


def test_types_of_references_are_known() -> None:
    found = parse_avro_schema(
        '{"type":"array","items":"b.D"}', {"b.D": json.dumps({**DELAY, "namespace": "b"})}
    )
    assert found.parts[0].names == ["delay"]
