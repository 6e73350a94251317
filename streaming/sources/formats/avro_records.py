"""Records of Avro to samples, all of one schema at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from meanstream.operators.records import Bools, Ints
from meanstream.streaming.events.event_columns import Rejects, SampleColumns
from meanstream.streaming.events.times import nearest_float_number
from meanstream.streaming.sources.decode import Decoder, RawColumns
from meanstream.streaming.sources.formats.avro_cursor import (
    PAD,
    AvroCursor,
    AvroPiece,
    Bytes,
    Wanted,
)
from meanstream.streaming.sources.formats.avro_schema import AvroType
from meanstream.streaming.sources.mapping import CONTENT, UNREADABLE, mapping_kind
from meanstream.streaming.sources.record_paths import Places

_TIMES = {f"{local}timestamp-{name}": unit for local in ("", "local-") for name, unit in (
    ("millis", "ms"), ("micros", "us"), ("nanos", "ns"))}  # fmt: skip
_NUMBERS = ("int", "long", "float", "double")
_WHOLE = ("int", "long")
_TEXTS = ("string", "bytes", "enum")
MAX_DECIMAL_BYTES = 64
DAY = 86_400


class AvroRecords:
    """Reads records of one schema: numbers, texts and times by their types; a decimal is a number.

    What is wanted and is not there is missing; what is there in a type that it cannot have is bad.

    Parameters
    ----------
    schema : AvroType
        By which they were written.
    places : mapping of str to places
        Where each part of a sample is; names of Avro have no dots, so that the path decides.
    decoder : Decoder
        Of the source.
    numbers_in_text : bool
        Whether a text may be a value.
    """

    def __init__(
        self,
        schema: AvroType,
        places: Mapping[str, Places],
        decoder: Decoder,
        *,
        numbers_in_text: bool = False,
    ) -> None:
        self._schema = schema
        self._decoder = decoder
        self._wanted = _wanted({part: several[-1] for part, several in places.items()})
        self._parts = tuple(places)
        self._text_values = numbers_in_text

    def parse(
        self,
        values: Sequence[bytes],
        number: Ints,
        beside: RawColumns,
        rejects: Rejects,
        *,
        skip: int = 0,
    ) -> list[SampleColumns]:
        """Make samples of records that begin that many bytes into each value.

        Note those that are none.
        """
        # All records at once; what is not whole is rejected alone.
        data, start, end = joined_with_pad(values)
        cursor = AvroCursor(data, self._wanted)
        whole = cursor.read(self._schema, start + skip, end)
        for i in np.flatnonzero(~whole).tolist():
            rejects.add("malformed", int(number[i]), int(end[i] - start[i]))

        samples = []

        # Records with parts of the same types are decoded together.
        for rows, pieces in self._alike(cursor.found, whole):
            raw: RawColumns = {part: column.take(pa.array(rows)) for part, column in beside.items()}
            fault: str | None = None
            for part in self._parts:
                column = self._column(part, pieces.get(part), rows, data)

                # In rounds a content that cannot be read still counts for its user.
                if (
                    column is None
                    and self._decoder.private_values
                    and mapping_kind(part) in CONTENT
                ):
                    text = UNREADABLE.get(mapping_kind(part))
                    column = pa.array([text] * len(rows), pa.binary())

                fault = fault or (_fault(part) if column is None else None)
                raw[part] = column

            if fault is not None:
                rejects.add_many(fault, number[rows])
                continue

            # What a value means is checked in one place for all formats.
            found, bad = self._decoder.decode(raw, number[rows])
            rejects.extend(bad)
            samples.append(found)

        return samples

    @staticmethod
    def _alike(
        found: Mapping[str, list[AvroPiece]], whole: Bools
    ) -> list[tuple[Ints, dict[str, AvroPiece]]]:
        """Group the records whose parts are of the same types."""
        n = len(whole)
        codes = {}
        for part, pieces in found.items():
            codes[part] = np.zeros(n, np.int64)
            for place, piece in enumerate(pieces):
                codes[part][piece.rows] = place + 1

        # Types that differ in no part are of one group.
        together = np.zeros(n, np.int64)
        for code in codes.values():
            if code.min(initial=1) != code.max(initial=1):
                together = np.unique(together * (int(code.max()) + 1) + code, return_inverse=True)[
                    1
                ]

        groups = []
        for one in np.unique(together[whole]).tolist():
            rows = np.flatnonzero(whole & (together == one))
            held = {part: int(code[rows[0]]) for part, code in codes.items()}
            groups.append((rows, {part: found[part][at - 1] for part, at in held.items() if at}))

        return groups

    def _column(  # noqa: PLR0911
        self, part: str, piece: AvroPiece | None, rows: Ints, data: Bytes
    ) -> pa.Array | None:
        """Give a part of some records as a column; None if it is of a type that it cannot have."""
        if piece is None:
            return pa.nulls(len(rows))

        # Rows of the piece that belong to this group.
        at = (
            np.arange(len(rows))
            if len(piece.rows) == len(rows)
            else np.searchsorted(piece.rows, rows)
        )
        found = piece.data[at]
        size = None if piece.size is None else piece.size[at]
        kind = piece.kind
        is_a = mapping_kind(part)

        # A decimal has its digits as bytes; its scale stands in the schema.
        if kind.logical == "decimal" and kind.kind != "string" and size is not None:
            if is_a == "value":
                return _decimals(data, found, size, kind.scale)
            return None

        if kind.kind in _NUMBERS:
            return _numbers(kind, is_a, found)

        if (
            kind.kind not in _TEXTS
            or is_a == "schema_version"
            or (is_a == "value" and not self._text_values)
        ):
            return None

        if kind.kind == "enum":
            symbols = [
                name.encode("utf-8", "surrogatepass") for name in kind.names
            ]  # half a character is no name
            return pa.array([symbols[i] for i in found.tolist()], pa.binary())

        assert size is not None  # noqa: S101 - a text has one
        return _texts(data, found, size)


def joined_with_pad(values: Sequence[bytes]) -> tuple[Bytes, Ints, Ints]:
    """Join values, with what a cursor needs behind them; give where each begins and ends, too."""
    size = np.fromiter(map(len, values), np.int64, len(values))
    end = np.cumsum(size)
    return np.frombuffer(b"".join([*values, bytes(PAD + 1)]), np.uint8), end - size, end


def _wanted(paths: Mapping[str, tuple[str, ...]]) -> Wanted:
    tree: Wanted = {}
    for part, path in paths.items():
        inner: dict[str, Any] = tree
        for name in path[:-1]:
            inner = inner.setdefault(name, {})

        inner[path[-1]] = part

    return tree


def _fault(part: str) -> str:
    if part == "schema_version":
        return "unknown_schema_version"
    return f"bad_{mapping_kind(part)}"


def _texts(data: Bytes, start: Ints, size: Ints) -> pa.Array:
    # Texts of all rows are gathered by one index.
    """Gather texts of different lengths."""
    after = np.cumsum(size)
    at = np.repeat(start - (after - size), size) + np.arange(int(after[-1]) if len(after) else 0)
    offsets = np.concatenate([[0], after]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data[at].tobytes())]

    return pa.Array.from_buffers(pa.large_binary(), len(size), buffers).cast(pa.binary())


def _numbers(kind: AvroType, is_a: str, found: Any) -> pa.Array | None:
    """Values and times as they are, by their logical type; whole ones are names, too."""
    if is_a == "time" and kind.kind == "long" and kind.logical in _TIMES:
        return pa.array(found, pa.timestamp(_TIMES[kind.logical]))
    if is_a == "time" and kind.kind == "int" and kind.logical == "date":
        return pa.array(np.clip(found, -(2**31), 2**31) * DAY, pa.timestamp("s"))
    if is_a in ("time", "value"):
        return pa.array(found.astype(np.float64))

    if kind.kind in _WHOLE:
        return pa.array(found.astype(np.int64))
    return None


def _decimals(data: Bytes, start: Ints, size: Ints, scale: int) -> pa.Array:
    """Whole numbers, the most significant byte first, with this many decimal digits.

    Too long ones are None.
    """
    found: list[float | None] = []
    for first, length in zip(start.tolist(), size.tolist(), strict=True):
        whole = int.from_bytes(data[first : first + length].tobytes(), "big", signed=True)
        found.append(
            None if length > MAX_DECIMAL_BYTES else nearest_float_number(f"{whole}e-{scale}")
        )

    return pa.array(found, pa.float64())
