"""Events in bulk: columns to JSON lines, without an object per event."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any

import msgspec
import numpy as np

from meanstream.operators.records import Ints
from meanstream.streaming.events.base import Event

BLOCK = 1 << 16
"""Events are encoded so many at a time: what is made on the way is small."""


@dataclass(frozen=True, slots=True)
class EventLines:
    """Events of one type, each as the bytes of one JSON object, without a line end."""

    kind: type[Event]
    lines: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.lines)


def encode_lines(kind: type[Event], events: Iterable[Event]) -> EventLines:
    """Encode events that exist as objects, for the rare types."""
    return EventLines(kind, [event.model_dump_json().encode() for event in events])


def encode_columns_as_lines(
    kind: type[Event], columns: Mapping[str, Sequence[Any] | Ints], constants: dict[str, Any]
) -> EventLines:
    """Encode columns of plain values, all of one length.

    Parameters
    ----------
    kind : type of event
        What each line is; the order of its fields is the order in the line.
    columns : dict of str to sequence
        Strings, integers, finite floats, None, or pairs of finite floats; an array of integer rows is one of lists.
    constants : dict of str to value
        Fields that are the same in each line.

    Examples
    --------
    >>> from meanstream.streaming.events.wire import DeadLetter
    >>> columns = {"position": [7, 8], "size": [64, None]}
    >>> encode_columns_as_lines(DeadLetter, columns, {"reason": "late", "source": "f.csv"}).lines[1]
    b'{"reason":"late","source":"f.csv","partition":0,"position":8,"size":null,"schema_version":1}'
    """
    template, used = [], []
    for name, field in kind.model_fields.items():
        if name in columns:
            used.append(columns[name])
            template.append(f'"{name}":%s')
        elif name in constants or field.default is not None or field.exclude_if is None:
            fixed = json.dumps(constants.get(name, field.default), separators=(",", ":")).replace("%", "%%")
            template.append(f'"{name}":{fixed}')
    line, lines = "{" + ",".join(template) + "}", []
    for begin in range(0, len(used[0]), BLOCK):
        texts = [_texts(column[begin : begin + BLOCK]) for column in used]
        block = "\n".join(map(line.__mod__, zip(*texts, strict=True)))  # JSON escapes line ends, so these are ours
        lines += block.encode().split(b"\n")
    return EventLines(kind, lines)


def _texts(column: Sequence[Any] | Ints) -> list[str]:
    """Encode a column of one plain type at once, a mixed one value by value."""
    if isinstance(column, np.ndarray):
        if column.shape[1:] == (1,):
            return [f"[{number}]" for number in column[:, 0].tolist()]
        return [text.decode() for text in map(msgspec.json.encode, column.tolist())]
    kinds = set(map(type, column))
    if kinds == {float}:
        if not np.isfinite(np.array(column)).all():
            raise ValueError("event must hold finite numbers")
        return msgspec.json.encode(column).decode()[1:-1].split(",")
    if kinds == {int}:
        return list(map(str, column))
    if kinds == {str}:
        return list(map(encode_basestring, column))
    return [text.decode() for text in map(msgspec.json.encode, column)]
