"""Where a worker finds samples: a file, or ranges of a topic, read as the engine reads it."""

from __future__ import annotations

from dataclasses import dataclass

from meanstream.pipelines.beam.element_types.files import local_file
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation, is_kafka_location
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_protocol import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLocation:
    """A file, or ranges of a topic, that a worker can read: what the engine takes, it takes.

    Parameters
    ----------
    location : str
        As for `meanstream.streaming.open_source.open_source`; a file may be in a bucket,
        `gs://...`.
    mapping : ColumnMapping
        Which column means what.
    sort : bool
        Whether to replay a file in event-time order; a topic is read as it stands.
    ranges : tuple of (int, int, int)
        Of a topic: partition, first offset, and the offset after the last one.
    """

    location: str
    mapping: ColumnMapping
    sort: bool = True
    ranges: tuple[tuple[int, int, int], ...] = ()

    def open(self, id_key: bytes) -> Source:
        """Open it, on a worker."""
        if not is_kafka_location(self.location):
            with local_file(self.location) as path:
                return open_source(path, self.mapping, sort=self.sort, id_key=id_key)

        from meanstream.pipelines.beam.element_types.ranges import RangeSource

        return RangeSource(
            KafkaLocation.parse(self.location), self.mapping, self.ranges, id_key=id_key
        )
