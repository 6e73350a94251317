"""What the engine asks of a sink, and the check that keeps private events on their side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from meanstream.streaming.events.base import Event, PublicEvent
from meanstream.streaming.events.encode import EventLines


class Trust(StrEnum):
    """Who can read a sink."""

    PUBLIC = "public"
    """Anyone."""
    PRIVATE = "private"
    """Only who is inside the trust domain, or the addressee."""


class DeliveryFailedError(Exception):
    """What was written since the last flush was not delivered, and can be.

    Restore the sinks and write it again.
    """


class SinkLostError(RuntimeError):
    """The sink can never be written again by this process; the message is one line for the user."""


SinkPosition = dict[str, Any]
"""How far a sink was written: plain JSON values, opaque to everyone but the sink."""


class Sink(Protocol):
    """Takes events; `restore` undoes whatever was written after a position, where the medium allows it."""

    trust: Trust

    def write(self, events: EventLines) -> None:
        """Take events; they are durable after `flush`.

        `TypeError` if a public sink is given a private type.
        """

    def flush(self) -> None:
        """Make everything durable."""

    def position(self) -> SinkPosition:
        """Tell how far the sink is flushed."""

    def restore(self, position: SinkPosition) -> None:
        """Go back to a position: what was written after it is taken back."""

    def close(self) -> None:
        """Let go of files and connections."""


@dataclass(frozen=True, slots=True)
class SinkOpening:
    """How to open a sink, besides its place; each kind takes what concerns it.

    Attributes
    ----------
    trust : Trust
        Who can read it.
    option : str
        What named it, for messages.
    topics : object or None
        Topic: what opens those of a run, which share transactions; see `kafka_sink.KafkaSinks`.
    """

    trust: Trust
    option: str
    topics: Any = None


class SinkKind(Protocol):
    """What the registry of sinks asks of a class besides its instances being sinks."""

    def check(self, location: str, option: str) -> None:
        """Refuse, with `ValueError`, a place that could not be opened, without making it."""

    def canonical_location(self, location: str) -> str:
        """Say which place a location means: no two roles may have the same one."""

    def open(self, location: str, opening: SinkOpening) -> Sink:
        """Open it, or refuse with `ValueError`."""


@runtime_checkable
class Waits(Protocol):
    """A sink whose calls wait, perhaps for hours, until it can be written to."""

    def while_waiting(self, call: Callable[[], None]) -> None:
        """Have something done about once a second meanwhile."""


@runtime_checkable
class Hears(Protocol):
    """A sink whose client has something to say while nothing is written."""

    def hear(self) -> None:
        """Take it, without waiting; called about once a second at least."""


@runtime_checkable
class Remembers(Sink, Protocol):
    """A sink that can be asked what it holds."""

    def later(self, position: SinkPosition | None) -> Iterator[bytes]:
        """Give the whole events after a position, as lines.

        All of them without one, or with one of another place.

        Of a place that others write to, those of the deployment.
        """

    @property
    def place(self) -> str:
        """Path or address, for messages."""


def check_sink_trust(trust: Trust, kind: type[Event]) -> None:
    """Refuse a private event at a public sink."""
    if trust is not Trust.PRIVATE and not issubclass(kind, PublicEvent):
        raise TypeError(f"public sink must be given public events, got {kind.__name__}")


@contextmanager
def sink_faults(option: str, place: str, rule: str = "be writable") -> Iterator[None]:
    """Say in one line that a place cannot be used, whatever is the matter with it."""
    try:
        yield
    except OSError as error:
        reason = (
            type(error).__name__ if error.errno is None else os.strerror(error.errno)
        )  # its text may show a value
        raise SinkLostError(
            f"{option} must {rule}, got {place!r} ({reason}); the next run continues from the last commit"
        ) from None
