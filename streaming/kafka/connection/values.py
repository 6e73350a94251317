"""Values of messages to samples.

Joined to one text, in which each is a line, and parsed all at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa

from meanstream.operators.records import Bools, Ints
from meanstream.streaming.events.event_columns import (
    Rejects,
    column_position,
)
from meanstream.streaming.sources.decode import RawColumns
from meanstream.streaming.sources.lines import LineBlock

HEADERS = "@headers"
"""All headers of a message, as a mapping; of a name that is there twice the last one."""

Extras = Mapping[str, Sequence[Any]]
"""What messages have next to their values, by its name: `@key`, `@timestamp`, `@topic`,
`@headers`."""


class JoinedValues(NamedTuple):
    """Values as lines of one text, and the length of each, 0 where there is none."""

    size: Ints
    text: bytes | bytearray

    def select(self, kept: Bools) -> JoinedValues:
        """Copy some values."""
        lines = LineBlock(
            memoryview(self.text), np.cumsum(self.size + 1), np.arange(len(self.size))
        )
        return JoinedValues(self.size[kept], bytes(lines.select(kept).data))


class ReadValues(NamedTuple):
    """Values that were read as they came: which of the records have them, and their columns."""

    which: Bools
    columns: RawColumns

    def select(self, kept: Bools) -> ReadValues:
        """Select some records."""
        chosen = pa.array(kept[self.which])
        return ReadValues(
            self.which[kept],
            {field: column.filter(chosen) for field, column in self.columns.items()},
        )


class PartitionRecords(NamedTuple):
    """Records of several partitions, in the order of each.

    Their values are in `joined` alone where they are joined.

    Of those whose values were `read` neither of the two has any.
    """

    partition: Ints
    offset: Ints
    values: list[bytes | None]
    beside: Extras = {}  # noqa: RUF012 - never written to
    joined: JoinedValues | None = None
    read: ReadValues | None = None

    def unread(self) -> PartitionRecords:
        """Give the others; no record has anything next to its value where some were read."""
        if self.read is None:
            return self
        rest = ~self.read.which
        return PartitionRecords(
            self.partition[rest], self.offset[rest], self.values, {}, self.joined
        )

    def before(self, stop: int) -> PartitionRecords:
        """Select the records before an offset; for records of one partition."""
        return self.select(self.offset < stop)

    def select(self, kept: Bools) -> PartitionRecords:
        """Select some records."""
        if kept.all():
            return self

        if self.read is not None:
            rest = self.unread().select(kept[~self.read.which])
            read = self.read.select(kept)
            return rest._replace(
                partition=self.partition[kept], offset=self.offset[kept], read=read
            )

        chosen = kept.tolist()
        beside = {name: list(compress(column, chosen)) for name, column in self.beside.items()}
        values = list(compress(self.values, chosen))
        joined = None if self.joined is None else self.joined.select(kept)

        return PartitionRecords(self.partition[kept], self.offset[kept], values, beside, joined)


class _Message(Protocol):
    """What of a client's message is read here."""

    def key(self) -> Any: ...

    def timestamp(self) -> tuple[int, int]: ...

    def topic(self) -> str | None: ...

    def headers(self) -> Any: ...


def message_extras(messages: Iterable[_Message], names: Iterable[str]) -> dict[str, list[Any]]:
    """Take what messages have next to their values."""
    messages = list(messages)
    take = {"@key": _key, "@timestamp": _timestamp, "@topic": _topic, HEADERS: _headers}
    return {name: [take[name](message) for message in messages] for name in names}


def _key(message: _Message) -> Any:
    return message.key()


def _timestamp(message: _Message) -> int | None:
    kind, milliseconds = message.timestamp()

    if kind:
        return milliseconds
    return None


def _topic(message: _Message) -> Any:
    return message.topic()


def _headers(message: _Message) -> dict[str, Any]:
    """Take the headers; none where the client cannot, because the name of one is no text."""
    try:
        return dict(message.headers() or ())
    except (SystemError, UnicodeError):
        return {}


def fit_records(
    records: PartitionRecords, rejects: Rejects, max_record_bytes: int
) -> tuple[PartitionRecords, Ints]:
    """Take out what nothing can be read from, such as empty values and tombstones.

    Give each record's position.
    """
    number = column_position(records.partition, records.offset)
    size = value_sizes(records.values) if records.joined is None else records.joined.size
    unfit = (size == 0) | (size > max_record_bytes)
    if not unfit.any():
        return records, number

    for i in np.flatnonzero(unfit).tolist():
        rejects.add("oversized" if size[i] else "malformed", int(number[i]), int(size[i]))

    return records.select(~unfit), number[~unfit]


def value_sizes(values: Sequence[bytes | None]) -> Ints:
    """Give the length of each value; 0 where there is none."""
    try:
        return np.fromiter(map(len, values), np.int64, len(values))  # type: ignore[arg-type]  # see below
    except TypeError:  # a tombstone among them
        return np.fromiter((len(value or b"") for value in values), np.int64, len(values))


def _join_values(values: Sequence[bytes]) -> JoinedValues:
    """Make one text of values, in which each is a line."""
    return JoinedValues(value_sizes(values), b"\n".join([*values, b""]))


def join_joined_values(parts: Sequence[JoinedValues]) -> JoinedValues:
    """Make one text of several."""
    return JoinedValues(
        np.concatenate([values.size for values in parts]),
        b"".join([values.text for values in parts]),
    )


def block_of_records(records: PartitionRecords, number: Ints) -> LineBlock:
    """Give values as lines; none of them is empty."""
    size, text = records.joined or _join_values(cast("list[bytes]", records.values))
    return LineBlock(memoryview(text), np.cumsum(size + 1), number)


def block_of_values(values: Sequence[bytes], number: Ints) -> LineBlock:
    """Join values to one text; neither empty."""
    size, text = _join_values(values)
    return LineBlock(memoryview(text), np.cumsum(size + 1), number)
