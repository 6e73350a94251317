"""Messages as nobody should send them: nested JSON, cloud events in both modes, Avro of schemas
that a registry has."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np

from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.kafka.connection.registered import RegistryValues, wire_head
from meanstream.streaming.kafka.connection.schema_registry import RegisteredSchema
from meanstream.streaming.kafka.connection.values import HEADERS, PartitionRecords
from meanstream.streaming.kafka.reading.kafka_messages import TopicParser
from meanstream.streaming.sources.mapping import ColumnMapping

NESTED = ColumnMapping(
    agent="who.name", value="data.delay", time="at", id="id", numbers_in_text=True
)
EVENTS = ColumnMapping(
    agent="subject", value="data.delay", time="time", id="id", layout="cloudevents"
)
MIXED = ColumnMapping(agent="@key", value="data.delay", time="time", numbers_in_text=True)
DELAY = {
    "type": "record",
    "name": "D",
    "fields": [{"name": "delay", "type": ["null", "double", "long", "string"]}],
}
SCHEMAS: dict[int, Any] = {
    1: {
        "type": "record",
        "name": "S",
        "fields": [
            {
                "name": "time",
                "type": [{"type": "long", "logicalType": "timestamp-millis"}, "string"],
            },
            {"name": "more", "type": {"type": "array", "items": ["null", "string"]}},
            {"name": "data", "type": ["null", DELAY]},
        ],
    },
    2: {
        "type": "record",
        "name": "T",
        "fields": [{"name": "data", "type": DELAY}, {"name": "time", "type": "double"}],
    },
    3: None,  # of JSON
    4: "{",  # none
}


class _Registry:
    """Knows its schemas, and no other."""

    def schema(self, number: int) -> RegisteredSchema | None:
        found = SCHEMAS.get(number, 0)
        if found == 0:
            return None
        return (
            RegisteredSchema("JSON", "{}")
            if found is None
            else RegisteredSchema("AVRO", json.dumps(found))
        )


def make_parser(area: str) -> TopicParser:
    """A parser of its own for an area."""
    if area == "avro":
        return TopicParser(
            MIXED, id_key=b"k", make_values=lambda *rest: RegistryValues(_Registry(), *rest)
        )  # type: ignore[arg-type]
    return TopicParser(NESTED if area == "nested" else EVENTS, id_key=b"k")


Message = tuple[bytes, bytes | None, dict[str, Any]]
"""Value, key and headers."""


class MessageGenerator:
    """Seeded messages; most are good."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - test data
        self.odd = 0.0

    def messages(self, area: str, count: int) -> list[Message]:
        """Messages of an area, of which a share is odd."""
        self.odd = self._rng.choice((0.0, 0.01, 0.1, 0.5))
        one: Callable[[], Message] = {
            "nested": self._nested,
            "cloudevents": self._event,
            "avro": self._avro,
        }[area]
        return [self._mutated(one()) for _ in range(count)]

    def _or(self, good: Any, *others: Any) -> Any:
        return self._rng.choice(others) if self._rng.random() < self.odd else good

    def _delay(self) -> Any:
        return self._or(
            self._rng.randrange(99) / 8,
            "1.5",
            "nan",
            "NaN",
            "",
            "x",
            True,
            [],
            {},
            1e300,
            -1,
            "1e999",
        )

    def _nested(self) -> Message:
        data = self._or(
            {"delay": self._delay()},
            7,
            None,
            {"delay": {"delay": 1}},
            [1],
            {},
            {"delay": 1, "x": [[{}]]},
        )
        found = {
            "who": self._or({"name": f"a{self._rng.randrange(5)}"}, "a", {"name": 3}, None),
            "data": data,
        }
        found.update(
            at=self._or(self._rng.randrange(10**6, 10**7), "2013-01-01", "soon"),
            id=self._or("k", 7, "", None),
        )
        if self._rng.random() < self.odd:
            found[self._rng.choice(["who.name", "data.delay"])] = self._rng.choice(
                [None, 5, "flat", {}]
            )
        text = json.dumps(found)
        if self._rng.random() < self.odd / 3:
            text = text.replace(
                '"delay"',
                self._rng.choice(['"delay":1,"delay"', '"x":' + "[" * 300 + "]" * 300 + ',"d"']),
            )
        return text.encode(), None, {}

    def _event(self) -> Message:
        attributes = {
            "specversion": "1.0",
            "id": self._or("k", "", None),
            "subject": self._or("a", "", "b\n", None),
        }
        attributes["time"] = self._or("2013-01-01T00:00:00Z", "soon", None, "50")
        data = {"delay": self._delay()}
        if self._rng.random() < 0.5:
            headers = {
                f"ce_{name}": text.encode() for name, text in attributes.items() if text is not None
            }
            return (
                json.dumps(data).encode(),
                None,
                self._or(headers, {**headers, "content-type": b"application/cloudevents"}),
            )
        return (
            json.dumps({**attributes, "data": data}).encode(),
            None,
            self._or({}, {"content-type": None}),
        )

    def _avro(self) -> Message:
        number, out = self._rng.choice((1, 2)), io.BytesIO()
        delay = self._or(self._rng.randrange(99) / 8, None, "1.5", "x", float("nan"), 7)
        time = self._or(1_700_000_000_000 + self._rng.randrange(10**6), -1, 10**17)
        record = {"time": float(time) if number == 2 else self._or(time, "soon", "2013-01-01")}
        more = [self._or("text", None, "")] * self._rng.randrange(4)
        record.update(
            more=more, data=self._or({"delay": delay}, None) if number == 1 else {"delay": delay}
        )
        fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMAS[number]), record)
        value = wire_head(self._or(number, 3, 4, 5, 2**32 - 1, 3 - number)) + out.getvalue()
        text = wire_head(3) + b'{"time":50,"data":{"delay":1}}'
        return (
            self._or(value, text, text[5:], b"\x00\x00", wire_head(3)),
            self._or(b"a", b"b", None, b"\xff", b""),
            {},
        )

    def _mutated(self, message: Message) -> Message:
        value, key, headers = message
        if self._rng.random() >= self.odd / 2:
            return message
        changed = bytearray(value)
        for _ in range(self._rng.randrange(1, 4)):
            at = self._rng.randrange(len(changed) + 1)
            fresh = self._rng.choice(
                [b'"', b"{", b"}", b"[", b",", b"\n", b"\xff", b"\x80", b"\x00", b"\x02", b""]
            )
            changed[at : at + self._rng.randrange(2)] = fresh
        return bytes(changed), key, headers


def records_of(messages: list[Message]) -> PartitionRecords:
    """Messages of one partition."""
    values: list[bytes | None] = [value for value, _, _ in messages]
    beside = {
        "@key": [key for _, key, _ in messages],
        HEADERS: [headers for _, _, headers in messages],
    }
    return PartitionRecords(np.zeros(len(values), np.int64), np.arange(len(values)), values, beside)


def fuzz_topic(
    generator: MessageGenerator,
    found: Any,
    area: str,
    count: int,
    *,
    fates: Any,
    sizes: tuple[int, ...],
) -> None:
    """Compare messages of an area, each alone and among the others."""
    messages = generator.messages(area, count)
    expected = []
    for message in messages:
        one: dict[int, Any] = {}
        fates(make_parser(area).parse(records_of([message]), rejects := Rejects()), rejects, one)
        expected.append(one.pop(0, ("lost",)) if len(one) == 1 else ("several", one))
    for size in sizes:
        parser, among = make_parser(area), {}
        for start in range(0, count, size):
            records = records_of(messages[start : start + size])
            records = records._replace(offset=records.offset + start)
            fates(parser.parse(records, rejects := Rejects()), rejects, among)
        found.compare(
            area, messages, expected, [among.pop(i, ("lost",)) for i in range(count)], size
        )
    found.records[area] += count
    found.used[area] += sum(len(fate) > 2 for fate in expected)
