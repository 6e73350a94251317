"""Where a worker finds samples: a file, or ranges of a topic, read as the engine reads it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation, is_kafka_location
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_protocol import Source


def file_in_bucket(location: str) -> bool:
    """Say whether a location is one of Beam's file systems, such as `gs://bucket/name`, and not a path.

    Examples
    --------
    >>> [file_in_bucket(place) for place in ("gs://bucket/samples.csv", "/data/samples.csv", "synthetic:3,100")]
    [True, False, False]
    """
    scheme, separator, _ = location.partition("://")
    return bool(separator) and scheme.isalnum()


@contextmanager
def local_file(location: str) -> Iterator[str]:
    """Give the path of a file.

    One in a bucket is copied first, and the copy goes when no one holds it open any more.

    Readers of files seek, so that a stream from the network is not enough for them.
    """
    if not file_in_bucket(location):
        yield location
        return

    from apache_beam.io.filesystems import CompressionTypes, FileSystems

    as_it_is = CompressionTypes.UNCOMPRESSED  # whatever its name ends with
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, location.rpartition("/")[2])
        with (
            FileSystems.open(location, compression_type=as_it_is) as there,
            path.open("wb") as here,
        ):
            shutil.copyfileobj(there, here)

        yield str(path)


def write_file_whole(location: str, data: bytes) -> None:
    """Write a file whole or not at all; what was there is replaced."""
    if file_in_bucket(location):
        from apache_beam.io.filesystems import CompressionTypes, FileSystems

        with FileSystems.create(location, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            file.write(data)

        return

    path = Path(location)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)


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

        from meanstream.pipelines.beam.element_types.partition import RangeSource

        return RangeSource(
            KafkaLocation.parse(self.location), self.mapping, self.ranges, id_key=id_key
        )
