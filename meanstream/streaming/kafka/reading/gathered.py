"""Messages to records as they come: what a message holds is taken at once, and the message is let go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from meanstream.operators.records import Ints
from meanstream.streaming.kafka.connection.kafka_client import Message
from meanstream.streaming.kafka.connection.values import JoinedValues, PartitionRecords, message_extras, value_sizes


class GatheredMessages:
    """Records of messages, in their order.

    Values that are read as lines are joined while they are in the processor's cache, and not kept apart as well.

    Parameters
    ----------
    next to : sequence of str
        What is taken of messages besides their values.
    joins : bool
        Whether the values are read as lines of one text.
    """

    def __init__(self, beside: Sequence[str], *, joins: bool) -> None:
        self._names, self._joins = beside, joins
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
        values = cast("list[bytes | None]", list(map(Message.value, messages)))
        if self._joins:
            size = value_sizes(values)
            self._size.append(size)
            self._text += b"\n".join(values if size.all() else [value or b"" for value in values])  # type: ignore[arg-type]
            self._text += b"\n"
        else:
            self._values += values
        for name, column in message_extras(messages, self._names).items() if self._names else ():
            self._beside[name] += column

    def records(self) -> PartitionRecords:
        """Give them all; there are some."""
        joined = JoinedValues(np.concatenate(self._size), self._text) if self._joins else None
        return PartitionRecords(
            np.concatenate(self._partition), np.concatenate(self._offset), self._values, self._beside, joined
        )


def _positions(messages: list[Message]) -> tuple[Ints, Ints]:
    """Give partition and offset of each; offsets of a partition grow, so that the ends of a run tell all of it."""
    partitions = cast("list[int]", list(map(Message.partition, messages)))
    count, first = len(partitions), cast("int", messages[0].offset())
    if cast("int", messages[-1].offset()) - first == count - 1 and partitions.count(partitions[0]) == count:
        return np.full(count, partitions[0], np.int64), np.arange(first, first + count)
    offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
    return np.array(partitions, np.int64), offsets
