"""Everyone's releases from a file of lines, followed as it grows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from meanstream.operators.agents.release_checks import PossibleReleases
from meanstream.streaming.events.encode import UNREADABLE
from meanstream.streaming.sources.lines import MAX_LINE_BYTES
from meanstream.streaming.sources.received_releases import Line, ReceivedReleases, Releases
from meanstream.streaming.sources.source_protocol import SourceLostError

READ_BYTES = 16 << 20
_TOO_LONG = b"\x00"
"""Stands for the beginning of a line that is no release, however it ends."""


class _Keyed(msgspec.Struct):
    agent: str


class ReleasesFile:
    """Reads a JSONL file of releases from its beginning, each release once, and goes on with what is appended.

    Parameters
    ----------
    path : Path
        The file. Several organizations' files can be appended to one another: order matters within
        an agent only.
    possible : PossibleReleases, optional
        As for `ReceivedReleases`.

    Notes
    -----
    **Privacy.** Releases are public, and so is all that is computed from them.
    """

    def __init__(self, path: Path, possible: PossibleReleases | None = None) -> None:
        if path.suffix != ".jsonl" or not path.is_file():
            raise ValueError(
                f"releases must be a readable .jsonl file or kafka://HOST:PORT/TOPIC, got {str(path)!r}"
            )

        self.received = ReceivedReleases(possible)
        self._path = path
        self._offset = 0
        self._rest = b""  # a line whose end is not there yet
        self.caught_up = False

    def poll(self) -> Releases:
        """Give the releases of the lines that come next.

        `SourceLostError` if the file cannot be read any more.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(READ_BYTES)
        except OSError as error:
            raise SourceLostError(
                f"releases must be readable, got {str(self._path)!r} ({error.strerror})"
            ) from None

        self._offset += len(data)
        self.caught_up = len(data) < READ_BYTES
        *lines, self._rest = (self._rest + data).split(b"\n")

        if len(self._rest) > MAX_LINE_BYTES:  # no release is so long: its end is not waited for
            self._rest = _TOO_LONG

        return self.received.take([_line(line) for line in lines if line])

    @property
    def rejected(self) -> Counter[str]:
        """Lines that were left out, by reason; see `ReceivedReleases`."""
        return self.received.rejected

    def latest(self) -> Releases:
        """Give everyone's newest release."""
        return self.received.latest()

    def close(self) -> None:
        """Nothing is open between two calls."""


def _line(line: bytes) -> Line:
    """Give a line its agent as key, as a topic would."""
    try:
        return msgspec.json.decode(line, type=_Keyed).agent.encode(), line
    except (*UNREADABLE, UnicodeEncodeError):
        return None, line
