"""Events to a JSONL file, or to standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from meanstream.operators.validation import require
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.sinks.sink_protocol import (
    SinkOnDisk,
    SinkOpening,
    SinkPosition,
    Trust,
    check_sink_trust,
    checking_disk,
    sink_faults,
)


class JsonlSink(SinkOnDisk):
    """Appends one line per event; a private file can be read by its owner only.

    After a crash the file is cut back to the last committed position: no torn line, no event twice.
    """

    kind = "a .jsonl file"

    @classmethod
    def check(cls, location: str, option: str) -> None:
        """Refuse also a file of something else than events.

        A key, a store or a table under another name.
        """
        super().check(location, option)
        with checking_disk(option, location):
            begins = _first_byte(Path(location))

        require(begins in (b"", b"{"), option, "be a new file or one of events", location)

    def __init__(self, path: Path, *, trust: Trust, option: str = "sink") -> None:
        self.trust = trust
        self._path = path
        self._option = option
        mode = 0o600 if trust is Trust.PRIVATE else 0o644

        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, mode)
        except OSError as error:
            raise ValueError(
                f"{option} must be a writable file, got {str(path)!r} ({error.strerror})"
            ) from None

        if trust is Trust.PRIVATE:
            with sink_faults(option, str(path)):
                os.fchmod(self._file, mode)  # a file that was there before keeps its mode otherwise

    def write(self, events: EventLines) -> None:
        """Append lines."""
        check_sink_trust(self.trust, events.kind)
        with sink_faults(self._option, str(self._path)):
            for block in events.blocks():
                unwritten = memoryview(block)
                while unwritten:
                    unwritten = unwritten[os.write(self._file, unwritten) :]

    def flush(self) -> None:
        """Force the lines to the disk."""
        with sink_faults(self._option, str(self._path)):
            os.fsync(self._file)

    def position(self) -> SinkPosition:
        """Tell the length of the file."""
        return {"path": self.place, "bytes": os.fstat(self._file).st_size}

    def later(self, position: SinkPosition | None) -> Iterator[bytes]:
        """Give the whole lines after a position."""
        with (
            sink_faults(self._option, str(self._path), "be readable"),
            self._path.open("rb") as file,
        ):
            file.seek(
                position["bytes"] if position is not None and self.is_of_here(position) else 0
            )
            yield from (line[:-1] for line in file if line.endswith(b"\n"))

    def restore(self, position: SinkPosition) -> None:
        """Cut the file back."""
        if not self.is_of_here(position):
            return  # another file from now on
        size = os.fstat(self._file).st_size
        if size < position["bytes"]:
            raise ValueError(
                f"{self._option} must be the file that this store wrote to ({position['bytes']} bytes), "
                f"got {size} bytes in {str(self._path)!r}"
            )

        with sink_faults(self._option, str(self._path)):
            os.ftruncate(self._file, position["bytes"])

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class StreamSink:
    """Lines to standard output.

    After a crash the events of the last commit may come again, with the same ids.
    """

    @classmethod
    def check(cls, location: str, option: str) -> None:
        """Refuse nothing: standard output is there."""

    @classmethod
    def canonical_location(cls, location: str) -> str:
        """Give the one place that it has."""
        return location

    @classmethod
    def open(cls, location: str, opening: SinkOpening) -> StreamSink:  # noqa: ARG003 - there is one
        """Take standard output."""
        return cls(trust=opening.trust, option=opening.option)

    def __init__(
        self, *, trust: Trust, stream: BinaryIO | None = None, option: str = "sink"
    ) -> None:
        self.trust = trust
        self._option = option
        self._stream = sys.stdout.buffer if stream is None else stream

    def write(self, events: EventLines) -> None:
        """Write lines."""
        check_sink_trust(self.trust, events.kind)
        with sink_faults(self._option, "-"):
            for block in events.blocks():
                self._stream.write(block)

    def flush(self) -> None:
        """Hand everything to the reader."""
        with sink_faults(self._option, "-"):
            self._stream.flush()

    def position(self) -> SinkPosition:
        """Tell nothing: nothing can be taken back."""
        return {}

    def restore(self, position: SinkPosition) -> None:
        """Do nothing: what was written cannot be taken back."""

    def close(self) -> None:
        """Do nothing: what counts was flushed, and standard output stays open."""


def _first_byte(path: Path) -> bytes:
    if not path.exists():
        return b""

    with path.open("rb") as file:
        return file.read(1)
