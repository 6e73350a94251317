"""JSON records that all have the fields of a first one, as telemetry has.

Columns of many of them, by msgspec.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple, cast

import msgspec
import numpy as np
import pyarrow as pa

from meanstream.operators.records import Ints
from meanstream.streaming.events.base import SCHEMA_VERSION
from meanstream.streaming.events.encode import UNREADABLE
from meanstream.streaming.sources.decode import CODE, RawColumns
from meanstream.streaming.sources.lines import LineBlock
from meanstream.streaming.sources.mapping import mapping_kind
from meanstream.streaming.sources.record_paths import Path, Places

MAX_FIELDS = 64
"""Fields of a record, with those of objects in it, at most."""

TOGETHER = 2048
"""Records that are read at once: what becomes of so many stays in the processor's cache."""

_QUOTE = ord('"')
_NUMBERS: dict[str, Any] = {
    "value": float,
    "time": float,
    "schema_version": Literal[SCHEMA_VERSION],
}
"""Types of parts of a sample where they are numbers; any other field without quotes may hold
anything without."""


class _Layout(NamedTuple):
    """Type of each field, how many quotes each record has, what reads some, and what gives each part of a sample."""

    fields: dict[Path, type]
    quotes: int
    read_one: Callable[[bytes | None], Any]
    read_lines: Callable[[memoryview], list[Any]]
    texts: dict[str, Callable[[Any], str]]
    numbers: dict[str, Callable[[Any], float]]


class AlikeRecords:
    """Reads records that have exactly the same fields, each a text, a number, or an object of such.

    All fields are required, and the records have the quotes that they take together. So none of
    them is in a record twice, and no other is there: there would be more. Whatever does not fit is
    for other parsers.

    Parameters
    ----------
    places : mapping of str to places
        Where each part of a sample is.
    """

    def __init__(self, places: Mapping[str, Places]) -> None:
        self._places = places
        self._layout: _Layout | None = None

    def of_values(
        self, values: Sequence[bytes | None], text: bytes, codes: Callable[[list[str]], Ints] | None
    ) -> RawColumns | None:
        """Read values that have the fields of the last block; None if they have not.

        `text` is all of them; `codes` gives what stands for names of agents, where these are to be
        looked up at once.
        """
        layout = self._layout
        if layout is None or _quotes(text) != layout.quotes * len(values):
            return None

        try:
            records = list(map(layout.read_one, values))
        except (*UNREADABLE, TypeError):  # the last of a tombstone
            return None

        if codes is None:
            return _columns(layout, records)
        agents = codes(list(map(layout.texts["agent"], records)))
        return {CODE: pa.array(agents), **_columns(layout, records, {"agent"})}

    def of_block(self, block: LineBlock, first: Callable[[], Any]) -> RawColumns | None:
        """Read records, each of which begins with a brace and ends with one.

        None if they are not alike.

        They are alike if they have the fields of those before, or of the first one, which `first`
        reads.

        Raises
        ------
        ValueError
            If some of them are no JSON at all, for any parser.
        """
        quotes = _quotes(block.data)
        if self._layout is None or quotes != self._layout.quotes * len(block):
            record = first()
            fields = dict(_fields(record))
            if len(fields) <= MAX_FIELDS and (
                self._layout is None or fields != self._layout.fields
            ):
                self._layout = _layout_of(record, fields, self._places)

        if self._layout is None or quotes != self._layout.quotes * len(block):
            return None
        parts: list[RawColumns] = []
        for begin in range(0, len(block), TOGETHER):
            part = block.part(begin, min(begin + TOGETHER, len(block)))
            try:
                records = self._layout.read_lines(part.data)
            except msgspec.ValidationError:
                return None
            except UNREADABLE:
                raise ValueError("some record is no JSON") from None

            if len(records) != len(part):
                return None
            parts.append(_columns(self._layout, records))

        return joined_columns(parts)


def joined_columns(parts: Sequence[RawColumns]) -> RawColumns:
    """Join columns of the same parts; there are some."""
    return {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}


def _quotes(text: bytes | memoryview) -> int:
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == _QUOTE))


def _columns(layout: _Layout, records: list[Any], without: Collection[str] = ()) -> RawColumns:
    texts = [(part, get) for part, get in layout.texts.items() if part not in without]
    columns = {part: pa.array(list(map(get, records)), pa.string()) for part, get in texts}
    for part, get in layout.numbers.items():
        columns[part] = pa.array(np.fromiter(map(get, records), np.float64, len(records)))

    return columns


def _fields(record: Any, path: Path = ()) -> Iterator[tuple[Path, type]]:
    """List the fields of an object, and of those in it, with the types that Python has for them."""
    if type(record) is dict:
        for name, value in record.items():
            yield (*path, name), type(value)
            yield from _fields(value, (*path, name))


def _layout_of(
    record: Any, fields: Mapping[Path, type], places: Mapping[str, Places]
) -> _Layout | None:
    """Find the layout of a record.

    None if a part of a sample, or something else in it, is not read here.
    """
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

    decoder = msgspec.json.Decoder(kind)
    quotes = 2 * len(fields) + 2 * sum(each is str for each in fields.values())
    read_one = cast("Callable[[bytes | None], Any]", decoder.decode)
    layout = _Layout(dict(fields), quotes, read_one, decoder.decode_lines, {}, {})

    for part, paths in places.items():
        path = next((path for path in paths if path in fields), ())
        found = fields.get(path)
        what = mapping_kind(part)
        if what == "schema_version":
            if found not in (int, None):
                return None
        elif what in _NUMBERS and found in (int, float):
            layout.numbers[part] = attrgetter(attributes[path])
        elif what != "value" and found is str:
            layout.texts[part] = attrgetter(attributes[path])
        else:  # also whole numbers as names: for msgspec a number with a point is one
            return None

    return layout


def _struct(
    record: Any, numbers: Mapping[Path, Any], attributes: dict[Path, str], path: Path = ()
) -> Any:
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
