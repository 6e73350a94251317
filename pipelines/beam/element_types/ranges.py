"""Samples of given ranges of offsets, one partition after the other.

A topic as if it were a file.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from meanstream.operators.validation import require
from meanstream.pipelines.beam.element_types.partition import PartitionReader
from meanstream.streaming.events.event_columns import Batch, Position, Rejects, no_sample_columns
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.schema_registry import RegistryAwayError
from meanstream.streaming.kafka.reading.kafka_messages import topic_parser
from meanstream.streaming.sources.mapping import ColumnMapping

WAIT_SECONDS = 0.5
SILENT_SECONDS = 60.0
"""So long records that must be there may not come before reading is given up."""


class RangeSource:
    """Reads committed records of ranges, each once, for no one's store.

    Again the same as often as one likes.

    Lateness is by partition, so the order of the partitions decides nothing; of samples of one id
    in several partitions that of the first partition counts.

    Parameters
    ----------
    location : KafkaLocation
        The topic.
    mapping : ColumnMapping
        Which JSON field means what.
    ranges : sequence of (int, int, int)
        Partition, first offset, and the offset after the last one; each partition once.
    id_key : bytes
        Secret key of the hash of ids.
    """

    waits = True
    bounded = True

    def __init__(
        self,
        location: KafkaLocation,
        mapping: ColumnMapping,
        ranges: Sequence[tuple[int, int, int]],
        *,
        id_key: bytes = b"",
    ) -> None:
        self.name = location.topic
        self._parser = topic_parser(location, mapping, id_key=id_key)
        self._reader = PartitionReader(location, beside=self._parser.wanted)
        self._left = [place for place in ranges if place[1] < place[2]]

    def next_batch(self, max_samples: int) -> Batch:
        """Give the next records."""
        if not self._left:
            return Batch(
                no_sample_columns(), Rejects(), self._position(), exhausted=True, active=()
            )

        (partition, at, stop) = self._left[0]
        rejects = Rejects()
        until = time.monotonic() + SILENT_SECONDS
        taken = self._reader.take(partition, at, min(max_samples, stop - at), WAIT_SECONDS)

        while taken.following == at:
            what = f"offset {at} of partition {partition} within {SILENT_SECONDS:g} s"
            require(time.monotonic() < until, "source", f"give {what}", self.name)
            taken = self._reader.take(partition, at, min(max_samples, stop - at), WAIT_SECONDS)

        try:
            samples = self._parser.parse(taken.records.before(stop), rejects)
        except RegistryAwayError as error:
            raise ValueError(str(error)) from None

        active = tuple(place[0] for place in self._left)
        self._left[0] = (partition, min(taken.following, stop), stop)

        if taken.following >= stop:
            del self._left[0]

        return Batch(samples, rejects, self._position(), active=active)

    def restore(self, position: Position) -> None:
        """Continue with the offsets that were left."""
        self._left = [(int(p), int(at), int(stop)) for p, at, stop in position["left"]]

    def _position(self) -> Position:
        return {"topic": self.name, "left": [list(place) for place in self._left]}

    def close(self) -> None:
        """Let go of the brokers."""
        self._reader.close()
