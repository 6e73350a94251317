"""Lines of CSV that come one by one, without the file that they stood in: their columns are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from meanstream.operators.records import Ints
from meanstream.streaming.events.event_columns import Rejects, SampleColumns
from meanstream.streaming.kafka.connection.values import PartitionRecords, block_of_values
from meanstream.streaming.sources.decode import Decoder, RawColumns
from meanstream.streaming.sources.formats.csv_file import CsvFormat
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.record_paths import Places
from meanstream.streaming.sources.source_records import RecordParser


class CsvValues:
    """Values that are one line each, of the same columns; one that holds more lines is malformed.

    Parameters
    ----------
    columns : sequence of str
        Names of the fields, in order.
    mapping : ColumnMapping
        Which column means what.
    decoder : Decoder
        Of the source.
    places : mapping of str to places, optional
        Of no meaning here: a field has its column.

    Raises
    ------
    ValueError
        If a column is missing or twice.
    """

    def __init__(
        self,
        columns: Sequence[str],
        mapping: ColumnMapping,
        decoder: Decoder,
        places: Mapping[str, Places] | None = None,  # noqa: ARG002 - as other parsers of values are made
    ) -> None:
        mapping.require_table("lines of CSV")
        self._parser = RecordParser(CsvFormat(list(columns), ",", mapping), mapping, decoder=decoder)

    def parse(
        self, records: PartitionRecords, number: Ints, beside: RawColumns, rejects: Rejects
    ) -> list[SampleColumns]:
        """Parse all at once."""
        values = [value or b"" for value in records.values]
        lines = [value.removesuffix(b"\n").removesuffix(b"\r") for value in values]
        single = np.fromiter(
            (b"\n" not in one and b"\r" not in one and one != b"" for one in lines), np.bool_, len(lines)
        )
        for place in np.flatnonzero(~single).tolist():
            rejects.add("malformed", int(number[place]), len(values[place]))
        kept = [line for line, good in zip(lines, single.tolist(), strict=True) if good]
        if not kept:
            return []
        return [self._parser.parse(block_of_values(kept, number[single]), rejects, beside)]
