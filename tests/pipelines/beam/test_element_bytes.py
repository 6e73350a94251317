"""Bytes of ours for what moves between the steps of every pipeline: events, lines, places and
messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from apache_beam.coders import typecoders
from apache_beam.io.gcp.pubsub import PubsubMessage

from meanstream.pipelines.beam.beam_sinks import SourceLocationCoder
from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
from meanstream.pipelines.beam.element_types.events import (
    DamagedBytesError,
    EventCoder,
    EventLinesCoder,
    beam_event_from_json,
    beam_event_to_json,
)
from meanstream.pipelines.beam.pubsub.read_pubsub import Message, MessageCoder
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import EVENTS, BudgetEvent, DeadLetter, PersonalEstimate
from meanstream.streaming.sources.mapping import ColumnMapping

LINES = [b'{"agent":"Zo\xc3\xab \\n","value":1}', b'{"agent":"b"}']
COLUMNS = ColumnMapping(agent="who", values=("x", "y"), id="id", time_unit="ms")
VALUES: list[Any] = [
    EventLines(PersonalEstimate, LINES),
    EventLines(BudgetEvent, []),
    SourceLocation(location="gs://some-bucket/a.csv", mapping=COLUMNS, sort=False),
    SourceLocation(
        location="kafka://b:1/t", mapping=ColumnMapping(), ranges=((0, 5, 2**61), (3, 0, 7))
    ),
    DeadLetter(reason="late", source="samples", position=7),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_bytes_are_versioned_and_hold_everything(value: Any) -> None:
    coder = typecoders.registry.get_coder(type(value))
    encoded = coder.encode(value)
    assert b"meanstream" not in encoded  # the name of a class: a pickle
    assert coder.decode(encoded) == value
    assert coder.is_deterministic()
    assert coder.encode(coder.decode(encoded)) == encoded


@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS)
def test_lines_of_every_kind_of_event_have_bytes(kind: Any) -> None:
    assert EventLinesCoder().decode(
        EventLinesCoder().encode(EventLines(kind, LINES))
    ) == EventLines(kind, LINES)


def test_a_message_keeps_its_data_and_its_id() -> None:
    coder = typecoders.registry.get_coder(Message)
    assert type(coder) is MessageCoder
    for data, name in (
        (b"{}", "10613943437398923"),
        (b"", "m1"),
        (bytes(range(256)), None),
        (None, "7"),
    ):
        encoded = coder.encode(
            PubsubMessage(data, {"sent": "x"}, message_id=name, ordering_key="y")
        )
        found = coder.decode(encoded)
        assert (found.data, found.message_id) == (data or b"", name or "")
        assert coder.encode(found) == encoded
    assert coder.is_deterministic()


@pytest.mark.parametrize(
    ("coder", "encoded"),
    [
        (EventLinesCoder(), b'[2,"release"]\n{}'),
        (EventLinesCoder(), b'[1,"opinion"]\n{}'),
        (EventLinesCoder(), b"secret 7"),
        (SourceLocationCoder(), b'[2,"secret 7",{},true,[]]'),
        (MessageCoder(), b"\x02\x00\x00\x00\x00secret 7"),
        (MessageCoder(), b""),
        (
            EventCoder(DeadLetter),
            b'{"reason":"secret 7","source":"s","position":1,"schema_version":2}',
        ),
        (EventCoder(DeadLetter), b"secret 7"),
    ],
)
def test_bytes_of_another_version_are_one_line_that_shows_nothing_of_them(
    coder: Any, encoded: bytes
) -> None:
    with pytest.raises(DamagedBytesError, match=r"^[^\n]* must [^\n]* got others$") as refused:
        coder.decode(encoded)
    assert "secret 7" not in str(refused.value)


def test_what_an_event_shows_of_itself_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pydantic's own message, which the coder was to keep back."""
    monkeypatch.setattr(
        EventCoder, "decode", lambda self, encoded: self._kind.model_validate_json(encoded)
    )
    with pytest.raises(ValueError, match=r"(?s)\n.*secret 7"):
        EventCoder(DeadLetter).decode(
            b'{"reason":"secret 7","source":"s","position":1,"schema_version":2}'
        )


def test_plain_data_with_a_version() -> None:
    values = [{"b": 0.1 + 0.2, "a": [1, None]}, -(2**90)]
    assert beam_event_from_json(beam_event_to_json(values)) == values
    assert json.loads(beam_event_to_json(values))[0] == 1
    with pytest.raises(ValueError, match="JSON compliant"):
        beam_event_to_json([float("nan")])
    for other in (b"[]", b"{}", b"[2]", b"1"):
        with pytest.raises(
            DamagedBytesError, match="intermediate data must be of version 1, got others"
        ):
            beam_event_from_json(other)
