"""Events in bulk: columns to JSON lines, without an object per event."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import Any, overload

import msgspec
import numpy as np

from meanstream.streaming.events.base import Event

BLOCK = 1 << 10
"""Events are encoded that many at a time: what is made on the way stays in the cache of the processor."""


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
        if isinstance(self.lines, _Encoded):
            yield from self.lines.blocks()
        elif self.lines:
            yield b"\n".join([*self.lines, b""])


class _Encoded(Sequence[bytes]):
    """Lines as they were encoded, many in one piece: taken apart when one of them is requested, and not before."""

    def __init__(self, blocks: list[bytes], count: int) -> None:
        self._blocks, self._count = blocks, count
        self._lines: list[bytes] = []

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        return self._apart()[index]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._apart())

    def blocks(self) -> Iterator[bytes]:
        """Give the pieces."""
        yield from self._blocks or [b"\n".join([*self._lines, b""])] * bool(self._count)

    def _apart(self) -> list[bytes]:
        self._blocks.reverse()
        while self._blocks:  # each goes as soon as its lines are there
            self._lines += self._blocks.pop().split(b"\n")[:-1]  # JSON escapes line ends, so these are ours
        return self._lines


def encode_lines(kind: type[Event], events: Iterable[Event]) -> EventLines:
    """Encode events that exist as objects, for the rare types."""
    return EventLines(kind, [event.model_dump_json().encode() for event in events])


def encode_columns_as_lines(
    kind: type[Event], columns: Mapping[str, Sequence[Any] | np.ndarray], constants: dict[str, Any]
) -> EventLines:
    """Encode columns of plain values, all of one length.

    Examples
    --------
    >>> from meanstream.streaming.events.wire import DeadLetter
    >>> columns = {"position": [7, 8], "size": [64, None]}
    >>> encode_columns_as_lines(DeadLetter, columns, {"reason": "late", "source": "f.csv"}).lines[1]
    b'{"reason":"late","source":"f.csv","partition":0,"position":8,"size":null,"schema_version":1}'
    """
    fields: dict[str, Sequence[Any] | np.ndarray | msgspec.Raw] = {}
    fixed: list[str] = []
    for name, field in kind.model_fields.items():
        if name in columns:
            fields |= _as_one(fixed) | {name: columns[name]}
            fixed = []
        elif name in constants or field.default is not None or field.exclude_if is None:
            value = json.dumps(constants.get(name, field.default), separators=(",", ":"))
            fixed.append(f'"{name}":{value}')
    count = len(next(iter(columns.values())))
    return EventLines(kind, _Encoded(_encode(fields | _as_one(fixed), count), count))


def _as_one(fixed: Sequence[str]) -> dict[str, msgspec.Raw]:
    """Make one field of those that are the same in each line: it has the name of the first, and holds the rest."""
    name, _, rest = ",".join(fixed).partition(":")
    return {json.loads(name): msgspec.Raw(rest.encode())} if fixed else {}


def _encode(fields: Mapping[str, Sequence[Any] | np.ndarray | msgspec.Raw], count: int) -> list[bytes]:
    row: Any = msgspec.defstruct("Row", list(fields), gc=False)
    encoder, blocks = msgspec.json.Encoder(), list[bytes]()
    for begin in range(0, count, BLOCK):
        block = [
            repeat(one) if isinstance(one, msgspec.Raw) else _plain(one[begin : begin + BLOCK])
            for one in fields.values()
        ]
        blocks.append(encoder.encode_lines(list(map(row, *block))))
    return blocks


def _plain(column: Sequence[Any] | np.ndarray) -> Sequence[Any]:
    """Give values that JSON has; a column of floats with one that it has not is refused."""
    if isinstance(column, np.ndarray):
        if column.ndim == 2:
            return list(map(_row_of(column.shape[1]), *column.T.tolist()))
        if not np.isfinite(column).all():
            raise ValueError("event must hold finite numbers")
        rows: list[Any] = column.tolist()
        return rows
    with suppress(TypeError):  # of what has no sum
        if not math.isfinite(sum(column)) and not all(map(math.isfinite, column)):
            raise ValueError("event must hold finite numbers")
    return column


@functools.cache
def _row_of(width: int) -> Any:
    """Make the type of a row of a table: a list in JSON that the garbage collector does not visit."""
    return msgspec.defstruct("Row", [f"at{place}" for place in range(width)], array_like=True, gc=False)
