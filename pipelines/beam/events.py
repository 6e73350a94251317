"""Public events as elements of a pipeline, and bytes that do not read."""

from __future__ import annotations

from typing import Any

from apache_beam import coders

from streaming.encode import EventLines, lines_of
from streaming.events import Event
from streaming.sinks.sink import Trust, check_trust


class DamagedBytesError(ValueError):
    """Bytes that this version does not read; the message is one line and shows nothing of them."""


class EventCoder(coders.Coder):  # type: ignore[misc]
    """Public: an event, as in a file of events; it carries its own version."""

    kind: type[Event]

    def encode(self, value: Event) -> bytes:
        """One JSON object."""
        return value.model_dump_json().encode()

    def decode(self, encoded: bytes) -> Event:
        """Read and check it."""
        return self.kind.model_validate_json(encoded)

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


def lines_in(element: Any, trust: Trust) -> EventLines:
    """Give the lines of an element on its way to a topic: an event, or many.

    Raises
    ------
    TypeError
        If it is neither, or private and the topic is not.
    """
    if isinstance(element, Event):
        element = lines_of(type(element), [element])
    if not isinstance(element, EventLines):
        raise TypeError(f"topic takes events only, got {type(element).__name__}")
    check_trust(trust, element.kind)
    return element
