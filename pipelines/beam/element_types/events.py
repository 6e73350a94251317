"""Events as elements of a pipeline.

And plain data as bytes with a version, or bytes that do not read.
"""

from __future__ import annotations

import json
from typing import Any

from apache_beam import coders
from apache_beam.coders import typecoders
from pydantic import ValidationError

from meanstream.pipelines.beam.element_types.line_text import LineText, text_of_lines
from meanstream.streaming.events.base import Event
from meanstream.streaming.events.encode import EventLines, encode_lines
from meanstream.streaming.events.wire import EVENTS
from meanstream.streaming.sinks.sink_protocol import Trust, check_sink_trust

VERSION = 1


class DamagedBytesError(ValueError):
    """Bytes that this version does not read; the message is one line and shows nothing of them."""


def beam_event_to_json(values: list[Any]) -> bytes:
    """Write plain data with a version; a float keeps every bit, and equal data have equal bytes."""
    return json.dumps(
        [VERSION, *values], sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()


def beam_event_from_json(encoded: bytes) -> list[Any]:
    """Read what `beam_event_to_json` wrote."""
    try:
        values = json.loads(encoded)
    except ValueError:
        values = None

    if not isinstance(values, list) or values[:1] != [VERSION]:
        raise DamagedBytesError(f"intermediate data must be of version {VERSION}, got others")
    return values[1:]


class EventCoder(coders.Coder):  # type: ignore[misc]
    """An event, as in a file of events; it carries its own version."""

    kind: type[Event]

    def encode(self, value: Event) -> bytes:
        """One JSON object."""
        return value.model_dump_json().encode()

    def decode(self, encoded: bytes) -> Event:
        """Read and check it."""
        try:
            return self.kind.model_validate_json(encoded)
        except ValidationError:  # which shows what it has found
            raise DamagedBytesError(
                f"{self.kind.topic} must read as one of a known version, got others"
            ) from None

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class EventLinesCoder(coders.Coder):  # type: ignore[misc]
    """Events on their way to a sink, as trusted as they are.

    What they are, then their lines as they stand.
    """

    def encode(self, value: EventLines) -> bytes:
        """JSON escapes line ends, so these are ours."""
        return beam_event_to_json([value.kind.topic]) + b"\n" + text_of_lines(value)

    def decode(self, encoded: bytes) -> EventLines:
        """Read what they are; lines are split where one of them is requested."""
        head, _, lines = encoded.partition(b"\n")
        (topic,) = beam_event_from_json(head)
        if topic not in EVENTS:
            raise DamagedBytesError("lines of events must be of a known kind, got others")

        return EventLines(EVENTS[topic], LineText(lines))

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


typecoders.registry.register_coder(EventLines, EventLinesCoder)


def check_beam_events(kind: Any, trust: Trust) -> None:
    """Refuse a PCollection of private events at a public topic before anything runs, where it says what it holds."""
    if isinstance(kind, type) and issubclass(kind, Event):
        check_sink_trust(trust, kind)


def beam_events_as_lines(element: Any, trust: Trust) -> EventLines:
    """Give the lines of an element on its way to a topic: an event, or many."""
    if isinstance(element, Event):
        element = encode_lines(type(element), [element])

    if not isinstance(element, EventLines):
        raise TypeError(f"topic takes events only, got {type(element).__name__}")
    check_sink_trust(trust, element.kind)
    return element
