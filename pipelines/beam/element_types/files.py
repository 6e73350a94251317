"""Files on a worker's disk or in a bucket, read and written whole."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
