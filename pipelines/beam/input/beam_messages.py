"""What any source gives as a message.

Its value, what stands next to it, and what tells it from another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.io.gcp.pubsub import PubsubMessage

from meanstream.operators.records import Ints, Words
from meanstream.operators.validation import closest_valid, require
from meanstream.pipelines.beam.element_types.elements import element_fields
from meanstream.streaming.events.event_columns import PARTITION_SHIFT, hash_ids
from meanstream.streaming.kafka.connection.values import HEADERS

VALUE = "value"
"""The field that is a message's value, where an element has fields."""
_MOST_PARTITIONS = 1 << 18


class Message(NamedTuple):
    """Private: one message.

    Attributes
    ----------
    value : bytes or None
        What a sample is read from.
    next to : mapping
        Other parts by their names: `@key`, `@topic`, `@headers`, and `@timestamp` in milliseconds.
    name : str
        The same each time it is delivered, and no other's; empty if nothing tells.
    partition, position : int
        Where it stands in its source; 0 where nothing tells.
    """

    value: bytes | None
    beside: Mapping[str, Any] = {}
    name: str = ""
    partition: int = 0
    position: int = 0


NOTHING = Message(None)
"""What an element is that is no message."""


def require_messages(element_type: Any, value: str, wanted: Sequence[str]) -> None:
    """Hold the type of a PCollection to what is read of its messages.

    Examples
    --------
    >>> require_messages(bytes, "value", ["@key"])
    Traceback (most recent call last):
    ValueError: mapping must name fields of the value where elements are bytes or text, got '@key'
    """
    if element_type in (bytes, str):
        away = [name for name in wanted if name != "@timestamp"]
        require(
            not away,
            "mapping",
            "name fields of the value where elements are bytes or text",
            ", ".join(away),
        )

    kind = isinstance(element_type, type) and issubclass(element_type, PubsubMessage)
    names = None if kind else element_fields(element_type)
    if names is not None and value not in names:
        hint = closest_valid(value, names, listed="the messages have")
        raise ValueError(f"value must name a field of the messages, got {value!r}{hint}")


def message_of_element(element: Any, stamp: int, *, field: str = VALUE) -> Message:
    """Take a message out of an element.

    Bytes, text, a key and a value, a Pub/Sub message, or a row with a field.
    """
    try:
        return _taken(element, stamp, field)
    except Exception:
        return NOTHING


def _taken(element: Any, stamp: int, field: str) -> Message:
    at = {"@timestamp": stamp // 1000} if stamp > 0 else {}
    if isinstance(element, PubsubMessage):
        name = element.message_id or ""
        return Message(
            element.data, {**at, HEADERS: element.attributes or {}}, name, 0, _number_of(name)
        )

    named = _fields(element)
    if named is not None:
        if field in named:
            return _of_row(named, field, at)
        return NOTHING

    if type(element) is tuple and len(element) == 2:
        key = element[0]
        return Message(
            _bytes(element[1]), {**at, "@key": key if isinstance(key, bytes | str) else None}
        )

    return Message(_bytes(element), at)


def _of_row(named: Mapping[str, Any], field: str, at: Mapping[str, Any]) -> Message:
    """Take the fields that Kafka's connectors give.

    An offset tells a message from all others of its partition.
    """
    beside: dict[str, Any] = {**at, HEADERS: _headers(named.get("headers") or ())}
    if _is_count(stamp := named.get("timestamp"), 1 << 53):
        beside["@timestamp"] = stamp

    for name in ("key", "topic"):
        if isinstance(named.get(name), bytes | str):
            beside[f"@{name}"] = named[name]

    partition = named.get("partition", 0)
    offset = named.get("offset")
    placed = _is_count(offset, 1 << PARTITION_SHIFT) and _is_count(partition, _MOST_PARTITIONS)
    if not placed:
        return Message(_bytes(named[field]), beside)

    name = f"{beside.get('@topic', '')}/{partition}/{offset}"
    return Message(_bytes(named[field]), beside, name, partition, offset)  # type: ignore[arg-type]  # checked above


def _is_count(value: Any, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit


def _fields(element: Any) -> Mapping[str, Any] | None:
    if isinstance(element, Mapping):
        return element
    if isinstance(element, beam.Row):
        return dict(vars(element))

    names = getattr(type(element), "_fields", None)

    if isinstance(element, tuple) and names is not None:
        return dict(zip(names, element, strict=True))
    return None


def _headers(given: Any) -> dict[str, Any]:
    """Take headers as a mapping or as a list of names with values.

    Of a name that is there twice the last one.
    """
    pairs = given.items() if isinstance(given, Mapping) else given
    try:
        found = [(one.key, one.value) if isinstance(one, beam.Row) else tuple(one) for one in pairs]
        return {
            name: text
            for name, text in found
            if isinstance(name, str) and isinstance(text, bytes | str)
        }
    except (AttributeError, TypeError, ValueError):
        return {}


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")  # a lone surrogate is no UTF-8, and malformed

    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return None


def message_keys(names: Sequence[str]) -> Words:
    """Give the key that tells a message apart, the same at each delivery; 0 where nothing tells."""
    given = np.array([bool(one) for one in names], np.bool_)
    text = [one.encode(errors="surrogatepass") for one in names if one]
    offsets: Ints = np.concatenate([[0], np.cumsum([len(one) for one in text], dtype=np.int64)])
    keys = np.zeros(len(names), np.uint64)
    keys[given] = hash_ids(np.frombuffer(b"".join(text), np.uint8), offsets)

    return keys


def _number_of(message_id: str) -> int:
    """Give the number of a message, as the service counts; of an id that is none, a hash.

    Examples
    --------
    >>> _number_of("10613943437398923"), _number_of("m1") == _number_of("m1") < 2**62
    (10613943437398923, True)
    """
    if message_id.isascii() and message_id.isdigit() and len(message_id) <= 18:
        return int(message_id)
    return int.from_bytes(hashlib.blake2b(message_id.encode(), digest_size=8).digest()) >> 2
