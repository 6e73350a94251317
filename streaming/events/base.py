"""What all events on the wire share.

The types of their fields, and the privacy boundary made visible.

Every event is frozen, strict and closed (an unknown field is an error) and carries its
`schema_version`. A public sink accepts `PublicEvent` only (`meanstream.streaming.sinks`).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints

SCHEMA_VERSION = 1
MAX_NAME = 256
"""Greatest length of an agent's name or a sample's id, in characters."""

# No control characters, no lone surrogates and at least one visible character.
NAME_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME, pattern=NAME_PATTERN)]
Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[FiniteFloat, Field(ge=0)]
Epsilon = Annotated[FiniteFloat, Field(gt=0)]
Delta = Annotated[FiniteFloat, Field(ge=0, lt=1)]
Level = Annotated[FiniteFloat, Field(gt=0, lt=1)]
Natural = Annotated[int, Field(ge=0)]
Interval = tuple[FiniteFloat, FiniteFloat]
Mode = Literal["tuned", "paper"]
RoundId = Annotated[
    str, Field(description="Stable identity of the round: deployment, window, protocol.")
]
WindowStart = Annotated[AwareDatetime, Field(description="Start of the window, included.")]
WindowEnd = Annotated[AwareDatetime, Field(description="End of the window, not included.")]


def is_none_in_event(value: object) -> bool:
    """Tell whether an optional field has nothing to say, and is left out of the line."""
    return value is None


def optional_field(description: str) -> Any:
    """Declare a field that is left out of the line where it says nothing."""
    return Field(default=None, exclude_if=is_none_in_event, description=description)


class EventPart(BaseModel):
    """What is frozen, strict and closed: an event, or a part of one."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Event(EventPart):
    """What all events share; use `PublicEvent` or `PrivateEvent`."""

    topic: ClassVar[str]
    """Name of the event type on the command line and in topics."""


class PublicEvent(Event):
    """May leave the trust domain.

    It is a release, or computed from releases and public facts only.
    """


class PrivateEvent(Event):
    """Never leaves the trust domain.

    It holds raw data, or is addressed to its owner and to no one else.
    """
