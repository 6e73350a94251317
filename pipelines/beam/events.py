"""Public events as elements of a pipeline, and bytes that do not read."""

from __future__ import annotations

from apache_beam import coders

from streaming.events import Event


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
