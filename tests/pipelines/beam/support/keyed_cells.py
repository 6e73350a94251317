"""The state of a key as a runner gives it, and a step called with it."""

from __future__ import annotations

from typing import Any

from apache_beam.transforms.userstate import BagStateSpec
from apache_beam.utils.timestamp import Timestamp

from meanstream.pipelines.beam.keyed_state.keyed_steps import KeyedStep


class Cell:
    """One value, or none."""

    def __init__(self) -> None:
        self.value: Any = None

    def read(self) -> Any:
        return self.value

    def write(self, value: Any) -> None:
        self.value = value

    def clear(self) -> None:
        self.value = None


class Bag:
    """Many values."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def read(self) -> list[bytes]:
        return list(self.values)

    def add(self, value: bytes) -> None:
        self.values.append(value)

    def clear(self) -> None:
        self.values = []


class Alarm:
    """A timer, which is let go off by hand."""

    def set(self, *_: Any, **__: Any) -> None:
        """Note nothing."""


def cells(kind: type[KeyedStep]) -> dict[str, Any]:
    """All of the state of a key."""
    return {
        name: Bag() if isinstance(spec, BagStateSpec) else Cell()
        for name, spec in kind.SPECS.items()
    }


def take(step: KeyedStep, element: Any, kept: dict[str, Any], key: int = 0) -> list[Any]:
    """Give a step an element of a key."""
    more = {"timer": Alarm()} if step.TIMER else {}
    return list(step.process((key, element), time=Timestamp(0), **kept, **more) or ())


def fire(step: KeyedStep, time: Timestamp, kept: dict[str, Any], key: int = 0) -> Any:
    """Let the timer of a key go off; give what leaves, as it leaves."""
    return iter(step.due(key=key, time=time, **kept, timer=Alarm()) or ())
