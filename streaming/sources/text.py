"""What CSV and JSONL share: a block is parsed at once, and where that fails the bad lines are found by halving."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from operators.records import Ints
from streaming.columns import Batch, Position, Rejects, SampleColumns, concatenate
from streaming.decode import Decoder, RawColumns
from streaming.mapping import ColumnMapping
from streaming.sources.lines import MAX_LINE_BYTES, LineBlock, LineReader
from streaming.sources.source import require_position

LEAF = 32
"""So few lines are parsed one by one."""

Parsed = tuple[RawColumns, Ints]


@dataclass(slots=True)
class _Loose:
    """Lines that were parsed one by one."""

    number: list[int] = field(default_factory=list)
    rows: list[dict[str, bytes | None]] = field(default_factory=list)

    def columns(self) -> Parsed:
        raw = {part: pa.array([row[part] for row in self.rows], pa.binary()) for part in self.rows[0]}
        return raw, np.array(self.number, np.int64)


class TextSource(ABC):
    """A bounded file of one record per line.

    Position: byte offset (of the decompressed text), line, and a digest of the beginning, which recognizes the file.

    Parameters
    ----------
    path : Path
        Plain, `.gz` or `.zip` file.
    mapping : ColumnMapping
        Which column means what.
    id_key : bytes
        Secret key of the hash of ids.
    max_line_bytes : int
        Longer lines are skipped and reported.
    """

    bounded = True

    def __init__(
        self, path: Path, mapping: ColumnMapping, *, id_key: bytes = b"", max_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        self.name = path.name
        self._reader = LineReader(path, max_line_bytes=max_line_bytes)
        self._decoder = Decoder(mapping, id_key=id_key)
        self._mapping = mapping

    def next_batch(self, max_samples: int) -> Batch:
        """Parse the next block of lines."""
        taken = self._reader.next_block(max_samples)
        if taken is None:
            return Batch(concatenate([]), Rejects(), self._reader.position(), exhausted=True)
        block, rejects = taken
        loose = _Loose()
        parsed = self._parse(block, rejects, loose)
        if loose.number:
            parsed.append(loose.columns())
        parts: list[SampleColumns] = []
        for raw, number in parsed:
            samples, bad = self._decoder.decode(raw, number)
            rejects.extend(bad)
            parts.append(samples)
        samples = concatenate(parts)
        if len(parts) > 1:
            samples = samples.take(np.argsort(samples.position))
        return Batch(samples, rejects, self._reader.position())

    def restore(self, position: Position) -> None:
        """Continue at a line."""
        require_position(position, "offset", self.name)
        self._reader.seek(position)

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def _parse(self, block: LineBlock, rejects: Rejects, loose: _Loose) -> list[Parsed]:
        if len(block) > LEAF:
            try:
                return [self.parse_block(block, rejects)]
            except pa.ArrowInvalid:
                half = len(block) // 2
                left, right = block.part(0, half), block.part(half, len(block))
                return self._parse(left, rejects, loose) + self._parse(right, rejects, loose)
        for number, line in zip(block.number.tolist(), block.lines(), strict=True):
            result = self.parse_line(line)
            if isinstance(result, str):
                unreadable = result in ("malformed", "duplicate_columns")
                rejects.add(result, number, len(line) if unreadable else None)
            else:
                loose.number.append(number)
                loose.rows.append(result)
        return []

    @abstractmethod
    def parse_block(self, block: LineBlock, rejects: Rejects) -> Parsed:
        """Parse many lines at once; `ArrowInvalid` if that is impossible, and then nothing was rejected."""

    @abstractmethod
    def parse_line(self, line: bytes) -> dict[str, bytes | None] | str:
        """Parse one line to the text of each part, or say the reason why not."""
