"""What the engine asks of a sink, and the check that keeps private events on their side."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from streaming.encode import EventLines
from streaming.events import Event, PublicEvent


class Trust(StrEnum):
    """Who can read a sink."""

    PUBLIC = "public"
    """Anybody."""
    PRIVATE = "private"
    """Only who is inside the trust domain, or the addressee."""


class DeliveryFailedError(Exception):
    """What was written since the last flush was not delivered, and can be: restore the sinks and write it again."""


class SinkLostError(RuntimeError):
    """The sink can never be written again by this process; the message is one line for the user."""


SinkPosition = dict[str, Any]
"""How far a sink was written: plain JSON values, opaque to everybody but the sink."""


class Sink(Protocol):
    """Takes events; `restore` undoes whatever was written after a position, where the medium allows it."""

    trust: Trust

    def write(self, events: EventLines) -> None:
        """Take events; they are durable after `flush`. `TypeError` if a public sink is given a private type."""

    def flush(self) -> None:
        """Make everything durable.

        Raises
        ------
        DeliveryFailedError
            If nothing since the last flush was delivered, but may be when it is written again.
        SinkLostError
            If it cannot be written any more.
        """

    def position(self) -> SinkPosition:
        """Tell how far the sink is flushed."""

    def restore(self, position: SinkPosition) -> None:
        """Go back to a position: what was written after it is taken back."""

    def close(self) -> None:
        """Let go of files and connections."""


@runtime_checkable
class Waits(Protocol):
    """A sink whose calls wait, perhaps for hours, until it can be written to."""

    def while_waiting(self, call: Callable[[], None]) -> None:
        """Have something done about once a second meanwhile."""


def check_trust(trust: Trust, kind: type[Event]) -> None:
    """Refuse a private event at a public sink.

    Raises
    ------
    TypeError
        Naming the type; an event type that is in neither class counts as private.
    """
    if trust is not Trust.PRIVATE and not issubclass(kind, PublicEvent):
        raise TypeError(f"public sink must be given public events, got {kind.__name__}")
