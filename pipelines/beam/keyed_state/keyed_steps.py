"""Steps whose keys have state: they name its cells, and Beam's signatures are made of the names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import Parameter, Signature
from types import SimpleNamespace
from typing import Any, ClassVar

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    ReadModifyWriteStateSpec,
    StateSpec,
    TimerSpec,
    on_timer,
)

from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.worker.beam_steps import Step, discreet_step

Cells = SimpleNamespace
"""The state of a key by name, with its `key`, the `time`, and `timer` where the step has one."""


class KeyedStep(Step):
    """A step with state by key, all of it bytes, and perhaps a timer of event time.

    State that other settings or another secret made is refused before anything else is read.

    Parameters
    ----------
    owner : StateOwner
        What makes the state.

    Attributes
    ----------
    VALUES, BAGS : tuple of str
        Names of the cells of one value, and of those of many; a class adds to those of its parent.
    TIMER : str
        Name of the timer; empty where there is none.
    """

    VALUES: ClassVar[tuple[str, ...]] = ("made",)
    BAGS: ClassVar[tuple[str, ...]] = ()
    TIMER: ClassVar[str] = ""
    SPECS: ClassVar[dict[str, StateSpec]]

    def __init__(self, owner: StateOwner) -> None:
        self.owner = owner

    def __init_subclass__(cls, **more: Any) -> None:
        """Give the class the two methods that Beam calls, with the cells as their parameters."""
        super().__init_subclass__(**more)
        kinds = [vars(kind) for kind in reversed(cls.__mro__)]
        coder = BytesCoder()
        values = [name for kind in kinds for name in kind.get("VALUES", ())]
        bags = [name for kind in kinds for name in kind.get("BAGS", ())]
        cls.SPECS = {name: ReadModifyWriteStateSpec(name, coder) for name in values}
        cls.SPECS |= {name: BagStateSpec(name, coder) for name in bags}

        given: dict[str, Any] = {"time": beam.DoFn.TimestampParam}
        given |= {name: beam.DoFn.StateParam(spec) for name, spec in cls.SPECS.items()}
        if cls.TIMER:
            timer = TimerSpec(cls.TIMER, TimeDomain.WATERMARK)
            given["timer"] = beam.DoFn.TimerParam(timer)
            asked = {"key": beam.DoFn.KeyParam, **given}
            cls.due = on_timer(timer)(_with_parameters(_due, asked))

        cls.process = _with_parameters(_process, {"element": Parameter.empty, **given})

    def setup(self) -> None:
        """Make the mark."""
        self._mark = self.owner.mark()

    def take(self, element: Any, cells: Cells) -> Iterator[Any] | None:
        """Take an element of a key."""
        raise NotImplementedError

    def fire(self, cells: Cells) -> Iterator[Any] | None:
        """Do what is due at the time of the timer."""
        raise NotImplementedError

    def claimed(self, given: dict[str, Any]) -> Cells:
        """Give the cells of a key, which are this step's."""
        self._mark.claim(given["made"], *(given[name] for name in self.SPECS if name != "made"))
        return Cells(**given)


def _process(step: KeyedStep, given: dict[str, Any]) -> Iterator[Any] | None:
    given["key"], element = given.pop("element")
    return step.take(element, step.claimed(given))


def _due(step: KeyedStep, given: dict[str, Any]) -> Iterator[Any] | None:
    return step.fire(step.claimed(given))


def _with_parameters(
    work: Callable[[KeyedStep, dict[str, Any]], Any], given: dict[str, Any]
) -> Callable[..., Any]:
    """Make a method whose signature has these parameters, by which Beam learns what to give."""

    def method(self: KeyedStep, *values: Any, **named: Any) -> Any:
        return work(self, dict(zip(given, values, strict=False)) | named)

    kind = Parameter.POSITIONAL_OR_KEYWORD
    own = [Parameter(name, kind, default=default) for name, default in given.items()]
    method.__name__ = work.__name__.removeprefix("_")
    method.__signature__ = Signature([Parameter("self", kind), *own])  # type: ignore[attr-defined]
    return discreet_step(method)
