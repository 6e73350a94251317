"""Events as rows with a schema, for steps that know nothing of this project.

Beam YAML, SQL, other languages.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, Optional, Union, get_args, get_origin

import apache_beam as beam
import msgspec
from apache_beam.typehints.row_type import RowTypeConstraint

from meanstream.pipelines.beam.worker.beam_steps import Step
from meanstream.streaming.events.base import Event

INTERVAL = "interval"
"""A field of two numbers, which become two columns: `lower` and `upper`."""
UNSHOWN = "schema_version"
"""A field that rows leave out: they have a schema of their own."""

LinesOf = Callable[[Any], Sequence[bytes]]
"""Writes an element as JSON objects, one for each event."""


def event_lines(element: Event) -> Sequence[bytes]:
    """Write one event."""
    return (element.model_dump_json().encode(),)


def row_columns(kind: type[Event], *, one_number: bool = True) -> list[tuple[str, Any]]:
    """Give the columns of an event's row: names and types that a schema of Beam can have.

    Times are text of RFC 3339, as in a file of events. An interval becomes two columns. Whatever
    has parts of its own is text of JSON. A field that is one number or a list of them is a number,
    or a list without `one_number`.

    Examples
    --------
    >>> from meanstream.streaming.events.round_events import WindowEstimate
    >>> dict(row_columns(WindowEstimate))["lower"], dict(row_columns(WindowEstimate, one_number=False))["lower"]
    (<class 'float'>, collections.abc.Sequence[float])
    """
    found: list[tuple[str, Any]] = []
    for name, field in kind.model_fields.items():
        column = _column(field.annotation, one_number)
        if name == INTERVAL or name.endswith(f"_{INTERVAL}"):
            found += [(bound, column) for bound in _bounds(name)]
        elif name != UNSHOWN:
            found.append((name, column))

    return found


def _bounds(name: str) -> tuple[str, str]:
    before = name.removesuffix(INTERVAL)
    return f"{before}lower", f"{before}upper"


def _column(annotation: Any, one_number: bool) -> Any:
    """Give the type of a column for that of a field; of an interval, the type of each bound."""
    origin = get_origin(annotation)
    parts = get_args(annotation)
    if origin is Annotated:
        return _column(parts[0], one_number)
    if origin is Literal:
        return type(parts[0])

    if origin in (Union, types.UnionType):
        kinds = [part for part in parts if part is not type(None)]
        either = _column(kinds[0], one_number)
        column = Sequence[either] if len(kinds) == 2 and not one_number else either  # type: ignore[valid-type]
        return Optional[column] if len(kinds) < len(parts) else column  # noqa: UP045 - what Beam's schemas read

    if origin is tuple and len(parts) == 2 and parts[0] is parts[1]:
        return _column(parts[0], one_number)

    if annotation in (bool, int, float):
        return annotation
    return str


class EventRows(beam.PTransform):  # type: ignore[misc]
    """Events, alone or many in an element, to rows with a schema; a row is as private as its event.

    Parameters
    ----------
    kind : type of Event
        The events.
    lines : callable
        Gives the lines of an element.
    one_number : bool
        Whether an answer is one number, and not a list of them.
    """

    def __init__(
        self, kind: type[Event], lines: LinesOf = event_lines, *, one_number: bool = True
    ) -> None:
        super().__init__()
        self._columns = row_columns(kind, one_number=one_number)
        self._lines = lines

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Take elements apart."""
        row = RowTypeConstraint.from_fields(self._columns)
        return pcoll | "To rows" >> beam.ParDo(
            _ToRows(self._columns, self._lines)
        ).with_output_types(row)


class _ToRows(Step):
    def __init__(self, columns: list[tuple[str, Any]], lines: LinesOf) -> None:
        self._columns = columns
        self._lines = lines

    def process(self, element: Any) -> Iterator[beam.Row]:
        """Make rows of an element."""
        for line in self._lines(element):
            yield self._row(msgspec.json.decode(line))

    def _row(self, event: dict[str, Any]) -> beam.Row:
        for name in [name for name in event if name == INTERVAL or name.endswith(f"_{INTERVAL}")]:
            pairs = event.pop(name)
            several = bool(pairs) and isinstance(pairs[0], list)
            event.update(
                zip(_bounds(name), zip(*pairs, strict=True) if several else pairs, strict=True)
            )

        return beam.Row(**{name: _cell(event.get(name), column) for name, column in self._columns})


def _cell(value: Any, column: Any) -> Any:
    """Give a value the type of its column."""
    if value is None:
        return None
    if get_origin(column) is Union:
        return _cell(value, get_args(column)[0])
    if get_origin(column) is not None:  # a sequence
        return [_cell(one, get_args(column)[0]) for one in value]

    if column is str and not isinstance(value, str):
        return msgspec.json.encode(value).decode()
    return column(value)
