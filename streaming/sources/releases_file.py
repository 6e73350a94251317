"""Everybody's releases from a file of lines, followed as it grows."""

from __future__ import annotations

from pathlib import Path

import msgspec

from streaming.received import Line, ReceivedReleases, Releases

READ_BYTES = 16 << 20


class _Keyed(msgspec.Struct):
    agent: str


class ReleasesFile:
    """Reads a JSONL file of releases from its beginning, each release once, and goes on with what is appended.

    Parameters
    ----------
    path : Path
        The file. Several organizations' files can be appended to one another: order matters within an agent only.

    Notes
    -----
    **Privacy.** Releases are public, and so is all that is computed from them.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix != ".jsonl" or not path.is_file():
            raise ValueError(f"releases must be a readable .jsonl file or kafka://HOST:PORT/TOPIC, got {str(path)!r}")
        self.received = ReceivedReleases()
        self._path = path
        self._offset = 0
        self._rest = b""  # a line whose end is not there yet
        self.caught_up = False

    def poll(self) -> Releases:
        """Give the releases of the lines that come next."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(READ_BYTES)
        self._offset += len(data)
        self.caught_up = len(data) < READ_BYTES
        *lines, self._rest = (self._rest + data).split(b"\n")
        return self.received.take([_line(line) for line in lines if line])

    def latest(self) -> Releases:
        """Give everybody's newest release."""
        return self.received.latest()

    def close(self) -> None:
        """Nothing is open between two calls."""


def _line(line: bytes) -> Line:
    """Give a line its agent as key, as a topic would."""
    try:
        return msgspec.json.decode(line, type=_Keyed).agent.encode(), line
    except (msgspec.DecodeError, UnicodeError):
        return None, line
