"""From a source's raw columns to samples: types, names, times and values checked a column at a time."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute as pc

from operators.records import Bools, Floats, Ints, Words
from streaming.columns import Rejects, SampleColumns
from streaming.events import MAX_NAME, NAME_PATTERN, SCHEMA_VERSION
from streaming.hashing import MAX_ID_BYTES, hash_ids
from streaming.mapping import ColumnMapping
from streaming.times import TimeParser

RawColumns = dict[str, pa.Array]
"""Part of a sample (agent, value, time, id, schema_version) to its column, of any type the format has."""

Codes = npt.NDArray[np.int8]

DIRECTORY_SHARE = 4
"""A directory so many times larger than a batch is looked up name by name rather than made a table of anew."""

GOOD, SCHEMA, NO_AGENT, BAD_AGENT, NO_TIME, BAD_TIME, NO_VALUE, BAD_VALUE, NOT_FINITE, BAD_ID = range(10)
REASONS = (
    "",
    "unknown_schema_version",
    "missing_agent",
    "bad_agent",
    "missing_time",
    "bad_time",
    "missing_value",
    "bad_value",
    "not_finite",
    "bad_id",
)

_NAME = re.compile(NAME_PATTERN)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


def valid_name(raw: bytes) -> str | None:
    r"""Read the name of an agent; None if it is not UTF-8, blank, too long or holds control characters.

    Examples
    --------
    >>> valid_name(b"N14228"), valid_name(b"a\x00b"), valid_name(b" "), valid_name(b"x" * 300)
    ('N14228', None, None, None)
    """
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        return None
    return name if len(name) <= MAX_NAME and _NAME.fullmatch(name) else None


class Decoder:
    """Turns raw columns of one source into samples; keeps the source's directory of agents.

    Parameters
    ----------
    mapping : ColumnMapping
        Whether there are ids, the unit of numeric times, and the coordinates of vectors.
    id_key : bytes
        Secret key of the hash of ids.
    """

    def __init__(self, mapping: ColumnMapping, *, id_key: bytes = b"") -> None:
        self.names: list[str] = []
        self._codes: dict[bytes, int] = {}
        self._known: pa.Array = pa.array([], pa.binary())  # the keys of `_codes`, as far as they were needed here
        self._time = TimeParser(mapping.time_unit)
        self._id_key = id_key
        self._coordinates = None if mapping.values is None else [f"value.{i}" for i in range(len(mapping.values))]

    def decode(self, raw: RawColumns, position: Ints) -> tuple[SampleColumns, Rejects]:
        """Check and convert; each bad row is rejected for the first reason found, and changes nothing else."""
        agent, agent_fault = self._agents(raw["agent"])
        time, time_fault = self._times(raw["time"])
        value, value_fault = self._values(raw)
        key, id_fault = self._keys(raw["id"]) if "id" in raw else (None, None)
        schema_fault = None
        if "schema_version" in raw:
            schema_fault = np.where(_known_version(_text(raw["schema_version"])), GOOD, SCHEMA).astype(np.int8)
        samples = SampleColumns(self.names, agent, value, time, key, position)
        rejects = Rejects()
        faults = [f for f in (schema_fault, agent_fault, time_fault, value_fault, id_fault) if f is not None]
        if not any(f.any() for f in faults):
            return samples, rejects
        fault = faults[0]
        for column in faults[1:]:
            fault = np.where(fault == GOOD, column, fault)
        for code in np.unique(fault[fault != GOOD]).tolist():
            rejects.add_many(REASONS[code], position[fault == code])
        return samples.take(fault == GOOD), rejects

    def _values(self, raw: RawColumns) -> tuple[Floats, Codes | None]:
        """Values (n,), or (n, v) of vectors; a vector is bad for the first of its coordinates that is."""
        if self._coordinates is None:
            return _values(_text(raw["value"]))
        columns = [_values(_text(raw[part])) for part in self._coordinates]
        fault: Codes | None = None
        for _, bad in columns:
            if bad is not None:
                fault = bad if fault is None else np.where(fault == GOOD, bad, fault)
        return np.stack([value for value, _ in columns], axis=1), fault

    def _times(self, column: pa.Array) -> tuple[Floats, Codes | None]:
        time = self._time.parse(_text(column))
        unknown = np.isnan(time)
        if not unknown.any():
            return time, None
        missing = column.is_null().to_numpy(zero_copy_only=False)
        return time, np.where(missing, NO_TIME, np.where(unknown, BAD_TIME, GOOD)).astype(np.int8)

    def _agents(self, column: pa.Array) -> tuple[Ints, Codes | None]:
        if pa.types.is_dictionary(column.type) and pa.types.is_binary(column.type.value_type):
            lookup = np.append(self._lookup(column.dictionary), -NO_AGENT)  # the last one where the index is null
            agent = lookup[column.indices.fill_null(len(lookup) - 1).to_numpy(zero_copy_only=False)]
        else:
            agent = self._lookup(_binary(column, "agent"))
        bad = agent < 0
        return agent, np.where(bad, -agent, GOOD).astype(np.int8) if bad.any() else None

    def _lookup(self, texts: pa.Array) -> Ints:
        """Codes of the agents of these names, in order; where a name is bad, minus the reason."""
        if len(self._known) < len(self.names) <= DIRECTORY_SHARE * len(texts):
            fresh = list(itertools.islice(self._codes, len(self._known), None))
            self._known = pa.concat_arrays([self._known, pa.array(fresh, pa.binary())])
        if len(self.names) <= DIRECTORY_SHARE * len(texts):
            found = pc.index_in(texts, value_set=self._known)
            if not found.null_count:
                return np.asarray(found, np.int64)
            codes: Ints = found.fill_null(-1).to_numpy().astype(np.int64)
            unknown = np.flatnonzero(codes < 0)
            codes[unknown] = self._enter_all(texts.take(pa.array(unknown)))
            return codes
        return self._enter_all(texts)

    def _enter_all(self, texts: pa.Array) -> Ints:
        """Find each distinct name in the directory, or enter it."""
        encoded = texts.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        codes = map(self._codes.get, distinct)
        lookup = [self._enter(raw) if c is None else c for raw, c in zip(distinct, codes, strict=True)]
        at: Ints = encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)
        return np.array([*lookup, -NO_AGENT], np.int64)[at]

    def _enter(self, raw: bytes) -> int:
        name = valid_name(raw)
        if name is None:
            return -BAD_AGENT if raw else -NO_AGENT  # not remembered: there is no end of bad names
        self._codes[raw] = len(self.names)
        self.names.append(name)
        return self._codes[raw]

    def _keys(self, column: pa.Array) -> tuple[Words, Codes | None]:
        ids = _binary(column, "id").fill_null(b"")
        if pa.types.is_large_binary(ids.type):
            ids = ids.cast(pa.binary())
        good = _valid_ids(ids)
        keys = np.zeros(len(ids), np.uint64)
        data, offsets = _bytes_of(ids if good.all() else ids.filter(pa.array(good)))
        keys[good] = hash_ids(data, offsets, self._id_key)
        return keys, np.where(good, GOOD, BAD_ID).astype(np.int8)


def _bytes_of(column: pa.Array) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Bytes and offsets of a binary column, without copying."""
    _, offsets, data = column.buffers()
    spots = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return np.frombuffer(data if data is not None else b"", np.uint8), spots


def _valid_ids(ids: pa.Array) -> Bools:
    """Say which ids are of bounded length, not empty, UTF-8 and free of control characters."""
    data, offsets = _bytes_of(ids)
    data, offsets = data[offsets[0] : offsets[-1]], offsets - offsets[0]
    length = np.diff(offsets)
    good: Bools = np.asarray((length > 0) & (length <= MAX_ID_BYTES))
    control = (data < 0x20) | (data == 0x7F)
    if control.any():
        so_far = np.r_[0, np.cumsum(control)]
        good &= so_far[offsets[1:]] == so_far[offsets[:-1]]
    if len(data) and data.max() >= 0x80:
        try:
            ids.cast(pa.string())
        except pa.ArrowInvalid:
            good &= np.array([valid_name(raw) is not None for raw in ids.to_pylist()])
    return good


def _binary(column: pa.Array, part: str) -> pa.Array:
    """Text or integers as bytes; another type of column is the user's mistake."""
    column = _text(column)
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.string()).cast(pa.binary())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_null(kind):
        return column.cast(pa.binary())
    raise ValueError(f"{part} column must hold text or integers, got {kind}")


def _text(column: pa.Array) -> pa.Array:
    """Undo a dictionary encoding."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _values(column: pa.Array) -> tuple[Floats, Codes | None]:
    kind = column.type
    fault: Codes | None = None
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        value = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    elif pa.types.is_boolean(kind) or pa.types.is_nested(kind) or pa.types.is_temporal(kind):
        raise ValueError(f"value column must hold numbers, got {kind}")
    else:
        value, fault = _parse_values(column)
    finite = np.isfinite(value)
    if finite.all() and fault is None:
        return value, None
    fault = np.zeros(len(column), np.int8) if fault is None else fault
    fault[(fault == GOOD) & ~finite] = NOT_FINITE
    fault[column.is_null().to_numpy(zero_copy_only=False)] = NO_VALUE
    return value, fault


def _parse_values(column: pa.Array) -> tuple[Floats, Codes | None]:
    """Read numbers from text, all at once; where one is bad, the distinct ones one by one."""
    try:
        parsed = column.cast(pa.string()).cast(pa.float64())
        return parsed.to_numpy(zero_copy_only=False), None
    except pa.ArrowInvalid:
        encoded = column.dictionary_encode()
        pairs = [_parse_value(raw) for raw in encoded.dictionary.to_pylist()] + [(math.nan, NO_VALUE)]
        at = encoded.indices.fill_null(len(pairs) - 1).to_numpy(zero_copy_only=False)
        return np.array([v for v, _ in pairs])[at], np.array([f for _, f in pairs], np.int8)[at]


def _parse_value(raw: bytes | str) -> tuple[float, int]:
    text = (raw.decode(errors="replace") if isinstance(raw, bytes) else raw).strip()
    if _NUMBER.fullmatch(text):
        return float(text), GOOD
    if _NOT_FINITE.fullmatch(text):
        return math.nan, NOT_FINITE
    return math.nan, BAD_VALUE if text else NO_VALUE


def _known_version(column: pa.Array) -> Bools:
    """Say which rows are of a known schema version, or do not state one."""
    if pa.types.is_binary(column.type):
        encoded = column.dictionary_encode()
        distinct = [raw == str(SCHEMA_VERSION).encode() for raw in encoded.dictionary.to_pylist()] + [True]
        at: Ints = encoded.indices.fill_null(len(distinct) - 1).to_numpy(zero_copy_only=False)
        return np.array(distinct, np.bool_)[at]
    if pa.types.is_string(column.type):
        return _known_version(column.cast(pa.binary()))
    if pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        stated: Ints = column.cast(pa.int64()).fill_null(SCHEMA_VERSION).to_numpy(zero_copy_only=False)
        return np.asarray(stated == SCHEMA_VERSION)
    return np.zeros(len(column), np.bool_)
