"""From a source's raw columns to samples.

Types, names, times and values checked a column at a time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute as pc

from meanstream.operators.records import Bools, Floats, Ints, Words
from meanstream.streaming.events.base import SCHEMA_VERSION
from meanstream.streaming.events.event_columns import (
    MAX_ID_BYTES,
    PERSONS,
    Rejects,
    SampleColumns,
    hash_ids,
)
from meanstream.streaming.events.times import (
    NUMBER,
    ColumnTypeError,
    TimeParser,
    nearest_float_number,
)
from meanstream.streaming.sources.categories import CategoryNumbers
from meanstream.streaming.sources.mapping import CATEGORY, ColumnMapping
from meanstream.streaming.sources.source_directory import (
    FEW_NAMES,
    NO_NAME,
    NOT_A_NAME,
    NameDirectory,
    names_in_one_spelling,
)
from meanstream.streaming.sources.source_protocol import UnreadableSourceError

RawColumns = dict[str, pa.Array]
"""Part of a sample (agent, value, time, id, schema_version) to its column, of any type the format
has."""
CODE = "code"
"""What stands in the place of `agent` where names were looked up already."""

Codes = npt.NDArray[np.int8]

(
    GOOD,
    SCHEMA,
    NO_AGENT,
    BAD_AGENT,
    NO_TIME,
    BAD_TIME,
    NO_VALUE,
    BAD_VALUE,
    NOT_FINITE,
    BAD_ID,
    NO_PERSON,
    BAD_PERSON,
) = range(12)
NO_CATEGORY = 12
UNKNOWN_CATEGORY = 13
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
    "missing_person",
    "bad_person",
    "missing_category",
    "unknown_category",
)

_OF_CONTENT = (
    NO_VALUE,
    BAD_VALUE,
    NOT_FINITE,
    BAD_ID,
    NO_CATEGORY,
    UNKNOWN_CATEGORY,
)
"""Reasons that tell of what a sample holds, not of whose it is or when it was."""

_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


class Decoder:
    """Turns raw columns of one source into samples.

    Keeps the source's directory of agents, of bounded length.

    Parameters
    ----------
    mapping : ColumnMapping
        Whether there are ids, the unit of numeric times, and the coordinates of vectors.
    id_key : bytes
        Secret key of the hash of ids.
    """

    def __init__(self, mapping: ColumnMapping, *, id_key: bytes = b"") -> None:
        self.private_values = mapping.owner == "user"
        """Whether a record counts for its user without a valid value."""
        self._directory = NameDirectory()
        self._time = TimeParser(mapping.time_unit)
        self._id_key = id_key
        self._categories = (
            None if mapping.categories is None else CategoryNumbers(mapping.categories)
        )
        self._coordinates = (
            None if mapping.values is None else [f"value.{i}" for i in range(len(mapping.values))]
        )

    def make_room(self) -> None:
        """Forget all names if there are as many as there may be.

        Codes that were given stand for none any more.
        """
        self._directory.make_room()

    @property
    def knows_few(self) -> bool:
        """Whether so few names are known that looking texts up one by one is the fastest."""
        return len(self._directory.names) <= FEW_NAMES

    def codes(self, names: list[str] | pa.Array) -> Ints:
        """Look names of agents up, for a part `CODE` of what is decoded next."""
        if isinstance(names, list):
            return self._directory.lookup_texts(names)
        return self._directory.lookup(names.view(pa.binary()))

    def decode(self, raw: RawColumns, position: Ints) -> tuple[SampleColumns, Rejects]:
        """Check and convert; each bad row is rejected for the first reason found, and changes nothing else.

        **Privacy.** In rounds, only a row's name and time decide whether its user takes part: a row whose value (or id)
        alone is bad is noted, and stays a sample without a value.
        """
        # Names may come as codes that were looked up before, as a topic's records do.
        if CODE in raw:
            agent, agent_fault = _named(raw[CODE].to_numpy())
        else:
            self.make_room()
            agent, agent_fault = _each_once(raw["agent"], self._agents)

        # Each part of a record is checked on its own; the first fault decides its reason.
        time, time_fault = _each_once(raw["time"], self._times)
        value, value_fault = self._values(raw)
        key, id_fault = _hashes(raw, "id", self._id_key, (BAD_ID, BAD_ID))
        person, person_fault = _hashes(raw, "person", PERSONS, (NO_PERSON, BAD_PERSON))
        schema_fault = None

        if "schema_version" in raw:
            _, schema_fault = _each_once(raw["schema_version"], _versions)

        samples = SampleColumns(self._directory.names, agent, value, time, key, position, person)
        rejects = Rejects()

        # Faults in the order in which they are named: what is wrong with the schema hides all
        # else.
        faults = [
            f
            for f in (schema_fault, agent_fault, time_fault, value_fault, id_fault, person_fault)
            if f is not None
        ]

        if not any(f.any() for f in faults):
            return samples, rejects

        # The first fault of each row, in that order.
        fault = faults[0]
        for column in faults[1:]:
            fault = np.where(fault == GOOD, column, fault)

        for code in np.unique(fault[fault != GOOD]).tolist():
            rejects.add_many(REASONS[code], position[fault == code])

        # Agents' records without a valid value count for nobody, which is public there.
        if not self.private_values:
            return samples.take(fault == GOOD), rejects

        # A fault of name or time comes first, so one of content says that these two are good.
        without_value = replace(samples, value=np.array(value))
        without_value.value[fault != GOOD] = math.nan
        return without_value.take(np.isin(fault, (GOOD, *_OF_CONTENT))), rejects

    def require_types(self, types: Mapping[str, pa.DataType]) -> None:
        """Refuse types of columns that mean nothing, before any row is read."""
        self.decode(
            {part: pa.array([], kind) for part, kind in types.items()}, np.zeros(0, np.int64)
        )

    def _values(self, raw: RawColumns) -> tuple[Floats, Codes | None]:
        """Values (n,), or (n, v) of vectors.

        A vector is bad for the first of its coordinates that is.
        """
        if self._categories is not None:
            return _each_once(raw[CATEGORY], self._numbers_of_categories)
        if self._coordinates is None:
            return _each_once(raw["value"], _values)

        # A vector is bad where any of its coordinates is.
        columns = [_each_once(raw[part], _values) for part in self._coordinates]
        fault: Codes | None = None
        for _, bad in columns:
            if bad is not None:
                fault = bad if fault is None else np.where(fault == GOOD, bad, fault)

        return np.stack([value for value, _ in columns], axis=1), fault

    def _numbers_of_categories(self, column: pa.Array) -> tuple[Floats, Codes | None]:
        """Numbers of the declared categories; each distinct text is looked up once."""
        assert self._categories is not None  # noqa: S101 - called where there are any

        # Texts repeat: each distinct one is looked up once, a null last.
        encoded = _binary(column, "value").dictionary_encode()
        number = np.array([*map(self._categories.of, encoded.dictionary.to_pylist()), math.nan])
        at: Ints = encoded.indices.fill_null(len(number) - 1).to_numpy(zero_copy_only=False)
        value = number[at]

        if not np.isnan(value).any():
            return value, None

        # What is missing and what is not declared have different reasons.
        missing = column.is_null().to_numpy(zero_copy_only=False)
        return value, np.where(
            missing, NO_CATEGORY, np.where(np.isnan(value), UNKNOWN_CATEGORY, GOOD)
        ).astype(np.int8)

    def _times(self, column: pa.Array) -> tuple[Floats, Codes | None]:
        try:
            time = self._time.parse(column)
        except ColumnTypeError as error:
            raise UnreadableSourceError(str(error)) from None

        # Times that do not parse are not numbers; a null says that there was none.
        unknown = np.isnan(time)
        if not unknown.any():
            return time, None
        missing = column.is_null().to_numpy(zero_copy_only=False)

        return time, np.where(missing, NO_TIME, np.where(unknown, BAD_TIME, GOOD)).astype(np.int8)

    def _agents(self, column: pa.Array) -> tuple[Ints, Codes | None]:
        return _named(self._directory.lookup(_binary(column, "agent")))


def _named(agent: Ints) -> tuple[Ints, Codes | None]:
    """Give codes of agents, and where there is none, why."""
    bad = agent < 0
    if not bad.any():
        return agent, None
    fault = np.where(agent == NO_NAME, NO_AGENT, np.where(agent == NOT_A_NAME, BAD_AGENT, GOOD))

    return agent, fault.astype(np.int8)


def _hashes(
    raw: RawColumns, part: str, key: bytes, faults: tuple[int, int]
) -> tuple[Words | None, Codes | None]:
    """Hashes of a column of ids or persons, if there is one.

    Where one is missing or bad, the reason.
    """
    if part not in raw:
        return None, None
    return _each_once(
        raw[part], lambda column: _hashes_of(_binary(column, part).fill_null(b""), key, faults)
    )


def _hashes_of(ids: pa.Array, key: bytes, faults: tuple[int, int]) -> tuple[Words, Codes]:
    if pa.types.is_large_binary(ids.type):
        ids = ids.cast(pa.binary())

    good = _valid_ids(ids)

    # Names of persons have one spelling, or two spellings would have two limits.
    if key == PERSONS:
        good &= _in_one_spelling(ids, good)

    # Only good ids are hashed; the others keep 0 and a fault.
    hashes = np.zeros(len(ids), np.uint64)
    data, offsets = _bytes_of(ids if good.all() else ids.filter(pa.array(good)))
    hashes[good] = hash_ids(data, offsets, key)
    empty = np.diff(_bytes_of(ids)[1]) == 0
    (missing, bad) = faults

    return hashes, np.where(good, GOOD, np.where(empty, missing, bad)).astype(np.int8)


def _bytes_of(column: pa.Array) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Bytes and offsets of a binary column, without copying."""
    _, offsets, data = column.buffers()
    spots = np.frombuffer(offsets, np.int32)[
        column.offset : column.offset + len(column) + 1
    ].astype(np.int64)

    return np.frombuffer(data if data is not None else b"", np.uint8), spots


def _valid_ids(ids: pa.Array) -> Bools:
    """Say which ids are of bounded length, not empty, UTF-8 and free of control characters."""
    data, offsets = _bytes_of(ids)
    data, offsets = data[offsets[0] : offsets[-1]], offsets - offsets[0]
    length = np.diff(offsets)
    good: Bools = np.asarray((length > 0) & (length <= MAX_ID_BYTES))

    # Control characters are found in all bytes at once, and counted by prefix sums.
    control = (data < 0x20) | (data == 0x7F)

    if control.any():
        so_far = np.r_[0, np.cumsum(control)]
        good &= so_far[offsets[1:]] == so_far[offsets[:-1]]

    # Plain ASCII needs no decoding; else the whole column is tried before its rows.
    if len(data) and data.max() >= 0x80:
        try:
            ids.cast(pa.string())
        except pa.ArrowInvalid:
            good &= np.array([_is_utf8(raw) for raw in ids.to_pylist()])

    return good


def _in_one_spelling(ids: pa.Array, readable: Bools) -> Bools:
    """Say which of the readable ids are in Unicode's NFC: a person has one spelling, and one limit."""
    data, _ = _bytes_of(ids)
    if not len(data) or data.max() < 0x80:
        return readable
    texts = pc.if_else(pa.array(readable), ids, pa.scalar(b"", pa.binary())).cast(pa.string())

    return names_in_one_spelling(texts)


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False

    return True


def _binary(column: pa.Array, part: str) -> pa.Array:
    """Text or integers as bytes; another type of column is the user's mistake."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.string()).cast(pa.binary())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_null(kind):
        return column.cast(pa.binary())

    raise UnreadableSourceError(f"{part} column must hold text or integers, got {kind}")


def _each_once(
    column: pa.Array, look: Callable[[pa.Array], tuple[Any, Codes | None]]
) -> tuple[Any, Codes | None]:
    """Look at a column; of one that is a dictionary at its entries, and not once more for each row that has one.

    An entry may be a megabyte, and stand for any number of rows: they are never written out.
    """
    if not pa.types.is_dictionary(column.type):
        return look(column)

    # Entries of a dictionary are looked at once; a null becomes one more entry.
    entries = column.dictionary
    indices = column.indices

    if indices.null_count:
        indices = indices.fill_null(len(entries))
        entries = pa.concat_arrays([entries, pa.nulls(1, entries.type)])

    at: Ints = indices.to_numpy(zero_copy_only=False)
    found, fault = look(entries)
    return found[at], None if fault is None else fault[at]


def _values(column: pa.Array) -> tuple[Floats, Codes | None]:
    kind = column.type
    fault: Codes | None = None

    # Numbers are converted; text is parsed below; anything else is no column of values.
    if (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
    ):
        value = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    elif pa.types.is_boolean(kind) or pa.types.is_nested(kind) or pa.types.is_temporal(kind):
        raise UnreadableSourceError(f"value column must hold numbers, got {kind}")
    else:
        value, fault = _parse_values(column)

    # A null is named as missing, though it also is not finite.
    finite = np.isfinite(value)
    if finite.all() and fault is None:
        return value, None
    fault = np.zeros(len(column), np.int8) if fault is None else fault
    fault[(fault == GOOD) & ~finite] = NOT_FINITE
    fault[column.is_null().to_numpy(zero_copy_only=False)] = NO_VALUE

    return value, fault


def _parse_values(column: pa.Array) -> tuple[Floats, Codes | None]:
    """Read numbers from text, all at once; where one is bad, the distinct ones one by one."""
    # Text of good numbers parses at once; otherwise the distinct texts are parsed one by one.
    try:
        parsed = column.cast(pa.string()).cast(pa.float64())
        value = parsed.to_numpy(zero_copy_only=False)
        if np.isfinite(value).all():
            return (
                value,
                None,
            )  # what is not finite may be nan(...), which is no number, or 1e999, which is one
    except pa.ArrowInvalid:
        pass

    encoded = column.dictionary_encode()
    pairs = [_parse_value(raw) for raw in encoded.dictionary.to_pylist()] + [(math.nan, NO_VALUE)]
    at = encoded.indices.fill_null(len(pairs) - 1).to_numpy(zero_copy_only=False)
    return np.array([v for v, _ in pairs])[at], np.array([f for _, f in pairs], np.int8)[at]


def _parse_value(raw: bytes | str) -> tuple[float, int]:
    text = (raw.decode(errors="replace") if isinstance(raw, bytes) else raw).strip()
    if NUMBER.fullmatch(text):
        return nearest_float_number(text), GOOD
    if _NOT_FINITE.fullmatch(text):
        return math.nan, NOT_FINITE

    return math.nan, BAD_VALUE if text else NO_VALUE


def _versions(column: pa.Array) -> tuple[Bools, Codes]:
    known = _known_version(column)
    return known, np.where(known, GOOD, SCHEMA).astype(np.int8)


def _known_version(column: pa.Array) -> Bools:
    """Say which rows are of a known schema version, or do not state one."""
    # A version may be text or a number; no version means the known one.
    if pa.types.is_binary(column.type):
        encoded = column.dictionary_encode()
        distinct = [
            raw == str(SCHEMA_VERSION).encode() for raw in encoded.dictionary.to_pylist()
        ] + [True]
        at: Ints = encoded.indices.fill_null(len(distinct) - 1).to_numpy(zero_copy_only=False)

        return np.array(distinct, np.bool_)[at]

    if pa.types.is_string(column.type):
        return _known_version(column.cast(pa.binary()))
    if pa.types.is_null(column.type):
        return np.ones(len(column), np.bool_)

    if pa.types.is_integer(column.type):  # as it is: what is beyond int64 is no known version
        known = pc.equal(column, pa.scalar(SCHEMA_VERSION, column.type)).fill_null(True)
        return np.asarray(known.to_numpy(zero_copy_only=False), np.bool_)

    return np.zeros(len(column), np.bool_)
