"""Samples of records as a reader of topics makes them."""

from __future__ import annotations

from meanstream.streaming.events.event_columns import Rejects, SampleColumns, no_sample_columns
from meanstream.streaming.kafka.connection.values import (
    PartitionRecords,
    block_of_records,
    fit_records,
)
from meanstream.streaming.sources.source_records import RecordParser


def parse_values(
    parser: RecordParser, records: PartitionRecords, rejects: Rejects, max_record_bytes: int
) -> SampleColumns:
    """Make samples; empty values and tombstones are malformed."""
    records, number = fit_records(records, rejects, max_record_bytes)
    if not len(number):
        return no_sample_columns()
    return parser.parse(block_of_records(records, number), rejects)
