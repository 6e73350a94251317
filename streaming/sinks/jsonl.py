"""Events to a JSONL file, or to standard output."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO

from streaming.encode import EventLines
from streaming.sinks.sink import SinkPosition, Trust, check_trust


class JsonlSink:
    """Appends one line per event; a private file can be read by its owner only.

    After a crash the file is cut back to the last committed position: no torn line, no event twice.
    """

    def __init__(self, path: Path, *, trust: Trust) -> None:
        self.trust = trust
        self._path = path
        mode = 0o600 if trust is Trust.PRIVATE else 0o644
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, mode)
        except OSError as error:
            raise ValueError(f"sink must be a writable file, got {str(path)!r} ({error.strerror})") from None
        if trust is Trust.PRIVATE:
            os.fchmod(self._file, mode)  # a file that was there before keeps its mode otherwise

    def write(self, events: EventLines) -> None:
        """Append lines."""
        check_trust(self.trust, events.kind)
        data = memoryview(b"".join([line + b"\n" for line in events.lines]))
        while data:
            data = data[os.write(self._file, data) :]

    def flush(self) -> None:
        """Force the lines to the disk."""
        os.fsync(self._file)

    def position(self) -> SinkPosition:
        """Tell the length of the file."""
        return {"path": str(self._path.resolve()), "bytes": os.fstat(self._file).st_size}

    def restore(self, position: SinkPosition) -> None:
        """Cut the file back.

        Raises
        ------
        ValueError
            If the file is shorter than that: somebody else changed it.
        """
        if position["path"] != str(self._path.resolve()):
            return  # another file from now on
        size = os.fstat(self._file).st_size
        if size < position["bytes"]:
            raise ValueError(
                f"sink must be the file that this store wrote to ({position['bytes']} bytes), "
                f"got {size} bytes in {str(self._path)!r}"
            )
        os.ftruncate(self._file, position["bytes"])

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class StreamSink:
    """Lines to standard output; after a crash the events of the last commit may come again, with the same ids."""

    def __init__(self, *, trust: Trust, stream: BinaryIO | None = None) -> None:
        self.trust = trust
        self._stream = sys.stdout.buffer if stream is None else stream

    def write(self, events: EventLines) -> None:
        """Write lines."""
        check_trust(self.trust, events.kind)
        self._stream.write(b"".join([line + b"\n" for line in events.lines]))

    def flush(self) -> None:
        """Hand everything to the reader."""
        self._stream.flush()

    def position(self) -> SinkPosition:
        """Tell nothing: nothing can be taken back."""
        return {}

    def restore(self, position: SinkPosition) -> None:
        """Do nothing: what was written cannot be taken back."""

    def close(self) -> None:
        """Hand everything to the reader; standard output stays open."""
        self._stream.flush()
