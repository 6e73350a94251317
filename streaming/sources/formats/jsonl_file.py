"""Samples from a file of one JSON object per line."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from meanstream.streaming.sources.formats.json_records import JsonFormat
from meanstream.streaming.sources.lines import MAX_LINE_BYTES, LineReader
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_protocol import Opening
from meanstream.streaming.sources.source_records import RecordParser
from meanstream.streaming.sources.text_decoding import TextSource


class JsonlSource(TextSource):
    """A JSONL file. Agent and id are strings or integers, the value a number, the time a string or a number.

    Parameters
    ----------
    path : Path
        Plain, `.gz` or `.zip` file.
    mapping : ColumnMapping
        Which field means what.
    id_key : bytes
        Secret key of the hash of ids.
    max_line_bytes : int
        Longer lines are skipped and reported.
    """

    @classmethod
    def open(cls, location: str, mapping: ColumnMapping, opening: Opening) -> Self:
        """Open a file; nothing but its head is read."""
        return cls(
            Path(location), mapping, id_key=opening.id_key, max_line_bytes=opening.max_line_bytes
        )

    def __init__(
        self,
        path: Path,
        mapping: ColumnMapping,
        *,
        id_key: bytes = b"",
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        reader = LineReader(path, max_line_bytes=max_line_bytes)
        try:
            reader.look()
        except ValueError:
            reader.close()
            raise

        super().__init__(reader, RecordParser(JsonFormat(mapping), mapping, id_key=id_key))
