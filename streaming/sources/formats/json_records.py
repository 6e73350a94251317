"""Records that are one JSON object each: lines of a file, or values of messages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from meanstream.operators.records import Bools
from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.events.times import nearest_float_number, whole_number
from meanstream.streaming.sources.formats.alike_records import AlikeRecords
from meanstream.streaming.sources.formats.nested_records import (
    MAX_NESTING,
    arrow_part,
    arrow_schema,
    deep_records,
    may_be_deep,
    nesting,
)
from meanstream.streaming.sources.lines import LineBlock
from meanstream.streaming.sources.mapping import (
    CONTENT,
    UNREADABLE,
    ColumnMapping,
    mapping_kind,
)
from meanstream.streaming.sources.record_paths import (
    Ambiguous,
    Places,
    field_paths,
    find_value,
    require_apart,
)
from meanstream.streaming.sources.source_records import Parsed, Texts, is_utf8_record

_TYPES: dict[str, tuple[type, ...]] = {
    "agent": (str, int),
    "value": (int, float),
    "category": (str, int),
    "time": (str, int, float),
    "id": (str, int),
    "person": (str, int),
    "schema_version": (int,),
}
_SPACE = np.frombuffer(b" \t\r\n", np.uint8)
_PIECE = 1 << 18
"""Bytes that pyarrow reads at once: what it has read of that many stays in the processor's
cache."""


def json_paths(mapping: ColumnMapping) -> dict[str, Places]:
    """Find each part of a sample in the objects of a layout."""
    within = ("payload",) if mapping.layout == "connect" else ()
    version = (
        f"data.{mapping.schema_version}"
        if mapping.layout == "cloudevents"
        else mapping.schema_version
    )
    names = {**mapping.required, **mapping.optional, "schema_version": version}

    return {part: field_paths(name, within) for part, name in names.items()}


class JsonFormat:
    """One JSON object per record.

    Agent and id are strings or integers, the value a number, the time either.

    Fields that mean nothing here may hold anything.

    Parameters
    ----------
    mapping : ColumnMapping
        Which field means what.
    places : mapping of str to places, optional
        Where each part is, if not where the mapping says.
    """

    def __init__(self, mapping: ColumnMapping, places: Mapping[str, Places] | None = None) -> None:
        self._places = json_paths(mapping) if places is None else dict(places)
        require_apart(self._places)
        self._types = dict(_TYPES)
        self._private_values = mapping.owner == "user"

        if mapping.numbers_in_text:
            self._types["value"] = (int, float, str)

        self.alike = AlikeRecords(self._places)
        self._unique = _unique(
            frozenset(name for paths in self._places.values() for path in paths for name in path)
        )

    def stands_out(self, block: LineBlock) -> Bools | None:
        """Say which records do not begin with a brace and end with one, but for space after it.

        Of all others no object can begin in one record and end in another, nor can two records make
        up for one another: after a brace, inside an object, another brace is an error, and a text
        has no line end in it.
        """
        # The first byte of most lines is a brace, and so is the last one.
        data = np.frombuffer(block.data, np.uint8)
        start = np.concatenate([[0], block.end[:-1]])
        last = block.end - 2
        odd: Bools = data[start] != ord("{")
        odd |= deep_records(block)
        left = np.flatnonzero(~odd)

        # Space after the object is looked through, for the lines that have some.
        while len(left):
            ending = data[last[left]]
            odd[left[~((ending == ord("}")) | np.isin(ending, _SPACE))]] = True
            left = left[np.isin(ending, _SPACE)]
            last[left] -= 1

        if odd.any():
            return odd
        return None

    def parse_block(self, block: LineBlock, rejects: Rejects) -> Parsed:  # noqa: ARG002
        """Read all records at once.

        By msgspec if they are alike, or by pyarrow with the types of the first one.
        """
        # Records with the same fields in the same order are decoded together.
        line = block.part(0, 1).lines()[0]
        try:
            alike = self.alike.of_block(block, lambda: self.parse_object(line))
        except ValueError as error:
            raise pa.ArrowInvalid(str(error)) from None

        if alike is not None:
            # The first record says which types to expect; where another one differs, all are read
            # one by one.
            return alike, block.number
        first = self._parts_of(line)
        if isinstance(first, str) or not is_utf8_record(block.data):
            raise pa.ArrowInvalid("some record is bad")

        types = {part: _arrow_type(part, first[part]) for part in self._places}
        schema = arrow_schema(
            {path: types[part] for part, paths in self._places.items() for path in paths}
        )

        try:
            table = arrow_json.read_json(
                pa.BufferReader(block.data),
                read_options=arrow_json.ReadOptions(
                    use_threads=False, block_size=_piece_bytes(block)
                ),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=schema, unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowNotImplementedError:
            raise pa.ArrowInvalid("nested") from None

        # Anything odd is read record by record: rather slow than shifted.
        if table.num_rows != len(block):
            raise pa.ArrowInvalid("objects are not records")
        raw = {part: arrow_part(table, paths) for part, paths in self._places.items()}
        for part, column in raw.items():
            _check_column(part, column)

        return raw, block.number

    def parse_record(self, record: bytes) -> Texts | str:
        """Read one record with the standard library; the types must be right."""
        found = self._parts_of(record)
        if isinstance(found, str):
            return found
        texts: Texts = {}

        # The right type, or a reason; in rounds a bad content still counts for its user.
        for part, value in found.items():
            kind = mapping_kind(part)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, self._types[kind])
            ):
                if self._takes_part_without(kind):
                    texts[part] = UNREADABLE.get(kind)
                    continue

                if part == "schema_version":
                    return "unknown_schema_version"
                return f"bad_{kind}"

            try:
                texts[part] = None if value is None else str(value).encode()
            except ValueError:  # a lone surrogate
                if not self._takes_part_without(kind):
                    return f"bad_{kind}"
                texts[part] = UNREADABLE.get(kind)

        return texts

    def _parts_of(self, record: bytes) -> dict[str, Any] | str:
        """Read one object and give its parts, or say why not."""
        found = self.parse_object(record)
        if isinstance(found, str):
            return found
        parts: dict[str, Any] = {}

        # Two fields of one name would make the value a choice.
        for part, places in self._places.items():
            try:
                parts[part] = find_value(found, places)
            except LookupError:
                if not self._takes_part_without(mapping_kind(part)):
                    return "duplicate_columns"
                parts[part] = ()
            except TypeError:  # something else than an object on the way
                parts[part] = ()

        return parts

    def _takes_part_without(self, kind: str) -> bool:
        """Say whether a record counts for its user without a part of that kind."""
        return self._private_values and kind in CONTENT

    def parse_object(self, record: bytes) -> dict[str, Any] | str:
        """Read one object, or say why not."""
        # Deep nesting is refused before a parser follows it.
        if may_be_deep(record) and nesting(record) > MAX_NESTING:
            return "malformed"

        try:
            found = json.loads(
                record.decode("utf-8-sig"),
                object_pairs_hook=self._unique,
                parse_float=nearest_float_number,
                parse_int=whole_number,
            )
        except (ValueError, RecursionError):
            return "malformed"

        if isinstance(found, dict):
            return found
        return "malformed"


def _unique(fields: frozenset[str]) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # An object may name a field twice: where that is a part of a sample, it is ambiguous.
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        times = Counter(name for name, _ in pairs if name in fields)
        twice = frozenset(name for name, count in times.items() if count > 1)

        if not twice:
            return found
        ambiguous = Ambiguous(found)
        ambiguous.twice = twice

        return ambiguous

    return hook


def _piece_bytes(block: LineBlock) -> int:
    """Give a size of pieces in none of which a record has no end.

    One that holds a line end is no record of pyarrow's.

    Where one is cut at such a line end the piece cannot be read, and the records are read in
    halves.
    """
    # No piece is shorter than two records.
    longest = int(np.diff(block.end, prepend=0).max())
    return min(max(_PIECE, 2 * longest), len(block.data) + 1)


def _check_column(part: str, column: pa.ChunkedArray) -> None:
    """Refuse a column that is not what its type says, or has a number beyond all floats."""
    column.validate(full=True)
    if mapping_kind(part) != "value" or not pa.types.is_floating(column.type):
        return  # a text is read as one
    if not np.isfinite(column.drop_null()).all():
        raise pa.ArrowInvalid("a number beyond all floats, or none")


def _arrow_type(part: str, value: Any) -> pa.DataType:  # noqa: PLR0911

    # Text that is a number keeps its digits until it is parsed.
    if mapping_kind(part) == "value":
        if isinstance(value, str):
            return pa.string()
        return pa.float64()

    if part == "schema_version":
        return pa.int64()

    if part == "time":
        if isinstance(value, str):
            return pa.string()
        return pa.float64()

    if isinstance(value, int):
        return pa.int64()
    return pa.string()
