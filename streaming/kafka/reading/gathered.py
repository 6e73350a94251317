"""Messages to records as they come.

What a message holds is taken at once, and the message is let go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from meanstream.operators.records import Ints
from meanstream.streaming.kafka.connection.kafka_client import Message
from meanstream.streaming.kafka.connection.values import (
    JoinedValues,
    PartitionRecords,
    ReadValues,
    message_extras,
    value_sizes,
)
from meanstream.streaming.sources.decode import RawColumns
from meanstream.streaming.sources.formats.alike_records import TOGETHER, joined_columns

ReadAtOnce = Callable[[list[bytes | None], bytes], RawColumns | None]
"""Reads some values, given their text as well; None if it does not read them."""


class GatheredMessages:
    """Records of messages, in their order.

    Values that are read as lines are joined while they are in the processor's cache, and not kept
    apart as well.

    Parameters
    ----------
    next to : sequence of str
        What is taken of messages besides their values.
    joins : bool
        Whether the values are read as lines of one text.
    read : callable, optional
        Reads joined values as they come.
    """

    def __init__(
        self, beside: Sequence[str], *, joins: bool, read: ReadAtOnce | None = None
    ) -> None:
        self._names = beside
        self._joins = joins
        self._read = read
        self._runs: list[tuple[bool, int]] = []
        self._columns: list[RawColumns] = []
        self._count = 0

        self._partition: list[Ints] = []
        self._offset: list[Ints] = []
        self._size: list[Ints] = []
        self._text = bytearray()
        self._values: list[bytes | None] = []
        self._beside: dict[str, list[Any]] = {name: [] for name in beside}

    def __len__(self) -> int:
        return self._count

    def add(self, messages: list[Message]) -> None:
        """Take messages, none of which is an error."""
        if not messages:
            return
        self._count += len(messages)
        partition, offset = _positions(messages)
        self._partition.append(partition)
        self._offset.append(offset)
        self._values += cast("list[bytes | None]", list(map(Message.value, messages)))

        if self._joins and len(self._values) >= TOGETHER:
            self._join()

        for name, column in message_extras(messages, self._names).items() if self._names else ():
            self._beside[name] += column

    def _join(self) -> None:
        """Read values, or keep their text."""
        values, self._values = self._values, []
        try:
            text = b"\n".join(values)  # type: ignore[arg-type]  # see below
        except TypeError:  # a tombstone among them
            text = b"\n".join([value or b"" for value in values])

        read = None if self._read is None else self._read(values, text)
        self._runs.append((read is not None, len(values)))

        if read is not None:
            self._columns.append(read)
        else:
            self._size.append(value_sizes(values))
            self._text += text
            self._text += b"\n"

    def records(self) -> PartitionRecords:
        """Give them all; there are some."""
        if self._joins and self._values:
            self._join()

        joined = JoinedValues(np.concatenate(self._size), self._text) if self._size else None
        read = None

        if self._columns:
            read = ReadValues(
                np.repeat(*np.array(self._runs).T).astype(np.bool_), joined_columns(self._columns)
            )

        return PartitionRecords(
            np.concatenate(self._partition),
            np.concatenate(self._offset),
            self._values,
            self._beside,
            joined,
            read,
        )


def _positions(messages: list[Message]) -> tuple[Ints, Ints]:
    """Give partition and offset of each.

    Offsets of a partition grow, so that the ends of a run tell all of it.
    """
    partitions = cast("list[int]", list(map(Message.partition, messages)))
    count = len(partitions)
    first = cast("int", messages[0].offset())
    if (
        cast("int", messages[-1].offset()) - first == count - 1
        and partitions.count(partitions[0]) == count
    ):
        return np.full(count, partitions[0], np.int64), np.arange(first, first + count)

    offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
    return np.array(partitions, np.int64), offsets
