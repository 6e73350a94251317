"""Lines of a plain, gzip or zip file, in blocks, resumable, whatever their length."""

from __future__ import annotations

import gzip
import hashlib
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np

from operators.records import Bools, Ints
from streaming.columns import Position, Rejects

BLOCK_BYTES = 16 << 20
MAX_LINE_BYTES = 1 << 20
HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Complete lines that are neither blank nor oversized: their bytes, where each ends, which line each is."""

    data: bytes
    end: Ints
    number: Ints

    def __len__(self) -> int:
        return len(self.end)

    def part(self, start: int, stop: int) -> LineBlock:
        """Select lines `start` up to `stop`."""
        first = int(self.end[start - 1]) if start else 0
        last = int(self.end[stop - 1]) if stop > start else first
        return LineBlock(self.data[first:last], self.end[start:stop] - first, self.number[start:stop])

    def lines(self) -> list[bytes]:
        """Give the lines one by one, without their ends."""
        return [line.rstrip(b"\r") for line in self.data.split(b"\n")[: len(self)]]


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading through its compression: `.gz`, or `.zip` with one member."""
    kind = path.suffix.lower()
    if kind == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if kind != ".zip":
        return path.open("rb")
    archive = zipfile.ZipFile(path)
    members = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX")]
    if len(members) != 1:
        archive.close()
        raise ValueError(f"source must be a zip file with one member, got {len(members)} in {str(path)!r}")
    return archive.open(members[0])


def _digest(head: bytes) -> str:
    return hashlib.blake2b(head, digest_size=16).hexdigest()


class LineReader:
    """Reads blocks of lines; memory is bounded by the block, a longer line is skipped and reported.

    A record is one line: a line break inside quotes is not supported, so that a stray quote spoils its line only.
    """

    def __init__(self, path: Path, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self.path = path
        self.offset = 0  # bytes of decompressed text consumed
        self.line = 0  # lines consumed
        self._max = max_line_bytes
        self._stream = open_bytes(path)
        self._head = b""  # the beginning of the text: by it a file is recognized
        self._rest = b""
        self._ends: Ints = np.zeros(0, np.int64)  # of the complete lines in `_rest`
        self._skipped = 0  # bytes of the next line that were already thrown away

    def position(self) -> Position:
        """Tell how far the file was consumed, and a digest of its beginning."""
        return {"offset": self.offset, "line": self.line, "head": len(self._head), "digest": _digest(self._head)}

    def seek(self, position: Position) -> None:
        """Continue where a block ended.

        Raises
        ------
        ValueError
            If the file is shorter than it was, or begins with something else.
        """
        offset = int(position["offset"])
        self._stream.seek(0)
        self._head = self._stream.read(int(position["head"]))
        if _digest(self._head) != position["digest"]:
            raise ValueError(f"source must be the file that this store was filled from, got another {self.path.name!r}")
        self._stream.seek(offset)
        if self._stream.tell() < offset - 1:
            raise ValueError(f"source must be at least as long as when it was read, got {str(self.path)!r}")
        self.offset, self.line = offset, int(position["line"])
        self._rest, self._ends = b"", np.zeros(0, np.int64)

    def next_block(self, max_lines: int) -> tuple[LineBlock, Rejects] | None:
        """Take up to `max_lines` lines; None at the end of the file."""
        while not len(self._ends):
            if not self._fill():
                return None
        ends = self._ends[:max_lines]
        cut = int(ends[-1])
        data, self._rest, self._ends = self._rest[:cut], self._rest[cut:], self._ends[max_lines:] - cut
        number = np.arange(self.line + 1, self.line + 1 + len(ends))
        size = np.diff(ends, prepend=0)
        size[0] += self._skipped
        self.line += len(ends)
        self.offset += cut + self._skipped
        self._skipped = 0
        return self._clean(data, ends, number, size)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _fill(self) -> bool:
        try:
            chunk = self._stream.read(BLOCK_BYTES)
        except (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile) as error:
            raise ValueError(f"source must be an undamaged file, got {str(self.path)!r} ({error})") from None
        if not self._head:
            self._head = chunk[:HEAD_BYTES]
        if len(self._rest) > self._max:
            self._skipped, self._rest = self._skipped + len(self._rest), b""
        if not chunk:
            if not self._rest and not self._skipped:
                return False
            chunk = b"\n"  # the last line may lack its end
        self._rest += chunk
        self._ends = np.flatnonzero(np.frombuffer(self._rest, np.uint8) == ord("\n")) + 1
        return True

    def _clean(self, data: bytes, ends: Ints, number: Ints, size: Ints) -> tuple[LineBlock, Rejects]:
        """Take blank and oversized lines out."""
        rejects = Rejects()
        blank = (size == 1) | ((size == 2) & (np.frombuffer(data, np.uint8)[ends - 2] == ord("\r")))
        oversized = size > self._max
        drop: Bools = blank | oversized
        if not drop.any():
            return LineBlock(data, ends, number), rejects
        for i in np.flatnonzero(oversized).tolist():
            rejects.add("oversized", number[i], int(size[i]))
        starts = np.r_[0, ends[:-1]]
        kept = np.flatnonzero(~drop)
        data = b"".join([data[a:b] for a, b in zip(starts[kept].tolist(), ends[kept].tolist(), strict=True)])
        return LineBlock(data, np.cumsum((ends - starts)[kept]), number[kept]), rejects
