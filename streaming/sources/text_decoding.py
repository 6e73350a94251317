"""What files of one record per line share.

Lines are read in blocks, parsed, and their place is the position.
"""

from __future__ import annotations

from meanstream.streaming.events.event_columns import Batch, Position, Rejects, no_sample_columns
from meanstream.streaming.sources.lines import LineReader
from meanstream.streaming.sources.source_protocol import require_source_position
from meanstream.streaming.sources.source_records import RecordParser


class TextSource:
    """A bounded file of one record per line.

    Position: byte offset (of the decompressed text), line, and a digest of all up to there, which
    recognizes the file.

    Parameters
    ----------
    reader : LineReader
        Gives the lines; a header is taken already.
    parser : RecordParser
        Makes samples of them.
    """

    bounded = True

    def __init__(self, reader: LineReader, parser: RecordParser) -> None:
        self.name = reader.path.name
        self._reader = reader
        self._parser = parser

    def next_batch(self, max_samples: int) -> Batch:
        """Parse the next block of lines."""
        taken = self._reader.next_block(max_samples)
        if taken is None:
            return Batch(no_sample_columns(), Rejects(), self._reader.position(), exhausted=True)
        block, rejects = taken
        samples = self._parser.parse(block, rejects)

        return Batch(samples, rejects, self._reader.position())

    def restore(self, position: Position) -> None:
        """Continue at a line."""
        require_source_position(position, "offset", self.name)
        self._reader.seek(position)

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
