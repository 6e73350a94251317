"""Steps of a pipeline that keep errors to themselves.

What a runner logs of one is never the text of a foreign error.

A runner writes the text of whatever a step raises to the logs of its workers and of anyone who
started the job. The text of an error that is not ours may hold someone's value, so it ends here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any, NoReturn, ParamSpec, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import TypeOptions
from apache_beam.pvalue import DoOutputsTuple
from apache_beam.transforms.core import get_function_args_defaults
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import GlobalWindows, TimestampedValue
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type
from apache_beam.utils.timestamp import Timestamp

from meanstream.pipelines.own_errors import describe_own_error, is_own_error, is_own_error_raised

_P = ParamSpec("_P")
_R = TypeVar("_R")

_INSPECT = "_inspect_"
_CALLED_BY_A_RUNNER = ("setup", "start_bundle", "process", "finish_bundle", "teardown")


class StepError(Exception):
    """A step of a pipeline met an error that is none of ours.

    Its type and its place, without its text.
    """


class Step(beam.DoFn):  # type: ignore[misc]
    """A step whose methods let out errors of ours only.

    A callback of a timer is marked with `discreet` itself.

    Notes
    -----
    **Privacy.** The logs of workers may be anyone's. Whatever else is raised here is a `StepError`.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        """Mark the methods that a runner calls, of those that the class brings."""
        super().__init_subclass__(**more)
        for name in _CALLED_BY_A_RUNNER:
            method = vars(cls).get(name)
            if isinstance(method, FunctionType):
                setattr(cls, name, discreet_step(method))

    def __getattr__(self, name: str) -> Any:
        """Tell Beam the parameters of a method, which it asks for by `_inspect_NAME`, of each some twenty times."""
        if not name.startswith(_INSPECT):
            raise AttributeError(f"{type(self).__name__} must have the attribute, got {name}")
        kind: Any = type(self)
        return functools.partial(_parameters, kind, name.removeprefix(_INSPECT))


def discreet_step(work: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a function that a runner calls raise errors of ours, and `StepError` for any other.

    Examples
    --------
    >>> try:
    ...     discreet_step(float)("271828.5 minutes")
    ... except StepError as error:
    ...     print(str(error).partition(" at ")[0], "271828.5" in str(error))
    ValueError False
    """

    @functools.wraps(work)
    def worked(*given: _P.args, **named: _P.kwargs) -> _R:
        try:
            made = work(*given, **named)
        except Exception as error:
            _raise_readable(error)

        return _each(made) if isinstance(made, Iterator) else made

    # Beam's check of types at run time matches what it gives to names, and does not look through
    # wrappers.
    worked.__signature__ = inspect.signature(work)  # type: ignore[attr-defined]
    return worked


@functools.cache
def _parameters(kind: Any, method: str) -> tuple[list[str], list[Any]]:
    """Look at the parameters of a method once for all steps of a kind."""
    found: tuple[list[str], list[Any]] = get_function_args_defaults(
        getattr(object.__new__(kind), method)
    )
    return found


def _each(made: Iterator[Any]) -> Any:
    """Hand on what an iterator gives; what becomes of it is not within.

    Always as a generator: Beam's check of types at run time uses up any other iterator before it is
    read.
    """
    while True:
        try:
            one = next(made)
        except StopIteration:
            return
        except Exception as error:
            _raise_readable(error)

        yield one


def _raise_readable(error: Exception) -> NoReturn:
    """Raise an error of ours, or one that is out of memory, as it is.

    Of any other what it may say.
    """
    if is_own_error(error) or is_own_error_raised(error) or isinstance(error, MemoryError):
        raise error
    said = describe_own_error(error)
    shown = (
        f": {said['reason']}"
        if "reason" in said
        else " (its text is not shown: it may hold a value)"
    )
    raise StepError(f"{said['error']} at {said['at']}{shown}") from None


# Where it does not say what it holds, Beam's check of types at run time takes it for the element
# itself.
_Timed = TimestampedValue[Any]


def with_window_time(time: Timestamp, value: Any) -> TimestampedValue:
    """Give an element its time."""
    return _Timed(value, time)


class ForGood(beam.PTransform):  # type: ignore[misc]
    """Elements into the one window whose state is never dropped, each as soon as it is there."""

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Put them there."""
        return pcoll | "Window" >> beam.WindowInto(
            GlobalWindows(),
            trigger=Repeatedly(AfterCount(1)),
            accumulation_mode=AccumulationMode.DISCARDING,
        )


class _AsItIs(Step):
    """Hands an element on; without a hint of what it takes."""

    def process(self, element):  # type: ignore[no-untyped-def]
        """Hand it on."""
        yield element


def typed_outputs(
    outputs: DoOutputsTuple, kinds: Mapping[str, Any], *, label: str = "Of"
) -> Iterator[beam.PCollection]:
    """Give the outputs of these tags, each as a PCollection of its type.

    Beam (2.77) holds every output of a step to what the reader of any of them takes, when it checks
    types at run time: so between them stands then a step that takes anything.
    """
    for tag, kind in kinds.items():
        output = outputs[tag]
        output.element_type = convert_to_beam_type(kind)  # by which Beam finds the coder
        checks = output.pipeline.options.view_as(TypeOptions)
        if checks.runtime_type_check or checks.performance_runtime_type_check:
            output = output | f"{label} {tag}" >> beam.ParDo(_AsItIs()).with_output_types(kind)

        yield output
