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
from meanstream.streaming.sources.formats.flat_records import FlatLayout, flat_layout
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
    flat: FlatLayout | None


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
        self,
        values: Sequence[bytes | None],
        text: bytes,
        codes: Callable[[list[str] | pa.Array], Ints] | None,
    ) -> RawColumns | None:
        """Read values that have the fields of the last block; None if they have not.

        `text` is all of them; `codes` gives what stands for names of agents, where these are to be
        looked up at once.
        """
        layout = self._layout
        if layout is None:
            return None

        columns = None if layout.flat is None else layout.flat.read(text, len(values))
        if columns is not None:
            if codes is not None:
                columns[CODE] = pa.array(codes(columns.pop("agent")))
            return columns

        if _quotes(text) != layout.quotes * len(values):
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
        flat = None if self._layout is None else self._layout.flat
        columns = None if flat is None else flat.read(block.data, len(block))
        if columns is not None:
            return columns

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

    paths = _paths_of_parts(fields, places)
    if paths is None:
        return None

    texts, part_numbers, version = paths
    decoder = msgspec.json.Decoder(kind)
    return _Layout(
        fields=dict(fields),
        quotes=2 * len(fields) + 2 * sum(each is str for each in fields.values()),
        read_one=cast("Callable[[bytes | None], Any]", decoder.decode),
        read_lines=decoder.decode_lines,
        texts={part: attrgetter(attributes[path]) for part, path in texts.items()},
        numbers={part: attrgetter(attributes[path]) for part, path in part_numbers.items()},
        flat=flat_layout(fields, texts, part_numbers, version),
    )


def _paths_of_parts(
    fields: Mapping[Path, type], places: Mapping[str, Places]
) -> tuple[dict[str, Path], dict[str, Path], Path | None] | None:
    """Find the fields of parts that are texts, of those that are numbers, and of the version.

    None if some part is neither.
    """
    texts: dict[str, Path] = {}
    numbers: dict[str, Path] = {}
    version: Path | None = None

    for part, paths in places.items():
        path = next((path for path in paths if path in fields), ())
        found = fields.get(path)
        what = mapping_kind(part)
        if what == "schema_version":
            if found not in (int, None):
                return None
            version = path if found is int else None
        elif what in _NUMBERS and found in (int, float):
            numbers[part] = path
        elif what != "value" and found is str:
            texts[part] = path
        else:  # also whole numbers as names: for msgspec a number with a point is one
            return None

    return texts, numbers, version


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
