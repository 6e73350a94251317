"""Events in bulk: columns to JSON lines, without an object per event."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, overload

import msgspec
import numpy as np

from meanstream.streaming.events.base import Event

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Text that is not what was agreed on; bytes that are no UTF-8; brackets within brackets, also in a
field that no one reads."""


BLOCK = 1 << 10
"""Events are encoded that many at a time: what is made on the way stays in the cache of the
processor."""


@dataclass(frozen=True, slots=True)
class EventLines:
    """Events of one type, each as the bytes of one JSON object, without a line end."""

    kind: type[Event]
    lines: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.lines)

    def blocks(self) -> Iterator[bytes]:
        r"""Give the lines with their ends, many of them at a time: what a file of them holds.

        Examples
        --------
        >>> list(EventLines(Event, [b"{}", b"[]"]).blocks())
        [b'{}\n[]\n']
        """
        if isinstance(self.lines, EncodedLines):
            yield from self.lines.blocks()
            return

        for begin in range(0, len(self.lines), BLOCK):
            yield b"\n".join([*self.lines[begin : begin + BLOCK], b""])


class EncodedLines(Sequence[bytes]):
    """Lines as they were encoded, `BLOCK` of them in one piece, which is taken apart when they are requested.

    Parameters
    ----------
    count : int
        Number of lines.
    block : callable
        Gives the piece that begins with a line, of which it gets the number.
    """

    def __init__(self, count: int, block: Callable[[int], bytes]) -> None:
        self._count = count
        self._block = block
        self._apart: tuple[int, list[bytes]] = (
            -1,
            [],
        )  # the piece that was taken apart last, for those next to it

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if not isinstance(index, slice):
            at = range(self._count)[index]
            return self._lines(at // BLOCK)[at % BLOCK]

        start, stop, step = index.indices(self._count)
        if step != 1:
            return list(self)[index]
        first = start // BLOCK
        lines = [line for number in range(first, -(-stop // BLOCK)) for line in self._lines(number)]

        return lines[start - first * BLOCK : max(start, stop) - first * BLOCK]

    def __iter__(self) -> Iterator[bytes]:
        for block in self.blocks():
            yield from split_event_lines(block)

    def blocks(self) -> Iterator[bytes]:
        """Give the pieces."""
        return map(self._block, range(0, self._count, BLOCK))

    def _lines(self, number: int) -> list[bytes]:
        if self._apart[0] != number:
            self._apart = number, split_event_lines(self._block(number * BLOCK))

        return self._apart[1]


def split_event_lines(block: bytes) -> list[bytes]:
    """Take lines apart, each of which has its end."""
    return block.split(b"\n")[:-1]  # JSON escapes line ends, so these are ours


def encode_lines(kind: type[Event], events: Iterable[Event]) -> EventLines:
    """Encode events that exist as objects, for the rare types."""
    return EventLines(kind, [event.model_dump_json().encode() for event in events])


@dataclass(frozen=True, slots=True)
class ObjectColumn:
    """A column of JSON objects, as columns of their fields.

    Arrays of numbers, and what is the same in each.
    """

    fields: Mapping[str, np.ndarray]
    constants: Mapping[str, float]


Column = Sequence[Any] | np.ndarray | ObjectColumn | Callable[[slice], Sequence[Any]]
"""Plain values, one for each event; a callable gives those of some events, in its turn."""


def encode_columns_as_lines(
    kind: type[Event],
    columns: Mapping[str, Column],
    constants: dict[str, Any],
    *,
    kept: bool = True,
) -> EventLines:
    """Encode columns of plain values, all of one length.

    What is not `kept` is encoded when it is written, and again each time that it is.

    Examples
    --------
    >>> from meanstream.streaming.events.wire import DeadLetter
    >>> columns = {"position": [7, 8], "size": [64, None]}
    >>> encode_columns_as_lines(DeadLetter, columns, {"reason": "late", "source": "f.csv"}).lines[1]
    b'{"reason":"late","source":"f.csv","partition":0,"position":8,"size":null,"schema_version":1}'
    """
    fields: dict[str, Column | msgspec.Raw] = {}
    fixed: list[str] = []
    for name, field in kind.model_fields.items():
        if name in columns:
            fields |= _as_one(fixed) | {name: columns[name]}
            fixed = []
        elif name in constants or field.default is not None or field.exclude_if is None:
            value = json.dumps(constants.get(name, field.default), separators=(",", ":"))
            fixed.append(f'"{name}":{value}')

    fields |= _as_one(fixed)
    count = next(
        len(column) for column in columns.values() if isinstance(column, (Sequence, np.ndarray))
    )
    block = _Encoder(fields).block

    if not kept:
        return EventLines(kind, EncodedLines(count, block))
    made = {begin: block(begin) for begin in range(0, count, BLOCK)}
    return EventLines(kind, EncodedLines(count, made.__getitem__))


def _as_one(fixed: Sequence[str]) -> dict[str, msgspec.Raw]:
    """Make one field of those that are the same in each line.

    It has the name of the first, and holds the rest.
    """
    name, _, rest = ",".join(fixed).partition(":")

    if fixed:
        return {json.loads(name): msgspec.Raw(rest.encode())}
    return {}


class _Encoder:
    """Encodes events, `BLOCK` of them at a time: no object of an event outlives its block."""

    def __init__(self, fields: Mapping[str, Column | msgspec.Raw]) -> None:
        self._row: Any = msgspec.defstruct("Row", list(fields), gc=False)
        self._parts = [_parts_of(column) for column in fields.values()]
        self._encoder = msgspec.json.Encoder()

    def block(self, begin: int) -> bytes:
        """Encode those that begin with this one."""
        rows = slice(begin, begin + BLOCK)
        return self._encoder.encode_lines(
            list(map(self._row, *(values(rows) for values in self._parts)))
        )


def _parts_of(column: Column | msgspec.Raw) -> Callable[[slice], Iterable[Any]]:
    """Give the values of some events at a time.

    A column of floats with one that JSON has not is refused.
    """
    if isinstance(column, msgspec.Raw):
        return lambda _: repeat(column)
    if isinstance(column, ObjectColumn):
        return _objects(column)

    if isinstance(column, np.ndarray):
        _require_finite(column.ndim > 1 or bool(np.isfinite(column).all()))
        return partial(_numbers, column)

    if callable(column):
        return column

    with suppress(TypeError):  # of what has no sum
        _require_finite(math.isfinite(sum(column)) or all(map(math.isfinite, column)))

    return lambda part: column[part]


def _numbers(column: np.ndarray, part: slice) -> Iterable[Any]:
    """Give numbers; one that all of these events share is written once."""
    values = column[part]
    numbers: list[Any] = values.tolist()
    if values.ndim != 1 or len(values) < 2:
        return numbers

    # Their bits are compared: minus zero is not written as zero is.
    bits = values.view(f"u{values.itemsize}")
    if (bits == bits[0]).all():
        return repeat(_as_raw(numbers[0]))
    return numbers


def _objects(column: ObjectColumn) -> Callable[[slice], Iterable[Any]]:
    """Give objects; those that hold nothing but zeros, as most do, are one that is written once."""
    row: Any = msgspec.defstruct("Object", [*column.fields, *column.constants], gc=False)
    same = [repeat(value) for value in column.constants.values()]
    zeros = (np.zeros_like(values[:1]).tolist()[0] for values in column.fields.values())
    nothing = _as_raw(row(*zeros, *column.constants.values())) if _length(column) else None

    def objects(part: slice) -> Iterable[Any]:
        fields = [values[part] for values in column.fields.values()]
        is_set = np.any([values.reshape(len(values), -1).any(axis=1) for values in fields], axis=0)
        which = np.flatnonzero(is_set)
        made: list[Any] = [nothing] * len(is_set)
        for place, entry in zip(
            which.tolist(), map(row, *(v[which].tolist() for v in fields), *same), strict=True
        ):
            made[place] = entry

        return made

    return objects


def _length(column: ObjectColumn) -> int:
    return len(next(iter(column.fields.values())))


def _as_raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _require_finite(finite: bool) -> None:
    if not finite:
        raise ValueError("event must hold finite numbers")
