"""JSON records that all have the fields of a first one, as telemetry has: columns of many of them, by msgspec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from meanstream.streaming.events.base import SCHEMA_VERSION
from meanstream.streaming.sources.decode import RawColumns
from meanstream.streaming.sources.lines import LineBlock
from meanstream.streaming.sources.mapping import mapping_kind
from meanstream.streaming.sources.record_paths import Path, Places

MAX_FIELDS = 64
"""Fields of a record, with those of objects in it, at most."""

TOGETHER = 2048
"""Records that are read at once: what becomes of so many stays in the processor's cache."""

_QUOTE = ord('"')
_NUMBERS: dict[str, Any] = {"value": float, "time": float, "schema_version": Literal[SCHEMA_VERSION]}
"""Types of parts of a sample where they are numbers; any other field without quotes may hold anything without."""


class _Layout(NamedTuple):
    """Type of each field, what reads records, how many quotes each has, what gives the column of each part."""

    fields: dict[Path, type]
    read: Callable[[memoryview], list[Any]]
    quotes: int
    columns: dict[str, Callable[[list[Any]], pa.Array]]


class AlikeRecords:
    """Reads blocks of records that have exactly the same fields, each a text, a number, or an object of such.

    All fields are required, and the block has the quotes that they take. So none of them is in a record twice, and no
    other is there: there would be more. Whatever does not fit is for other parsers.

    Parameters
    ----------
    places : mapping of str to places
        Where each part of a sample is.
    """

    def __init__(self, places: Mapping[str, Places]) -> None:
        self._places = places
        self._layout: _Layout | None = None

    def columns(self, block: LineBlock, first: Callable[[], Any]) -> RawColumns | None:
        """Read records, each of which begins with a brace and ends with one; None if they are not alike.

        They are alike if they have the fields of those before, or of the first one, which `first` reads.

        Raises
        ------
        ValueError
            If some of them are no JSON at all, for any parser.
        """
        quotes = np.count_nonzero(np.frombuffer(block.data, np.uint8) == _QUOTE)
        if self._layout is None or quotes != self._layout.quotes * len(block):
            record = first()
            fields = dict(_fields(record))
            if len(fields) <= MAX_FIELDS and (self._layout is None or fields != self._layout.fields):
                self._layout = _layout_of(record, fields, self._places)
        if self._layout is None or quotes != self._layout.quotes * len(block):
            return None
        parts: list[RawColumns] = []
        for begin in range(0, len(block), TOGETHER):
            part = _columns(self._layout, block.part(begin, min(begin + TOGETHER, len(block))))
            if part is None:
                return None
            parts.append(part)
        return {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}


def _columns(layout: _Layout, block: LineBlock) -> RawColumns | None:
    try:
        records = layout.read(block.data)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ValueError("some record is no JSON") from None
    if len(records) != len(block):
        return None
    return {part: column(records) for part, column in layout.columns.items()}


def _fields(record: Any, path: Path = ()) -> Iterator[tuple[Path, type]]:
    """List the fields of an object, and of those in it, with the types that Python has for them."""
    if type(record) is dict:
        for name, value in record.items():
            yield (*path, name), type(value)
            yield from _fields(value, (*path, name))


def _layout_of(record: Any, fields: Mapping[Path, type], places: Mapping[str, Places]) -> _Layout | None:
    """Find the layout of a record; None if a part of a sample, or something else in it, is not read here."""
    numbers = {
        path: _NUMBERS[kind]
        for part, paths in places.items()
        if (kind := mapping_kind(part)) in _NUMBERS
        for path in paths
    }
    attributes: dict[Path, str] = {}
    try:
        kind = _struct(record, numbers, attributes)
    except ValueError:  # also of msgspec, for a name with an escape
        return None
    columns: dict[str, Callable[[list[Any]], pa.Array]] = {}
    for part, paths in places.items():
        path = next((path for path in paths if path in fields), ())
        column = _column(mapping_kind(part), fields.get(path), attributes.get(path, ""))
        if column is not None:
            columns[part] = column
        elif part != "schema_version" or fields.get(path, int) is not int:
            return None
    quotes = 2 * len(fields) + 2 * sum(kind is str for kind in fields.values())
    return _Layout(dict(fields), msgspec.json.Decoder(kind).decode_lines, quotes, columns)


def _struct(record: Any, numbers: Mapping[Path, Any], attributes: dict[Path, str], path: Path = ()) -> Any:
    """Make the type of an object, and name the attribute of each field."""
    if type(record) is not dict:
        raise ValueError("a list, or an object that has a field twice")
    kinds = []
    for number, (name, value) in enumerate(record.items()):
        inner = (*path, name)
        attributes[inner] = f"{attributes[path]}.f{number}" if path else f"f{number}"
        if isinstance(value, str):
            kinds.append(str)
        elif isinstance(value, int | float | None):
            kinds.append(numbers.get(inner, float | bool | None))
        else:
            kinds.append(_struct(value, numbers, attributes, inner))
    names = {f"f{number}": name for number, name in enumerate(record)}
    return msgspec.defstruct("Record", list(zip(names, kinds, strict=True)), rename=names, gc=False)


def _column(kind: str, found: type | None, attribute: str) -> Callable[[list[Any]], pa.Array] | None:
    """Make what takes the column of a part out of records; None if msgspec does not read it as the others do.

    That is so of whole numbers: a number with a point is one for it.
    """
    get = attrgetter(attribute)
    if kind in ("value", "time") and found in (int, float):
        return lambda records: pa.array(np.fromiter(map(get, records), np.float64, len(records)))
    if kind not in ("value", "schema_version") and found is str:
        return lambda records: pa.array(list(map(get, records)), pa.string())
    return None
