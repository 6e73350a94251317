"""Events as elements of a pipeline.

And plain data as bytes with a version, or bytes that do not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, overload

from apache_beam import coders
from apache_beam.coders import typecoders
from pydantic import ValidationError

from meanstream.streaming.events.base import Event
from meanstream.streaming.events.encode import EventLines, encode_lines, split_event_lines
from meanstream.streaming.events.wire import EVENTS, Sample
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


class LineText(Sequence[bytes]):
    r"""Lines in one piece, which is taken apart when one of them is requested, and not before.

    Parameters
    ----------
    text : bytes
        The lines, each with its end; JSON escapes line ends, so these are ours.

    Examples
    --------
    >>> lines = LineText(b"{}\n[]\n")
    >>> len(lines), list(lines), lines == [b"{}", b"[]"]
    (2, [b'{}', b'[]'], True)
    """

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._count = text.count(b"\n")
        self._apart: list[bytes] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        return self._lines()[index]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._lines())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._lines() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _lines(self) -> list[bytes]:
        if self._apart is None:
            self._apart = split_event_lines(self.text)

        return self._apart


def text_of_lines(lines: EventLines) -> bytes:
    """Give lines in one piece, each with its end."""
    if isinstance(lines.lines, LineText):
        return lines.lines.text
    return b"".join(lines.blocks())


class OwnCoder(coders.Coder):  # type: ignore[misc]
    """Bytes of ours: the same for the same data, so that they may be keys."""

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class EventCoder(OwnCoder):
    """An event, as in a file of events; it carries its own version."""

    def __init__(self, kind: type[Event]) -> None:
        self._kind = kind

    @classmethod
    def from_type_hint(cls, typehint: Any, _registry: Any) -> EventCoder:
        """Give the coder of a kind, as Beam asks for it."""
        return cls(typehint)

    def encode(self, value: Event) -> bytes:
        """One JSON object."""
        return value.model_dump_json().encode()

    def decode(self, encoded: bytes) -> Event:
        """Read and check it."""
        try:
            return self._kind.model_validate_json(encoded)
        except ValidationError:  # which shows what it has found
            raise DamagedBytesError(
                f"{self._kind.topic} must read as one of a known version, got others"
            ) from None


class EventLinesCoder(OwnCoder):
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


typecoders.registry.register_coder(EventLines, EventLinesCoder)
for _kind in EVENTS.values():
    if _kind is not Sample:  # whose element may be none, and becomes a dead letter then
        typecoders.registry.register_coder(_kind, EventCoder)


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
