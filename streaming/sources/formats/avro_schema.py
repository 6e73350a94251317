"""A schema of Avro, from anyone who wrote it, to the tree by which its records are read."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from meanstream.streaming.sources.formats.nested_records import MAX_NESTING, may_be_deep, nesting

MAX_SCHEMA_BYTES = 1 << 20
MAX_TYPES = 10_000
"""Types and fields that a schema may have."""

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class BadSchemaError(ValueError):
    """A text that is no schema, or one that nothing is read by."""


@dataclass(slots=True, eq=False)
class AvroType:
    """One type of a schema.

    Attributes
    ----------
    kind : str
        A primitive, or record, union, array, map, enum, fixed.
    logical : str
        Its logical type, or empty.
    parts : list of AvroType
        Of a record its fields, of a union its branches, of an array or a map its items.
    names : list of str
        Of a record those of its fields, of an enum its symbols.
    size : int
        Of a fixed its bytes.
    scale : int
        Of a decimal.
    empty : bool
        Whether no record of it takes a byte.
    """

    kind: str
    logical: str = ""
    parts: list[AvroType] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    size: int = 0
    scale: int = 0
    empty: bool = False


def parse_avro_schema(text: str, references: Mapping[str, str] | None = None) -> AvroType:
    """Read a schema.

    Examples
    --------
    >>> parse_avro_schema('["null", {"type": "long", "logicalType": "timestamp-millis"}]').parts[1].logical
    'timestamp-millis'
    """
    reader = _Reader()
    for other in (references or {}).values():
        reader.read(_json(other), "")

    found = reader.read(_json(text), "")
    _mark_empty(found)
    return found


def _json(text: str) -> Any:
    raw = text.encode("utf-8", "replace")
    if len(raw) > MAX_SCHEMA_BYTES or (may_be_deep(raw) and nesting(raw) > MAX_NESTING):
        raise BadSchemaError("too large")

    try:
        return json.loads(text)
    except ValueError:
        return text  # the name of a primitive, as some registries write it


class _Reader:
    """Reads types; knows the named ones that were read before."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}
        self._types = 0

    def read(self, found: Any, space: str) -> AvroType:
        self._types += 1
        if self._types > MAX_TYPES:
            raise BadSchemaError("too many types")
        if isinstance(found, list):
            return AvroType("union", parts=[self.read(one, space) for one in found])
        if not isinstance(found, dict):
            return self._by_name(found, space)

        kind = found.get("type")
        if isinstance(kind, dict | list):
            return self.read(kind, space)
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(found, kind, space)

        if kind in ("array", "map"):
            return AvroType(
                str(kind),
                parts=[self.read(found.get("items" if kind == "array" else "values"), space)],
            )

        plain = self._by_name(kind, space)
        if kind in PRIMITIVES:
            plain.logical = _text(found.get("logicalType"))
            plain.scale = _count(found.get("scale"))

        return plain

    def _by_name(self, name: Any, space: str) -> AvroType:
        if not isinstance(name, str):
            raise BadSchemaError("a type without a name")
        if name in PRIMITIVES:
            return AvroType(name)

        for full in [name] if "." in name else [f"{space}.{name}", name]:
            if full.lstrip(".") in self._named:
                return self._named[full.lstrip(".")]

        raise BadSchemaError("a type that is not defined")

    def _define(self, found: Mapping[str, Any], kind: str, space: str) -> AvroType:
        name = found.get("name")
        if not isinstance(name, str) or not name:
            raise BadSchemaError("a type without a name")
        space = name.rpartition(".")[0] if "." in name else _text(found.get("namespace", space))
        full = name if "." in name else f"{space}.{name}".lstrip(".")

        if full in self._named:
            raise BadSchemaError("a type that is defined twice")
        made = AvroType(
            "record" if kind == "error" else kind, logical=_text(found.get("logicalType"))
        )
        self._named[full] = made

        if kind == "fixed":
            made.size = _count(found.get("size"))
            made.scale = _count(found.get("scale"))
        elif kind == "enum":
            made.names = [_text(symbol) for symbol in _list(found.get("symbols"))]
        else:
            for one in _list(found.get("fields")):
                if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                    raise BadSchemaError("a field without a name")
                if one["name"] in made.names:
                    raise BadSchemaError("a field that is there twice")

                made.names.append(one["name"])
                made.parts.append(self.read(one.get("type"), space))

        return made


def _list(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise BadSchemaError("a type without parts")
    return found


def _text(found: Any) -> str:
    if isinstance(found, str):
        return found
    return ""


def _count(found: Any) -> int:
    if found is None:
        return 0
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= MAX_SCHEMA_BYTES:
        raise BadSchemaError("a size that is none")

    return found


def _mark_empty(root: AvroType) -> None:
    """Note what takes no byte.

    What is not shown to be empty is not, so that a type within itself takes some.
    """
    holders: dict[int, list[AvroType]] = defaultdict(list)
    left: dict[int, int] = {}
    found = []
    for one in _every(root):
        for part in one.parts if one.kind == "record" else ():
            holders[id(part)].append(one)

        left[id(one)] = len(one.parts)
        if (
            one.kind == "null"
            or (one.kind == "fixed" and not one.size)
            or (one.kind == "record" and not one.parts)
        ):
            found.append(one)

    while found:
        one = found.pop()
        one.empty = True

        for holder in holders[id(one)]:
            left[id(holder)] -= 1
            if not left[id(holder)]:
                found.append(holder)


def _every(root: AvroType) -> Iterator[AvroType]:
    seen = {id(root)}
    left = [root]
    while left:
        one = left.pop()
        yield one

        for part in one.parts:
            if id(part) not in seen:
                seen.add(id(part))
                left.append(part)
