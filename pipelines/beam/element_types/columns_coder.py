"""One coder for all records: arrays become columns, and a head of plain values says where they go.

A head is JSON. Whatever is no plain value is an object of one field, which is its kind: `array`,
`names`, `map`, `row` and `bytes`, or a record that is registered. So bytes make nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
from apache_beam.coders import typecoders

from meanstream.pipelines.beam.element_types.events import DamagedBytesError, OwnCoder
from meanstream.pipelines.beam.element_types.packed import (
    name_columns,
    names_of_packed,
    pack_signed,
    packed,
    unpacked,
)
from meanstream.streaming.store.state_snapshot import Columns

_KINDS: dict[str, Callable[..., Any]] = {}
_NAMES: dict[type, str] = {}
_ELEMENTS: dict[type, str] = {}


def register_records(**kinds: type) -> None:
    """Let records be written, by a name each: dataclasses, named tuples, and what has a snapshot."""
    for name, kind in kinds.items():
        _KINDS[name] = partial(_restored, kind) if hasattr(kind, "snapshot") else kind
        _NAMES[kind] = name


def register_elements(**kinds: type) -> None:
    """Let records be elements of a pipeline; the name is that of their bytes."""
    register_records(**kinds)
    for name, kind in kinds.items():
        _ELEMENTS[kind] = name
        typecoders.registry.register_coder(kind, ColumnsCoder)


class ColumnsCoder(OwnCoder):
    """Bytes of a kind of element, derived from its fields."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    @classmethod
    def from_type_hint(cls, typehint: Any, _registry: Any) -> Self:
        """Give the coder of a type, as Beam asks for it."""
        return cls(typehint)

    def encode(self, value: Any) -> bytes:
        """Write columns, one after the other."""
        return record_bytes(_ELEMENTS[self._kind], value)

    def decode(self, encoded: bytes) -> Any:
        """Read them."""
        value = record_of_bytes(_ELEMENTS[self._kind], encoded)
        if not isinstance(value, self._kind):
            raise DamagedBytesError(f"data must be {_ELEMENTS[self._kind]}, got others")
        return value

    def estimate_size(self, value: Any) -> int:
        """Add up the arrays: runners ask often, and would write all of them to learn it."""
        return sum(_sizes(value))


def record_bytes(name: str, record: Any) -> bytes:
    """Write a record under the name of its bytes.

    Examples
    --------
    >>> encoded = record_bytes("pair", (np.arange(3), {7: None}))
    >>> record_of_bytes("pair", encoded)
    (array([0, 1, 2]), {7: None})
    """
    columns: Columns = {}
    return packed(name, _plain(record, columns), columns)


def record_of_bytes(name: str, encoded: bytes) -> Any:
    """Read what `record_bytes` wrote."""
    return _made(*unpacked(encoded, name))


def _plain(value: Any, columns: Columns) -> Any:
    """Give a value as plain data, and put its arrays into columns."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list):
        return [_plain(part, columns) for part in value]

    of: Any
    if isinstance(value, np.ndarray):
        kind, of = "array", _column(value, columns)
    elif type(value) in _NAMES:
        kind = _NAMES[type(value)]
        of = {name: _plain(part, columns) for name, part in _parts(value).items()}
    elif isinstance(value, pa.Array):
        kind = "names"
        of = [_column(column, columns) for column in name_columns(value).values()]
    elif isinstance(value, dict):
        kind = "map"
        of = [[_plain(part, columns) for part in item] for item in value.items()]
    elif isinstance(value, tuple):
        kind = "row"
        of = [_plain(part, columns) for part in value]
    elif isinstance(value, bytes):
        kind = "bytes"
        of = value.hex()
    else:
        raise TypeError(f"record must be one of {', '.join(_KINDS)}, got {type(value).__name__}")

    return {kind: of}


def _column(array: np.ndarray, columns: Columns) -> list[Any]:
    """Put an array into columns: whole numbers in few bytes each, and nothing of what is 0."""
    kind = array.dtype.str
    if not array.size or (array.dtype.kind != "f" and not array.any()):
        return ["", kind, *array.shape]

    # Of a short and wide table, such as a pool, most columns hold nothing.
    name = str(len(columns))
    shape: list[int] = []
    if array.ndim == 2 and len(array) < array.shape[1]:
        bits = array.view(np.int64) if kind == "<f8" else array
        places = np.flatnonzero(bits.any(axis=0))
        columns[f"{name} places"] = pack_signed(places)
        shape = [*array.shape]
        array = array[:, places]

    columns[name] = pack_signed(array) if array.dtype == np.int64 else array
    return [name, kind, *shape]


def _made(plain: Any, columns: Columns) -> Any:
    """Read what `_plain` wrote."""
    if isinstance(plain, list):
        return [_made(part, columns) for part in plain]
    if not isinstance(plain, dict):
        return plain

    ((kind, of),) = plain.items()
    if kind in _READ:
        return _READ[kind](of, columns)
    return _KINDS[kind](**{name: _made(part, columns) for name, part in of.items()})


def _array(of: list[Any], columns: Columns) -> np.ndarray:
    name, kind, *shape = of
    if name and not shape:
        return columns[name].astype(kind, copy=False)

    whole = np.zeros(shape, kind)
    if name:
        whole[:, columns[f"{name} places"]] = columns[name]
    return whole


def _names(of: list[Any], columns: Columns) -> pa.Array:
    length, text = (_array(one, columns) for one in of)
    return names_of_packed({"name_length": length, "name_text": text})


_READ: dict[str, Callable[[Any, Columns], Any]] = {
    "array": _array,
    "names": _names,
    "map": lambda of, columns: dict(_made(of, columns)),
    "row": lambda of, columns: tuple(_made(of, columns)),
    "bytes": lambda of, _: bytes.fromhex(of),
}


def _restored(kind: Any, **state: Any) -> Any:
    return kind.restore(state)


def _parts(record: Any) -> dict[str, Any]:
    """Give the fields of a record."""
    if hasattr(record, "snapshot"):
        parts = record.snapshot().items()
        return {name: np.asarray(part) if isinstance(part, list) else part for name, part in parts}

    names = [field.name for field in fields(record)] if is_dataclass(record) else record._fields
    return {name: getattr(record, name) for name in names}


def _sizes(value: Any) -> Iterator[int]:
    if isinstance(value, np.ndarray | pa.Array):
        yield value.nbytes
    elif type(value) in _NAMES:
        for part in _parts(value).values():
            yield from _sizes(part)
