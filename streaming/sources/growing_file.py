"""Samples from a file that grows, and from standard input: JSONL, read as it comes."""

from __future__ import annotations

import logging
import os
import select
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from meanstream.operators.validation import require
from meanstream.streaming.events.event_columns import Batch, Position, Rejects, no_sample_columns
from meanstream.streaming.sources.formats.json_records import JsonFormat
from meanstream.streaming.sources.lines import MAX_LINE_BYTES, LineReader
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_protocol import (
    Opening,
    SourceLostError,
    require_source_position,
)
from meanstream.streaming.sources.source_records import RecordParser

FOLLOW = "follow:"
KINDS = (".jsonl", ".ndjson")
WAIT_SECONDS = 0.2
"""So long is waited for more."""

DESCRIPTOR = 0
"""Of standard input."""

_log = logging.getLogger("meanstream.run")


class GrowingFile:
    """A JSONL file to which others append.

    What is there is read, then waited for; a line counts once it is ended.

    Position as of a file: after a crash reading goes on at the byte where it stood, if all that
    stands before is as it was. A file that was cut short, changed, or replaced by another of its
    name ends the run.
    """

    waits = True
    bounded = False

    @classmethod
    def open(cls, location: str, mapping: ColumnMapping, opening: Opening) -> Self:
        """Open a file; nothing of it is read."""
        path = Path(location.removeprefix(FOLLOW))
        rule = f"be a readable file of type {', '.join(KINDS)} to follow"
        require(path.is_file() and path.suffix.lower() in KINDS, "source", rule, str(path))
        return cls(path, mapping, id_key=opening.id_key, max_line_bytes=opening.max_line_bytes)

    def __init__(
        self,
        path: Path,
        mapping: ColumnMapping,
        *,
        id_key: bytes = b"",
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self.name = path.name
        self._path = path
        self._reader = LineReader(path, max_line_bytes=max_line_bytes, grows=True)
        self._parser = RecordParser(JsonFormat(mapping), mapping, id_key=id_key)
        self._file = os.stat(path).st_ino

    def next_batch(self, max_samples: int) -> Batch:
        """Parse the lines that are there, or wait a moment for one."""
        end = self._reader.end()
        taken = self._reader.next_block(max_samples)
        self._check(end)  # after reading, so that nothing of a file that was written again gets in

        if taken is None:
            if self._reader.ended:
                time.sleep(WAIT_SECONDS)

            return Batch(no_sample_columns(), Rejects(), self._reader.position())

        block, rejects = taken
        return Batch(self._parser.parse(block, rejects), rejects, self._reader.position())

    def hold(self) -> bool:
        """Read on to where the file ends now."""
        self._reader.limit = os.stat(self._reader.fileno()).st_size
        return True

    def reached_hold(self) -> bool:
        """Say whether that was read."""
        return self._reader.at_limit()

    def go_on(self) -> None:
        """Read what was appended since, too."""
        self._reader.limit = None

    def restore(self, position: Position) -> None:
        """Continue at a line."""
        require_source_position(position, "offset", self.name)
        self._reader.seek(position)

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def _check(self, end: tuple[int, bytes]) -> None:
        try:
            now = os.stat(self._path)
        except OSError:
            raise SourceLostError(
                f"source must stay while it is followed, got {self.name!r} away"
            ) from None

        if (
            now.st_ino != self._file
            or now.st_size < self._reader.offset
            or not self._reader.still_has(end)
        ):
            raise SourceLostError(
                f"source must only grow while it is followed, got {self.name!r} cut or replaced"
            )


class StandardInput:
    """Lines of JSON that are piped in, to the end of the pipe.

    A pipe cannot be read again: after a crash whatever comes then counts on top of what was
    committed; lines that were read and not committed are gone, and a sample that is piped in twice
    counts twice unless it has an id. A file (`< samples.jsonl`) is recognized by a digest of what
    was read, and goes on behind that.
    """

    waits = True
    bounded = True
    name = "stdin"

    @classmethod
    def open(cls, location: str, mapping: ColumnMapping, opening: Opening) -> Self:  # noqa: ARG003 - it has one place
        """Open standard input; nothing of it is read."""
        return cls(mapping, id_key=opening.id_key, max_line_bytes=opening.max_line_bytes)

    def __init__(
        self,
        mapping: ColumnMapping,
        *,
        id_key: bytes = b"",
        max_line_bytes: int = MAX_LINE_BYTES,
        number: int | None = None,
    ) -> None:
        number = DESCRIPTOR if number is None else number
        self._reader = LineReader(
            Path(f"/dev/fd/{number}"), max_line_bytes=max_line_bytes, grows=True
        )

        with suppress(
            OSError
        ):  # a pipe; a file that is given to a shell may have been read in part
            self._reader.begin_at(os.lseek(number, 0, os.SEEK_CUR))

        self._parser = RecordParser(JsonFormat(mapping), mapping, id_key=id_key)

    def next_batch(self, max_samples: int) -> Batch:
        """Parse the lines that have come, or wait a moment for one."""
        taken = self._reader.next_block(max_samples)
        if taken is None and self._reader.ended:
            taken = self._reader.last_line()
            if taken is None:
                return Batch(no_sample_columns(), Rejects(), self._position(), exhausted=True)

        if taken is None:
            select.select([self._reader.fileno()], [], [], WAIT_SECONDS)
            return Batch(no_sample_columns(), Rejects(), self._position())

        block, rejects = taken
        return Batch(self._parser.parse(block, rejects), rejects, self._position())

    def restore(self, position: Position) -> None:
        """Count on: lines keep having numbers of their own.

        What was read of the same file is not read again.
        """
        require_source_position(position, "piped", self.name)
        self._reader.line = int(position["piped"])

        if not self._reader.goes_on(position):
            _log.warning(
                "standard input continues with new lines: lines that were read and not committed are lost"
            )

    def close(self) -> None:
        """Close the pipe."""
        self._reader.close()

    def _position(self) -> Position:
        position = self._reader.position()
        return {"piped": position.pop("line"), **position}
