"""Lines of a plain, gzip or zip file, in blocks, resumable, whatever their length."""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, cast

import numpy as np

from meanstream.operators.records import Bools, Ints
from meanstream.streaming.events.event_columns import Position, Rejects
from meanstream.streaming.sources.read_digest import ReadDigest
from meanstream.streaming.sources.source_protocol import UnreadableSourceError, other_source_file

BLOCK_BYTES = 32 << 20
MOST_BYTES = 128 << 20  # that wait: some 500 a line of the largest batch
READ_BYTES = 4 << 20  # at least, however few lines are requested
LINE_BYTES = 64  # a guess, for the first block
MAX_LINE_BYTES = 1 << 20
_DAMAGE = (EOFError, zlib.error, zipfile.BadZipFile, OSError)
SCAN_BYTES = 1 << 17  # looked through at once: what stays in the processor's cache
PIECE_BYTES = 1 << 18  # read at once


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Complete lines that are neither blank nor oversized.

    Their bytes, where each ends, which line each is.

    The bytes are the reader's own, and good until it is requested the next block.
    """

    data: memoryview
    end: Ints
    number: Ints

    def __len__(self) -> int:
        return len(self.end)

    def holds(self, *wanted: bytes) -> list[bool]:
        """Say which bytes are in some line."""
        found = [False] * len(wanted)

        # Pieces are small enough for the processor's caches.
        for first in range(0, len(self.data), SCAN_BYTES):
            text = bytes(self.data[first : first + SCAN_BYTES])
            found = [before or byte in text for before, byte in zip(found, wanted, strict=True)]

        return found

    def begin_with(self, mark: bytes) -> Bools:
        """Say which lines begin with some bytes."""
        data = np.frombuffer(self.data, np.uint8)
        start = np.concatenate([[0], self.end[:-1]])

        # The first byte decides for nearly all lines.
        found: Bools = data[start] == mark[0]
        for i in np.flatnonzero(found).tolist():
            found[i] = bytes(self.data[start[i] : start[i] + len(mark)]) == mark

        return found

    def line_of(self, place: Ints) -> Ints:
        """Give the index of the line that holds the byte at each place."""
        return np.asarray(np.searchsorted(self.end, place, side="right"), np.int64)

    def select(self, chosen: Bools) -> LineBlock:
        """Copy some lines."""
        starts = np.concatenate([[0], self.end[:-1]])
        size = (self.end - starts)[chosen]
        kept = zip(starts[chosen].tolist(), self.end[chosen].tolist(), strict=True)
        return LineBlock(
            memoryview(b"".join([self.data[a:b] for a, b in kept])),
            np.cumsum(size),
            self.number[chosen],
        )

    def part(self, start: int, stop: int) -> LineBlock:
        """Select lines `start` up to `stop`."""
        first = int(self.end[start - 1]) if start else 0
        last = int(self.end[stop - 1]) if stop > start else first
        return LineBlock(
            self.data[first:last], self.end[start:stop] - first, self.number[start:stop]
        )

    def lines(self) -> list[bytes]:
        """Give the lines one by one, without their ends."""
        data = bytes(self.data)
        end = self.end.tolist()
        return [data[a : b - 1].rstrip(b"\r") for a, b in zip([0, *end], end, strict=False)]


def _open_bytes(path: Path, option: str) -> BufferedIOBase:
    # A zip must hold exactly one file, or nobody could say which one was read.
    """Open a file for reading through its compression: `.gz`, or `.zip` with one member."""
    kind = path.suffix.lower()
    if kind != ".zip":
        try:
            if kind == ".gz":
                return cast(BufferedIOBase, gzip.open(path, "rb"))
            return path.open("rb")
        except OSError as error:
            raise _unreadable(option, "a readable file", path, error) from None

    try:
        return _only_member(path, option)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        # encrypted, or of another method
        raise _unreadable(option, "an undamaged zip file without a password", path, error) from None


def _open_growing(path: Path, option: str) -> Any:
    """Open what is read without ever waiting for it."""
    try:
        return os.fdopen(
            os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0
        )
    except OSError as error:
        raise _unreadable(option, "a readable file or pipe", path, error) from None


def _only_member(path: Path, option: str) -> BufferedIOBase:
    with zipfile.ZipFile(
        path
    ) as archive:  # the file itself stays open for as long as the member is
        members = [
            name
            for name in archive.namelist()
            if not name.endswith("/") and not name.startswith("__MACOSX")
        ]

        if len(members) != 1:
            raise ValueError(
                f"{option} must be a zip file with one member, got {len(members)} in {str(path)!r}"
            )

        return cast(BufferedIOBase, archive.open(members[0]))


def _unreadable(option: str, rule: str, path: Path, error: Exception) -> UnreadableSourceError:
    """Say why without the error's text, which may quote the file."""
    why = getattr(error, "strerror", None) or (
        "zlib.error" if isinstance(error, zlib.error) else type(error).__name__
    )
    return UnreadableSourceError(f"{option} must be {rule}, got {str(path)!r} ({why})")


class LineReader:
    """Reads blocks of lines; memory is bounded by the block, a longer line is skipped and reported.

    A record is one line: a line break inside quotes is not supported, so that a stray quote spoils
    its line only.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_line_bytes: int = MAX_LINE_BYTES,
        option: str = "source",
        grows: bool = False,
    ) -> None:
        self.path = path
        self.offset = 0  # bytes of decompressed text consumed
        self.line = 0  # lines consumed
        self._max = max_line_bytes
        self._option = option  # that named the file, for messages
        # What has no end yet is no line yet, and reading never waits for more than is there.
        self._grows = grows
        self.ended = False  # whether the last look found nothing more

        self.limit: int | None = None  # nothing behind this byte of a file that grows is read
        self._stream: Any = _open_growing(path, option) if grows else _open_bytes(path, option)

        # By the digest a file is recognized when it is read again, however it was renamed.
        self._begin = 0  # where in the stream the text begins
        self._digest = ReadDigest()  # of all that was consumed: by it a file is recognized
        self._buffer = memoryview(
            bytearray(READ_BYTES)
        )  # used again and again: fresh memory costs as much as reading
        self._start = self._stop = 0  # what was read and not yet taken
        self._ends: Ints = np.zeros(0, np.int64)  # of the complete lines in it
        self._skipped = 0  # bytes of the next line that were already thrown away

    def position(self) -> Position:
        """Tell how far the file was consumed, and a digest of all of that."""
        return {"offset": self.offset, "line": self.line, "digest": self._digest.text()}

    def seek(self, position: Position) -> None:
        """Continue where a block ended.

        All that stands before is read again, and must be what was read.

        **Privacy.** A line that was inserted or taken out anywhere moves those behind it: read on at the same place,
        a sample would count twice, with twice the sensitivity.
        """
        self._start = self._stop = self._skipped = 0
        self._ends = np.zeros(0, np.int64)
        self._read_again(int(position["offset"]))

        # A file is read again up to the stored offset: its digest must be the one of the position.
        if self._digest.text() != position.get("digest"):
            raise other_source_file(self.path.name, grown=True)
        self.line = int(position["line"])

    def begin_at(self, place: int) -> None:
        """Take the text to begin at a byte of the file."""
        self._begin = int(self._stream.seek(place))

    def goes_on(self, position: Position) -> bool:
        """Continue where a block ended, if all that stands before is as it was.

        Otherwise begin at the beginning.
        """
        # A pipe cannot be read again.
        if not self._stream.seekable():
            return False
        self._read_again(int(position.get("offset", 0)))
        same = bool(self._digest.text() == position.get("digest"))

        if not same:
            self._read_again(0)

        return same

    def _read_again(self, offset: int) -> None:
        """Read the first bytes for the digest alone."""
        self._digest = ReadDigest()
        try:
            self._stream.seek(self._begin)
            self._read_for_digest(offset)
        except _DAMAGE as error:
            raise _unreadable(self._option, "an undamaged file", self.path, error) from None

        self.offset = offset

    def _read_for_digest(self, left: int) -> None:
        while left and (
            read := self._stream.readinto(self._buffer[: min(left, len(self._buffer))])
        ):
            self._digest.take(self._buffer[:read])
            left -= read

        # The last line may have got the end here that it lacks in the file.
        if left == 1:
            self._digest.take(b"\n")  # the last line lacked its end

    def next_block(self, max_lines: int) -> tuple[LineBlock, Rejects] | None:
        """Take `max_lines` lines.

        Fewer at the end of the file, or if memory does not hold them; None after it.

        **Privacy.** How many lines a block has decides when the engine commits, and what its answers rest on: the
        length of a line, which is that of its value, must not.
        """
        # Few long lines or many short ones: a block has about as many bytes as it needs.
        average = self.offset / self.line if self.line else LINE_BYTES
        wanted = min(max(int(max_lines * average), READ_BYTES), BLOCK_BYTES)
        while len(self._ends) < max_lines and not (
            len(self._ends) and self._stop - self._start > MOST_BYTES
        ):
            if not self._fill(wanted):
                break
            if self._grows and self._skipped and not len(self._ends):
                break  # a line that never ends must not keep the reader's caller from ending

        # No complete line: the file has ended, or grows and has nothing new.
        if not len(self._ends):
            return None
        ends = self._ends[:max_lines] - self._start
        cut = int(ends[-1])
        data = self._buffer[self._start : self._start + cut]
        self._start, self._ends = self._start + cut, self._ends[max_lines:]
        self._digest.take(data)

        # Numbers of lines are for dead letters; sizes tell blank and oversized lines.
        number = np.arange(self.line + 1, self.line + 1 + len(ends))
        size = np.diff(ends, prepend=0)
        size[0] += self._skipped
        self.line += len(ends)
        self.offset += cut + self._skipped
        self._skipped = 0

        return self._clean(data, ends, number, size)

    def end(self) -> tuple[int, bytes]:
        """Give where what was consumed ends, and its last bytes."""
        return self.offset, self._digest.end

    def still_has(self, end: tuple[int, bytes]) -> bool:
        """Say whether a plain file has an end where it was.

        Whatever is inserted or taken out before moves it.
        """
        offset, text = end
        return os.pread(self.fileno(), len(text), self._begin + offset - len(text)) == text

    def at_limit(self) -> bool:
        """Say whether every line that ends before the limit was taken."""
        return self.limit is not None and self._stream.tell() >= self.limit and not len(self._ends)

    def look(self) -> None:
        """Read its beginning, which is not taken yet.

        A file whose damage shows there is refused.
        """
        self._fill(READ_BYTES)

    def last_line(self) -> tuple[LineBlock, Rejects] | None:
        """Take what lacks its end, of a stream that has ended; None if there is nothing."""
        self._grows = False
        return self.next_block(1)

    def fileno(self) -> int:
        """Give the number of the open file."""
        return int(self._stream.fileno())

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _fill(self, wanted: int) -> bool:
        """Read until that many bytes wait; False at the end of the file."""
        # A line that is too long is thrown away piece by piece, so that it never fills memory.
        if not len(self._ends) and self._stop - self._start > self._max:
            self._digest.throw_away(self._buffer[self._start : self._stop])
            self._skipped, self._start = self._skipped + self._stop - self._start, self._stop

        waiting = self._make_room(max(wanted - (self._stop - self._start), READ_BYTES))
        self._read_lines()

        # Something was read: its lines are in the list now.
        if self._stop > waiting:
            return True
        complete = int(self._ends[-1]) if len(self._ends) else 0
        if self._grows or (waiting == complete and (complete or not self._skipped)):
            return False

        self._buffer[waiting] = ord("\n")  # the last line may lack its end
        self._stop = waiting + 1
        self._ends = np.append(self._ends, self._stop)
        return True

    def _read_lines(self) -> None:
        """Fill the buffer, and note where lines end.

        A piece at a time, while it is in the processor's cache.
        """
        # New bytes are searched for line ends once.
        found = [self._ends]
        try:
            while room := min(len(self._buffer) - 1 - self._stop, PIECE_BYTES):
                # A file that grows may be read up to a given byte only.
                if self.limit is not None:
                    room = min(room, max(self.limit - self._stream.tell(), 0))

                read = self._stream.readinto(self._buffer[self._stop : self._stop + room])
                self.ended = read == 0  # nothing yet is None

                if not read:
                    break
                piece = np.frombuffer(self._buffer[self._stop : self._stop + read], np.uint8)
                found.append(np.flatnonzero(piece == ord("\n")) + (self._stop + 1))
                self._stop += read

                if self._grows:
                    break
        except _DAMAGE as error:
            raise _unreadable(self._option, "an undamaged file", self.path, error) from None

        self._ends = np.concatenate(found)

    def _make_room(self, size: int) -> int:
        """Move what waits to the front, with room for that many bytes and a line end.

        Return how much waits.
        """
        # What was not taken moves to the front; the buffer grows only for a longer line.
        waiting = self._stop - self._start
        left = self._buffer[self._start : self._stop]

        if len(self._buffer) < waiting + size + 1:
            self._buffer = memoryview(bytearray(waiting + size + 1))

        self._buffer[:waiting] = left
        self._ends = self._ends - self._start
        self._start = 0
        self._stop = waiting

        return waiting

    def _clean(
        self, data: memoryview, ends: Ints, number: Ints, size: Ints
    ) -> tuple[LineBlock, Rejects]:
        """Take blank and oversized lines out."""
        # Nearly always every line is good, and the block is given on without a copy.
        rejects = Rejects()
        if size.min() > 2 and size.max() <= self._max:
            return LineBlock(data, ends, number), rejects
        blank = (size == 1) | ((size == 2) & (np.frombuffer(data, np.uint8)[ends - 2] == ord("\r")))
        oversized = size > self._max

        # Their sizes are told, not their contents.
        for i in np.flatnonzero(oversized).tolist():
            rejects.add("oversized", number[i], int(size[i]))

        return LineBlock(data, ends, number).select(~(blank | oversized)), rejects
