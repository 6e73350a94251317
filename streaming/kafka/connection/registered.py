"""Values in Confluent's wire format.

A zero, the id of a schema in four bytes, then Avro or JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from meanstream.operators.records import Bools, Ints
from meanstream.streaming.events.event_columns import Rejects, SampleColumns
from meanstream.streaming.kafka.connection.schema_registry import RegisteredSchema, SchemaRegistry
from meanstream.streaming.kafka.connection.values import PartitionRecords, block_of_values
from meanstream.streaming.sources.decode import Decoder, RawColumns
from meanstream.streaming.sources.formats.avro_records import AvroRecords
from meanstream.streaming.sources.formats.avro_schema import BadSchemaError, parse_avro_schema
from meanstream.streaming.sources.formats.json_records import JsonFormat, json_paths
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.record_paths import Places
from meanstream.streaming.sources.source_records import RecordParser

HEAD = 5
"""Bytes before a record: a zero and the id."""
MAX_READERS = 1_000
MAX_CHARACTERS = 4 << 20
"""Schemas whose readers are kept, and their text: a reader takes many times as much."""


def wire_head(number: int) -> bytes:
    r"""Give what stands before the value of a message whose schema has an id.

    Examples
    --------
    >>> wire_head(258)
    b'\x00\x00\x00\x01\x02'
    """
    return b"\x00" + number.to_bytes(4, "big")


def without_wire_head(value: bytes) -> bytes:
    """Give a value of JSON without what a registry's clients put before it.

    No JSON begins with a zero.
    """
    if value[:1] == b"\x00":
        return value[HEAD:]
    return value


class RegistryValues:
    """Values of schemas that a registry knows.

    One of an id that it does not know, or of a schema that nothing is read by, is rejected as
    `unknown_schema`; while the registry does not answer no one can say, and reading waits.

    Parameters
    ----------
    registry : SchemaRegistry
        Has the schemas.
    mapping : ColumnMapping
        Which field means what.
    decoder : Decoder
        Of the source.
    places : mapping of str to places, optional
        Where each part is, if not where the mapping says.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        mapping: ColumnMapping,
        decoder: Decoder,
        places: Mapping[str, Places] | None = None,
    ) -> None:
        self._registry = registry
        self._mapping = mapping
        self._decoder = decoder
        self._places = json_paths(mapping) if places is None else dict(places)
        self._json = RecordParser(JsonFormat(mapping, self._places), mapping, decoder=decoder)
        self._readers: dict[int, AvroRecords | RecordParser | None] = {}
        self._characters = 0  # of the schemas whose readers are kept

    def parse(
        self, records: PartitionRecords, number: Ints, beside: RawColumns, rejects: Rejects
    ) -> list[SampleColumns]:
        """Read those of each schema together; note the others."""
        values = cast("list[bytes]", records.values)
        schema = _schema_ids(values)
        rows_of = _rows_of_each(schema)
        often = sorted(
            rows_of, key=lambda schema_id: len(rows_of[schema_id]), reverse=True
        )  # whose ids are requested first
        readers = {schema_id: self._reader(schema_id) for schema_id in often}

        for i in np.flatnonzero(schema < 0).tolist():
            rejects.add("malformed", int(number[i]), len(values[i]))

        samples: list[SampleColumns] = []
        unknown = [
            rows_of.pop(schema_id) for schema_id, reader in readers.items() if reader is None
        ]
        if unknown:
            rejects.add_many("unknown_schema", number[np.sort(np.concatenate(unknown))])

        for schema_id, rows in rows_of.items():
            reader = readers[schema_id]
            chosen = [values[i] for i in rows.tolist()] if len(rows) < len(values) else values
            columns = {part: column.take(pa.array(rows)) for part, column in beside.items()}
            if isinstance(reader, AvroRecords):
                samples += reader.parse(chosen, number[rows], columns, rejects, skip=HEAD)
            elif reader is not None:
                samples += self._parse_json(reader, chosen, number[rows], columns, rejects)

        return samples

    @staticmethod
    def _parse_json(
        reader: RecordParser,
        values: Sequence[bytes],
        number: Ints,
        beside: RawColumns,
        rejects: Rejects,
    ) -> list[SampleColumns]:
        empty = _are_empty(values)
        rejects.add_many("malformed", number[empty])

        if empty.all():
            return []
        texts = [value[HEAD:] for value in values if len(value) > HEAD]
        columns = {field: column.filter(pa.array(~empty)) for field, column in beside.items()}

        return [reader.parse(block_of_values(texts, number[~empty]), rejects, columns)]

    def _reader(self, number: int) -> AvroRecords | RecordParser | None:
        """Give what reads records of a schema; None if nothing does."""
        if number in self._readers:
            return self._readers[number]
        registered = self._registry.schema(number)
        if registered is None:
            return None  # the registry remembers for a while: it may be registered yet

        if (
            len(self._readers) >= MAX_READERS
            or self._characters + registered.characters > MAX_CHARACTERS
        ):
            self._readers.clear()
            self._characters = 0

        self._characters += registered.characters
        self._readers[number] = self._made(registered)
        return self._readers[number]

    def _made(self, schema: RegisteredSchema) -> AvroRecords | RecordParser | None:
        if schema.kind == "JSON":
            return self._json
        if schema.kind != "AVRO":
            return None

        try:
            parsed = parse_avro_schema(schema.text, schema.references)
        except (BadSchemaError, RecursionError):
            return None

        return AvroRecords(
            parsed, self._places, self._decoder, numbers_in_text=self._mapping.numbers_in_text
        )


def _rows_of_each(schema: Ints) -> dict[int, Ints]:
    """Give the rows of each id, in their order; of none where there is no id."""
    order = np.argsort(schema, kind="stable")
    order = order[np.searchsorted(schema[order], 0) :]
    parts = np.split(order, np.flatnonzero(np.diff(schema[order])) + 1) if len(order) else []
    return {int(schema[rows[0]]): rows for rows in parts}


def _schema_ids(values: Sequence[bytes]) -> Ints:
    """Give the id of the schema of each value; -1 where there is none."""
    heads = b"".join([value[:HEAD].ljust(HEAD, b"\xff") for value in values])
    head = np.frombuffer(heads, np.uint8).reshape(-1, HEAD)
    number = np.ascontiguousarray(head[:, 1:]).view(">u4").ravel().astype(np.int64)
    short = np.fromiter(map(len, values), np.int64, len(values)) < HEAD

    return np.where((head[:, 0] == 0) & ~short, number, -1)


def _are_empty(values: Sequence[bytes]) -> Bools:
    return np.fromiter(map(len, values), np.int64, len(values)) <= HEAD
