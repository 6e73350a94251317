"""What the engine asks of a sink and of the sinks of a run, and the check that keeps private events on their side."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from meanstream.operators.validation import require
from meanstream.streaming.events.base import Event, PublicEvent
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import PersonalEstimate


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


def path_on_disk(location: str) -> str:
    """Say which file or folder is meant, whatever the folder that it is named from."""
    return str(Path(location).resolve())


@contextmanager
def checking_disk(option: str, location: str) -> Iterator[None]:
    """Refuse a place into which no one may look."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"{option} must be readable, got {location!r} ({error.strerror})"
        ) from None


class SinkOnDisk(ABC):
    """Base of a sink in a file or a folder.

    Attributes
    ----------
    kind : str
        What stands there, for messages: "a .jsonl file".
    folder : bool
        Whether it is a folder.
    """

    kind: ClassVar[str]
    folder: ClassVar[bool] = False
    _path: Path

    @abstractmethod
    def __init__(self, path: Path, *, trust: Trust, option: str = "sink") -> None: ...

    @property
    def place(self) -> str:
        """The file or folder, for messages."""
        return path_on_disk(str(self._path))

    def is_of_here(self, position: SinkPosition | None) -> bool:
        """Say whether a position is one of this place."""
        return position is not None and position["path"] == self.place

    @classmethod
    def check(cls, location: str, option: str) -> None:
        """Refuse a place that could not be opened, without making it."""
        path = Path(location)
        require(path.parent.is_dir(), option, "be in an existing folder", location)

        if path.exists():
            require(
                path.is_dir() if cls.folder else path.is_file(), option, f"be {cls.kind}", location
            )

        require(
            os.access(path if path.exists() else path.parent, os.W_OK),
            option,
            "be where you may write",
            location,
        )

    @classmethod
    def canonical_location(cls, location: str) -> str:
        """Give its whole path."""
        return path_on_disk(location)

    @classmethod
    def open(cls, location: str, opening: SinkOpening) -> Self:
        """Make it, or go on with what is there."""
        cls.check(location, opening.option)
        return cls(Path(location), trust=opening.trust, option=opening.option)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinks:
    """Where the events of each role go.

    A role without a sink is not written (its events are counted all the same).

    Attributes
    ----------
    releases : Sink, optional
        Public: releases.
    estimates : Sink, optional
        Private: personal estimates.
    population : Sink, optional
        Public: the fitted population.
    dead_letters : Sink, optional
        Records that were not used: public for agents, private for rounds.
    notices : Sink, optional
        Public: agents at their horizon, refused releases; users whose budget does not pay for a
        round.
    reports : Sink, optional
        Public: users' reports in rounds; or whom a trusted curator charged.
    stages : Sink, optional
        Public: what the stages of rounds found.
    means : Sink, optional
        Public: the estimate of each window.
    """

    releases: Sink | None = None
    estimates: Sink | None = None
    population: Sink | None = None
    dead_letters: Sink | None = None
    notices: Sink | None = None
    reports: Sink | None = None
    stages: Sink | None = None
    means: Sink | None = None

    def __post_init__(self) -> None:
        if self.estimates is not None:
            check_sink_trust(self.estimates.trust, PersonalEstimate)  # before anything is read

    def write(self, role: str, events: EventLines) -> None:
        """Give events to the sink of a role."""
        sink: Sink | None = getattr(self, role)
        if sink is not None and len(events):
            sink.write(events)

    def while_waiting(self, call: Callable[[], None]) -> None:
        """Have something done about once a second while a sink waits until it can be written to."""
        for _, sink in self._open():
            if isinstance(sink, Waits):
                sink.while_waiting(call)

    def hear(self) -> None:
        """Let the sinks take what their clients have to say."""
        for _, sink in self._open():
            if isinstance(sink, Hears):
                sink.hear()

    def opened(self) -> tuple[Sink, ...]:
        """Give the sinks that there are."""
        return tuple(sink for _, sink in self._open())

    def flush(self) -> None:
        """Make everything durable."""
        for sink in {id(sink): sink for _, sink in self._open()}.values():
            sink.flush()

    def positions(self) -> dict[str, SinkPosition]:
        """Tell how far each sink is flushed."""
        return {role: sink.position() for role, sink in self._open()}

    def restore(self, positions: Mapping[str, SinkPosition]) -> None:
        """Take back what was written after the positions."""
        for role, sink in self._open():
            if role in positions:
                sink.restore(positions[role])

    def close(self) -> None:
        """Close all."""
        for sink in {id(sink): sink for _, sink in self._open()}.values():
            sink.close()

    def _open(self) -> Iterator[tuple[str, Sink]]:
        for field in fields(self):
            sink = getattr(self, field.name)
            if sink is not None:
                yield field.name, sink
