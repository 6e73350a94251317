"""Messages of a topic to samples: what their values say, and what stands next to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from meanstream.operators.records import Bools, Ints
from meanstream.operators.validation import require
from meanstream.streaming.events.event_columns import (
    Rejects,
    SampleColumns,
    column_position,
    concatenate_columns,
    no_sample_columns,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.registered import RegistryValues
from meanstream.streaming.kafka.connection.schema_registry import SchemaRegistry
from meanstream.streaming.kafka.connection.values import (
    HEADERS,
    PartitionRecords,
    block_of_records,
    fit_records,
    value_sizes,
)
from meanstream.streaming.sources.decode import Decoder, RawColumns
from meanstream.streaming.sources.formats.json_records import JsonFormat, json_paths
from meanstream.streaming.sources.lines import MAX_LINE_BYTES
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.record_paths import Places, field_paths
from meanstream.streaming.sources.source_records import RecordParser, in_order_of

_VERSION = "ce_specversion"
_STRUCTURED = b"application/cloudevents"
_HEADER = "@header."


class ValueParser(Protocol):
    """Makes samples of values of messages, none of them empty, given the columns of what stands next to them."""

    def parse(
        self, records: PartitionRecords, number: Ints, beside: RawColumns, rejects: Rejects
    ) -> list[SampleColumns]:
        """Give samples, in any order; note the others."""


class _JsonValues:
    """Values that are one JSON object each."""

    def __init__(
        self, mapping: ColumnMapping, decoder: Decoder, places: Mapping[str, Places]
    ) -> None:
        form = JsonFormat(mapping, places)
        self._parser = RecordParser(form, mapping, decoder=decoder)
        self.alike = form.alike

    def parse(
        self, records: PartitionRecords, number: Ints, beside: RawColumns, rejects: Rejects
    ) -> list[SampleColumns]:
        """Parse all at once."""
        return [self._parser.parse(block_of_records(records, number), rejects, beside)]


def topic_parser(
    location: KafkaLocation,
    mapping: ColumnMapping,
    *,
    id_key: bytes = b"",
    max_record_bytes: int = MAX_LINE_BYTES,
) -> TopicParser:
    """Make what reads the messages of a topic, as its address says."""
    if location.registry is None:
        return TopicParser(mapping, id_key=id_key, max_record_bytes=max_record_bytes)
    require(
        mapping.layout != "connect",
        "layout",
        "be 'plain' or 'cloudevents' with a registry",
        mapping.layout,
    )

    registry = SchemaRegistry.answering(location.registry, location.registry_settings)
    registry.subjects = tuple(f"{one.topic}-value" for one in location.each())
    make = partial(RegistryValues, registry)
    parser = TopicParser(
        mapping, id_key=id_key, make_values=make, max_record_bytes=max_record_bytes
    )
    parser.registry = registry

    return parser


class TopicParser:
    """Makes samples of messages of one source; keeps the source's directory of agents.

    A cloud event has its attributes in headers (binary mode) or around its data (structured mode):
    each message is read by its own headers.

    Parameters
    ----------
    mapping : ColumnMapping
        Which field, header or part of a message means what.
    id_key : bytes
        Secret key of the hash of ids.
    make_values : callable, optional
        Makes what reads the values, given where each part is; by default they are JSON.
    max_record_bytes : int
        Larger values are skipped and reported.
    """

    def __init__(
        self,
        mapping: ColumnMapping,
        *,
        id_key: bytes = b"",
        make_values: Callable[[ColumnMapping, Decoder, Mapping[str, Places]], ValueParser]
        | None = None,
        max_record_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        decoder = Decoder(mapping, id_key=id_key)
        make = make_values or _JsonValues
        self._decoder = decoder
        self._max_bytes = max_record_bytes
        self._beside = mapping.extra_parts()
        places = {
            part: place for part, place in json_paths(mapping).items() if part not in self._beside
        }
        self._values = make(mapping, decoder, places)
        self._binary: ValueParser | None = None
        self.registry: SchemaRegistry | None = None

        if mapping.layout == "cloudevents":
            self._attributes, inner = _binary_mode(mapping, places)
            self._binary = make(mapping, decoder, inner)

        names = set(self._beside.values())
        headers = any(name.startswith(_HEADER) for name in names) or self._binary is not None
        self.wanted: tuple[str, ...] = tuple(
            sorted(
                {name for name in names if not name.startswith(_HEADER)}
                | ({HEADERS} if headers else set())
            )
        )
        """What messages must bring next to their values."""

        self.joins = make_values is None and self._binary is None
        """Whether the values are read as lines of one text."""
        self._codes: Callable[[list[str] | pa.Array], Ints] | None = (
            None  # the same for all that is parsed together
        )
        self._alike = (
            self._values.alike
            if isinstance(self._values, _JsonValues) and not self._beside
            else None
        )

    def read_at_once(self, values: list[bytes | None], text: bytes) -> RawColumns | None:
        """Read values that are alike and not too large, while they are in the processor's cache; else None."""
        if self._alike is None or (
            len(text) > self._max_bytes and value_sizes(values).max() > self._max_bytes
        ):
            return None

        return self._alike.of_values(values, text, self._codes)

    def parse(self, records: PartitionRecords, rejects: Rejects) -> SampleColumns:
        """Make samples of records, in their order; note those that cannot be."""
        if records.read is None:
            return self._parse_unread(records, rejects)
        number = column_position(records.partition, records.offset)
        samples, bad = self._decoder.decode(records.read.columns, number[records.read.which])
        self._decoder.make_room()
        self._codes = self._decoder.codes if self._decoder.knows_few else None
        rejects.extend(bad)

        if records.read.which.all():
            return samples
        rest = self._parse_unread(records.unread(), rejects)
        return in_order_of(number, concatenate_columns([samples, rest]))

    def _parse_unread(self, records: PartitionRecords, rejects: Rejects) -> SampleColumns:
        records, number = fit_records(records, rejects, self._max_bytes)
        if not len(number):
            return no_sample_columns()

        if self._binary is None:
            parts = self._parse(self._values, self._beside, records, number, rejects)
        else:
            binary = _in_binary_mode(records.beside[HEADERS])
            names = {**self._beside, **self._attributes}
            parts = [
                *self._parse(
                    self._values, self._beside, records.select(~binary), number[~binary], rejects
                ),
                *self._parse(self._binary, names, records.select(binary), number[binary], rejects),
            ]

        return parts[0] if len(parts) == 1 else in_order_of(number, concatenate_columns(parts))

    def _parse(
        self,
        parser: ValueParser,
        names: Mapping[str, str],
        records: PartitionRecords,
        number: Ints,
        rejects: Rejects,
    ) -> list[SampleColumns]:
        if not len(number):
            return []
        beside = {part: _column(name, records) for part, name in names.items()}
        return parser.parse(records, number, beside, rejects)


def _column(name: str, records: PartitionRecords) -> pa.Array:
    """Give what messages have next to their values as a column."""
    if name == "@timestamp":
        return pa.array(records.beside[name], pa.timestamp("ms"))

    if name.startswith(_HEADER):
        header = name.removeprefix(_HEADER)
        return pa.array(
            [_bytes(headers.get(header)) for headers in records.beside[HEADERS]], pa.binary()
        )

    return pa.array([_bytes(one) for one in records.beside[name]], pa.binary())


def _bytes(found: Any) -> bytes | None:
    return found.encode() if isinstance(found, str) else found


def _in_binary_mode(headers: Sequence[Mapping[str, Any]]) -> Bools:
    """Say which messages are cloud events whose attributes are headers."""
    found = [
        _VERSION in one
        and not (_bytes(one.get("content-type")) or b"").lower().startswith(_STRUCTURED)
        for one in headers
    ]

    return np.array(found, np.bool_)


def _binary_mode(
    mapping: ColumnMapping, places: Mapping[str, Places]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Give the header of each attribute, and where in the value each field of the data is."""
    attributes: dict[str, str] = {}
    inner: dict[str, Any] = {}
    names = {
        **mapping.required,
        **mapping.optional,
        "schema_version": f"data.{mapping.schema_version}",
    }

    for part in places:
        if names[part].startswith("data."):
            inner[part] = field_paths(names[part].removeprefix("data."))
        else:
            attributes[part] = f"{_HEADER}ce_{names[part].lower()}"

    return attributes, inner
