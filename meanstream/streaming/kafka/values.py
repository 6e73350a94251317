"""Values of messages to samples: joined to one text, in which each is a line, and parsed all at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meanstream.operators.records import Ints
from meanstream.streaming.events.columns import Rejects, SampleColumns, column_position, no_sample_columns
from meanstream.streaming.sources.lines import LineBlock
from meanstream.streaming.sources.records import RecordParser


class PartitionRecords(NamedTuple):
    """Records of several partitions, in the order of each."""

    partition: Ints
    offset: Ints
    values: list[bytes | None]

    def before(self, stop: int) -> PartitionRecords:
        """Select the records before an offset; for records of one partition."""
        kept = int(np.searchsorted(self.offset, stop))
        return PartitionRecords(self.partition[:kept], self.offset[:kept], self.values[:kept])


def parse_values(
    parser: RecordParser, records: PartitionRecords, rejects: Rejects, max_record_bytes: int
) -> SampleColumns:
    """Make samples of records; note those that cannot be: empty values and tombstones are malformed."""
    number = column_position(records.partition, records.offset)
    values = [b"" if value is None else value for value in records.values]
    size = np.fromiter(map(len, values), np.int64, len(values))
    unfit = (size == 0) | (size > max_record_bytes)
    if unfit.any():
        for i in np.flatnonzero(unfit).tolist():
            rejects.add("oversized" if size[i] else "malformed", int(number[i]), int(size[i]))
        values = [value for value, bad in zip(values, unfit.tolist(), strict=True) if not bad]
        size, number = size[~unfit], number[~unfit]
    if not values:
        return no_sample_columns()
    values.append(b"")
    return parser.parse(LineBlock(memoryview(b"\n".join(values)), np.cumsum(size + 1), number), rejects)
